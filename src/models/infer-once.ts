/** One inference of a model that no server holds: loaded, given an image, and unloaded. */
import type { Engine } from "../engine/engine.js";
import { markedLabels } from "../engine/marked-labels.js";
import type { Tensor } from "../base/tensor.js";
import type { InferResult, LoadedModel, ModelGridMask, Plane, PlaneSource } from "../engine/types.js";
import { RadserveError } from "../base/errors.js";
import { volumeOf } from "../images/dicom/volume.js";
import type { Image, VolumeGeometry } from "../images/image.js";
import { cascadeOf, neighboursOf, toleranceOf, type Manifest } from "../manifest/manifest.js";
import { regionProblem } from "../manifest/region.js";
import { join } from "node:path";
import { readModelFolder } from "./read.js";
import { attributeNumbers } from "./attribute-numbers.js";
import { interpretationFor } from "./input-values.js";
import { loadSession, type Provider } from "./load.js";
import type { SoundModel } from "./read.js";
import { rolesIn, sourcesOf } from "./roles.js";
import { inSourceSlices, mapsInSourceSlices, straightened, straightOf, type Straight } from "./straighten.js";

export interface OnceOptions {
  engine: Engine;
  providers: readonly Provider[];
  /** Number of the frame, from 1; the first, if absent. A model of whole series takes all. */
  frame?: number;
}

/**
 * The result, with all tensors, whether or not the model accepts the image.
 * @throws RadserveError series_invalid if a volume is needed and the image is not one; bad_request for a frame that
 * there is not; what decoding and the engine throw
 */
export async function inferOnce(
  folder: string,
  model: SoundModel,
  image: Image,
  { engine, providers, frame = 1 }: OnceOptions,
): Promise<{ loaded: LoadedModel; result: InferResult }> {
  const given =
    model.manifest.roles === undefined ? await planesFor(model, image, frame) : await caseFor(model, image);
  const labels = await labelsFor(folder, model, image, { engine, providers, frame });
  const loaded = await loadSession(folder, model, engine, providers);
  try {
    const result = await engine.infer(loaded.id, given.planes, {
      dump: true,
      thresholds: model.thresholds,
      ...(given.geometry === undefined ? {} : { geometry: given.geometry }),
      ...(given.centre === undefined ? {} : { centre: given.centre }),
      ...(labels === undefined ? {} : { labels }),
      ...(given.sources === undefined ? {} : { sources: given.sources }),
      numbers: attributeNumbers(model.manifest, image),
    });
    return {
      loaded,
      result: given.straight === undefined ? result : inSource(result, given.straight, image),
    };
  } finally {
    await engine.unload(loaded.id);
  }
}

/** What was said of a straight stack, as said of the source's slices; the tensors of the graph stay what they were. */
function inSource(result: InferResult, straight: Straight, { format }: Image): InferResult {
  const { tensors } = result;
  return {
    ...result,
    outputs: inSourceSlices(result.outputs, straight, format),
    ...(tensors === undefined
      ? {}
      : {
          tensors: {
            ...tensors,
            probabilities: tensors.probabilities.map((maps) => mapsInSourceSlices(maps, straight, format)),
          },
        }),
  };
}

/** What the model beside this one marks, for a model that is given its labels. */
async function labelsFor(
  folder: string,
  { manifest }: SoundModel,
  image: Image,
  options: OnceOptions,
): Promise<Uint8Array | undefined> {
  const cascade = cascadeOf(manifest);
  if (cascade === undefined) return undefined;
  const beside = join(folder, "..", cascade.model);
  const { model, problems } = await readModelFolder(beside);
  const problem =
    model === undefined
      ? problems[0]?.message
      : regionProblem(manifest, { ...model.manifest, release: "active" });
  if (model === undefined || problem !== undefined)
    throw new RadserveError(
      "model_unavailable",
      `Expected the model "${cascade.model}" beside this one, whose labels it is given. ${problem ?? "It cannot be read."}`,
    );
  const { result } = await inferOnce(beside, model, image, options);
  return markedLabels(result.outputs);
}

interface Given {
  planes: Plane[];
  geometry?: VolumeGeometry;
  centre?: number;
  sources?: PlaneSource[];
  /** Set if the planes are those of a tilted stack, or of one with missing slices, which the manifest allows. */
  straight?: Straight;
}

/** The planes of all roles of a case. */
async function caseFor({ manifest }: SoundModel, image: Image): Promise<Given> {
  const roles = rolesIn(manifest, image);
  const { planes, told } = await sourcesOf(manifest, roles, (own, frame) => storedPlane(own, frame + 1));
  const geometry = told[0]?.geometry;
  return { planes, sources: told, ...(geometry === undefined ? {} : { geometry }) };
}

/** One frame, with its neighbours if the model takes them, or all slices of the volume if it takes whole series. */
async function planesFor(model: SoundModel, image: Image, frame: number): Promise<Given> {
  const around = neighboursOf(model.manifest);
  if (model.manifest.accepts.dimensions !== "series") {
    const own = await planeOf(model.manifest, image, frame);
    if (around === undefined) return { planes: [own] };
    const { frames } = volumeOf(image);
    const slice = frames.indexOf(frame - 1);
    const first = Math.max(0, slice - around.before);
    const beside: Plane[] = [];
    for (const one of frames.slice(first, slice + around.after + 1))
      beside.push(one === frame - 1 ? own : await planeOf(model.manifest, image, one + 1));
    return { planes: beside, centre: slice - first };
  }
  const volume = volumeOf(image, toleranceOf(model.manifest));
  const planes: Plane[] = [];
  for (const slice of volume.frames) planes.push(await storedPlane(image, slice + 1));
  const straight = straightOf(volume, image.format);
  const meant = (all: readonly Plane[]) => all.map((plane) => meantFor(model.manifest, plane));
  if (straight === undefined) return { planes: meant(planes), geometry: volume.geometry };
  return { planes: meant(straightened(planes, straight)), geometry: straight.geometry, straight };
}

async function planeOf(manifest: Manifest, image: Image, frame: number): Promise<Plane> {
  return meantFor(manifest, await storedPlane(image, frame));
}

const meantFor = (manifest: Manifest, plane: Plane): Plane => ({
  ...plane,
  interpretation: interpretationFor(manifest, plane.interpretation),
});

/** A frame with the interpretation of its file. */
async function storedPlane(image: Image, frame: number): Promise<Plane> {
  const index = frame - 1;
  if (!Number.isInteger(frame) || index < 0 || index >= image.frameCount)
    throw new RadserveError("bad_request", `Expected a frame from 1 to ${image.frameCount}, found ${frame}.`);
  return {
    format: image.format,
    data: await image.frame(index),
    interpretation: image.interpretation(index),
    pixelAspect: image.pixelAspect(index),
  };
}

/** "float32 [1, 3, 224, 224]". */
export function shapeText({ dtype, shape }: Tensor): string {
  return `${dtype} [${shape.join(", ")}]`;
}

function inOwnGrid(model: ModelGridMask | undefined): string {
  if (model === undefined) return "";
  const { slices, rows, columns, geometry, counts } = model;
  const { sliceSpacing, rowSpacing, columnSpacing } = geometry;
  const spacing = [sliceSpacing, rowSpacing, columnSpacing]
    .map((mm) => Number(mm.toPrecision(4)))
    .join(" x ");
  return `; in the model's grid of ${slices} x ${rows} x ${columns} voxels of ${spacing} mm ${counts.join(", ")}`;
}

/** One line for an output, for people. */
export function summary(output: InferResult["outputs"][number]): string {
  switch (output.kind) {
    case "classification":
      return `${output.tensor}: scores ${Array.from(output.scores, (s) => s.toFixed(4)).join(", ")}`;
    case "regression":
      return `${output.tensor}: values ${Array.from(output.values, (v) => v.toFixed(4)).join(", ")}`;
    case "segmentation":
      return `${output.tensor}: pixels of each label ${output.counts.join(", ")}${inOwnGrid(output.model)}`;
    case "boxes":
      return `${output.tensor}: ${output.boxes.length} boxes`;
    case "points":
      return `${output.tensor}: ${output.points.length} points`;
    case "heatmap":
      return `${output.tensor}: ${output.rows} x ${output.columns}`;
  }
}
