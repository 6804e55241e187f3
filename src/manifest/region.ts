/**
 * A model that looks at a region which another model found: what follows from the manifest, and its
 * rules.
 */
import { cascadeOf, firstModelOf, neighboursOf, type Manifest, type Region } from "./manifest.js";
import { kindOf, kindsThat } from "./outputs/outputs.js";
import { isSegmentation, mayOverlap } from "./outputs/segmentation.js";

/** The model that finds the region, as results pin it. */
export interface FirstModel {
  name: string;
  version: string;
  sha256: string;
  site_thresholds: Readonly<Record<string, number>>;
}

/** The region of a model as a receipt describes it: what was asked for, and of which model. */
export function regionFacts({ label, margin_mm, when_empty }: Region, first: FirstModel) {
  const { name: model, version, sha256, site_thresholds } = first;
  return { model, version, sha256, site_thresholds, label, margin_mm, when_empty };
}

/**
 * The same in words, for objects. Hashes are given to their twelfth digit, as `models list` does.
 */
export function regionText(
  region: Region | undefined,
  first: FirstModel | undefined,
): string | undefined {
  if (region === undefined || first === undefined) return undefined;
  const { name, version, sha256 } = first;
  return `Looked at ${region.label} as found by ${name} ${version}, with a margin of ${region.margin_mm} mm; SHA-256 ${sha256.slice(0, 12)}`;
}

/**
 * Where a label is among the outputs of a manifest: a segmentation that marks it; undefined if none
 * does.
 */
export function regionOutput(
  { outputs }: Pick<Manifest, "outputs">,
  label: string,
): { output: number; label: number; overlapping: boolean } | undefined {
  for (const [place, output] of outputs.entries()) {
    if (!isSegmentation(output)) continue;
    const found = output.labels.findIndex((one) => one.label === label);
    if (found >= 0)
      return { output: place, label: found, overlapping: mayOverlap(output.activation) };
  }
  return undefined;
}

/** The rules that one manifest can be held against. */
export function checkRegion(
  m: Manifest,
  region: Region,
  issue: (path: (string | number)[], message: string) => void,
): void {
  if (region.model === m.name)
    issue(["model"], "Expected another model: a model cannot look at what it finds itself");
  if (neighboursOf(m) !== undefined)
    issue([], "Expected inputs without neighbours: a region differs from slice to slice");
  checkParts(m, (message) => issue([], message));
  const scored = m.outputs.find((output) => !kindOf(output).canBeEmpty);
  if (region.when_empty === "negative" && scored !== undefined)
    issue(
      ["when_empty"],
      `Expected "refuse" or "whole" beside an output of the kind ${scored.kind}: what was not computed has no number`,
    );
}

/** The fields of a model that looks at a part of an image. */
export function checkParts({ outputs }: Manifest, issue: (message: string) => void): void {
  const unmapped = outputs.find((output) => !kindOf(output).laidBack);
  if (unmapped !== undefined)
    issue(`Expected outputs of the kinds ${kindsThat("laidBack")}; found ${unmapped.kind}`);
}

/**
 * Why a model cannot look at the region of another, in words; undefined if it can, or looks at the
 * whole image.
 */
export function regionProblem(m: Manifest, first: Manifest | undefined): string | undefined {
  const { region } = m;
  if (region === undefined) return cascadeProblem(m, first);
  const asked = `region.model: expected the folder of a model "${region.model}" beside this one`;
  if (first === undefined) return `${asked}; found none whose manifest can be read.`;
  if (first.release === "off") return `${asked} that is not off; its release is "off".`;
  if (firstModelOf(first) !== undefined)
    return `${asked} that looks at whole images; it looks at what "${firstModelOf(first)}" found itself. Regions of regions, and circles, are not offered.`;
  if (neighboursOf(first) !== undefined)
    return `${asked} without neighbours of slices among its inputs.`;
  if (first.accepts.dimensions !== m.accepts.dimensions)
    return `${asked} that accepts dimensions "${m.accepts.dimensions}" as this one does; found "${first.accepts.dimensions}".`;
  if (regionOutput(first, region.label) === undefined)
    return `region.label: expected a label of a segmentation of "${region.model}"; found "${region.label}".`;
  return sameRoles(m, first) ? undefined : `${asked} ${SAME_ROLES}`;
}

const SAME_ROLES =
  "that looks at the same series: with roles by the same rules, the same one first, or without roles as this one; found others.";

/** Whether two models look at the same series of a folder, and their results lie in the same. */
function sameRoles(a: Manifest, b: Manifest): boolean {
  const known = ({ roles = [], accepts: { prefer } }: Manifest) =>
    roles.map(({ rules, any_of, study }) => JSON.stringify([study, rules, any_of, prefer]));
  const [ours, theirs] = [known(a), known(b)];
  return ours[0] === theirs[0] && ours.toSorted().join("\n") === theirs.toSorted().join("\n");
}

/** Why a model cannot be given the labels of another; undefined if it can, or is given none. */
function cascadeProblem(m: Manifest, first: Manifest | undefined): string | undefined {
  const cascade = cascadeOf(m);
  if (cascade === undefined) return undefined;
  const asked = `cascade.model: expected the folder of a model "${cascade.model}" beside this one`;
  if (first === undefined) return `${asked}; found none whose manifest can be read.`;
  if (first.release === "off") return `${asked} that is not off; its release is "off".`;
  if (firstModelOf(first) !== undefined)
    return `${asked} that needs no other; it looks at what "${firstModelOf(first)}" found itself.`;
  if (first.accepts.dimensions !== "series") return `${asked} that takes whole series.`;
  if (first.accepts.slices !== undefined) return `${asked} without accepts.slices.`;
  const labels = cascadeOutput(first)?.labels.map(({ label }) => label);
  if (labels?.join("\n") !== cascade.labels.join("\n"))
    return `cascade.labels: expected all labels of a segmentation of "${cascade.model}" that exclude each other, in their order: ${labels?.join(", ") ?? "it has none"}.`;
  return sameRoles(m, first) ? undefined : `${asked} ${SAME_ROLES}`;
}

/** The segmentation whose labels go to another model. */
const cascadeOutput = ({ outputs }: Pick<Manifest, "outputs">) =>
  outputs.filter(isSegmentation).find(({ activation }) => !mayOverlap(activation));

/** The labels that a model was given, and of which model, as a receipt describes them. */
export function cascadeFacts(manifest: Pick<Manifest, "inputs">, first: FirstModel | undefined) {
  const cascade = cascadeOf(manifest);
  if (cascade === undefined || first === undefined) return undefined;
  const { name: model, version, sha256, site_thresholds } = first;
  return { model, version, sha256, site_thresholds, labels: cascade.labels };
}

/** The same in words, for objects. */
export function cascadeText(
  manifest: Pick<Manifest, "inputs">,
  first: FirstModel | undefined,
): string | undefined {
  if (cascadeOf(manifest) === undefined || first === undefined) return undefined;
  return `Given the labels of ${first.name} ${first.version}; SHA-256 ${first.sha256.slice(0, 12)}`;
}
