/**
 * A first manifest from a graph and another model of the same make: what the two say, and what only
 * a person knows.
 */
import { errors } from "../base/errors.js";
import type { GraphInfo } from "../engine/types.js";
import { channelsOf, isImageInput, type Manifest, type ModelInput } from "../manifest/manifest.js";
import type { Label } from "../manifest/outputs/fields.js";
import type { ModelOutput } from "../manifest/outputs/outputs.js";
import { conceptsLike, conceptsNamed, type Concept } from "./codes.js";

type Draft = Record<string, unknown>;

/** A label that the new model has, in the order of its output. */
export interface NewLabel {
  name: string;
  threshold?: number;
}

/** How many concepts a note names. */
const MOST_NAMED = 4;

/**
 * Reads one label a line, in the order of the network: its name, and after a comma the score from
 * which on it is present. Empty lines and lines that begin with # are skipped.
 * @throws RadserveError bad_request
 */
export function parseLabels(text: string): NewLabel[] {
  const lines = text.split(/\r?\n/).map((line) => line.trim());
  const labels = lines
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line): NewLabel => {
      const comma = line.lastIndexOf(",");
      const threshold = line.slice(comma + 1).trim();
      if (comma < 0 || !/^[-+.\deE]+$/.test(threshold)) return { name: line };
      const name = line.slice(0, comma).trimEnd();
      if (Number.isFinite(Number(threshold)) && name !== "")
        return { name, threshold: Number(threshold) };
      throw errors.bad_request(`Expected "label, threshold" in the labels, found "${line}".`);
    });
  if (labels.length === 0)
    throw errors.bad_request("Expected one label a line in the file of labels, found none.");
  return labels;
}

/**
 * The draft of the graph, with how `like` takes images (its roles, region and windows too) and
 * gives results. What describes the model (its name, what it is for, its envelope, the providers
 * that it was tested on, its canary) is not taken over, nor is anything that the graph says
 * otherwise.
 * @throws RadserveError bad_request for a pattern of parts, which no single graph is like
 */
export function draftLike(draft: Draft, like: Manifest, graph: GraphInfo): Draft {
  if (like.parts !== undefined)
    throw errors.bad_request(
      `Expected a model of one graph to be like; "${like.name}" has ${like.parts.length} parts. Copy its model.json, and enter the files.`,
    );
  const inputs = draft["inputs"] as Draft[];
  return {
    ...draft,
    accepts: like.accepts,
    ...(like.roles === undefined ? {} : { roles: like.roles }),
    ...(like.region === undefined ? {} : { region: like.region }),
    ...(like.tiling === undefined ? {} : { tiling: like.tiling }),
    inputs: inputs.map((input, i) =>
      inputLike(input, patternFor(input, i, inputs.length, like), graph, i),
    ),
    outputs: outputsLike(like.outputs, graph),
  };
}

/** The input of the other model that is called so, or else stands at the same place of as many. */
function patternFor(
  draft: Draft,
  place: number,
  count: number,
  { inputs }: Manifest,
): ModelInput | undefined {
  const named = inputs.find(({ tensor }) => tensor === draft["tensor"]);
  const pattern = named ?? (inputs.length === count ? inputs[place] : undefined);
  const numbers = draft["kind"] === "attributes";
  return pattern !== undefined && isImageInput(pattern) === numbers ? undefined : pattern;
}

function inputLike(
  draft: Draft,
  pattern: ModelInput | undefined,
  graph: GraphInfo,
  place: number,
): Draft {
  if (pattern === undefined) return draft;
  const said = Object.fromEntries(
    Object.entries(draft).filter(
      ([, value]) => value !== null && (value as { kind?: unknown }).kind !== null,
    ),
  );
  // Which of the two sides comes first a graph cannot say
  if (said["layout"] === "NCHW" && pattern.layout === "NCWH") {
    said["layout"] = pattern.layout;
    const { size } = said as { size?: { height: number; width: number } };
    if (size !== undefined) said["size"] = { ...size, height: size.width, width: size.height };
  }
  const layout = (said["layout"] ?? pattern.layout) as string;
  const channels = graph.inputs[place]?.shape[layout.indexOf("C")] ?? -1;
  const given = isImageInput(pattern) ? channelsOf(pattern) : channels;
  const unclear = isImageInput(pattern) && channels > 1 && given !== channels;
  return { ...pattern, ...said, ...(unclear ? { channels: null } : {}) };
}

/** Tensors keep their names where the graph has them; the only one of each is the other. */
function outputsLike(outputs: readonly ModelOutput[], graph: GraphInfo): unknown[] {
  const names = graph.outputs.map(({ name }) => name);
  const used = new Set<string>();
  const collect = (value: unknown): void => {
    if (typeof value !== "object" || value === null) return;
    for (const [key, inner] of Object.entries(value))
      if (key === "tensor" && typeof inner === "string") used.add(inner);
      else collect(inner);
  };
  collect(outputs);
  const only = used.size === 1 && names.length === 1 ? names[0] : undefined;
  const renamed = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(renamed);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, inner]) => [
        key,
        key === "tensor" && typeof inner === "string"
          ? names.includes(inner)
            ? inner
            : (only ?? null)
          : renamed(inner),
      ]),
    );
  };
  return outputs.map(renamed);
}

/**
 * Exchanges the labels of the draft's only output that has any, with the codes of the concepts that
 * are called so.
 * @returns why a label has no code
 * @throws RadserveError bad_request if no output, or more than one, has labels
 */
export function relabel(
  draft: Draft,
  labels: readonly NewLabel[],
  concepts: readonly Concept[],
): string[] {
  const outputs = draft["outputs"] as Draft[];
  const labelled = outputs.filter((output) => "labels" in output || "label" in output);
  const [output] = labelled;
  if (output === undefined || labelled.length > 1)
    throw errors.bad_request(
      `Expected one output with labels in the model to be like, found ${labelled.length}. Enter the labels in model.json.`,
    );
  return relabelOutput(output, labels, concepts);
}

/**
 * Gives the only output of a draft that is like no other model its labels. What scores are there is
 * one a label: then it is a classification; of any other tensor a person has to say what it means.
 * @returns what was taken for granted, and why a label has no code
 * @throws RadserveError bad_request for more than one output, and for another number of scores
 */
export function draftWithLabels(
  draft: Draft,
  labels: readonly NewLabel[],
  { outputs: tensors }: GraphInfo,
  concepts: readonly Concept[],
): { source: string[]; notes: string[] } {
  const outputs = draft["outputs"] as Draft[];
  if (outputs.some((output) => "labels" in output || "label" in output))
    return { source: [], notes: relabel(draft, labels, concepts) };
  const [output, ...others] = outputs;
  const [info] = tensors;
  if (output === undefined || info === undefined || others.length > 0)
    throw errors.bad_request(
      `Expected one output for --labels alone, found ${outputs.length}: say with --like which model has outputs of the same meaning, or enter the labels in model.json.`,
    );
  const [, scores = -1] = info.shape;
  if (info.shape.length !== 2) {
    output["labels"] = [];
    return { source: [], notes: relabelOutput(output, labels, concepts) };
  }
  if (scores > 0 && scores !== labels.length)
    throw errors.bad_request(
      `Expected a label for each of the ${scores} scores of "${info.name}", found ${labels.length}.`,
    );
  Object.assign(output, { kind: "classification", activation: null, labels: [] });
  output["calibration"] = { kind: "none" };
  return {
    source: [`A score for each label in "${info.name}": a classification.`],
    notes: relabelOutput(output, labels, concepts),
  };
}

/**
 * The same for one output that has labels. A label has a threshold, to be filled in, if one had one
 * before.
 * @returns why a label has no code
 * @throws RadserveError bad_request if the output has room for one label, and there are more
 */
export function relabelOutput(
  output: Draft,
  labels: readonly NewLabel[],
  concepts: readonly Concept[],
): string[] {
  if ("label" in output && labels.length > 1)
    throw errors.bad_request(
      `Expected one label for an output of the kind ${String(output["kind"])}, found ${labels.length}.`,
    );
  const segments = output["kind"] === "segmentation";
  const before = (output["labels"] ?? [output["label"]]) as Label[];
  const scored = before.some(({ threshold }) => threshold !== undefined);
  const notes: string[] = [];
  const made = labels.map(({ name, threshold }) => {
    const { concept, note } = meantBy(name, segments, concepts);
    if (note !== undefined) notes.push(note);
    const category = concept?.categories.length === 1 ? concept.categories[0] : null;
    return {
      label: name,
      code: concept?.code ?? null,
      ...(segments ? { category } : {}),
      ...(threshold !== undefined ? { threshold } : scored ? { threshold: null } : {}),
    };
  });
  if ("label" in output) output["label"] = made[0];
  else output["labels"] = made;
  const steps = (output["postprocess"] ?? []) as { labels: string[] }[];
  // Which of the new labels a step is for, nobody has said.
  if (
    steps.some((step) => step.labels.some((name) => !labels.some((label) => label.name === name)))
  )
    output["postprocess"] = null;
  return notes;
}

/** The one concept of that name. Segments have a concept with a category. */
function meantBy(
  name: string,
  segments: boolean,
  concepts: readonly Concept[],
): { concept?: Concept; note?: string } {
  const fitting = segments ? concepts.filter(({ categories }) => categories.length > 0) : concepts;
  const named = conceptsNamed(name, fitting);
  const [concept] = named;
  if (concept !== undefined && named.length === 1) return { concept };
  const shown = (found: readonly Concept[]) =>
    found
      .slice(0, MOST_NAMED)
      .map(({ code }) => `${code.value} ${code.scheme} "${code.meaning}"`)
      .join(", ");
  if (named.length > 1)
    return { note: `${name}: ${named.length} concepts are called so: ${shown(named)}` };
  const near = shown(conceptsLike(name, fitting));
  return {
    note: `${name}: no concept of the list is called so${near === "" ? "" : `; near it are ${near}`}`,
  };
}
