/**
 * Reads the marks of a model on one frame of a source from the segmentation that it wrote (PS3.3 A.51, A.88). Its frames are
 * found by the instance and frame that each says it was made from, and never by their order.
 */
import { RadserveError } from "../base/errors.js";
import type { Attributes, Image } from "../images/image.js";
import { readImage } from "../images/read-image.js";
import { fromCieLab } from "../results/colour.js";
import { SEGMENTATION } from "../results/dicom/objects/seg.js";
import { LABEL_MAP_SEGMENTATION } from "../results/dicom/segments.js";
import type { OutputFile, Receipt } from "../results/receipt/receipt.js";
import type { Marks } from "./messages.js";
import { changed, fileOf, type ResultFolder } from "./result-folder.js";

interface Segment {
  number: number;
  label: string;
  colour: readonly [number, number, number];
}

/** A segmentation, with its frames by what they were made from. */
interface Segmentation {
  image: Image;
  segments: Segment[];
  isLabelMap: boolean;
  byPlace: Map<string, { frame: number; segment: number | undefined }[]>;
}

const placeOf = (uid: string, frame: number) => `${uid} ${frame}`;

export class MarkReader {
  /** The one that was read last: who looks through a series asks for frame after frame. */
  #last: { sha256: string; segmentation: Segmentation } | undefined;

  /**
   * @param frame from 1: of the source, or of the receipt's slices
   * @throws RadserveError file_not_found where the model wrote no segmentation, bad_request, result_changed
   */
  async read(result: ResultFolder, model: string, frame: number): Promise<Marks> {
    const { receipt } = result;
    const file = segmentationOf(receipt, model);
    if (receipt.models.some(({ name, segmentation_grid: grid }) => name === model && grid !== undefined))
      throw new RadserveError(
        "file_not_found",
        "This segmentation is in the grid of the network, not in the frames of the source. Open it in a viewer that places it by its frame of reference.",
      );
    const { source } = receipt;
    if (frame > source.frames)
      throw new RadserveError("bad_request", `Expected a frame from 1 to ${source.frames}; found ${frame}.`);
    const known = await this.#segmentation(result, file);
    const slice = source.slices?.[frame - 1];
    const uid = slice === undefined ? source.sop_instance_uid : slice.sop_instance_uid;
    const place = placeOf(uid ?? "", source.slices === undefined ? frame : (slice?.frame ?? 1));
    const { rows, columns } = known.image.format;
    if (rows !== source.rows || columns !== source.columns)
      throw changed(
        `a segmentation of ${source.columns} x ${source.rows} pixels; found ${columns} x ${rows}.`,
      );
    return draw(known, known.byPlace.get(place) ?? []);
  }

  async #segmentation(result: ResultFolder, file: OutputFile): Promise<Segmentation> {
    if (this.#last?.sha256 === file.sha256) return this.#last.segmentation;
    this.#last = undefined;
    const segmentation = segmentationIn(await readImage(await fileOf(result, file)));
    this.#last = { sha256: file.sha256, segmentation };
    return segmentation;
  }
}

function segmentationOf({ models }: Receipt, name: string): OutputFile {
  const file = models
    .find((model) => model.name === name)
    ?.outputs.find(({ sop_class_uid: uid }) => uid === SEGMENTATION || uid === LABEL_MAP_SEGMENTATION);
  if (file === undefined)
    throw new RadserveError(
      "file_not_found",
      "Expected a model of the receipt that wrote a segmentation; this one did not. Ask for `seg` among the outputs.",
    );
  return file;
}

function segmentationIn(image: Image): Segmentation {
  const { attributes } = image;
  const byPlace: Segmentation["byPlace"] = new Map();
  (attributes?.sequence("PerFrameFunctionalGroupsSequence") ?? []).forEach((groups, frame) => {
    const segment = groups.sequence("SegmentIdentificationSequence")?.[0]?.number("ReferencedSegmentNumber");
    for (const origin of originsOf(groups)) {
      const place = placeOf(
        origin.string("ReferencedSOPInstanceUID") ?? "",
        origin.number("ReferencedFrameNumber") ?? 1,
      );
      byPlace.set(place, [...(byPlace.get(place) ?? []), { frame, segment }]);
    }
  });
  return {
    ...{ image, byPlace },
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

function segmentIn(item: Attributes): Segment {
  const [light = WHITE_LAB[0], a = WHITE_LAB[1], b = WHITE_LAB[2]] =
    item.numbers("RecommendedDisplayCIELabValue") ?? [];
  return {
    number: item.number("SegmentNumber") ?? 0,
    label: item.string("SegmentLabel") ?? "",
    colour: fromCieLab([light, a, b]),
  };
}

async function draw(
  { image, segments, isLabelMap }: Segmentation,
  frames: readonly { frame: number; segment: number | undefined }[],
): Promise<Marks> {
  const { rows, columns, bitsStored } = image.format;
  const colours = new Map(segments.map(({ number, colour }) => [number, colour]));
  const pixels = new Map<number, number>();
  const rgba = Buffer.alloc(rows * columns * 4);
  const most = bitsStored === 1 ? 1 : 255;
  for (const { frame, segment } of frames) {
    const data = await image.frame(frame);
    for (let at = 0; at < data.length; at++) {
      const value = data[at] ?? 0;
      if (value === 0) continue;
      const number = isLabelMap ? value : (segment ?? 0);
      const colour = colours.get(number);
      if (colour === undefined) continue;
      pixels.set(number, (pixels.get(number) ?? 0) + 1);
      const alpha = isLabelMap ? 255 : Math.round((255 * value) / most);
      // Where segments overlap the stronger is shown
      if (alpha <= (rgba[4 * at + 3] ?? 0)) continue;
      rgba.set([...colour, alpha], 4 * at);
    }
  }
  return {
    ...{ rows, columns },
    segments: segments.map(({ number, label, colour }) => ({
      ...{ number, label, pixels: pixels.get(number) ?? 0 },
      colour: `#${colour.map((channel) => channel.toString(16).padStart(2, "0")).join("")}`,
    })),
    png: pixels.size === 0 ? null : (await packed(rgba, columns, rows)).toString("base64"),
  };
}

async function packed(rgba: Buffer, width: number, height: number): Promise<Buffer> {
  // Loaded by the first picture
  const { default: sharp } = await import("sharp");
  return sharp(rgba, { raw: { width, height, channels: 4 } })
    .png({ compressionLevel: 3, palette: false })
    .toBuffer();
}
