/** Which models a request is about, and which of them take the image. */
import { accepts, type Reason } from "../models/acceptance.js";
import { RadserveError } from "../base/errors.js";
import type { Image } from "../images/image.js";
import type { OutputKind } from "../manifest/manifest.js";
import type { ModelEntry } from "../models/entry.js";
import { nearestName } from "../base/validation.js";

export interface PlannedModel {
  entry: ModelEntry;
  /** Empty where the model takes the image. */
  reasons: Reason[];
  /** Which kinds are written for it. */
  outputs: readonly OutputKind[];
  /** The request names the kinds itself. */
  asked: boolean;
}

export interface Plan {
  /** In order of names, those that do not take the image too: a receipt leaves none out. */
  models: PlannedModel[];
  /** Kinds as the request or the settings ask, or `default`. */
  outputs: string[];
  /** Who asked for them. */
  from: "request" | "settings" | "manifest";
}

/** Those of a plan that take the image. */
export const accepting = ({ models }: Plan): PlannedModel[] =>
  models.filter(({ reasons }) => reasons.length === 0);

/**
 * The models that a request is about: those it names, or all that are not switched off.
 * @throws RadserveError bad_request for a name that is not there, model_unavailable for one that is not loaded
 */
export function candidatesOf(
  entries: readonly ModelEntry[],
  names: readonly string[] | undefined,
): ModelEntry[] {
  if (names === undefined) return entries.filter((entry) => entry.state !== "off");
  return [...names].sort().map((name) => {
    const entry = entries.find((candidate) => candidate.name === name);
    if (entry === undefined)
      throw new RadserveError(
        "bad_request",
        `Expected models among ${entries.map((e) => e.name).join(", ")}; found ${name}.`,
        {
          field: "models",
        },
      );
    if (entry.state !== "ready")
      throw new RadserveError(
        "model_unavailable",
        entry.state === "off"
          ? `The model ${name} is switched off (release "off" in its manifest).`
          : `The model ${name} could not be loaded: ${entry.error?.message ?? "see the server's log"}`,
        { model: name },
      );
    return entry;
  });
}

/**
 * Which of the candidates take the image, with the reasons of the others, and what is written for them: what the request
 * asks, else what the settings say for all models, else what each manifest says.
 * @throws RadserveError no_model_accepts where none does
 */
export function planOf(
  candidates: readonly ModelEntry[],
  image: Image,
  outputs: readonly OutputKind[] | undefined,
  ofSite?: readonly OutputKind[],
): Plan {
  const named = outputs ?? ofSite;
  const models = candidates.map((entry) => ({
    entry,
    reasons: accepts(entry, image),
    outputs: named ?? entry.manifest.results.outputs,
    asked: outputs !== undefined,
  }));
  if (models.every(({ reasons }) => reasons.length > 0))
    throw new RadserveError(
      "no_model_accepts",
      "Expected an image that a model takes; details say why each does not.",
      {
        models: models.map(({ entry, reasons }) => ({ name: entry.name, version: entry.version, reasons })),
      },
    );
  const from = outputs !== undefined ? "request" : ofSite !== undefined ? "settings" : "manifest";
  return { models, outputs: named === undefined ? ["default"] : [...named].sort(), from };
}

/**
 * Refuses names of models that a request cannot have.
 * @throws RadserveError bad_request for a name that is not there, with the nearest; model_unavailable for one that is
 * not loaded
 */
export function checkModels(wanted: readonly string[] | undefined, entries: readonly ModelEntry[]): void {
  for (const name of wanted ?? []) {
    const entry = entries.find((model) => model.name === name);
    if (entry === undefined) {
      const names = entries.map((model) => model.name);
      const nearest = nearestName(name, names);
      throw new RadserveError(
        "bad_request",
        `models: no model is called "${name}"${nearest === undefined ? "" : `; the nearest is "${nearest}"`}.`,
        { field: "models", known: names },
      );
    }
    if (entry.state !== "ready")
      throw new RadserveError(
        "model_unavailable",
        entry.state === "off"
          ? `The model "${name}" is switched off (release "off" in its model.json).`
          : `The model "${name}" could not be loaded; GET /models says why.`,
        { model: name },
      );
  }
}
