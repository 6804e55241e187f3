/**
 * `radserve models canary`: runs a model on an image here, and writes that as a canary beside its
 * manifest.
 */
import { mkdir, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { errno } from "../../base/errno.js";
import { asRadserveError, errors } from "../../base/errors.js";
import { encodeNpy } from "../../engine/npy.js";
import type { Tensor } from "../../base/tensor.js";
import { sha256 } from "../../files/durable-files.js";
import { textOfRegular } from "../../files/regular-file.js";
import type { Candidates } from "../../images/dicom/case.js";
import type { Case, Image, StackTolerance } from "../../images/image.js";
import { toleranceOf, type Manifest } from "../../manifest/manifest.js";
import { effectivePrecision } from "../../models/canary.js";
import { DEFAULT_TOLERANCE, toNumbers, type Tolerance } from "../../models/compare.js";
import type { CommandResult } from "../../models/command-result.js";
import { inferOnce, type OnceOptions } from "../../inference/infer-once.js";
import { loadSession, unloadSession } from "../../models/load.js";
import { judgeManifest, type SoundModel } from "../../models/read.js";
import { chooseCase, fill } from "../../models/roles.js";
import { inferenceLines, soundModel } from "./try.js";

export interface CanaryOptions extends OnceOptions {
  /** The difference that another machine's output may have; DEFAULT_TOLERANCE where absent. */
  tolerance?: { [Limit in keyof Tolerance]?: Tolerance[Limit] | undefined };
}

/** A file of the canary, before it is written. */
interface CanaryFile {
  path: string;
  bytes: Uint8Array;
}

/**
 * Runs the model on the image, stores the tensor that goes in and those that come out as .npy
 * files, runs the model on them again as the server will when it loads it, and enters them in
 * model.json. A mistake elsewhere in the manifest, a canary that is there already and a canary that
 * fails are errors, and nothing stays written.
 * @throws RadserveError bad_request, model_unavailable; what decoding and the engine throw
 */
export async function modelsCanary(
  directory: string,
  image: Image,
  options: CanaryOptions,
): Promise<CommandResult> {
  const folder = resolve(directory);
  const value = await manifestIn(folder);
  const given = Array.isArray(value["parts"]) ? (value["parts"] as object[]) : undefined;
  // What a part of a draft is, is judged afterwards
  const hasCanary = (one: unknown) => typeof one === "object" && one !== null && "canary" in one;
  if ([value, ...(given ?? [])].some(hasCanary))
    throw errors.bad_request(
      "Expected no canary in model.json, found one. Take it out first; it is never overwritten.",
    );
  const model = await soundDraft(folder, value);
  const inferred = await inferOnce(folder, model, image, options);
  const { inputs, outputs } = inferred.result.tensors;
  const { precision } = model.manifest.execution;
  const { provider } = inferred.loaded;
  const { absolute = DEFAULT_TOLERANCE.absolute, relative = DEFAULT_TOLERANCE.relative } =
    options.tolerance ?? {};
  const tolerance = {
    provider,
    precision: effectivePrecision(provider, precision),
    absolute,
    relative,
  };
  const { canaries, files } = canariesOf(model.manifest, { inputs, outputs }, tolerance);
  const next =
    given === undefined
      ? { ...value, canary: canaries[0] }
      : { ...value, parts: given.map((part, i) => ({ ...part, canary: canaries[i] })) };
  await writeFiles(folder, files);
  try {
    await run(folder, next, options);
    await replaceManifest(folder, next);
  } catch (thrown) {
    await Promise.all(files.map(({ path }) => rm(join(folder, path), { force: true })));
    throw thrown;
  }
  const text = [
    ...inferenceLines(model.manifest, image, inferred, { output: sameEverywhere }),
    ...files.map(({ path }) => `  wrote ${path}`),
    `  Entered in model.json, with tolerance ${absolute} absolute, ${relative} relative for ${provider}.`,
    ...model.manifest.execution.providers
      .filter((other) => other !== provider)
      .map((other) => `  For ${other} add a tolerance that was measured there.`),
    "  It shows that other machines compute what this one did, not that this is right: compare first (models try --expect).",
  ].join("\n");
  const [canary] = canaries;
  const entered = given === undefined ? { canary } : { canaries };
  return { text, exitCode: 0, data: { name: model.manifest.name, provider, ...entered } };
}

/** The way in which a folder of images is read for a model. */
export interface FolderReading {
  /**
   * Chooses the case that the folder is, for a model with roles. Throws no_model_accepts if it is
   * none.
   */
  caseOf?: (found: Candidates) => Case | undefined;
  /** The tilt and the missing slices that the model takes. */
  tolerance?: StackTolerance | undefined;
}

/**
 * Nothing for a model whose manifest has mistakes, which whoever reads it next names. Its canary
 * may be missing still.
 */
export async function folderReading(directory: string): Promise<FolderReading> {
  const folder = resolve(directory);
  const value = await manifestIn(folder).catch(() => undefined);
  const { model } = value === undefined ? {} : await judgeManifest(folder, asDraft(value));
  if (model === undefined) return {};
  const tolerance = toleranceOf(model.manifest);
  return model.manifest.roles === undefined
    ? { tolerance }
    : { tolerance, caseOf: caseReader(model.manifest) };
}

function caseReader(manifest: Manifest): (found: Candidates) => Case | undefined {
  return (found) => {
    const chosen = chooseCase([{ name: manifest.name, manifest }], found, () => true);
    if (chosen !== undefined) return chosen;
    const filled = fill(
      manifest,
      manifest.accepts.dimensions === "series" ? found.series() : found.images(),
    );
    const reasons = "reasons" in filled ? filled.reasons : [];
    throw errors.no_model_accepts(
      `Expected a folder that is a case for ${manifest.name}. ${reasons.map(({ message }) => message).join(" ")}`,
      { reasons },
    );
  };
}

async function manifestIn(folder: string): Promise<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(await textOfRegular(join(folder, "model.json")));
  } catch (error) {
    throw errors.bad_request(
      `Expected a model.json in the folder, found that it cannot be read: ${error instanceof Error ? error.message : ""}. Run: radserve models init`,
    );
  }
  return value !== null && typeof value === "object" ? (value as Record<string, unknown>) : {};
}

/** The model without what a canary's manifest may still lack: the canary, and codes. */
const soundDraft = async (folder: string, value: Record<string, unknown>): Promise<SoundModel> =>
  soundModel(await judgeManifest(folder, asDraft(value)));

const asDraft = (value: Record<string, unknown>) => ({
  ...value,
  stage: "draft",
  results: { outputs: ["json"] },
});

/** Loads the model with its new canary as the server will. */
async function run(
  folder: string,
  value: Record<string, unknown>,
  { engine, providers }: CanaryOptions,
): Promise<void> {
  const model = await soundDraft(folder, value);
  try {
    unloadSession(engine, await loadSession(folder, model, engine, providers));
  } catch (thrown) {
    const { message } = asRadserveError(thrown);
    throw errors.model_unavailable(
      `Expected the same output again, but ${message}. A model that gives other numbers each time, or depends on the batch, has no canary.`,
    );
  }
}

type Canary = NonNullable<Manifest["canary"]>;
interface CanaryTensors {
  inputs: readonly Tensor[];
  outputs: readonly Tensor[];
}

/** The canary of a model, or those of its parts: the tensors of each follow each other. */
function canariesOf(
  { parts }: Manifest,
  { inputs, outputs }: CanaryTensors,
  tolerance: Canary["tolerance"][number],
): { canaries: Canary[]; files: CanaryFile[] } {
  const made =
    parts === undefined
      ? [canaryOf("canary", { inputs, outputs }, tolerance)]
      : parts.map(({ name }, i) => {
          const own = { inputs: inputs.slice(i, i + 1), outputs: outputs.slice(i, i + 1) };
          return canaryOf(`canary/${name}`, own, tolerance);
        });
  return {
    canaries: made.map(({ canary }) => canary),
    files: made.flatMap(({ files }) => files),
  };
}

function canaryOf(
  folder: string,
  { inputs, outputs }: CanaryTensors,
  tolerance: Canary["tolerance"][number],
): { canary: Canary; files: CanaryFile[] } {
  const files: CanaryFile[] = [];
  const kept = (tensor: Tensor, name: string) => {
    const file = { path: `${folder}/${name}.npy`, bytes: encodeNpy(tensor) };
    files.push(file);
    return { tensor: tensor.name, file: { path: file.path, sha256: sha256(file.bytes) } };
  };
  const [only, ...more] = inputs;
  const going =
    only !== undefined && more.length === 0
      ? { input: kept(only, "input").file }
      : { inputs: inputs.map((tensor, i) => kept(tensor, `input-${i + 1}`)) };
  const expected = outputs.map((tensor, i) => kept(tensor, `output-${i + 1}`));
  return { canary: { ...going, expected, tolerance: [tolerance] }, files };
}

/** @throws RadserveError bad_request if one of them is there; then none is written */
async function writeFiles(folder: string, files: readonly CanaryFile[]): Promise<void> {
  const written: string[] = [];
  try {
    for (const { path, bytes } of files) {
      const target = join(folder, path);
      await mkdir(dirname(target), { recursive: true });
      await writeFile(target, bytes, { flag: "wx" });
      written.push(target);
    }
  } catch (error) {
    await Promise.all(written.map((path) => rm(path)));
    if (errno(error) !== "EEXIST") throw error;
    throw errors.bad_request(
      "Expected no files of an earlier canary in the folder canary, found some. Move them away first; they are never overwritten.",
    );
  }
}

/** Exchanged as a whole: a server that reloads meanwhile reads the old one or the new one. */
async function replaceManifest(folder: string, value: Record<string, unknown>): Promise<void> {
  const next = join(folder, ".model.json.next");
  await writeFile(next, `${JSON.stringify(value, null, 2)}\n`);
  await rename(next, join(folder, "model.json"));
}

/** A canary that is zero everywhere would pass with weights that were lost. */
function sameEverywhere(tensor: Tensor): string {
  const [first, ...others] = toNumbers(tensor);
  return others.length > 0 && others.every((value) => value === first)
    ? `, the same number everywhere: take an image on which the model finds something`
    : "";
}
