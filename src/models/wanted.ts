/** Models of which a request wants some labels alone. */
import { errors } from "../base/errors.js";
import { nearestName } from "../base/validation.js";
import { firstModelOf, type Manifest } from "../manifest/manifest.js";
import { segmentLabels, wantedOf, withLabels } from "../manifest/wanted-labels.js";
import type { ModelEntry } from "./entry.js";
import { resolveThresholds } from "./read.js";

/** The manifest that the engine has loaded, whatever labels are wanted. */
export const wholeOf = ({ manifest, wanted }: Pick<ModelEntry, "manifest" | "wanted">): Manifest =>
  wanted?.whole ?? manifest;

/** The model as it is when these labels alone are told of it; of none it is not to run. */
export function wanting(entry: ModelEntry, names: readonly string[]): ModelEntry {
  const whole = wholeOf(entry);
  const labels = wantedOf(whole, names);
  const manifest = labels.length === 0 ? whole : withLabels(whole, labels);
  return {
    ...entry,
    manifest,
    thresholds: resolveThresholds(manifest, entry.site),
    wanted: { labels, whole },
  };
}

/** The request names labels, of which the model has none. */
export const isUnwanted = ({ wanted }: Pick<ModelEntry, "wanted">): boolean =>
  wanted?.labels.length === 0;

/**
 * What is wrong with labels that none of the models of a request has.
 * @returns undefined where each is a label of some model
 */
export function unknownLabels(
  models: readonly Pick<ModelEntry, "name" | "manifest">[],
  names: readonly string[],
): { unknown: string[]; message: string } | undefined {
  const known = [...new Set(models.flatMap(({ manifest }) => segmentLabels(manifest)))];
  const unknown = names.filter((name) => !known.includes(name));
  if (unknown.length === 0) return undefined;
  const nearest = nearestName(unknown[0] ?? "", known);
  const owners = models.map(({ name }) => name).join(", ") || "a model";
  const found = unknown.map((name) => `"${name}"`).join(", ");
  const hint = nearest === undefined ? "" : `; the nearest is "${nearest}"`;
  return {
    unknown,
    message: `labels: expected labels of the segmentations of ${owners}; found ${found}${hint}.`,
  };
}

/**
 * The candidates of a request that names labels. A model on which another wanted one depends, for
 * its region or its labels, keeps all of its own.
 * @throws RadserveError bad_request for a label that none of them has, with the nearest
 */
export function wantingLabels(
  candidates: readonly ModelEntry[],
  names: readonly string[] | undefined,
): ModelEntry[] {
  if (names === undefined) return [...candidates];
  const wrong = unknownLabels(candidates, names);
  if (wrong !== undefined)
    throw errors.bad_request(wrong.message, { field: "labels", unknown: wrong.unknown });
  const seekers = candidates.filter(({ manifest }) => wantedOf(manifest, names).length > 0);
  const firsts = seekers.map(({ manifest }) => firstModelOf(manifest));
  return candidates.map((entry) => (firsts.includes(entry.name) ? entry : wanting(entry, names)));
}
