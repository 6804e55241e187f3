/**
 * The canary: a stored tensor goes in, and what comes out must be what came out where the model was
 * approved. It shows a driver, a library or a machine that computes something else before a
 * patient's image does.
 */
import type { Engine } from "../engine/engine.js";
import type { CanaryTensors, LoadedModel } from "../engine/types.js";
import { durations } from "../base/durations.js";
import { type Tensor, ELEMENT_TYPES } from "../base/tensor.js";
import { errors, RadserveError } from "../base/errors.js";
import {
  channelsOf,
  isImageInput,
  numbersOf,
  type ImageInput,
  type Manifest,
  type ModelInput,
} from "../manifest/manifest.js";
import { decodeNpy, elementCount } from "../engine/npy.js";
import { readRegular } from "../files/regular-file.js";
import type { Tiling } from "../manifest/tiling.js";
import type { Precision, Provider } from "../manifest/providers.js";
import { resolveModelFile } from "./files.js";
import { compareTensors, type Tolerance } from "./compare.js";

/** Side of the image or volume that warms a model whose input size is the source's own. */
const WARM_UP_SIDE = 64;

/**
 * A model whose run takes longer is not run twice at once to warm it: that takes twice its memory,
 * and hides less than a run.
 */
const LONG_RUN_MS = 500;

/** TF32 is CUDA's and bfloat16 OpenVINO's: others compute such a model in float32. */
export function effectivePrecision(provider: Provider, precision: Precision): Precision {
  const owner = { tf32: "cuda", bfloat16: "openvino", float32: provider, float16: provider };
  return owner[precision] === provider ? precision : "float32";
}

/** The canary's tolerance for a provider; undefined if the manifest gives none. */
export function toleranceFor(manifest: Manifest, provider: Provider): Tolerance | undefined {
  const precision = effectivePrecision(provider, manifest.execution.precision);
  return manifest.canary?.tolerance.find(
    (t) => t.provider === provider && t.precision === precision,
  );
}

/**
 * Runs a loaded model once: its canary, or a tensor of zeros if it has no canary. Then it runs two
 * at once, because they use another session than one alone does, and the first run of each session
 * is slow; not where a run is long.
 * @param stop ends it before its time
 * @throws RadserveError model_unavailable if the canary's output differs or a run does not end;
 * what the engine throws
 */
export async function warmUp(
  engine: Engine,
  loaded: LoadedModel,
  manifest: Manifest,
  directory: string,
  stop?: AbortSignal,
): Promise<void> {
  let tookMs = 0;
  const run = async (feeds: Tensor[]) => {
    const began = performance.now();
    const outputs = await firstRun(engine, stop, (limits) =>
      engine.runTensors(loaded.id, feeds, limits),
    );
    tookMs = performance.now() - began;
    return outputs;
  };
  const canary = await canaryOf(loaded, manifest, directory);
  const feeds = canary?.feeds ?? manifest.inputs.map((input) => zeroInput(input, manifest));
  const runChecked = async () => {
    const outputs = await run(feeds);
    if (canary !== undefined) checkCanary(canary, outputs);
  };
  await runChecked();
  if (canary !== undefined) engine.keepCanary(loaded.id, canary);
  if (loaded.sessions.length > 1 && tookMs < LONG_RUN_MS)
    await Promise.all([runChecked(), runChecked()]);
}

/** One of a model's first runs, which end as `ending` says. */
export const firstRun = <T>(
  engine: Engine,
  stop: AbortSignal | undefined,
  run: Parameters<typeof ending<T>>[2],
): Promise<T> =>
  ending(engine, { what: "a run of its graph", timeoutMs: durations.firstRun, stop }, run);

/** The number of whatever loads models, one after the other. Tasks count theirs up from 1. */
const CANCEL_ID = Number.MAX_SAFE_INTEGER;

/**
 * Work of loading a model that ends: of itself, when its time is over, or when nobody wants the
 * model any more.
 * @param what is done, for people
 * @param timeoutMs how long it may take
 */
export async function ending<T>(
  engine: Engine,
  { what, timeoutMs, stop }: { what: string; timeoutMs: number; stop: AbortSignal | undefined },
  work: (limits: { timeoutMs: number; cancelId: number }) => Promise<T>,
): Promise<T> {
  stop?.throwIfAborted();
  const cancel = () => engine.cancel(CANCEL_ID);
  stop?.addEventListener("abort", cancel);
  try {
    return await work({ timeoutMs, cancelId: CANCEL_ID });
  } catch (error) {
    if (error instanceof RadserveError && error.code === "deadline_exceeded")
      throw failed(
        `${what} did not end within ${timeoutMs / 1000} s. A graph with a loop may never end: correct the graph, or use a smaller model`,
      );
    throw error;
  } finally {
    stop?.removeEventListener("abort", cancel);
  }
}

/** The canary as its files have it; undefined if there is none. */
async function canaryOf(
  loaded: LoadedModel,
  manifest: Manifest,
  directory: string,
): Promise<CanaryTensors | undefined> {
  const { canary, inputs } = manifest;
  if (canary === undefined) return undefined;
  const precision = effectivePrecision(loaded.provider, manifest.execution.precision);
  const tolerance = toleranceFor(manifest, loaded.provider);
  if (tolerance === undefined)
    throw failed(
      `canary.tolerance has no entry for provider ${loaded.provider} and precision ${precision}; add one that was measured there`,
    );
  const feeds = await canaryFeeds(canary, inputs, directory);
  const expected: Tensor[] = [];
  for (const { tensor, file } of canary.expected)
    expected.push({ name: tensor, ...(await readTensor(directory, file.path)) });
  return { feeds, expected, ...tolerance, timeoutMs: durations.firstRun };
}

/** @throws RadserveError model_unavailable where an output is another than the canary's */
function checkCanary(canary: CanaryTensors, outputs: readonly Tensor[]): void {
  for (const wanted of canary.expected) {
    const actual = outputs.find(({ name }) => name === wanted.name);
    if (actual === undefined)
      throw failed(`the canary expects a tensor "${wanted.name}", which the graph does not give`);
    const difference = compareTensors(wanted, actual, canary);
    if (!difference.equal)
      throw failed(`the canary's output "${wanted.name}" is wrong here: ${difference.text}`);
  }
}

/** What goes in. */
export async function canaryFeeds(
  canary: NonNullable<Manifest["canary"]>,
  inputs: readonly ModelInput[],
  directory: string,
): Promise<Tensor[]> {
  const feeds: Tensor[] = [];
  for (const { tensor } of inputs) {
    const file = canary.input ?? canary.inputs?.find((one) => one.tensor === tensor)?.file;
    if (file !== undefined)
      feeds.push({ name: tensor, ...(await readTensor(directory, file.path)) });
  }
  return feeds;
}

async function readTensor(directory: string, path: string): Promise<Omit<Tensor, "name">> {
  const bytes = await readRegular(await resolveModelFile(directory, path));
  try {
    return decodeNpy(bytes);
  } catch (error) {
    if (error instanceof RadserveError) throw failed(`${path}: ${error.message}`);
    throw error;
  }
}

/** One image of zeros, or zeros for its attributes, in the form that a manifest's input has. */
export function zeroInput(input: ModelInput, { tiling, batching }: Manifest): Tensor {
  const sides =
    isImageInput(input) && tiling !== undefined ? windowSides(tiling, batching.max) : {};
  const size: Record<string, number> = isImageInput(input)
    ? { N: 1, C: channelsOf(input), ...inputSides(input), ...sides }
    : { N: 1, C: input.values.reduce((sum, value) => sum + numbersOf(value), 0) };
  const shape = Array.from(input.layout).map((letter) => size[letter] ?? 1);
  return {
    name: input.tensor,
    dtype: input.dtype,
    shape,
    data: new Uint8Array(elementCount(shape) * ELEMENT_TYPES[input.dtype].bytes),
  };
}

/** Sides of the tensor, or those that are usual where it takes the source's own size. */
export function inputSides(input: ImageInput): { D: number; H: number; W: number } {
  if (input.size.kind === "fixed")
    return { D: input.size.depth ?? 1, H: input.size.height, W: input.size.width };
  const multiple = input.size.kind === "multiple_of" ? input.size.multiple : 1;
  const side = Math.ceil(WARM_UP_SIDE / multiple) * multiple;
  return { D: side, H: side, W: side };
}

/**
 * Sides of a volume of about one batch of windows, beside each other in depth: over a cube of that
 * side small windows, and windows of single slices, would run a thousand times.
 */
function windowSides(
  { window, overlap }: Tiling,
  batch: number,
): { D: number; H: number; W: number } {
  const [W = 1, H = 1, depth = 1] = window.toReversed();
  const step = window.length < 3 ? 1 : Math.max(1, Math.floor(depth * (1 - overlap)));
  return { D: Math.max(depth, Math.min(WARM_UP_SIDE, depth + (batch - 1) * step)), H, W };
}

const { model_unavailable: failed } = errors;
