/**
 * A model of parts: several graphs over one volume, whose labels become one label map. What follows
 * from the manifest, and its rules. Each part is, by itself, a model of volumes like others.
 */
import { imageInputs, type Manifest, type ModelPart } from "./manifest.js";
import type { Label } from "./outputs/fields.js";
import { kindOf } from "./outputs/outputs.js";
import { isFractional, isInModelGrid, isSegmentation, mayOverlap } from "./outputs/segmentation.js";

/** A manifest as the engine loads it: one graph, or several whose mean is taken. */
export interface ModelUnit {
  manifest: Manifest;
  /** Undefined for a model without parts, whose manifest this is. */
  part: ModelPart | undefined;
  /** For each of its labels, from 1 on, the number in the whole model; the first is background. */
  numbers: Uint8Array;
}

/** What the engine loads for a model: the model itself, or each of its parts in their order. */
export function unitsOf(manifest: Manifest): ModelUnit[] {
  const { parts } = manifest;
  return parts === undefined
    ? [{ manifest, part: undefined, numbers: new Uint8Array() }]
    : parts.map((part) => unitOf(manifest, part));
}

/** The part as a model of volumes by itself. */
function unitOf({ parts = [], ...whole }: Manifest, part: ModelPart): ModelUnit {
  const { clip, normalisation, tiling = whole.tiling, canary, graphs } = part;
  const [output] = whole.outputs.filter(isSegmentation);
  const all = output?.labels ?? [];
  const places = part.labels.map((name) => all.findIndex(({ label }) => label === name));
  const others = parts.flatMap((one) => (one === part ? [] : one.graphs));
  const unit: Manifest = {
    ...whole,
    files: filesOf(whole.files, graphs, others),
    inputs: imageInputs(whole).map((input) => ({
      ...input,
      ...(clip === undefined ? {} : { clip }),
      ...(normalisation === undefined ? {} : { normalisation }),
    })),
    outputs:
      output === undefined
        ? []
        : [{ ...output, labels: places.flatMap((place): Label | Label[] => all[place] ?? []) }],
    ...(tiling === undefined ? {} : { tiling }),
    ...(graphs.length > 1 ? { ensemble: { graphs, average: "before_activation" } } : {}),
    ...(canary === undefined ? {} : { canary }),
  };
  return { manifest: unit, part, numbers: Uint8Array.from([0, ...places.map((at) => at + 1)]) };
}

/** The names of the parts that hold any of these labels; without labels all. */
export const partsThatRun = (
  { parts = [] }: Pick<Manifest, "parts">,
  wanted: readonly string[] | undefined,
): string[] =>
  parts
    .filter(({ labels }) => wanted === undefined || labels.some((label) => wanted.includes(label)))
    .map(({ name }) => name);

/** The graphs of a part, and what lies beside them and is no graph of another. */
function filesOf(
  files: Manifest["files"],
  graphs: readonly string[],
  others: readonly string[],
): Manifest["files"] {
  const own = graphs.flatMap((graph) => files.find(({ path }) => path === graph) ?? []);
  const folders = graphs.map((graph) => graph.slice(0, graph.lastIndexOf("/") + 1));
  const beside = files.filter(
    ({ path }) =>
      !graphs.includes(path) &&
      !others.includes(path) &&
      folders.some((folder) => path.startsWith(folder)),
  );
  return [...own, ...beside];
}

/** The parts of a model as receipts describe them. */
export function partFacts(manifest: Pick<Manifest, "files" | "parts">, ran: readonly string[]) {
  const hashOf = (path: string) => manifest.files.find((file) => file.path === path)?.sha256 ?? "";
  return manifest.parts?.map(({ name, graphs }) => ({
    name,
    graphs: graphs.map((path) => ({ path, sha256: hashOf(path) })),
    ran: ran.includes(name),
  }));
}

/** The same in words, for objects. Hashes are given to their twelfth digit. */
export function partsText(facts: ReturnType<typeof partFacts>): string | undefined {
  if (facts === undefined) return undefined;
  const named = facts
    .filter(({ ran }) => ran)
    .map(({ name, graphs }) => {
      const hashes = graphs.map(({ sha256 }) => sha256.slice(0, 12)).join(", ");
      return `${name} (SHA-256 ${hashes})`;
    });
  return `Labels of ${named.join(", ")}, a later one over an earlier one`;
}

export function checkModelParts(
  m: Manifest,
  parts: readonly ModelPart[],
  issue: (path: (string | number)[], message: string) => void,
): void {
  const paths = m.files.map(({ path }) => path);
  const [output, ...others] = m.outputs;
  if (m.accepts.dimensions !== "series")
    issue([], 'Expected accepts.dimensions "series": parts are of volumes');
  if (m.inputs.length !== 1 || imageInputs(m).length !== 1)
    issue([], "Expected a single input, of pixels, which all parts are given");
  if (m.tiling === undefined && parts.some(({ tiling }) => tiling === undefined))
    issue([], "Expected tiling, of the model or of each part");
  for (const field of ["roles", "region", "ensemble", "canary"] as const)
    if (m[field] !== undefined)
      issue([], `Expected no ${field} of the whole model beside parts; found one`);
  if (imageInputs(m)[0]?.cascade !== undefined) issue([], "Expected an input without cascade");
  if (output === undefined || others.length > 0 || !isSegmentation(output)) {
    issue([], "Expected a single output, a segmentation, which has the labels of all parts");
    return;
  }
  if (mayOverlap(output.activation) || kindOf(output).holdsLabels?.(output) === true)
    issue([], 'Expected the activation "softmax" or "argmax", whose labels exclude each other');
  if (output.postprocess.length > 0)
    issue([], "Expected no postprocess: steps after parts have become one are not offered");
  if (isFractional(output) || isInModelGrid(output))
    issue([], "Expected binary segments in the source's grid: parts become one there");
  if (output.ignored !== undefined) issue([], "Expected no ignored channels");
  const owners = new Map<string, string>();
  const names = output.labels.map(({ label }) => label);
  parts.forEach(({ name, graphs, labels }, p) => {
    if (parts.findIndex((one) => one.name === name) < p)
      issue([p, "name"], `The part "${name}" is there twice`);
    graphs.forEach((graph, g) => {
      if (!paths.includes(graph))
        issue(
          [p, "graphs", g],
          `Expected a path of files, which pins it by its SHA-256; found "${graph}"`,
        );
      if (parts.slice(0, p).some((one) => one.graphs.includes(graph)) || graphs.indexOf(graph) < g)
        issue([p, "graphs", g], `The graph "${graph}" is there twice`);
    });
    labels.forEach((label, l) => {
      const owner = owners.get(label);
      if (owner !== undefined)
        issue(
          [p, "labels", l],
          `The label "${label}" is also one of the part "${owner}": each is of one part`,
        );
      owners.set(label, name);
      if (!names.includes(label))
        issue([p, "labels", l], `Expected a label of outputs[0]; found "${label}"`);
    });
  });
  const without = names.filter((name) => !owners.has(name));
  if (without.length > 0)
    issue([], `Expected each label of outputs[0] in one part; ${without.join(", ")} is in none`);
  if (paths[0] !== parts[0]?.graphs[0])
    issue([0, "graphs", 0], `Expected the first of files, "${paths[0] ?? ""}"`);
}
