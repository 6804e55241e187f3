/** `radserve models list|init|check|try`: what each prints and its exit code, without touching the process. */
import { existsSync } from "node:fs";
import { readdir, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import type { Engine } from "../engine/engine.js";
import type { InferResult, GraphInfo, LoadedModel } from "../engine/types.js";
import type { Tensor } from "../base/tensor.js";
import { asRadserveError, RadserveError } from "../base/errors.js";
import { table } from "../base/table.js";
import { readRegular, textOfRegular } from "../files/regular-file.js";
import type { Image } from "../images/image.js";
import { graphsOf } from "../manifest/ensemble.js";
import { regionProblem } from "../manifest/region.js";
import { firstModelOf, manifestFields, type Manifest } from "../manifest/manifest.js";
import { manifestSchema } from "../manifest/rules.js";
import { inferOnce, shapeText, summary, type OnceOptions } from "./infer-once.js";
import { accepts } from "./acceptance.js";
import { toleranceFor } from "./canary.js";
import { DEFAULT_TOLERANCE } from "./compare.js";
import { readConcepts } from "./codes.js";
import type { CommandResult } from "./command-result.js";
import { draftByExporter } from "./draft-exporter.js";
import { draftLike, parseLabels, relabel } from "./draft-like.js";
import { draftManifest, modelNameOf } from "./draft.js";
import { explainIssues, type Problem } from "./explain.js";
import { compareExpected } from "./expected.js";
import { graphFiles } from "./graph-files.js";
import { checkGraphs, inputFault } from "./graph.js";
import { tensorText } from "../manifest/outputs/graph-fit.js";
import { fault, packageRoot } from "./files.js";
import { loadSession, modelFolders, type Provider } from "./load.js";
import { madeUpProblem } from "./made-up-image.js";
import { graphPaths, readModelFolder, type FolderReport, type SoundModel } from "./read.js";
import { decodeNpy, encodeNpy } from "../engine/npy.js";

/** One line for each model of a directory, from its files alone; nothing is loaded. */
export async function modelsList(directory: string): Promise<CommandResult> {
  const reports = await Promise.all((await modelFolders(directory)).map(readModelFolder));
  const data = reports.map(({ name, model, problems }) => ({
    name,
    version: model?.manifest.version,
    stage: model?.manifest.stage,
    release: model?.manifest.release,
    required: model?.manifest.required,
    sha256: model?.sha256,
    problems,
  }));
  const rows = data.map((m) => [
    m.name,
    m.version ?? "-",
    m.release ?? "-",
    m.stage ?? "-",
    m.sha256?.slice(0, 12) ?? "-",
    filesText(m.problems),
  ]);
  const text = table([["MODEL", "VERSION", "RELEASE", "STAGE", "SHA256", "FILES"], ...rows]);
  return { text, exitCode: data.some((m) => m.problems.length > 0) ? 1 : 0, data };
}

function filesText(problems: readonly Problem[]): string {
  const [first, ...others] = problems;
  if (first === undefined) return "in order";
  return others.length === 0
    ? `${first.path}: ${first.message}`
    : `${problems.length} mistakes: radserve models check`;
}

export interface InitOptions {
  /** The name of a model whose way of taking images and giving results the new one shares. */
  like?: string;
  /** Path of a file with one label a line; with `like` alone. */
  labels?: string;
  /** The folder of models, in which `like` is looked for; then among those that come with Radserve. */
  models?: string;
}

/**
 * Writes a draft model.json beside a graph and says what is still to be filled in.
 * @throws RadserveError bad_request if the file is not an ONNX model, if a model.json is there already, or for labels
 * that fit no output; model_not_found if there is no model to be like
 */
export async function modelsInit(
  onnxPath: string,
  engine: Engine,
  options: InitOptions = {},
): Promise<CommandResult> {
  const path = resolve(onnxPath);
  const target = join(dirname(path), "model.json");
  if (existsSync(target))
    throw new RadserveError(
      "bad_request",
      "Expected no model.json beside the graph, found one. Move it away first; it is never overwritten.",
    );
  const files = await graphFiles(path);
  const graph = await engine.inspectGraph(path);
  const drafted = draftManifest(modelNameOf(dirname(path)), files, graph);
  const { manifest, source, notes } = await filledIn(drafted, graph, options);
  await writeFile(target, `${JSON.stringify(manifest, null, 2)}\n`, { flag: "wx" });
  const parsed = manifestSchema.safeParse(manifest);
  const missing = parsed.success ? [] : explainIssues(manifestSchema, manifest, parsed.error.issues);
  const unfit = graph.inputs.flatMap((info) => Object.values(inputFault(info)));
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
      : ["Taken from what its exporter wrote:", ...source.map((line) => `  ${line}`), ""]),
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

/** The draft as the options ask for it, else as the exporter says; where that comes from, and why labels have no code. */
async function filledIn(
  draft: Record<string, unknown>,
  graph: GraphInfo,
  { like, labels, models = "" }: InitOptions,
): Promise<{ manifest: Record<string, unknown>; source: string[]; notes: string[] }> {
  if (like === undefined) {
    if (labels === undefined) {
      const { draft: manifest, source, notes } = draftByExporter(draft, graph, await readConcepts());
      return { manifest, source, notes };
    }
    throw new RadserveError(
      "bad_request",
      "Expected --like beside --labels: it says what the labels are of.",
    );
  }
  const manifest = draftLike(draft, await manifestNamed(like, models), graph);
  if (labels === undefined) return { manifest, source: [], notes: [] };
  const names = parseLabels(await readText(labels));
  return { manifest, source: [], notes: relabel(manifest, names, await readConcepts()) };
}

async function readText(path: string): Promise<string> {
  try {
    return await textOfRegular(path);
  } catch (error) {
    throw new RadserveError("bad_request", `Expected a file of labels, but ${fault(error)}.`);
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** A model's manifest by its name: of the folder of models, or of those that come with Radserve (examples/NAME too). */
async function manifestNamed(name: string, models: string): Promise<Manifest> {
  const folders = [models, join(packageRoot(), "models")].filter((folder) => folder !== "");
  for (const folder of /^(examples\/)?[a-z0-9_-]+$/.test(name) ? folders : []) {
    const text = await textOfRegular(join(folder, name, "model.json")).catch(() => undefined);
    if (text === undefined) continue;
    // Its rules need not hold: the new manifest is checked by itself.
    const parsed = manifestFields.safeParse(jsonOf(text));
    if (parsed.success) return parsed.data;
    throw new RadserveError(
      "bad_request",
      `Expected a model without mistakes to be like, found some in ${name}. Run: radserve models check`,
    );
  }
  throw new RadserveError(
    "model_not_found",
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
  const alike = new Map<string, Problem[]>();
  for (const problem of missing) {
    const key = `${problem.path.replace(/\.labels\[\d+\]/, ".labels")} ${problem.message}`;
    alike.set(key, [...(alike.get(key) ?? []), problem]);
  }
  return [...alike.values()].map(([first, ...others]) =>
    first === undefined
      ? ""
      : problemLine(first) + (others.length === 0 ? "" : ` (and ${others.length} more like it)`),
  );
}

function problemLine({ path, message }: Problem): string {
  return `  ${path}: ${message}`;
}

/** Every mistake of a model's folder. If it has no mistake, the model is loaded and its canary run. */
export async function modelsCheck(
  directory: string,
  options: { engine: Engine; providers: readonly Provider[] },
): Promise<CommandResult> {
  const folder = resolve(directory);
  const report = await readModelFolder(folder);
  const problems = [
    ...report.problems,
    ...(await graphProblems(folder, report, options.engine)),
    ...(await regionProblems(folder, report)),
  ];
  const notes: string[] = [];
  const manifest = report.model?.manifest;
  if (problems.length === 0 && manifest !== undefined) {
    const run = await runProblem(folder, report.model, options);
    if (run === undefined) notes.push(ranNote(manifest.canary !== undefined));
    else problems.push(run);
    if (manifest.release === "off") notes.push('release is "off": the server will not load it.');
    if (manifest.stage === "draft") notes.push('stage is "draft": it writes JSON and PNG only.');
  }
  const heading =
    problems.length === 0
      ? `${report.name} ${manifest?.version ?? ""}: in order`
      : `${report.name}: ${problems.length} ${problems.length === 1 ? "mistake" : "mistakes"}`;
  const text = [heading, ...problems.map(problemLine), ...notes.map((note) => `  ${note}`)].join("\n");
  const data = { name: report.name, sha256: report.model?.sha256, problems, notes };
  return { text, exitCode: problems.length === 0 ? 0 : 1, data };
}

function ranNote(canary: boolean): string {
  return canary ? "It loads and its canary passes." : "It loads and runs; it has no canary.";
}

/** Disagreements of a manifest with that of the model in whose region it looks, which lies in a folder beside it. */
async function regionProblems(folder: string, report: FolderReport): Promise<Problem[]> {
  const manifest = report.model?.manifest;
  const name = manifest === undefined ? undefined : firstModelOf(manifest);
  if (manifest === undefined || name === undefined || name === manifest.name) return [];
  const first = await readModelFolder(join(folder, "..", name));
  const message = regionProblem(manifest, first.model?.manifest);
  return message === undefined
    ? []
    : [{ path: manifest.region === undefined ? "inputs" : "region", message }];
}

/** Disagreements of a manifest with its graph, if both can be read. */
async function graphProblems(folder: string, report: FolderReport, engine: Engine): Promise<Problem[]> {
  const manifest = report.model?.manifest;
  if (manifest === undefined) return unfitGraphs(folder, engine);
  try {
    return await checkGraphs(manifest, await graphPaths(folder, manifest), engine);
  } catch (thrown) {
    const missing = report.problems.some(({ path }) => graphsOf(manifest).includes(path));
    return missing ? [] : [{ path: "files[0]", message: asRadserveError(thrown).message }];
  }
}

/** What no manifest could feed, of the graphs beside one that cannot be read yet. */
async function unfitGraphs(folder: string, engine: Engine): Promise<Problem[]> {
  const names = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith(".onnx"));
  const found = await Promise.all(
    names.map(async (path) => {
      const graph = await engine.inspectGraph(join(folder, path)).catch(() => undefined);
      return (graph?.inputs ?? []).flatMap((info) =>
        Object.values(inputFault(info)).map((message) => ({ path, message })),
      );
    }),
  );
  return found.flat();
}

async function runProblem(
  folder: string,
  model: SoundModel | undefined,
  { engine, providers }: { engine: Engine; providers: readonly Provider[] },
): Promise<Problem | undefined> {
  if (model === undefined) return undefined;
  try {
    const loaded = await loadSession(folder, model, engine, providers);
    const message = await madeUpProblem(engine, loaded, model);
    await engine.unload(loaded.id);
    return message === undefined ? undefined : { path: "(running it on a made-up image)", message };
  } catch (thrown) {
    return { path: "(running it)", message: asRadserveError(thrown).message };
  }
}

export interface TryOptions extends OnceOptions {
  /** Path of the .npy file that the tensor that goes in is written to. */
  dump?: string;
  /** A .npy file to compare with the first output tensor, or with probabilities or labels on the source's grid. */
  expect?: string;
}

/**
 * Runs a model on one image whether or not it accepts it, and shows the exact tensor that goes in and what comes out.
 * @throws RadserveError for a folder with mistakes; series_invalid if a volume is needed and the image is not one; what
 * decoding and the engine throw
 */
export async function modelsTry(
  directory: string,
  image: Image,
  options: TryOptions,
): Promise<CommandResult> {
  const folder = resolve(directory);
  const model = await soundModel(folder);
  const { loaded, result } = await inferOnce(folder, model, image, options);
  return tryResult(model, loaded, result, image, options);
}

async function soundModel(folder: string): Promise<SoundModel> {
  const { name, model, problems } = await readModelFolder(folder);
  if (model !== undefined && problems.length === 0) return model;
  throw new RadserveError(
    "model_unavailable",
    `Expected a model without mistakes, found ${problems.length} in ${name}. Run: radserve models check`,
    { problems },
  );
}

async function tryResult(
  model: SoundModel,
  loaded: LoadedModel,
  result: InferResult,
  image: Image,
  options: TryOptions,
): Promise<CommandResult> {
  const { manifest } = model;
  const reasons = accepts({ manifest }, image);
  const inputs = result.tensors?.inputs ?? [];
  const [input] = inputs;
  const output = result.tensors?.outputs[0];
  if (input === undefined || output === undefined)
    throw new RadserveError("internal", "The engine gave no tensors to show.");
  const dumps = inputs.map((_, i) => dumpName(options.dump, i));
  for (const [i, tensor] of inputs.entries()) {
    const file = dumps[i];
    if (file !== undefined) await writeFile(file, encodeNpy(tensor));
  }
  const compared =
    options.expect === undefined ? undefined : await compare(model, loaded, result, options.expect);
  const text = [
    `${manifest.name} ${manifest.version} on ${loaded.provider}`,
    ...reasons.map((r) => `  does not accept the image: ${r.message}`),
    ...inputs.flatMap((t, i) => [
      `  in   ${t.name}: ${shapeText(t)}`,
      ...(dumps[i] === undefined ? [] : [`       written to ${dumps[i]}`]),
    ]),
    ...(result.tensors?.outputs ?? []).map((t) => `  out  ${t.name}: ${shapeText(t)}`),
    ...result.outputs.map((o) => `  ${summary(o)}`),
    ...(compared === undefined ? [] : [`  ${compared.what} against the expected: ${compared.text}`]),
  ].join("\n");
  const data = {
    name: manifest.name,
    provider: loaded.provider,
    reasons,
    input: described(input),
    ...(inputs.length > 1 ? { inputs: inputs.map(described) } : {}),
    outputs: result.outputs.map(summary),
    raw_sha256: result.rawSha256,
    ...(compared === undefined ? {} : { comparison: compared }),
  };
  return { text, exitCode: compared?.equal === false ? 1 : 0, data };
}

const described = ({ name, dtype, shape }: Tensor) => ({ tensor: name, dtype, shape });

/** The first tensor's file has the name that was asked for; that of the second ends in -2.npy, and so on. */
function dumpName(dump: string | undefined, place: number): string | undefined {
  if (dump === undefined || place === 0) return dump;
  return `${dump.replace(/\.npy$/, "")}-${place + 1}.npy`;
}

async function compare(model: SoundModel, loaded: LoadedModel, result: InferResult, path: string) {
  const tolerance = toleranceFor(model.manifest, loaded.provider) ?? DEFAULT_TOLERANCE;
  return compareExpected(decodeNpy(await readRegular(path)), result, tolerance);
}
