/** `radserve models try`: shows what goes into a model for an image, and what comes out. */
import { writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import type { Tensor } from "../../base/tensor.js";
import { errors } from "../../base/errors.js";
import { decodeNpy, encodeNpy } from "../../engine/npy.js";
import type { EngineOutput } from "../../engine/types.js";
import { readRegular } from "../../files/regular-file.js";
import type { Image } from "../../images/image.js";
import { stepText } from "../../images/step-text.js";
import { inferOnce, type OnceOptions, type OnceResult } from "../../inference/infer-once.js";
import { regionStep } from "../../inference/region.js";
import type { Manifest } from "../../manifest/manifest.js";
import { accepts } from "../../models/acceptance.js";
import { toleranceFor } from "../../models/canary.js";
import type { CommandResult } from "../../models/command-result.js";
import { DEFAULT_TOLERANCE } from "../../models/compare.js";
import { readModelFolder, type FolderReport, type SoundModel } from "../../models/read.js";
import { kindOfGiven } from "../../results/kinds/kinds.js";
import { compareExpected } from "./expected.js";

export interface TryOptions extends OnceOptions {
  /** Path of the .npy file that the tensor that goes in is written to. */
  dump?: string | undefined;
  /**
   * A .npy file to compare with the first output tensor, or with probabilities or labels on the
   * source's grid.
   */
  expect?: string | undefined;
}

/**
 * Runs a model on one image whether or not it accepts it, and shows the exact tensor that goes in
 * and what comes out.
 * @throws RadserveError for a folder with mistakes; what inferOnce throws
 */
export async function modelsTry(
  directory: string,
  image: Image,
  options: TryOptions,
): Promise<CommandResult> {
  const folder = resolve(directory);
  const model = soundModel(await readModelFolder(folder));
  const { manifest } = model;
  const inferred = await inferOnce(folder, model, image, options);
  const { loaded, result } = inferred;
  const { inputs } = result.tensors;
  const dumps = inputs.map((_, i) => dumpName(options.dump, i));
  for (const [i, tensor] of inputs.entries()) {
    const file = dumps[i];
    if (file !== undefined) await writeFile(file, encodeNpy(tensor));
  }
  const tolerance = toleranceFor(manifest, loaded.provider) ?? DEFAULT_TOLERANCE;
  const compared =
    options.expect === undefined
      ? undefined
      : compareExpected(decodeNpy(await readRegular(options.expect)), result, tolerance);
  const text = [
    ...inferenceLines(manifest, image, inferred, {
      input: (i) => (dumps[i] === undefined ? [] : [`       written to ${dumps[i]}`]),
    }),
    ...(compared === undefined
      ? []
      : [`  ${compared.what} against the expected: ${compared.text}`]),
  ].join("\n");
  const described = inputs.map(({ name, dtype, shape }) => ({ tensor: name, dtype, shape }));
  const data = {
    name: manifest.name,
    provider: loaded.provider,
    reasons: accepts({ manifest }, image),
    input: described[0],
    ...(inputs.length > 1 ? { inputs: described } : {}),
    outputs: result.outputs.map(summary),
    raw_sha256: result.rawSha256,
    ...(result.warnings.length === 0 ? {} : { warnings: result.warnings }),
    ...(compared === undefined ? {} : { comparison: compared }),
  };
  return { text, exitCode: compared?.equal === false ? 1 : 0, data };
}

/** @throws RadserveError model_unavailable for a model with mistakes */
export function soundModel({
  name,
  model,
  problems,
}: Pick<FolderReport, "name" | "model" | "problems">): SoundModel {
  if (model !== undefined && problems.length === 0) return model;
  throw errors.model_unavailable(
    `Expected a model without mistakes, found ${problems.length} in ${name}. Run: radserve models check`,
    { problems },
  );
}

/**
 * The first tensor's file has the name that was asked for; that of the second ends in -2.npy, and
 * so on.
 */
function dumpName(dump: string | undefined, place: number): string | undefined {
  if (dump === undefined || place === 0) return dump;
  return `${dump.replace(/\.npy$/, "")}-${place + 1}.npy`;
}

/**
 * The inference of a model on an image as lines for people.
 * @param more lines behind that of an input, and words behind an output
 */
export function inferenceLines(
  manifest: Manifest,
  image: Image,
  { loaded, result: { tensors, outputs, extent, warnings } }: OnceResult,
  more: { input?: (place: number) => string[]; output?: (tensor: Tensor) => string },
): string[] {
  const isVolume = manifest.accepts.dimensions === "series";
  const part =
    extent === undefined ? [] : [stepText(regionStep(manifest.region, [extent], isVolume))];
  return [
    `${manifest.name} ${manifest.version} on ${loaded.provider}`,
    ...accepts({ manifest }, image).map(({ message }) => `  does not accept the image: ${message}`),
    ...[...part, ...warnings.map(({ message }) => message)].map((line) => `  ${line}`),
    ...tensors.inputs.flatMap((tensor, i) => [
      `  in   ${tensorText(tensor)}`,
      ...(more.input?.(i) ?? []),
    ]),
    ...tensors.outputs.map(
      (tensor) => `  out  ${tensorText(tensor)}${more.output?.(tensor) ?? ""}`,
    ),
    ...outputs.map((output) => `  ${summary(output)}`),
  ];
}

/** "pixels: float32 [1, 3, 224, 224]". */
const tensorText = ({ name, dtype, shape }: Tensor): string =>
  `${name}: ${dtype} [${shape.join(", ")}]`;

/** One line for an output, for people. */
const summary = (output: EngineOutput): string =>
  `${output.tensor}: ${kindOfGiven(output).summary(output)}`;
