/** One inference of a model that no server holds: loaded, given an image, and unloaded. */
import { join } from "node:path";
import type { Engine } from "../engine/engine.js";
import type { InferResult, Plane } from "../engine/types.js";
import { durations } from "../base/durations.js";
import { errors } from "../base/errors.js";
import { within } from "../base/waiting.js";
import type { Image } from "../images/image.js";
import { firstModelOf, type Manifest } from "../manifest/manifest.js";
import { regionProblem } from "../manifest/region.js";
import { attributeNumbers } from "../models/attribute-numbers.js";
import type { Provider } from "../manifest/providers.js";
import { loadSession, unloadSession, type LoadedSession } from "../models/load.js";
import { readModelFolder, type SoundModel } from "../models/read.js";
import { rolesIn } from "../models/roles.js";
import type { TriedFirst } from "../models/trial.js";
import { planeOf } from "../results/picture/draw-result.js";
import { inferUnits, unitsToRun } from "./parts.js";
import { tooLate } from "./task.js";
import { inferSample, samplesOf, type FirstRun, type SampleResult, type Stack } from "./views.js";

export interface OnceOptions {
  engine: Engine;
  providers: readonly Provider[];
  /** Tries the model before it is loaded. */
  trials?: TriedFirst;
  /** How long a run may take, in milliseconds; as long as it takes, if absent. */
  timeoutMs?: number;
  /** Number of the frame, from 1; the first, if absent. A model of whole series takes all. */
  frame?: number | undefined;
}

export interface OnceResult {
  loaded: LoadedSession;
  result: SampleResult & Required<Pick<InferResult, "tensors" | "rawSha256">>;
}

/**
 * The result, with all tensors, whether or not the model accepts the image. A model that looks at
 * the region of another, or is given its labels, gets them of the model in the folder of that name
 * beside its own.
 * @throws RadserveError series_invalid if a volume is needed and the image is not one; bad_request
 * for a frame that there is not; model_unavailable if the other model is not there;
 * no_model_accepts if that found no region and this one does not look then; what decoding and the
 * engine throw
 */
export async function inferOnce(
  folder: string,
  model: SoundModel,
  image: Image,
  options: OnceOptions,
): Promise<OnceResult> {
  const { engine, providers, trials, timeoutMs, frame = 1 } = options;
  const { manifest } = model;
  const samples = samplesOf(manifest, image, rolesIn(manifest, image));
  const sample = samples.find((one) => one.frame === undefined || one.frame === frame - 1);
  if (sample === undefined)
    throw errors.bad_request(`Expected a frame from 1 to ${image.frameCount}, found ${frame}.`);
  const stacks: Stack[] = [];
  for (const part of sample.parts) {
    const planes: Plane[] = [];
    for (const one of part.frames)
      planes.push(planeOf(part.image, one, await part.image.frame(one)));
    stacks.push({ ...part, planes });
  }
  const first = await firstRun(folder, manifest, image, options);
  const numbers = attributeNumbers(manifest, image);
  const tried = await trials?.require(folder, model);
  const loaded = await loadSession(folder, model, engine, providers, { tried });
  const { id: nativeId, ids: partIds } = loaded;
  try {
    const units = unitsToRun({ manifest, site: model.site, nativeId, partIds });
    const result = await inferSample(sample, stacks, {
      manifest,
      first: () => {
        if (first === undefined)
          throw new RangeError("The manifest names the model that looks first");
        return first;
      },
      infer: (planes, given) =>
        inferUnits(units, manifest, ({ id, thresholds }) =>
          inTime(
            engine.infer(id, planes, { dump: true, thresholds, numbers, timeoutMs, ...given }),
            timeoutMs,
          ),
        ),
    });
    const reasons = "code" in result ? [result] : result.warnings;
    if ("code" in result || result.tensors === undefined || result.rawSha256 === undefined)
      throw errors.no_model_accepts(
        `${reasons[0]?.message ?? ""} Take an image in which it finds some.`,
        {
          reasons,
        },
      );
    const { tensors, rawSha256 } = result;
    return { loaded, result: { ...result, tensors, rawSha256 } };
  } finally {
    unloadSession(engine, loaded);
  }
}

/**
 * What a run of the engine gives. It is left alone where it goes on after its time: ONNX Runtime
 * looks between two nodes whether it is to stop.
 * @throws RadserveError deadline_exceeded
 */
async function inTime<T>(run: Promise<T>, timeoutMs: number | undefined): Promise<T> {
  if (timeoutMs === undefined || (await within(run, timeoutMs + durations.lastMoment))) return run;
  throw tooLate("finish");
}

/** Runs the model beside this one on the same image; undefined for a manifest that names none. */
async function firstRun(
  folder: string,
  manifest: Manifest,
  image: Image,
  options: OnceOptions,
): Promise<FirstRun | undefined> {
  const name = firstModelOf(manifest);
  if (name === undefined) return undefined;
  const beside = join(folder, "..", name);
  const { model, problems } = await readModelFolder(beside);
  const problem =
    model === undefined
      ? problems[0]?.message
      : regionProblem(manifest, { ...model.manifest, release: "active" });
  if (model === undefined || problem !== undefined)
    throw errors.model_unavailable(
      `Expected the model "${name}" beside this one, which looks before it. ${problem ?? "It cannot be read."}`,
    );
  const { result } = await inferOnce(beside, model, image, options);
  return { manifest: model.manifest, outputs: result.outputs };
}
