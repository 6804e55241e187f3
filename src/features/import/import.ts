/**
 * `radserve models import`: networks of nnU-Net v2 and MONAI bundles, with a manifest that says
 * what they did.
 */
import { existsSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { basename, dirname, join, posix, resolve } from "node:path";
import { z } from "zod";
import type { GraphInfo } from "../../engine/types.js";
import { errors } from "../../base/errors.js";
import type { Manifest } from "../../manifest/manifest.js";
import { manifestSchema } from "../../manifest/rules.js";
import type { CommandResult } from "../../models/command-result.js";
import { explainIssues, type Problem } from "../../models/explain.js";
import { checkGraphs, type GraphLook } from "../../models/graph.js";
import { tensorText } from "../../manifest/outputs/graph-fit.js";
import { packageRoot } from "../../models/files.js";
import { graphFiles } from "../../models/graph-files.js";
import { asIfFilledIn, openRoles } from "./channels.js";
import { Gaps, type ImportChoices, type Imported } from "./gaps.js";
import { parsedAs, readJson, readText } from "./json.js";
import { importMonai } from "./monai.js";
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

export interface ImportOptions extends ImportChoices {
  /** The graph, where the folder has several or none; of several folds that one alone. */
  onnx?: string;
  /** The folder of the model; the graph's own, where absent. */
  to?: string;
}

/**
 * Writes the manifest of an exported network beside its graph, or into another folder together with
 * it.
 * @throws RadserveError bad_request for files that are missing or not as expected, for a model.json
 * that is there already, and, with all gaps in `details`, where results would be wrong
 */
export async function modelsImport(
  directory: string,
  look: GraphLook,
  options: ImportOptions = {},
): Promise<CommandResult> {
  const folder = resolve(directory);
  const gaps = new Gaps();
  const { base, graphs } = await chosenGraphs(folder, options.onnx);
  const target = resolve(options.to ?? base);
  requireNoModel(target);
  const info = await look.inspectGraph(join(base, graphs[0]));
  const parts = await read(folder, info, options, gaps);
  const name = nameFor(target, gaps, ", or import with --to");
  const manifest = await manifestOf(name, base, graphs, info, parts, gaps);
  const open = openRoles(manifest);
  const paths = graphs.map((graph) => join(base, graph));
  await requireRight(gaps, () => problemsOf(asIfFilledIn(manifest), paths, look));
  if (base !== target) await copyFiles(base, target, manifest.files as Manifest["files"]);
  const path = await writeManifest(target, manifest);
  const named = join(dirname(target), name);
  const text = [
    `Wrote ${path}`,
    ...gapLines(gaps),
    ...(open.length === 0
      ? []
      : [
          "",
          "To be filled in (nothing is guessed; or delete model.json and say it with --roles):",
          ...open.map(({ path: field, message }) => `  ${field}: ${message}`),
        ]),
    ...NEXT_STEPS,
    `  radserve models check ${named}`,
    `  radserve models try ${named} ${parts.roles === undefined ? "SERIES" : "FOLDER"} --expect probabilities.npy`,
  ].join("\n");
  return { text, exitCode: 0, data: { path, manifest, gaps: gaps.all, open } };
}

/**
 * What export_nnunet.py knows of a network beside its plans; an option takes the place of a field.
 */
const exportSchema = z
  .strictObject({ configuration: z.string(), mirror: z.string(), orientation: z.string() })
  .partial({ orientation: true });

/** The script that exports networks of nnU-Net, where those are trained. */
export const exportScript = (): string => join(packageRoot(), "models", "export_nnunet.py");

/** Files that describe a bundle's inference; MONAI reads these. */
const BUNDLE_FILES = ["inference.json", "inference.yaml", "inference.yml"];

async function read(
  folder: string,
  graph: GraphInfo,
  options: ImportOptions,
  gaps: Gaps,
): Promise<Imported> {
  const roles =
    options.roles === undefined ? {} : { roles: await readJson(resolve(options.roles)) };
  const inference = [join(folder, "configs"), folder]
    .flatMap((at) => BUNDLE_FILES.map((name) => join(at, name)))
    .find((path) => existsSync(path));
  if (inference !== undefined) {
    const metadata = await readJson(join(dirname(inference), "metadata.json"));
    const file = basename(inference);
    const text = await readText(inference);
    return importMonai({ inference: { file, text }, metadata, ...roles }, graph, options, gaps);
  }
  const plansFile = ["plans.json", "nnUNetPlans.json"].find((name) =>
    existsSync(join(folder, name)),
  );
  if (plansFile === undefined)
    throw errors.bad_request(
      `Expected plans.json and dataset.json (nnU-Net v2) or configs/inference.json (or .yaml) and configs/metadata.json (a MONAI bundle) in ${folder}, found neither.`,
    );
  const plans = await readJson(join(folder, plansFile));
  const dataset = await readText(join(folder, "dataset.json"));
  if (existsSync(join(folder, "postprocessing.json")))
    gaps.note(
      "postprocessing.json",
      "It is not read, and nnUNetv2_predict does not apply it by itself either",
    );
  const beside = join(folder, "export.json");
  const exported = existsSync(beside)
    ? parsedAs(exportSchema, await readJson(beside), "export.json")
    : {};
  return importNnunet(
    { plans, dataset, folder: basename(folder), exported, ...roles },
    options,
    gaps,
  );
}

/** Paths below `base`. */
interface Graphs {
  base: string;
  graphs: [string, ...string[]];
}

/** The one graph of the folder or of models/ (a bundle), else that of each fold. */
async function chosenGraphs(folder: string, asked: string | undefined): Promise<Graphs> {
  if (asked !== undefined) return { base: dirname(resolve(asked)), graphs: [basename(asked)] };
  const inside = async (at: string) => {
    const names = existsSync(join(folder, at)) ? await readdir(join(folder, at)) : [];
    return names.filter((name) => name.endsWith(".onnx")).sort();
  };
  const one = (at: string, [first, ...others]: string[]): string | undefined => {
    if (others.length === 0) return first;
    throw errors.bad_request(
      `Expected one ONNX file in ${join(folder, at)}, found ${[first, ...others].join(", ")}. Choose with --onnx.`,
    );
  };
  for (const at of [".", "models"]) {
    const name = one(at, await inside(at));
    if (name !== undefined) return { base: join(folder, at), graphs: [name] };
  }
  const folds = existsSync(folder)
    ? (await readdir(folder)).filter((name) => /^fold_/.test(name)).sort()
    : [];
  const found: string[] = [];
  for (const fold of folds) {
    const name = one(fold, await inside(fold));
    if (name !== undefined) found.push(`${fold}/${name}`);
  }
  const [first, ...others] = found;
  if (first === undefined)
    throw errors.bad_request(
      `Expected an exported ONNX file in ${folder}, found none. Export the network (torch.onnx.export), or name the file with --onnx.`,
    );
  if (others.length > 0 && found.some((path) => path.startsWith("fold_all/")))
    throw errors.bad_request(
      `Expected fold_all alone, or numbered folds, in ${folder}; found ${found.join(", ")}. nnU-Net leaves fold_all out of their mean: move its graph away, or choose it with --onnx.`,
    );
  return { base: folder, graphs: [first, ...others] };
}

/** The files of each graph by their paths below the base. */
async function filesOf(base: string, graphs: readonly string[]): Promise<Manifest["files"]> {
  const files: Manifest["files"] = [];
  for (const graph of graphs)
    for (const file of await graphFiles(join(base, graph)))
      files.push({ ...file, path: posix.join(dirname(graph), file.path) });
  return files;
}

async function manifestOf(
  name: string,
  base: string,
  graphs: Graphs["graphs"],
  graph: GraphInfo,
  { accepts, roles, input, output, namesTensors = false, tiling, about }: Imported,
  gaps: Gaps,
): Promise<Record<string, unknown>> {
  const [x, ...moreInputs] = graph.inputs;
  const [y, ...moreOutputs] = graph.outputs;
  const positron = (accepts["modality"] as string[] | undefined)?.includes("PT") === true;
  if (moreInputs.length > 0)
    gaps.refuse("the graph", `It has ${graph.inputs.length} inputs; expected one`);
  if (moreOutputs.length > 0 && !namesTensors)
    gaps.note(
      "the graph",
      `Of its outputs ${graph.outputs.map(tensorText).join(", ")} the first one counts`,
    );
  return {
    $schema: "../model.schema.json",
    name,
    ...about,
    regulatory: "Not for diagnostic use. For research.",
    stage: "draft",
    release: "off",
    required: false,
    files: await filesOf(base, graphs),
    accepts,
    ...(roles === undefined ? {} : { roles }),
    inputs: [
      {
        tensor: x?.name,
        dtype: x?.dtype,
        ...input,
        // SUV or Bq/ml: the network's own files do not say it
        ...(roles === undefined && positron ? { values: null } : {}),
      },
    ],
    outputs: [namesTensors ? output : { ...output, tensor: y?.name }],
    ...(tiling === undefined ? {} : { tiling }),
    // nnU-Net takes the mean of the logits of its folds
    ...(graphs.length === 1 ? {} : { ensemble: { graphs, average: "before_activation" } }),
    batching: { max: (x?.shape[0] ?? -1) === -1 ? 2 : 1 },
    execution: { providers: ["cpu"], precision: graph.float16 ? "float16" : "float32" },
    results: { outputs: ["json", "png"] },
  };
}

async function problemsOf(
  manifest: Record<string, unknown>,
  graphs: readonly string[],
  look: GraphLook,
): Promise<Problem[]> {
  const parsed = manifestSchema.safeParse(manifest);
  return parsed.success
    ? checkGraphs(parsed.data, graphs, look)
    : explainIssues(manifestSchema, manifest, parsed.error.issues);
}
