/**
 * Reads the marks of a model on one frame of a source, or on a plane across its slices, from the
 * segmentation that it wrote (PS3.3 A.51, A.88). Its frames are found by the instance and frame
 * that each says it was made from, and never by their order.
 */
import { errors } from "../../base/errors.js";
import type { ProcessMemory } from "../../base/process-memory.js";
import type { Attributes, Image, PixelFormat, Volume } from "../../images/image.js";
import { readImage } from "../../images/read-image.js";
import { fromCieLab } from "../../results/colour.js";
import { withFile } from "../../inference/reading-memory.js";
import { LABEL_MAP_SEGMENTATION, segmentOfFrame } from "../../results/dicom/segments.js";
import { segmentationOf } from "../../results/nifti/of-result.js";
import type { OutputFile, Receipt } from "../../results/receipt/receipt.js";
import { changed, withFileOf } from "../../results/receipt/unchanged.js";
import { voxelUnder, type Section } from "../../results/picture/section.js";
import type { ResultMarks } from "./messages.js";
import { Overlaps } from "./overlaps.js";
import type { ResultFolder } from "./result-folder.js";
import { KEPT_SHARE, noRoom, type KnownVolume } from "./volume-planes.js";

interface ShownSegment {
  number: number;
  label: string;
  colour: readonly [number, number, number];
}

/** A segmentation, with its frames by what they were made from. */
interface SegmentationObject {
  image: Image;
  segments: ShownSegment[];
  isLabelMap: boolean;
  byPlace: Map<string, { frame: number; segment: number | undefined }[]>;
}

/** A segment as it is drawn. */
interface Drawn {
  /** The number that its label is shown by. */
  shown: number;
  rgb: number;
  isDrawn: boolean;
  /** Pixels that belong to it. */
  pixels: number;
}

/** Pixels of one segment or of a label map, as the segmentation has them. */
interface Layer {
  segment: number | undefined;
  values: Uint8Array;
}

/**
 * The pixels of a frame of a segmentation from the first that is marked, at this index, to the
 * last.
 */
interface LayerPart extends Layer {
  first: number;
}

/** A segmentation unpacked for planes across its slices, by their numbers among the slices. */
type Unpacked = readonly (readonly LayerPart[])[];

const placeOf = (uid: string, frame: number) => `${uid} ${frame}`;

/** @param frame from 1: of the source, or of the receipt's slices */
function placeIn(source: Receipt["source"], frame: number): string {
  const slice = source.slices?.[frame - 1];
  if (slice === undefined) return placeOf(source.sop_instance_uid ?? "", frame);
  return placeOf(slice.sop_instance_uid ?? "", slice.frame ?? 1);
}

export class MarkReader {
  /** The one that was read last: who looks through a series asks for frame after frame. */
  #last: { sha256: string; segmentation: SegmentationObject; giveBack: () => void } | undefined;
  #unpacked: { of: SegmentationObject; parts: Unpacked; giveBack: () => void } | undefined;

  constructor(private readonly memory: ProcessMemory) {}

  /**
   * @param of a frame from 1: of the source, or of the receipt's slices; or a label, of which the
   * fullest frame is meant
   * @param only numbers of the segments that are drawn; all if absent
   * @throws RadserveError file_not_found where the model wrote no segmentation, bad_request,
   * result_changed
   */
  async read(
    result: ResultFolder,
    model: string,
    of: number | string,
    only?: readonly number[],
  ): Promise<ResultMarks> {
    const { source } = result.receipt;
    const known = await this.#known(result, model);
    const frame = typeof of === "number" ? of : await fullest(known, source, of);
    if (frame > source.frames)
      throw errors.bad_request(`Expected a frame from 1 to ${source.frames}; found ${frame}.`);
    const layers: Layer[] = [];
    for (const { frame: at, segment } of known.byPlace.get(placeIn(source, frame)) ?? [])
      layers.push({ segment, values: await known.image.frame(at) });
    return { ...(await draw(known, source, layers, only)), frame };
  }

  /**
   * The same of a plane across the slices.
   * @throws RadserveError overloaded, too
   */
  async readAcross(
    result: ResultFolder,
    model: string,
    {
      known: { volume },
      section,
      only,
    }: { known: KnownVolume; section: Section; only: readonly number[] | undefined },
  ): Promise<ResultMarks> {
    const known = await this.#known(result, model);
    const { source } = result.receipt;
    const parts = await this.#parts(known, source, volume);
    const size = { rows: section.down.count, columns: section.across.count };
    const layers = new Map<number | undefined, Layer>();
    const under = voxelUnder(volume.geometry, section);
    for (let y = 0, at = 0; y < size.rows; y++)
      for (let x = 0; x < size.columns; x++, at++) {
        const [slice, row, column] = under(x, y);
        for (const { segment, first, values } of parts[slice] ?? []) {
          const value = values[row * source.columns + column - first] ?? 0;
          if (value === 0) continue;
          const layer = layers.get(segment) ?? {
            segment,
            values: new Uint8Array(size.rows * size.columns),
          };
          layer.values[at] = value;
          layers.set(segment, layer);
        }
      }
    return { ...(await draw(known, size, [...layers.values()], only)), frame: null };
  }

  async #parts(
    known: SegmentationObject,
    source: Receipt["source"],
    { frames }: Volume,
  ): Promise<Unpacked> {
    if (this.#unpacked?.of === known) return this.#unpacked.parts;
    this.#unpacked?.giveBack();
    this.#unpacked = undefined;
    const parts: LayerPart[][] = [];
    let bytes = 0;
    for (const frame of frames) {
      const here: LayerPart[] = [];
      for (const { frame: of, segment } of known.byPlace.get(placeIn(source, frame + 1)) ?? [])
        here.push({ segment, ...trimmed(await known.image.frame(of)) });
      parts.push(here);
      bytes += here.reduce((sum, { values }) => sum + values.length, 0);
    }
    const giveBack = this.memory.keepIfRoom("images", bytes, KEPT_SHARE);
    if (giveBack === undefined) throw noRoom(bytes);
    this.#unpacked = { of: known, parts, giveBack };
    return parts;
  }

  async #known(result: ResultFolder, model: string): Promise<SegmentationObject> {
    const { receipt } = result;
    const file = segmentationOf(receipt, model);
    if (
      receipt.models.some(
        ({ name, segmentation_grid: grid }) => name === model && grid !== undefined,
      )
    )
      throw errors.file_not_found(
        "This segmentation is in the grid of the network, not in the frames of the source. Open it in a viewer that places it by its frame of reference.",
      );
    const known = await this.#segmentation(result, file);
    const { rows, columns } = known.image.format;
    const { source } = receipt;
    if (rows !== source.rows || columns !== source.columns)
      throw changed(
        `a segmentation of ${source.columns} x ${source.rows} pixels; found ${columns} x ${rows}.`,
      );
    return known;
  }

  async #segmentation(result: ResultFolder, file: OutputFile): Promise<SegmentationObject> {
    if (this.#last?.sha256 === file.sha256) return this.#last.segmentation;
    this.#last?.giveBack();
    this.#last = undefined;
    const patience = { patient: true, check: () => undefined };
    return withFileOf(
      result,
      file,
      async (bytes, most) => {
        const segmentation = segmentationIn(await readImage(bytes, patience.check, most));
        const giveBack = this.memory.keep("files", bytes.length);
        this.#last = { sha256: file.sha256, segmentation, giveBack };
        return segmentation;
      },
      (listed, work) => withFile(this.memory, listed, patience, work),
    );
  }
}

function segmentationIn(image: Image): SegmentationObject {
  const { attributes } = image;
  const byPlace: SegmentationObject["byPlace"] = new Map();
  (attributes?.sequence("PerFrameFunctionalGroupsSequence") ?? []).forEach((groups, frame) => {
    const segment = segmentOfFrame(groups);
    for (const origin of originsOf(groups)) {
      const place = placeOf(
        origin.string("ReferencedSOPInstanceUID") ?? "",
        origin.number("ReferencedFrameNumber") ?? 1,
      );
      byPlace.set(place, [...(byPlace.get(place) ?? []), { frame, segment }]);
    }
  });
  return {
    image,
    byPlace,
    isLabelMap: image.source.sopClassUid === LABEL_MAP_SEGMENTATION,
    segments: (attributes?.sequence("SegmentSequence") ?? [])
      .map(segmentIn)
      .filter(({ number }) => number > 0),
  };
}

function originsOf(groups: Attributes): Attributes[] {
  return (groups.sequence("DerivationImageSequence") ?? []).flatMap(
    (derivation) => derivation.sequence("SourceImageSequence") ?? [],
  );
}

const WHITE_LAB = [65535, 32896, 32896] as const;

/** The label of the model, which segments of several phases have in common. */
function labelOf(item: Attributes): string {
  const tracking = item.string("TrackingID") ?? "";
  const end = tracking.indexOf(": ");
  return end < 0 ? (item.string("SegmentLabel") ?? "") : tracking.slice(end + 2);
}

function segmentIn(item: Attributes): ShownSegment {
  const [light = WHITE_LAB[0], a = WHITE_LAB[1], b = WHITE_LAB[2]] =
    item.numbers("RecommendedDisplayCIELabValue") ?? [];
  return {
    number: item.number("SegmentNumber") ?? 0,
    label: labelOf(item),
    colour: fromCieLab([light, a, b]),
  };
}

/**
 * The least value of a pixel that counts as belonging to a segment. In a fractional segmentation a
 * network gives nearly every pixel some thousandths: there it is one half.
 */
const leastOf = ({ format: { bitsStored } }: Image): number =>
  bitsStored === 1 ? 1 : Math.ceil(MOST_OF_FRACTION / 2);
const MOST_OF_FRACTION = 255;

/**
 * The frame, from 1, on which a label has the most pixels, or else the highest values: the first of
 * equals.
 */
async function fullest(
  { image, segments, byPlace, isLabelMap }: SegmentationObject,
  source: Receipt["source"],
  wanted: string,
): Promise<number> {
  const numbers = new Set(segments.flatMap((one) => (one.label === wanted ? one.number : [])));
  if (numbers.size === 0)
    throw errors.bad_request("Expected a label of the model's segmentation; it has no such.");
  const least = leastOf(image);
  let best = { frame: 1, pixels: 0, sum: 0 };
  for (let frame = 1; frame <= source.frames; frame++) {
    let [pixels, sum] = [0, 0];
    for (const { frame: at, segment } of byPlace.get(placeIn(source, frame)) ?? [])
      if (isLabelMap || numbers.has(segment ?? 0))
        for (const value of await image.frame(at)) {
          if (isLabelMap ? numbers.has(value) : value >= least) pixels++;
          if (!isLabelMap) sum += value;
        }
    if (pixels > best.pixels || (pixels === best.pixels && sum > best.sum))
      best = { frame, pixels, sum };
  }
  return best.frame;
}

function trimmed(values: Uint8Array): Omit<LayerPart, "segment"> {
  let [first, end] = [0, values.length];
  while (first < end && values[first] === 0) first++;
  while (end > first && values[end - 1] === 0) end--;
  return { first, values: values.slice(first, end) };
}

/** A frame has many segments, and most pixels of each are not marked: four are passed at once. */
export function eachMarked(values: Uint8Array, use: (at: number, value: number) => void): void {
  const { buffer, byteOffset } = values.byteOffset % 4 === 0 ? values : values.slice();
  const fours = new Uint32Array(buffer, byteOffset, values.length >> 2);
  for (let start = 0; start < values.length; start += 4) {
    if (fours[start >> 2] === 0) continue;
    const end = Math.min(start + 4, values.length);
    for (let at = start; at < end; at++) {
      const value = values[at] ?? 0;
      if (value !== 0) use(at, value);
    }
  }
}

/** @param only numbers of the segments that are drawn; all are counted */
async function draw(
  { image, segments, isLabelMap }: SegmentationObject,
  { rows, columns }: Pick<PixelFormat, "rows" | "columns">,
  given: readonly Layer[],
  only: readonly number[] | undefined,
): Promise<Omit<ResultMarks, "frame">> {
  const drawnLabels = new Set(
    segments.flatMap(({ number, label }) => (only?.includes(number) === false ? [] : label)),
  );
  // A pixel as the bytes R, G, B, A in their order
  const rgba = new Uint8Array(rows * columns * 4);
  const pixelsAsRgba = new DataView(rgba.buffer);
  const labels = byLabel(segments);
  const byNumber = new Map<number, Drawn>(
    labels.flatMap(([shown, all]) =>
      all.map(({ number, label, colour: [red, green, blue] }): [number, Drawn] => [
        number,
        {
          shown: shown.number,
          rgb: (red << 24) | (green << 16) | (blue << 8),
          isDrawn: drawnLabels.has(label),
          pixels: 0,
        },
      ]),
    ),
  );
  const most = image.format.bitsStored === 1 ? 1 : MOST_OF_FRACTION;
  const least = leastOf(image);
  const layers = given.toSorted((a, b) => (a.segment ?? 0) - (b.segment ?? 0));
  const each = (use: (one: Drawn, at: number, value: number) => void) => {
    for (const { segment, values } of layers) {
      const ofLayer = isLabelMap ? undefined : byNumber.get(segment ?? 0);
      eachMarked(values, (at, value) => {
        const one = isLabelMap ? byNumber.get(value) : ofLayer;
        if (one !== undefined) use(one, at, value);
      });
    }
  };
  /** How many of the drawn segments a pixel belongs to. */
  const sharing = new Uint16Array(rows * columns);
  each((one, at, value) => {
    if (!isLabelMap && value < least) return;
    one.pixels += 1;
    if (one.isDrawn) sharing[at] = (sharing[at] ?? 0) + 1;
  });
  const overlaps = new Overlaps({ rows, columns });
  each((one, at, value) => {
    if (!one.isDrawn) return;
    const alpha = isLabelMap ? 255 : Math.round((255 * value) / most);
    const many = sharing[at] ?? 0;
    const isOn =
      many > 1
        ? value >= least && overlaps.add(at, one.shown, many)
        : // Of segments that it belongs to in part, the strongest
          alpha > (rgba[4 * at + 3] ?? 0);
    if (isOn) pixelsAsRgba.setUint32(4 * at, (one.rgb | alpha) >>> 0);
  });
  const pixelsOf = (number: number) => byNumber.get(number)?.pixels ?? 0;
  return {
    rows,
    columns,
    segments: labels.map(([{ number, label, colour }, all]) => ({
      number,
      label,
      pixels: all.reduce((sum, one) => sum + pixelsOf(one.number), 0),
      colour: `#${colour.map((channel) => channel.toString(16).padStart(2, "0")).join("")}`,
    })),
    png: isEmpty(rgba)
      ? null
      : (await packed(Buffer.from(rgba.buffer), columns, rows)).toString("base64"),
    overlaps: overlaps.told(),
  };
}

const isEmpty = (rgba: Uint8Array): boolean =>
  new BigUint64Array(rgba.buffer, 0, rgba.length >> 3).every((pixels) => pixels === 0n);

/**
 * For each label its first segment and all its segments: each phase has one, with frames of its
 * own.
 */
function byLabel(segments: readonly ShownSegment[]): [ShownSegment, ShownSegment[]][] {
  const found = new Map<string, [ShownSegment, ShownSegment[]]>();
  for (const segment of segments) {
    const known = found.get(segment.label);
    if (known === undefined) found.set(segment.label, [segment, [segment]]);
    else known[1].push(segment);
  }
  return [...found.values()];
}

async function packed(rgba: Buffer, width: number, height: number): Promise<Buffer> {
  // Loaded by the first picture
  const { default: sharp } = await import("sharp");
  return (
    sharp(rgba, { raw: { width, height, channels: 4 } })
      // The page unpacks it itself (web/mark-pixels.ts): RGBA as it is, without filters
      .png({ compressionLevel: 3, palette: false, adaptiveFiltering: false, progressive: false })
      .toBuffer()
  );
}
