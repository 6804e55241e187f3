/** `radserve models init`: a draft of a manifest beside a graph. */
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";
import { tried } from "../../base/errno.js";
import { errors } from "../../base/errors.js";
import { groupsBy } from "../../base/groups.js";
import type { GraphInfo } from "../../engine/types.js";
import { textOfRegular } from "../../files/regular-file.js";
import { manifestFields, type Manifest } from "../../manifest/manifest.js";
import { tensorText } from "../../manifest/outputs/graph-fit.js";
import { manifestSchema } from "../../manifest/rules.js";
import { readConcepts } from "../../models/codes.js";
import type { CommandResult } from "../../models/command-result.js";
import { draftByExporter } from "../../models/draft-exporter.js";
import { draftLike, draftWithLabels, parseLabels, relabel } from "../../models/draft-like.js";
import { misfit } from "../../models/draft-misfit.js";
import { draftByProcessor } from "../../models/draft-processor.js";
import { draftManifest, modelNameOf, unsaidParts } from "../../models/draft.js";
import { explainIssues, type Problem } from "../../models/explain.js";
import { fault, packageRoot } from "../../models/files.js";
import { graphFiles } from "../../models/graph-files.js";
import { inputFault, type GraphLook } from "../../models/graph.js";
import { problemLine } from "./check.js";

export interface ModelInitOptions {
  /** The name of a model whose way of taking images and giving results the new one shares. */
  like?: string | undefined;
  /** Path of a file with one label a line. */
  labels?: string | undefined;
  /**
   * The folder of models, in which `like` is looked for; then among those that come with Radserve.
   */
  models?: string;
}

/**
 * Writes a draft model.json beside a graph and says what is still to be filled in.
 * @throws RadserveError bad_request if the file is not an ONNX model, or one that no manifest can
 * describe, if a model.json is there already, or for labels that fit no output; model_not_found if
 * there is no model to be like
 */
export async function modelsInit(
  onnxPath: string,
  look: GraphLook,
  options: ModelInitOptions = {},
): Promise<CommandResult> {
  const path = resolve(onnxPath);
  const target = join(dirname(path), "model.json");
  if (existsSync(target))
    throw errors.bad_request(
      "Expected no model.json beside the graph, found one. Move it away first; it is never overwritten.",
    );
  const files = await graphFiles(path);
  const graph = await look.inspectGraph(path);
  const reason = misfit(graph);
  if (reason !== undefined) throw errors.bad_request(`${reason}. Nothing was written.`);
  const folder = dirname(path);
  const drafted = {
    ...draftManifest(modelNameOf(folder), files, graph),
    $schema: schemaFrom(folder),
  };
  const { manifest, source, notes } = await filledIn(drafted, graph, path, options);
  await writeFile(target, `${JSON.stringify(manifest, null, 2)}\n`, { flag: "wx" });
  const parsed = manifestSchema.safeParse(manifest);
  const missing = parsed.success
    ? []
    : explainIssues(manifestSchema, manifest, parsed.error.issues);
  const unfit = [
    ...graph.inputs.flatMap((info) => Object.values(inputFault(info))),
    ...unsaidParts(graph),
  ];
  const text = [
    `Wrote ${target}`,
    "",
    "The graph:",
    ...graphLines(graph),
    "",
    ...unfit.map((line) => `  ${line}`),
    ...(unfit.length === 0 ? [] : [""]),
    ...(source.length === 0
      ? []
      : [
          "Taken from what lies beside the graph, or in it:",
          ...source.map((line) => `  ${line}`),
          "",
        ]),
    "To be filled in (nothing is guessed):",
    ...openLines(missing),
    "",
    ...(notes.length === 0
      ? []
      : [
          "Labels without a code (radserve models codes NAME finds others):",
          ...notes.map((n) => `  ${n}`),
          "",
        ]),
    `Then: radserve models check ${dirname(path)}`,
  ].join("\n");
  return { text, exitCode: 0, data: { path: target, manifest, missing, source, notes } };
}

/**
 * Where an editor finds the schema from a model's folder: for one in the clone, in its models
 * folder, into which the model may move; else beside it, as there.
 */
function schemaFrom(folder: string): string {
  const schema = join(packageRoot(), "models", "model.schema.json");
  return relative(packageRoot(), folder).startsWith("..")
    ? "../model.schema.json"
    : relative(folder, schema);
}

/**
 * The draft as the options ask for it, else as the exporter says, in the graph or beside it; where
 * that comes from, and why labels have no code.
 */
async function filledIn(
  draft: Record<string, unknown>,
  graph: GraphInfo,
  path: string,
  { like, labels, models = "" }: ModelInitOptions,
): Promise<{ manifest: Record<string, unknown>; source: string[]; notes: string[] }> {
  const concepts = await readConcepts();
  const names = labels === undefined ? undefined : parseLabels(await readText(labels));
  if (like !== undefined) {
    const manifest = draftLike(draft, await manifestNamed(like, models), graph);
    return {
      manifest,
      source: [],
      notes: names === undefined ? [] : relabel(manifest, names, concepts),
    };
  }
  const inside = draftByExporter(draft, graph, concepts);
  const {
    draft: manifest,
    source,
    notes,
  } = inside.source.length > 0 ? inside : await draftByProcessor(draft, graph, path, concepts);
  if (names === undefined) return { manifest, source, notes };
  const labelled = draftWithLabels(manifest, names, graph, concepts);
  return { manifest, source: [...source, ...labelled.source], notes: labelled.notes };
}

async function readText(path: string): Promise<string> {
  try {
    return await textOfRegular(path);
  } catch (error) {
    throw errors.bad_request(`Expected a file of labels, but ${fault(error)}.`);
  }
}

/**
 * A model's manifest by its name: of the folder of models, or of those that come with Radserve
 * (examples/NAME too).
 */
async function manifestNamed(name: string, models: string): Promise<Manifest> {
  const folders = [models, join(packageRoot(), "models")].filter((folder) => folder !== "");
  for (const folder of /^(examples\/)?[a-z0-9_-]+$/.test(name) ? folders : []) {
    const text = await textOfRegular(join(folder, name, "model.json")).catch(() => undefined);
    if (text === undefined) continue;
    // Its rules need not hold: the new manifest is checked by itself.
    const parsed = manifestFields.safeParse(tried(() => JSON.parse(text) as unknown));
    if (parsed.success) return parsed.data;
    throw errors.bad_request(
      `Expected a model without mistakes to be like, found some in ${name}. Run: radserve models check`,
    );
  }
  throw errors.model_not_found(
    `Expected the name of a model to be like, found "${name}". Run: radserve models list`,
  );
}

function graphLines(graph: GraphInfo): string[] {
  return [
    ...graph.inputs.map((t) => `  input   ${t.name}: ${tensorText(t)}`),
    ...graph.outputs.map((t) => `  output  ${t.name}: ${tensorText(t)}`),
  ];
}

/** A line for each field that is open; for the same field of many labels, one. */
function openLines(missing: readonly Problem[]): string[] {
  const alike = groupsBy(
    missing,
    ({ path, message }) => `${path.replace(/\.labels\[\d+\]/, ".labels")} ${message}`,
  );
  return [...alike.values()].map(([first, ...others]) =>
    first === undefined
      ? ""
      : problemLine(first) + (others.length === 0 ? "" : ` (and ${others.length} more like it)`),
  );
}
