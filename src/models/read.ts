/** One model's folder, read and checked as far as that is possible without running it. */
import { basename, join } from "node:path";
import { z } from "zod";
import { modelFileSchema, siteSchema, type Manifest, type Site } from "../manifest/manifest.js";
import { labelsOf, type ModelOutput } from "../manifest/outputs/outputs.js";
import { graphsOf } from "../manifest/ensemble.js";
import { manifestCrossChecks, manifestSchema, thresholdMistake } from "../manifest/rules.js";
import { explainIssues, type Problem } from "./explain.js";
import { unpinnedFiles } from "./external-data.js";
import {
  fault,
  fileStamps,
  modelFiles,
  modelSha256,
  resolveModelFile,
  verifyFiles,
  type FileStamp,
} from "./files.js";
import { errno } from "../base/errno.js";
import { textOfRegular } from "../files/regular-file.js";
import { jsonFault } from "../base/json-fault.js";
import { AS_IT_IS } from "../base/validation.js";
import { ownValue } from "../base/own-value.js";

/** A manifest that obeys its schema, and what follows from it. */
export interface SoundModel {
  manifest: Manifest;
  sha256: string;
  site: Site;
  thresholds: number[][];
  /** Stamps of all files, from before their hashes were taken. */
  stamps: FileStamp[];
}

export interface FolderReport {
  /** The folder's name: the model's own, or it is a problem. */
  name: string;
  directory: string;
  /** Absent if model.json cannot be read or does not obey the schema. */
  model?: SoundModel;
  /**
   * The value in model.json; true if it cannot be read: a server that needs the model must not call
   * itself ready.
   */
  required: boolean;
  problems: Problem[];
}

const FILES = z.array(modelFileSchema);
const NO_FILE = "The file does not exist";
const NO_MANIFEST = `${NO_FILE}, and every folder in the models folder is a model. Write it (radserve models init GRAPH.onnx begins it), put it back, or move the folder away`;

/**
 * Reads a folder and reports every mistake in it at once. Never throws for what the folder holds.
 */
export async function readModelFolder(directory: string): Promise<FolderReport> {
  const name = basename(directory);
  const read = await readJson(join(directory, "model.json"), "model.json");
  if (read.problem !== undefined) {
    const { path, message } = read.problem;
    const problem = { path, message: message === NO_FILE ? NO_MANIFEST : message };
    return { name, directory, required: true, problems: [problem] };
  }
  return judgeManifest(directory, read.value);
}

/**
 * The manifest of a folder without a look at its other files.
 * @returns undefined if model.json cannot be read, or breaks a rule
 */
export async function readManifest(directory: string): Promise<Manifest | undefined> {
  const { value } = await readJson(join(directory, "model.json"), "model.json");
  const parsed = manifestSchema.safeParse(value, AS_IT_IS);
  return parsed.success ? parsed.data : undefined;
}

/** The report of readModelFolder for a folder whose model.json holds `value`. */
export async function judgeManifest(directory: string, value: unknown): Promise<FolderReport> {
  const name = basename(directory);
  const parsed = manifestSchema.safeParse(value, AS_IT_IS);
  const problems = parsed.success ? [] : manifestProblems(value, parsed.error.issues);
  problems.push(...nameProblems(name, value));
  // Before the hashes, so that nothing can be exchanged unseen between them and the loading.
  const stamps = parsed.success ? await fileStamps(directory, modelFiles(parsed.data)) : [];
  problems.push(...(await fileProblems(directory, parsed.data, value)));
  const site = await readSite(directory, parsed.data);
  problems.push(...site.problems);
  const required = (value as { required?: unknown } | null)?.required !== false;
  if (!parsed.success) return { name, directory, required, problems };
  const manifest = parsed.data;
  const thresholds = resolveThresholds(manifest, site.site);
  return {
    name,
    directory,
    required,
    problems,
    model: { manifest, sha256: modelSha256(manifest), site: site.site, thresholds, stamps },
  };
}

/**
 * Where the graphs of a model lie: one, or those of its ensemble. @throws Error if a package that
 * holds one is missing
 */
export async function graphPaths(
  directory: string,
  manifest: Manifest,
): Promise<[string, ...string[]]> {
  const [first = "", ...others] = await Promise.all(
    graphsOf(manifest).map((path) => resolveModelFile(directory, path)),
  );
  return [first, ...others];
}

async function readJson(
  path: string,
  shown: string,
): Promise<{ value?: unknown; problem?: Problem }> {
  let text: string;
  try {
    text = await textOfRegular(path);
  } catch (error) {
    const message = errno(error) === "ENOENT" ? NO_FILE : `Cannot be read: ${fault(error)}`;
    return { problem: { path: shown, message } };
  }
  try {
    const value = JSON.parse(text) as unknown;
    const repeated = jsonFault(text);
    if (repeated?.kind !== "repeated") return { value };
    const { field, line, column } = repeated;
    const message = `Each field stands once; "${field.slice(0, 64)}" stands again at line ${line}, column ${column}`;
    return { problem: { path: shown, message } };
  } catch (error) {
    return {
      problem: { path: shown, message: `Not JSON: ${error instanceof Error ? error.message : ""}` },
    };
  }
}

/**
 * Zod leaves cross-field rules out as soon as one field is wrong; they are run here too, as far as
 * the rest of the manifest lets them, so that its author sees every mistake in one go.
 */
function manifestProblems(value: unknown, issues: readonly z.core.$ZodIssue[]): Problem[] {
  const cross: z.core.$ZodIssue[] = [];
  // A text has no members, either, but JavaScript finds "undefined" there: null ends the rules
  const wrong = issues.filter(({ code, path }) => code === "invalid_type" && path.length === 1);
  const judged: unknown = {
    ...(value as object),
    ...Object.fromEntries(wrong.map(({ path: [field] }) => [String(field), null])),
  };
  try {
    manifestCrossChecks(judged as Manifest, (path, message) =>
      cross.push({ code: "custom", path, message, input: undefined }),
    );
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
  }
  return explainIssues(manifestSchema, value, [...issues, ...cross]);
}

function nameProblems(folder: string, value: unknown): Problem[] {
  const name = (value as { name?: unknown } | null)?.name;
  if (typeof name !== "string" || name === folder) return [];
  return [
    {
      path: "name",
      message: `Expected "${folder}", the folder's name, found "${name}": rename one of them, so that no two models can have one name`,
    },
  ];
}

async function fileProblems(
  directory: string,
  manifest: Manifest | undefined,
  value: unknown,
): Promise<Problem[]> {
  const parsed = FILES.safeParse((value as { files?: unknown } | null)?.files);
  const files = manifest?.files ?? (parsed.success ? parsed.data : []);
  const all = manifest === undefined ? files : modelFiles(manifest);
  const problems = await verifyFiles(directory, all);
  const graphs =
    manifest === undefined ? files.slice(0, 1).map(({ path }) => path) : graphsOf(manifest);
  const unpinned = (
    await Promise.all(
      graphs
        .filter((graph) => !problems.some(({ path }) => path === graph))
        .map((graph) => unpinnedFiles(directory, graph, files)),
    )
  ).flat();
  return [
    ...problems,
    ...unpinned.filter(({ path }) => !problems.some((known) => known.path === path)),
  ];
}

async function readSite(
  directory: string,
  manifest: Manifest | undefined,
): Promise<{ site: Site; problems: Problem[] }> {
  const none: Site = { thresholds: {} };
  const read = await readJson(join(directory, "site.json"), "site.json");
  if (read.problem?.message === NO_FILE) return { site: none, problems: [] };
  if (read.problem !== undefined) return { site: none, problems: [read.problem] };
  const parsed = siteSchema.safeParse(read.value);
  if (!parsed.success) {
    const problems = explainIssues(siteSchema, read.value, parsed.error.issues);
    return { site: none, problems: problems.map((p) => ({ ...p, path: `site.json ${p.path}` })) };
  }
  const problems = manifest === undefined ? [] : siteProblems(manifest, parsed.data);
  return { site: parsed.data, problems };
}

/** A site threshold must override something: any other would be recorded and do nothing. */
function siteProblems(manifest: Manifest, site: Site): Problem[] {
  const labels = manifest.outputs.flatMap(labelsOf);
  const open = labels.filter((l) => l.threshold !== undefined).map((l) => l.label);
  const beyond = manifest.outputs.flatMap((output) =>
    labelsOf(output).flatMap(({ label }) => {
      const threshold = ownValue(site.thresholds, label);
      const message = threshold === undefined ? undefined : thresholdMistake(output, threshold);
      return message === undefined ? [] : [{ path: `site.json thresholds.${label}`, message }];
    }),
  );
  const idle = Object.keys(site.thresholds)
    .filter((label) => !open.includes(label))
    .map((label) => ({
      path: `site.json thresholds.${label}`,
      message: labels.some((l) => l.label === label)
        ? `The label "${label}" has no threshold in model.json, so there is none to override`
        : `model.json has no label "${label}"; labels with a threshold are ${open.join(", ") || "none"}`,
    }));
  return [...beyond, ...idle];
}

export function resolveThresholds(manifest: Manifest, site: Site): number[][] {
  return manifest.outputs.map((output) => {
    const own = isMaskOfBoxes(output) ? {} : site.thresholds;
    return labelsOf(output).map((label) => ownValue(own, label.label) ?? label.threshold ?? NaN);
  });
}

/** Its labels are those of the boxes: a site moves the scores of these, and not areas of masks. */
const isMaskOfBoxes = (output: ModelOutput): boolean =>
  output.kind === "segmentation" && output.activation === "prototypes";
