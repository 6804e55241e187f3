/**
 * `radserve models import --totalsegmentator TASK`: a task of TotalSegmentator as one model, from
 * the folders of weights that its users have, once each network is exported. Each part is imported
 * as nnU-Net's own; what goes around them is TotalSegmentator's (manifest.md, "Resampled end to
 * end").
 */
import { existsSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { basename, dirname, join, posix, resolve } from "node:path";
import type { GraphInfo } from "../../engine/types.js";
import { errors } from "../../base/errors.js";
import type { Manifest } from "../../manifest/manifest.js";
import { unitsOf } from "../../manifest/model-parts.js";
import { manifestSchema } from "../../manifest/rules.js";
import type { CommandResult } from "../../models/command-result.js";
import { explainIssues, type Problem } from "../../models/explain.js";
import { checkGraphs, type GraphLook } from "../../models/graph.js";
import { graphFiles } from "../../models/graph-files.js";
import { Gaps, type Imported } from "./gaps.js";
import { readJson, readText } from "./json.js";
import { importNnunet } from "./nnunet.js";
import {
  copyFiles,
  gapLines,
  nameFor,
  NEXT_STEPS,
  requireNoModel,
  requireRight,
  writeManifest,
} from "./target.js";
import { readLabelTable, type LabelTable } from "./totalsegmentator-labels.js";
import { taskOf, tasksOf, type Form, type Task } from "./totalsegmentator-tasks.js";

export interface TaskOptions {
  /** The folder of the model. */
  to?: string;
  fast?: boolean;
  fastest?: boolean;
  /** Which plans, where a data set has networks of several. */
  plans?: string;
  /** The folder of an installed totalsegmentator package, for codes and colours. */
  package?: string;
}

/** Where a network's graph is looked for in its folder, beside that folder's own fold_0. */
const EXPORTED = "exported";

/** A network of the task, as it lies on disk. */
interface Network {
  dataset: number;
  /** TRAINER__PLANS__CONFIGURATION, with plans.json and dataset.json. */
  folder: string;
  /** Absent where it is still to be exported. */
  graph: string | undefined;
}

/** One that has its graph. */
interface Exported extends Network {
  graph: string;
}

interface Part extends Exported {
  name: string;
  /** Of the graph, beside it. */
  files: Manifest["files"];
  info: GraphInfo;
  imported: Imported;
  labels: string[];
}

/**
 * Writes the manifest of a task into a folder, with the graphs of all its parts.
 * @throws RadserveError bad_request for a task that is not covered, for folders that are missing or
 * not as expected, for networks that are not exported, with the command that does it, and, with all
 * gaps in `details`, where results would be wrong
 */
export async function importTask(
  name: string,
  directory: string,
  look: GraphLook,
  options: TaskOptions,
): Promise<CommandResult> {
  const task = taskOf(name, formOf(options));
  if (options.to === undefined)
    throw errors.bad_request("Expected --to: the folder that the model of the task is written to.");
  const target = resolve(options.to);
  requireNoModel(target);
  const weights = resolve(directory);
  const networks: Network[] = [];
  for (const dataset of task.datasets)
    networks.push(await networkOf(weights, dataset, task, options.plans));
  requireExported(networks, weights);
  const table = options.package === undefined ? undefined : await readLabelTable(options.package);
  const gaps = new Gaps();
  const parts: Part[] = [];
  for (const network of networks) parts.push(await partOf(network, task, look, gaps));
  checkAlike(parts, gaps);
  const modelName = nameFor(target, gaps);
  noteCodes(parts, table, gaps);
  const manifest = manifestOf(modelName, task, parts, table);
  await requireRight(gaps, () => problemsOf(manifest, parts, look));
  for (const { name: part, graph, files } of parts)
    await copyFiles(dirname(graph), join(target, part), files);
  const path = await writeManifest(target, manifest);
  const named = join(dirname(target), modelName);
  const text = [
    `Wrote ${path}: ${parts.length} ${parts.length === 1 ? "network" : "networks"}, ${parts.flatMap(({ labels }) => labels).length} labels`,
    ...(table === undefined ? [] : [`Codes and colours: ${table.source}`]),
    ...gapLines(gaps),
    ...NEXT_STEPS,
    `  radserve models check ${named}`,
    `  radserve models canary ${named} SERIES`,
  ].join("\n");
  return { text, exitCode: 0, data: { path, manifest, gaps: gaps.all } };
}

function formOf({ fast = false, fastest = false }: TaskOptions): Form {
  if (fast && fastest)
    throw errors.bad_request("Expected --fast or --fastest, or neither; found both.");
  return fast ? "fast" : fastest ? "fastest" : "default";
}

async function foldersIn(folder: string): Promise<string[]> {
  const entries = existsSync(folder) ? await readdir(folder, { withFileTypes: true }) : [];
  return entries
    .filter((entry) => entry.isDirectory() || entry.isSymbolicLink())
    .map(({ name }) => name)
    .sort();
}

/** @throws RadserveError bad_request where it is missing, or is there twice */
async function networkOf(
  weights: string,
  dataset: number,
  task: Task,
  plans: string | undefined,
): Promise<Network> {
  const all = await foldersIn(weights);
  const prefix = `Dataset${String(dataset).padStart(3, "0")}_`;
  const [own, another] = all.filter((name) => name.startsWith(prefix));
  const found = all.filter((name) => name.startsWith("Dataset"));
  const others = tasksOf(found.map((name) => parseInt(name.slice("Dataset".length))));
  const of = others.length === 0 ? "" : `, networks of ${others.join(", ")}`;
  if (own === undefined || another !== undefined)
    throw errors.bad_request(
      `Expected one folder ${prefix}... in ${weights}, of ${task.datasets.map((one) => `Dataset${one}`).join(", ")}, which the task ${task.name} needs; found ${found.join(", ") || "no such folder"}${of}. totalseg_download_weights of the totalsegmentator package fetches them.`,
      { dataset },
    );
  const inside = join(weights, own);
  const results = (await foldersIn(inside)).filter((name) => {
    const [, its] = name.split("__");
    return name.split("__").length === 3 && (plans === undefined || its === plans);
  });
  const [result, more] = results;
  if (result === undefined || more !== undefined)
    throw errors.bad_request(
      `Expected one folder TRAINER__PLANS__CONFIGURATION in ${inside}; found ${results.join(", ") || "none"}. ${more === undefined ? "Leave --plans out, or fetch the weights again" : "Choose with --plans"}.`,
      { dataset },
    );
  const folder = join(inside, result);
  const graph = (
    await Promise.all([join(folder, EXPORTED, "fold_0"), join(folder, "fold_0")].map(graphsIn))
  ).flat()[0];
  if (graph === undefined && !existsSync(join(folder, "fold_0")))
    throw errors.bad_request(
      `Expected fold_0 in ${folder}, which the task ${task.name} uses; found none.`,
      { dataset },
    );
  return { dataset, folder, graph };
}

/** One command exports all networks that are left. */
function requireExported(
  networks: readonly Network[],
  weights: string,
): asserts networks is readonly Exported[] {
  const left = networks.filter(({ graph }) => graph === undefined).map(({ dataset }) => dataset);
  if (left.length === 0) return;
  const command = `python export_nnunet.py ${weights} --datasets ${left.join(" ")} --folds 0`;
  throw errors.bad_request(
    `Expected the exported graphs of all data sets of the task, found none of ${left.join(", ")}. Where nnunetv2 is installed, run:\n  radserve models export-nnunet > export_nnunet.py\n  ${command}`,
    { datasets: left, command },
  );
}

async function graphsIn(folder: string): Promise<string[]> {
  const names = existsSync(folder) ? await readdir(folder) : [];
  const graphs = names.filter((name) => name.endsWith(".onnx")).sort();
  if (graphs.length > 1)
    throw errors.bad_request(`Expected one ONNX file in ${folder}, found ${graphs.join(", ")}.`);
  return graphs.map((name) => join(folder, name));
}

/** A network as nnU-Net's import understands it, its axes as TotalSegmentator's images lie. */
async function partOf(network: Exported, task: Task, look: GraphLook, gaps: Gaps): Promise<Part> {
  const { dataset, folder, graph } = network;
  const plans = await readJson(join(folder, "plans.json"));
  const text = await readText(join(folder, "dataset.json"));
  const name = `dataset-${dataset}`;
  const own = new Gaps();
  const [, , configuration = ""] = basename(folder).split("__");
  const imported = importNnunet(
    { plans, dataset: text, folder: basename(folder) },
    { configuration, orientation: "SAR", modality: task.modality, mirror: "none" },
    own,
  );
  for (const gap of own.all) gaps.all.push({ ...gap, field: `${name}: ${gap.field}` });
  const refuse = (field: string, message: string) => gaps.refuse(`${name}: ${field}`, message);
  const { input, output, roles } = imported;
  const { spacing_mm: spacing = [] } = (input["resampling"] ?? {}) as { spacing_mm?: number[] };
  if (spacing.length !== 3 || spacing.some((mm) => mm !== task.spacing))
    refuse(
      "plans.json: spacing",
      `Expected ${task.spacing} mm along all axes, to which the task ${task.name} resamples; found ${spacing.join(", ")}. These are weights of another task or version`,
    );
  if (input["orientation"] !== "SAR")
    refuse("plans.json: transpose_forward", "Expected 0, 1, 2 in a task of TotalSegmentator");
  if ((input["normalisation"] as { of?: unknown } | undefined)?.of !== undefined)
    refuse("plans.json: use_mask_for_norm", "Expected false in a task of TotalSegmentator");
  if (roles !== undefined) refuse("dataset.json: channel_names", "Expected one channel");
  if (output["activation"] !== "softmax")
    refuse("dataset.json: labels", "Expected labels that exclude each other, and no regions");
  const channels = Object.values(
    ((JSON.parse(text) as { channel_names?: Record<string, string> }).channel_names ??
      {}) as object,
  ).map(String);
  if (task.modality === "CT" && channels.some((channel) => channel !== "CT"))
    refuse(
      "dataset.json: channel_names",
      `Expected CT, which the task ${task.name} is for; found ${channels.join(", ")}`,
    );
  const labels = (output["labels"] as { label: string }[]).map(({ label }) => label);
  const files = await graphFiles(graph);
  return { ...network, name, files, info: await look.inspectGraph(graph), imported, labels };
}

/** What the manifest says once for all parts is the same in each, and a label is of one alone. */
function checkAlike(parts: readonly Part[], gaps: Gaps): void {
  const [first] = parts;
  const shared = ({ info, imported: { input } }: Part) =>
    JSON.stringify([
      info.inputs.map(({ name, dtype }) => [name, dtype]),
      info.outputs[0]?.name,
      info.float16,
      { ...input, clip: 0, normalisation: 0, resampling: 0 },
    ]);
  const owners = new Map<string, string>();
  for (const part of parts) {
    if (first === undefined) continue;
    // One that is refused by itself differs by that
    const isSound = !gaps.have(new RegExp(`^(${first.name}|${part.name}): `));
    if (isSound && shared(part) !== shared(first))
      gaps.refuse(
        `${part.name}: the graph`,
        `Expected tensors, types and values as those of ${first.name}. Export all parts with the same script`,
      );
    for (const label of part.labels) {
      const owner = owners.get(label);
      if (owner !== undefined)
        gaps.refuse(
          `${part.name}: dataset.json: labels`,
          `The label "${label}" is also one of ${owner}: expected each in one part`,
        );
      owners.set(label, part.name);
    }
  }
}

function noteCodes(parts: readonly Part[], table: LabelTable | undefined, gaps: Gaps): void {
  const names = parts.flatMap(({ labels }) => labels);
  const without = names.filter((name) => table?.labels.get(name)?.code === undefined);
  if (table === undefined)
    gaps.note(
      "codes and colours",
      'They are in the totalsegmentator package: give its folder with --package, which python -c "import totalsegmentator; print(totalsegmentator.__path__[0])" prints. Without codes the model stays a draft',
    );
  else if (without.length > 0)
    gaps.note(
      "codes and colours",
      `The table of ${table.source} has none for ${without.join(", ")}: enter them before stage final`,
    );
}

function manifestOf(
  name: string,
  task: Task,
  parts: readonly Part[],
  table: LabelTable | undefined,
): Record<string, unknown> {
  const [first] = parts;
  if (first === undefined) throw new RangeError("A task has a network");
  const { accepts, input, output, about } = first.imported;
  const { clip, normalisation, ...rest } = input;
  const tilings = parts.map(({ imported }) => ({
    ...imported.tiling,
    overlap: Number((1 - task.step).toFixed(2)),
  }));
  const several = parts.length > 1;
  const files = parts.flatMap(({ name: folder, files: own }) =>
    own.map((file) => ({ ...file, path: posix.join(folder, file.path) })),
  );
  const labelled = parts.flatMap(({ labels }) =>
    labels.map((label) => ({ label, ...table?.labels.get(label) })),
  );
  const source = table === undefined ? "" : ` Codes and colours of labels: ${table.source}.`;
  return {
    $schema: "../model.schema.json",
    name,
    version: about.version,
    manufacturer: "TotalSegmentator",
    description: `TotalSegmentator's task ${task.name}, of the data sets ${task.datasets.join(", ")}.${source}`,
    intended_use: "Not stated by its maker. For research.",
    regulatory: "Not for diagnostic use. For research.",
    stage: "draft",
    release: "off",
    required: false,
    files,
    accepts,
    inputs: [
      {
        tensor: first.info.inputs[0]?.name,
        dtype: first.info.inputs[0]?.dtype,
        ...rest,
        ...(several || clip === undefined ? {} : { clip }),
        normalisation: several ? { kind: "none" } : normalisation,
        resampling: {
          grid: "ends",
          spacing_mm: [task.spacing, task.spacing, task.spacing],
          order: 1,
          order_back: 0,
          keep_range: false,
          clip: "after",
          crop: "nonzero",
          activation: "after",
        },
      },
    ],
    outputs: [{ ...output, tensor: first.info.outputs[0]?.name, labels: labelled }],
    tiling: tilings[0],
    ...(several
      ? {
          parts: parts.map(({ name: part, labels, graph, imported }, i) => ({
            name: part,
            graphs: [posix.join(part, basename(graph))],
            labels,
            ...(imported.input["clip"] === undefined ? {} : { clip: imported.input["clip"] }),
            normalisation: imported.input["normalisation"],
            ...(JSON.stringify(tilings[i]) === JSON.stringify(tilings[0])
              ? {}
              : { tiling: tilings[i] }),
          })),
        }
      : {}),
    batching: { max: 1 },
    execution: { providers: ["cpu"], precision: first.info.float16 ? "float16" : "float32" },
    results: { outputs: ["json", "png"] },
  };
}

async function problemsOf(
  manifest: Record<string, unknown>,
  parts: readonly Part[],
  look: GraphLook,
): Promise<Problem[]> {
  const parsed = manifestSchema.safeParse(manifest);
  if (!parsed.success) return explainIssues(manifestSchema, manifest, parsed.error.issues);
  const problems: Problem[] = [];
  for (const [place, unit] of unitsOf(parsed.data).entries()) {
    const { name, graph } = parts[place] ?? { name: "", graph: "" };
    const found = await checkGraphs(unit.manifest, [graph], look);
    problems.push(...found.map(({ path, message }) => ({ path: `${name}: ${path}`, message })));
  }
  return problems;
}
