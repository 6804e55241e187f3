/** `radserve models check`: every mistake of a model's folder, and whether it runs. */
import { readdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { asRadserveError } from "../../base/errors.js";
import { counted } from "../../base/table.js";
import type { Engine } from "../../engine/engine.js";
import { graphsOf } from "../../manifest/ensemble.js";
import { firstModelOf, imageInputs } from "../../manifest/manifest.js";
import { unitsOf } from "../../manifest/model-parts.js";
import type { Provider } from "../../manifest/providers.js";
import { regionProblem } from "../../manifest/region.js";
import { openRange } from "../../manifest/value-range.js";
import type { CommandResult } from "../../models/command-result.js";
import type { Problem } from "../../models/explain.js";
import { inputFault, type GraphLook } from "../../models/graph.js";
import {
  graphMistakes,
  loadSession,
  unloadSession,
  type LoadedSession,
} from "../../models/load.js";
import { madeUpProblem } from "../../models/made-up-image.js";
import { activatedAgain, rawProblems } from "../../models/raw-outputs.js";
import {
  graphPaths,
  readModelFolder,
  resolveThresholds,
  type FolderReport,
  type SoundModel,
} from "../../models/read.js";
import type { TriedFirst } from "../../models/trial.js";

export interface CheckOptions {
  engine: Engine;
  providers: readonly Provider[];
  /** Looks at graphs and tries the model, before it is loaded; without it the engine does both. */
  trials?: TriedFirst;
}

/**
 * Every mistake of a model's folder. If it has no mistake, the model is loaded and its canary run.
 */
export async function modelsCheck(
  directory: string,
  options: CheckOptions,
): Promise<CommandResult> {
  const folder = resolve(directory);
  const report = await readModelFolder(folder);
  const problems = [
    ...report.problems,
    ...(await graphProblems(folder, report, options.trials ?? options.engine)),
    ...(await regionProblems(folder, report)),
  ];
  const notes: string[] = [];
  const manifest = report.model?.manifest;
  if (problems.length === 0 && manifest !== undefined) {
    const run = await runProblems(folder, report.model, options);
    const canary = unitsOf(manifest).every((unit) => unit.manifest.canary !== undefined);
    if (run.length === 0) notes.push(ranNote(canary));
    problems.push(...run);
    for (const input of unitsOf(manifest).flatMap((unit) => imageInputs(unit.manifest))) {
      const note = openRange(input);
      if (note !== undefined) notes.push(`${input.tensor}: ${note}.`);
    }
    if (manifest.release === "off") notes.push('release is "off": the server will not load it.');
    if (manifest.stage === "draft") notes.push('stage is "draft": it writes JSON and PNG only.');
  }
  const heading =
    problems.length === 0
      ? `${report.name} ${manifest?.version ?? ""}: in order`
      : `${report.name}: ${counted(problems.length, "mistake")}`;
  const text = [heading, ...problems.map(problemLine), ...notes.map((note) => `  ${note}`)].join(
    "\n",
  );
  const data = { name: report.name, sha256: report.model?.sha256, problems, notes };
  return { text, exitCode: problems.length === 0 ? 0 : 1, data };
}

function ranNote(canary: boolean): string {
  return canary ? "It loads and its canary passes." : "It loads and runs; it has no canary.";
}

/**
 * Disagreements between a manifest and the manifest of the model that finds its region, which lies
 * in a folder beside it.
 */
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
async function graphProblems(
  folder: string,
  report: FolderReport,
  look: GraphLook,
): Promise<Problem[]> {
  const manifest = report.model?.manifest;
  if (manifest === undefined) return unfitGraphs(folder, look);
  try {
    return await graphMistakes(folder, manifest, look);
  } catch (thrown) {
    const { message } = asRadserveError(thrown);
    const words = message.replace(/\.$/, "");
    const isKnown = report.problems.some(
      (one) => graphsOf(manifest).includes(one.path) || one.message.includes(words),
    );
    return isKnown ? [] : [{ path: "files[0]", message }];
  }
}

/** Inputs that no manifest could feed, of the graphs beside a manifest that cannot be read yet. */
async function unfitGraphs(folder: string, look: GraphLook): Promise<Problem[]> {
  const names = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith(".onnx"));
  const found = await Promise.all(
    names.map(async (path) => {
      const graph = await look.inspectGraph(join(folder, path)).catch(() => undefined);
      return (graph?.inputs ?? []).flatMap((info) =>
        Object.values(inputFault(info)).map((message) => ({ path, message })),
      );
    }),
  );
  return found.flat();
}

async function runProblems(
  folder: string,
  model: SoundModel | undefined,
  { engine, providers, trials }: CheckOptions,
): Promise<Problem[]> {
  if (model === undefined) return [];
  try {
    await trials?.require(folder, model);
    const loaded = await loadSession(folder, model, engine, providers);
    const { message, problems } = await unitProblems(folder, engine, loaded, model);
    unloadSession(engine, loaded);
    return message === undefined
      ? problems
      : [{ path: "(running it on a made-up image)", message }];
  } catch (thrown) {
    return [{ path: "(running it)", message: asRadserveError(thrown).message }];
  }
}

/** Of a model of parts those of the first part that has any. */
async function unitProblems(
  folder: string,
  engine: Engine,
  loaded: LoadedSession,
  { manifest, site }: SoundModel,
): Promise<{ message: string | undefined; problems: Problem[] }> {
  for (const [place, unit] of unitsOf(manifest).entries()) {
    const own = { ...loaded, id: loaded.ids[place] ?? loaded.id };
    const sound = { manifest: unit.manifest, thresholds: resolveThresholds(unit.manifest, site) };
    const message = await madeUpProblem(engine, own, sound);
    const problems: Problem[] = [];
    if (message === undefined) {
      const [path] = await graphPaths(folder, unit.manifest);
      problems.push(...activatedAgain(unit.manifest, await engine.inspectGraph(path)));
      problems.push(...(await rawProblems(engine, own, unit.manifest)));
    }
    if (message !== undefined || problems.length > 0) return { message, problems };
  }
  return { message: undefined, problems: [] };
}

export const problemLine = ({ path, message }: Problem): string => `  ${path}: ${message}`;
