/**
 * The DICOM files of one series as one Image whose frames are the slices, sorted; their pixels are
 * read when asked for.
 */
import { groupsBy } from "../../base/groups.js";
import {
  ANY_STACK,
  checkedFrame,
  addWarnings,
  largestCodec,
  type Codec,
  type Image,
  type NotChosen,
  type PixelFormat,
  type Series,
  type StackTolerance,
  type SliceIdentity,
  type SourceIdentity,
  type SuvScale,
  type TransformStep,
  type Warning,
  type Interpretation,
} from "../image.js";
import { acquisitionCaveats } from "./acquisition.js";
import type { DataSetAttributes } from "./attributes.js";
import { checkConcatenations } from "./concatenation.js";
import { sopClassName } from "./dictionary.js";
import { framesAhead } from "./decoders.js";
import { isLocalizer, openFile, readBrokenHead } from "./dicom-file.js";
import { readDicom, type DicomFileImage } from "./dicom-image.js";
import { differingPersons } from "./identity.js";
import { pixelsOf } from "./image-classes.js";
import { seriesInvalid } from "./series-fault.js";
import { countCaveats } from "./stated-counts.js";
import { ReadAhead } from "./read-ahead.js";
import { suvOf } from "./suv.js";
import {
  entriesOf,
  mayBeOf,
  unreadableBeside,
  unreadableFault,
  type FolderPlace,
  type Unread,
  type Unreadable,
} from "./unreadable.js";
import { mixedStorage, ownBitsOf, storageOf, storedAlike } from "./series-storage.js";
import { assemble, checkFormats, sortingStep, volumeCaveats, type SliceFacts } from "./volume.js";
import { RadserveError } from "../../base/errors.js";
import { sha256 } from "../../files/durable-files.js";
import { SECONDARY_CAPTURE, type FrameGeometry } from "./geometry.js";

const SEGMENTATIONS = ["1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7"];
/**
 * Processing Equipment (PS3.16 CID 7005): the purpose of equipment that made an object out of other
 * images (IHE AI Results).
 */
const PROCESSING_EQUIPMENT = "109102";
/** A UID (PS3.5 section 9.1). */
export const isUid = (text: string): boolean =>
  text.length <= 64 && /^[0-9]+(\.[0-9]+)*$/.test(text);
/** Series that a refusal lists. */
const LISTED = 50;

/**
 * Why a readable object is not a slice: its warning's code, and what it is called there.
 */
export interface LeftOut {
  code: string;
  what: string;
}

export interface SeriesFile {
  place: FolderPlace;
  source: SourceIdentity;
  format: PixelFormat;
  codec?: Codec;
  attributes: DataSetAttributes;
  frames: HeaderFacts[];
  warnings: Warning[];
  /**
   * The file itself: as it was first read where it stayed in memory, the first time; read again
   * otherwise.
   * @throws RadserveError series_invalid where its bytes are not those of before
   */
  open(): Promise<DicomFileImage>;
  /** How many files of its folder may be in memory beside the one that was asked for. */
  filesAhead(): number;
}

export interface HeaderFacts extends FrameGeometry {
  interpretation: Interpretation;
}

/** How a file whose first look is over comes to its pixels. */
export interface Again extends Pick<SeriesFile, "filesAhead" | "place"> {
  /** Reads the same bytes later. */
  read(): Promise<Uint8Array>;
  /** Whether the file stays in memory instead, with so many elements. */
  keepWhole(elements: number): boolean;
}

/** Faults of a file itself. */
const OF_FILE: readonly string[] = [
  "corrupt_image",
  "truncated_image",
  "unsupported_format",
  "unsupported_transfer_syntax",
  "decode_suspect",
];
const NO_IMAGE: LeftOut = {
  code: "left_out_no_image",
  what: "DICOM objects without pixels (reports, presentation states, directories)",
};

/**
 * Takes from a file what a series needs of it, or says why the object is not a slice of one, or why
 * it may be one and cannot be read.
 * @param again of `bytes` nothing is kept but the attributes, unless it says so
 * @param mostElements as openFile takes it, which throws TooManyElements
 */
export async function seriesFile(
  bytes: Uint8Array,
  again: Again,
  mostElements?: number,
): Promise<SeriesFile | LeftOut | Unread> {
  let image: DicomFileImage;
  try {
    image = readDicom(bytes, mostElements);
    await image.settle();
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    if (error.code === "no_pixel_data") return withoutPixels(bytes, mostElements);
    if (OF_FILE.includes(error.code)) return damaged(bytes, error);
    throw error;
  }
  const warnings: Warning[] = [];
  const attributes = image.attributes.withoutPixels(warnings);
  const derived = derivedObject(attributes, image.source);
  if (derived !== undefined) return derived;
  const frames = Array.from({ length: image.frameCount }, (_, frame) => ({
    interpretation: image.interpretation(frame),
    spacing: image.spacing(frame),
    regions: image.regions?.(frame),
    plane: image.plane(frame),
    planeFault: image.planeFault?.(frame),
    pixelAspect: image.pixelAspect(frame),
  }));
  // Those of its pixels come to the image itself
  addWarnings(warnings, image.warnings);
  return {
    place: again.place,
    source: image.source,
    format: image.format,
    attributes,
    frames,
    warnings,
    ...(image.codec && { codec: image.codec }),
    open: opener(image, again),
    filesAhead: again.filesAhead,
  };
}

/** An object without pixels: a slice that has lost them, or another kind of object. */
function withoutPixels(bytes: Uint8Array, mostElements?: number): LeftOut | Unread {
  const { attributes, mediaStorageSopClass } = openFile(bytes, mostElements);
  const uid = attributes.string("SOPClassUID") ?? mediaStorageSopClass;
  const holds = uid === undefined ? "perhaps" : pixelsOf(uid);
  // Of a class that is not known, or not stated, the Image Pixel Module says it (PS3.3 C.7.6.3)
  const isImage =
    holds === "always" ||
    (holds === "perhaps" && attributes.has("Rows") && attributes.has("Columns"));
  const seriesInstanceUid = attributes.string("SeriesInstanceUID");
  if (isImage)
    return (
      besideSlices(attributes, uid) ?? { unread: "no_pixels", isDicom: true, seriesInstanceUid }
    );
  return uid === undefined ? { unread: "damaged", isDicom: true, seriesInstanceUid } : NO_IMAGE;
}

/** A file that cannot be read: of which series it is, as far as it goes. */
function damaged(bytes: Uint8Array, error: RadserveError): LeftOut | Unread {
  const { attributes, mediaStorageSopClass } = readBrokenHead(bytes) ?? {};
  const uid = attributes?.string("SOPClassUID") ?? mediaStorageSopClass;
  if (uid !== undefined && pixelsOf(uid) === "never") return NO_IMAGE;
  const seriesInstanceUid = attributes?.string("SeriesInstanceUID");
  return (
    (attributes && besideSlices(attributes, uid)) ?? {
      unread: "damaged",
      isDicom: true,
      seriesInstanceUid,
      error,
    }
  );
}

function opener(image: DicomFileImage, again: Again): SeriesFile["open"] {
  const { fileSha256 } = image.source;
  let kept = again.keepWhole(image.attributes.extent.elements) ? image : undefined;
  return async () => {
    const first = kept;
    kept = undefined;
    return first ?? reopened(fileSha256, await again.read());
  };
}

/** Objects with pixels that lie beside a series and are not slices of it. */
function derivedObject(
  attributes: DataSetAttributes,
  { sopClassUid }: SourceIdentity,
): LeftOut | undefined {
  const beside = besideSlices(attributes, sopClassUid);
  if (beside !== undefined) return beside;
  const makers = attributes.sequence("ContributingEquipmentSequence") ?? [];
  const processed = makers.some((maker) =>
    (maker.sequence("PurposeOfReferenceCodeSequence") ?? []).some(
      (code) => code.string("CodeValue") === PROCESSING_EQUIPMENT,
    ),
  );
  if (processed && (sopClassUid ?? "").startsWith(SECONDARY_CAPTURE))
    return {
      code: "left_out_result",
      what: "pictures that an analysis made (ContributingEquipmentSequence)",
    };
  return undefined;
}

/** What is no slice, by its class or its type. */
function besideSlices(
  attributes: DataSetAttributes,
  sopClassUid: string | undefined,
): LeftOut | undefined {
  if (SEGMENTATIONS.includes(sopClassUid ?? ""))
    return { code: "left_out_segmentation", what: "segmentations" };
  if (isLocalizer(attributes))
    return { code: "left_out_localizer", what: "localizers (ImageType)" };
  return undefined;
}

/** As what the files of a series are taken. */
export interface Stacking {
  /** Files of the folder that may be slices and cannot be read: their series is none. */
  unreadable?: readonly Unreadable[] | undefined;
  /** The tilt and the missing slices that some model takes; none where absent. */
  tolerance?: StackTolerance | undefined;
  /** For models of single images too: slices that are no volume are no fault then. */
  grouped?: boolean | undefined;
}

/**
 * What models say of a series: whether one takes it and prefers no other, and why the others do
 * not.
 */
export interface SeriesVerdict extends Pick<NotChosen, "why"> {
  taken: boolean;
}

/** Which of several series is meant. */
export interface SeriesChoice extends Stacking {
  /** SeriesInstanceUID. */
  uid?: string | undefined;
  /** Without `uid`: the only series of which this says that models take it. */
  judge?: ((series: readonly (Image | RadserveError)[]) => readonly SeriesVerdict[]) | undefined;
}

/**
 * One image from the files of a folder, in any order: of the only series, or of the one that is
 * chosen.
 * @param leftOut caveats about what else was found Throws series_invalid, with a list of the
 * series, if none or several fit the choice; if the files of the series lack a part of a
 * concatenation, or are not a volume.
 */
export function seriesImage(
  files: readonly SeriesFile[],
  leftOut: readonly Warning[],
  choice: SeriesChoice = {},
): Image {
  const groups = [...groupsOf(files, choice)];
  const { files: chosen, notChosen } =
    groups.length === 1 ? { files: fits(groups, choice) } : chooseSeries(groups, choice);
  const others = groups.length - 1;
  const beside = files.length - chosen.length;
  const apart: Warning[] =
    others === 0
      ? []
      : [
          {
            code: "left_out_other_series",
            message: `Left out: ${beside} images of ${others} other series in the folder.`,
          },
        ];
  const uid = chosen[0]?.source.seriesInstanceUid ?? "";
  const unreadable = (choice.unreadable ?? []).filter((one) => !mayBeOf(one, uid));
  const caveats = [...leftOut, ...apart, ...unreadableBeside(unreadable)];
  const image = imageOf(chosen, caveats, others, choice);
  if (notChosen !== undefined) image.notChosen = notChosen;
  return image;
}

export interface StudySeries {
  uid: string;
  alone: boolean;
  /** Of the files that can be read. */
  image: Image | RadserveError;
  /** Files that may be slices of it cannot be read, so that it is refused. */
  unreadable: boolean;
}

/** Each series of a folder, or why it is none that can be used. */
export function studySeries(
  files: readonly SeriesFile[],
  leftOut: readonly Warning[],
  { unreadable = [], ...stacking }: Stacking,
): StudySeries[] {
  const groups = groupsOf(files, { unreadable });
  return groups.map(([uid, found]) => ({
    uid,
    alone: groups.length === 1,
    image: imageOrFault(found, leftOut, groups.length - 1, stacking),
    unreadable: unreadable.some((one) => mayBeOf(one, uid)),
  }));
}

function imageOrFault(
  files: readonly SeriesFile[],
  leftOut: readonly Warning[],
  others: number,
  stacking: Stacking = {},
): Image | RadserveError {
  try {
    return imageOf(files, leftOut, others, stacking);
  } catch (error) {
    // The fault of a file that cannot be read has its own code
    const isOfFile = error instanceof RadserveError && OF_FILE.includes(error.code);
    if (isOfFile || (error instanceof RadserveError && error.code === "series_invalid"))
      return error;
    throw error;
  }
}

/**
 * Each series of a folder as a candidate for a case. One that is no volume has its fault beside its
 * first file.
 */
export function seriesOf(
  files: readonly SeriesFile[],
  unreadable: readonly Unreadable[],
): { series: readonly SeriesFile[]; image: Image | RadserveError }[] {
  const groups = groupsOf(files, { unreadable });
  return groups.map(([, found]) => ({
    series: found,
    image: imageOrFault(found, [], groups.length - 1, { unreadable }),
  }));
}

function imageOf(
  files: readonly SeriesFile[],
  leftOut: readonly Warning[],
  others: number,
  stacking: Stacking,
): Image {
  const uid = files[0]?.source.seriesInstanceUid ?? "";
  const fault = unreadableFault((stacking.unreadable ?? []).filter((one) => mayBeOf(one, uid)));
  if (fault !== undefined) throw fault;
  checkInstances(files);
  const caveats = [...checkOneSeries(files), ...checkConcatenations(files), ...countCaveats(files)];
  return new SeriesImage(files, [...leftOut, ...caveats], others, stacking);
}

/** Slices that have one UID in common, and are no copies. */
function checkInstances(files: readonly SeriesFile[]): void {
  const seen = new Set<string>();
  const again = files.filter(({ source: { sopInstanceUid: uid } }) => {
    const known = uid !== undefined && seen.has(uid);
    if (uid !== undefined) seen.add(uid);
    return known;
  });
  if (again.length > 0)
    throw seriesInvalid(
      "duplicate_instance",
      `Expected a SOPInstanceUID of its own in each file, found ${again.length} that another has with other content ` +
        `(${entriesOf(again.map(({ place }) => place))} of the folder, by name): results could not say which they are about, and nobody can say ` +
        "which is right. Take the wrong ones out, or correct the series at its source.",
      { images: files.length, duplicates: again.length },
    );
}

type SliceGroup = [uid: string, files: SeriesFile[]];

/** The files by SeriesInstanceUID, the largest series first. */
function groupsOf(
  files: readonly SeriesFile[],
  { unreadable = [], uid: named }: Pick<SeriesChoice, "unreadable" | "uid">,
): SliceGroup[] {
  const series = groupsBy(files, ({ source }) => source.seriesInstanceUid);
  const isThere = series.has(named) || (named === undefined && series.size > 0);
  const fault = isThere
    ? undefined
    : unreadableFault(unreadable.filter((one) => named === undefined || mayBeOf(one, named)));
  if (fault !== undefined) throw fault;
  if (series.size === 0)
    throw seriesInvalid(
      "no_images",
      "Expected a folder with the DICOM images of a series; found none in it (folders inside it and links are not followed). A bulk job searches the folders inside.",
    );
  const missing = series.get(undefined)?.length ?? 0;
  if (missing > 0)
    throw seriesInvalid(
      "missing_series_uid",
      `Expected SeriesInstanceUID in all ${files.length} images; ${missing} lack it. Correct them at the source.`,
      { images: files.length, missing },
    );
  // Results are named after the series where there are several
  if (series.size > 1 && [...series.keys()].some((uid) => !isUid(uid ?? "")))
    throw seriesInvalid(
      "invalid_series_uid",
      "Expected SeriesInstanceUIDs of digits and dots, at most 64 characters, where a folder holds several series; found another. Correct it at the source.",
    );
  return [...series]
    .map(([uid, found]): SliceGroup => [uid ?? "", found])
    .sort(([a, x], [b, y]) => y.length - x.length || (a < b ? -1 : 1));
}

/** Lists the series that a client may choose from, without a word about the patient. */
function listOf(
  groups: readonly SliceGroup[],
  verdicts: readonly SeriesVerdict[] = [],
): Record<string, unknown> {
  return {
    found: groups.length,
    series: groups.slice(0, LISTED).map(([uid, files], i) => ({
      series_instance_uid: uid,
      modality: files[0]?.attributes.string("Modality") ?? null,
      images: framesOf(files),
      ...(verdicts[i]?.why.length ? { why: verdicts[i].why } : {}),
    })),
  };
}

/** The files of the only series. */
function fits(groups: readonly SliceGroup[], { uid }: SeriesChoice): SeriesFile[] {
  const [only] = groups;
  if (only !== undefined && (uid === undefined || only[0] === uid)) return only[1];
  throw noSuchSeries(groups);
}

function noSuchSeries(groups: readonly SliceGroup[]): RadserveError {
  return seriesInvalid(
    "no_such_series",
    `Expected a series of the folder in series_instance_uid; none of its ${groups.length} has that SeriesInstanceUID. details.series lists them.`,
    listOf(groups),
  );
}

const framesOf = (files: readonly SeriesFile[]): number =>
  files.reduce((sum, { frames }) => sum + frames.length, 0);

function chooseSeries(
  groups: readonly SliceGroup[],
  { uid, judge, ...stacking }: SeriesChoice,
): { files: SeriesFile[]; notChosen?: NotChosen[] } {
  if (uid !== undefined) {
    const named = groups.find(([found]) => found === uid);
    if (named === undefined) throw noSuchSeries(groups);
    return { files: named[1] };
  }
  const verdicts = judge?.(groups.map(([, files]) => imageOrFault(files, [], 0, stacking)));
  const taken = groups.filter((_, i) => verdicts?.[i]?.taken === true);
  const [first, ...more] = taken;
  if (first !== undefined && more.length === 0) {
    const notChosen = groups.flatMap((group, i): NotChosen[] => {
      const [, files] = group;
      const [head] = files;
      if (group === first || head === undefined) return [];
      const frameCount = framesOf(files);
      return [
        {
          image: { source: { ...head.source, sopInstanceUid: undefined }, frameCount },
          why: verdicts?.[i]?.why ?? [],
        },
      ];
    });
    return { files: first[1], notChosen };
  }
  const why =
    verdicts === undefined
      ? ""
      : taken.length === 0
        ? ", and no active model of series takes one of them"
        : `, and active models of series take ${taken.length} of them`;
  throw seriesInvalid(
    "several_series",
    `Expected one image series in the folder, found ${groups.length}${why}. Name one in series_instance_uid; details.series lists them.`,
    listOf(groups, verdicts),
  );
}

/** @returns caveats about what differs without saying that the images are of several persons */
function checkOneSeries(files: readonly SeriesFile[]): Warning[] {
  const kinds = new Set(files.map(({ source }) => source.sopClassUid));
  if (kinds.size > 1)
    throw seriesInvalid(
      "mixed_format",
      `Expected images of one kind, found ${[...kinds].map((uid) => (uid === undefined ? "none stated" : sopClassName(uid))).join(", ")}. Leave out files that are not slices of this volume.`,
      { sop_classes: [...kinds] },
    );
  const modalities = [...new Set(files.map(({ source }) => source.modality ?? "none"))];
  if (modalities.length > 1)
    throw seriesInvalid(
      "mixed_format",
      `Expected one Modality, found ${modalities.join(", ")}. Leave out files that are not slices of this volume.`,
      { modalities },
    );
  const studies = new Set(files.map(({ source }) => source.studyInstanceUid ?? ""));
  const slices = files.flatMap(({ attributes, frames }) =>
    frames.map(({ plane }, frame) => {
      return { attributes, frame, plane };
    }),
  );
  const caveats = acquisitionCaveats(slices, "images of the series");
  const persons = differingPersons(
    files.map(({ attributes }) => attributes),
    caveats,
  );
  const differing = [...(studies.size > 1 ? ["StudyInstanceUID"] : []), ...persons];
  if (differing.length > 0)
    throw seriesInvalid(
      "several_patients",
      `Expected one patient and one study under one SeriesInstanceUID, found different values of ${differing.join(", ")}. Correct the series at its source.`,
      { attributes: differing },
    );
  return caveats;
}

/**
 * Images of one series share their frame of reference (PS3.3 C.7.4.1). If several files do and
 * others do not, they are several acquisitions. If every single slice has one of its own, or none
 * has any, a de-identification replaced them: then SeriesInstanceUID and the evenness of the stack
 * have to vouch for the positions, and a warning says so.
 */
function frameOfReferenceCaveats(files: readonly SeriesFile[]): Warning[] {
  const found = framesOfReference(files);
  if (found.size === 1 && !found.has(undefined)) return [];
  if (found.size === 1)
    return [{ code: "no_frame_of_reference", message: "The slices name no FrameOfReferenceUID." }];
  if (hasOneBySlice(files)) return [ONE_BY_SLICE];
  throw seriesInvalid(
    "mixed_frame_of_reference",
    `Expected one FrameOfReferenceUID, found ${found.size}: positions of different ones cannot be compared. Send one acquisition at a time.`,
    { frames_of_reference: found.size },
  );
}

const framesOfReference = (files: readonly SeriesFile[]) =>
  new Set(files.map(({ attributes }) => attributes.string("FrameOfReferenceUID")));

/** Several frames of one file are several slices, and two files may well be of two acquisitions. */
const hasOneBySlice = (files: readonly SeriesFile[]): boolean =>
  files.length > 2 &&
  framesOfReference(files).size === files.length &&
  files.every(({ frames }) => frames.length === 1);

const ONE_BY_SLICE: Warning = {
  code: "frame_of_reference_by_slice",
  message:
    "Every slice names another FrameOfReferenceUID, as some de-identifications leave it; their positions were read as in one frame of reference.",
};

/** A slice: a frame of a file. */
interface SeriesSlice {
  file: SeriesFile;
  /** Index in the file, from 0. */
  frame: number;
  facts: HeaderFacts;
}

/**
 * The slices as a volume, or why they are none, and the order in which they are the series' frames.
 */
function stacked(
  slices: readonly SeriesSlice[],
  files: readonly SeriesFile[],
  { tolerance, grouped }: Stacking,
) {
  const facts = slices.map(
    ({ file: { format }, facts: { interpretation, ...geometry } }): SliceFacts => {
      return { ...geometry, format, units: () => interpretation.units };
    },
  );
  try {
    const caveats = frameOfReferenceCaveats(files);
    // How a group lies must not depend on the models that were asked
    const { frames: order, ...body } = assemble(facts, grouped === true ? ANY_STACK : tolerance);
    const volume = { ...body, frames: order.map((_, i) => i) };
    return {
      volume,
      order,
      caveats: [...caveats, ...volumeCaveats(volume)],
      step: sortingStep(volume),
      isScattered: false,
    };
  } catch (error) {
    if (grouped !== true || !(error instanceof RadserveError) || error.code !== "series_invalid")
      throw error;
    checkFormats(facts);
    const message = `The slices do not form a volume, and were analysed one by one. ${error.message}`;
    const caveats: Warning[] = slices.length === 1 ? [] : [{ code: "no_volume", message }];
    const step = { step: "sort_slices", by: "InstanceNumber", slices: slices.length };
    const isOneBySlice = hasOneBySlice(files);
    const isScattered = framesOfReference(files).size > 1 && !isOneBySlice;
    if (isOneBySlice && facts.some(({ plane }) => plane !== undefined)) caveats.push(ONE_BY_SLICE);
    return { volume: error, order: byNumber(slices), caveats, step, isScattered };
  }
}

/**
 * Images without an InstanceNumber come last, and equal ones in the order of their UIDs and frames,
 * but the parts of a concatenation in that of their numbers.
 */
function byNumber(slices: readonly SeriesSlice[]): number[] {
  const keys = slices.map(({ file: { attributes, source } }, i) => ({
    i,
    number: attributes.number("InstanceNumber") ?? Number.MAX_VALUE,
    whole: attributes.string("ConcatenationUID") ?? source.sopInstanceUid ?? "",
    part: attributes.number("InConcatenationNumber") ?? 0,
    uid: source.sopInstanceUid ?? "",
  }));
  const compared = (a: string, b: string) => (a === b ? 0 : a < b ? -1 : 1);
  const inOrder = keys.sort(
    (a, b) =>
      a.number - b.number ||
      compared(a.whole, b.whole) ||
      a.part - b.part ||
      compared(a.uid, b.uid),
  );
  return inOrder.map(({ i }) => i);
}

class SeriesImage implements Image {
  readonly source: SourceIdentity;
  readonly format: PixelFormat;
  readonly codec?: Codec;
  readonly frameCount: number;
  readonly attributes: DataSetAttributes;
  readonly warnings: Warning[];
  readonly transforms: TransformStep[];
  readonly series: Series;
  readonly interpretation = (frame: number) => {
    const { file, facts } = this.#slice(frame);
    const suv = this.#suv.get(file);
    const ownBits = ownBitsOf(file, this.format);
    if (suv === undefined && ownBits === undefined) return facts.interpretation;
    return { ...facts.interpretation, ...(suv && { suv }), ...(ownBits && { ownBits }) };
  };
  readonly spacing = (frame: number) => this.#slice(frame).facts.spacing;
  readonly regions = (frame: number) => this.#slice(frame).facts.regions;
  /** Planes of several frames of reference say nothing together. */
  readonly plane = (frame: number) =>
    this.#isScattered ? undefined : this.#slice(frame).facts.plane;
  readonly planeFault = (frame: number) => this.#slice(frame).facts.planeFault;
  readonly #isScattered: boolean;
  readonly pixelAspect = (frame: number) => this.#slice(frame).facts.pixelAspect;
  readonly #slices: readonly SeriesSlice[];
  /** By what all files of the series say together, where they are of positron emission. */
  readonly #suv: ReadonlyMap<SeriesFile, SuvScale>;
  readonly #frames: ReadAhead<{ data: Uint8Array; warnings: readonly Warning[] }>;
  /** The multi-frame file opened last: its slices follow each other. */
  #opened: { file: SeriesFile; image: Promise<Image> } | undefined;
  /** How files of one frame are compressed; undefined before one was opened. */
  #coding: Codec["kind"] | "none" | undefined;

  constructor(
    files: readonly SeriesFile[],
    leftOut: readonly Warning[],
    others: number,
    stacking: Stacking,
  ) {
    const found = files.flatMap((file) =>
      file.frames.map((facts, frame): SeriesSlice => ({ file, frame, facts })),
    );
    const { volume, order, caveats, step, isScattered } = stacked(found, files, stacking);
    this.#slices = order.flatMap((frame) => found[frame] ?? []);
    const inOrder = [...new Set(this.#slices.map(({ file }) => file))];
    const slices = this.#slices.map((slice) => identityOf(slice, inOrder.indexOf(slice.file)));
    const first = this.#slice(0);
    this.series = {
      get volume() {
        if (volume instanceof RadserveError) throw volume;
        return volume;
      },
      grouped: stacking.grouped === true,
      slices,
      attributes: inOrder.map((file) => file.attributes),
      others,
    };
    this.format = storageOf(inOrder);
    const codec = largestCodec(inOrder);
    if (codec !== undefined) this.codec = codec;
    this.#suv = suvOf(inOrder);
    this.#isScattered = isScattered;
    this.frameCount = slices.length;
    this.#frames = new ReadAhead(
      slices.length,
      (index, ahead) => this.#read(index, ahead),
      () => this.#depth(),
    );
    this.attributes = first.file.attributes;
    this.source = {
      ...first.file.source,
      fileSha256: hashOf(slices),
      bytes: files.reduce((sum, file) => sum + file.source.bytes, 0),
      sopInstanceUid: undefined,
      transferSyntaxUid: common(files.map((file) => file.source.transferSyntaxUid)),
    };
    this.warnings = [...leftOut, ...caveats];
    this.transforms = [step];
    const mixed = mixedStorage(inOrder, this.format);
    if (mixed !== undefined) {
      this.transforms.push(mixed.step);
      this.warnings.push(mixed.warning);
    }
    for (const { warnings, attributes } of inOrder) {
      addWarnings(this.warnings, warnings);
      attributes.warnInto(this.warnings);
    }
  }

  async frame(index: number): Promise<Uint8Array> {
    const { data, warnings } = await this.#frames.get(checkedFrame(index, this.frameCount));
    addWarnings(this.warnings, warnings);
    return data;
  }

  /**
   * @param ahead a file of one frame is decoded on another thread; the others begin their next
   * frames themselves
   */
  async #read(
    index: number,
    ahead: boolean,
  ): Promise<{ data: Uint8Array; warnings: readonly Warning[] }> {
    const { file, frame } = this.#slice(index);
    if (file.frames.length > 1) {
      if (this.#opened?.file !== file) this.#opened = { file, image: file.open() };
      const image = await this.#opened.image;
      return {
        data: storedAlike(await image.frame(frame), image, this.format),
        warnings: image.warnings,
      };
    }
    const image = await file.open();
    this.#coding ??= image.codec?.kind ?? "none";
    const elsewhere = ahead && this.#coding !== "none";
    const data = elsewhere ? await image.frameElsewhere(frame) : await image.frame(frame);
    const alike = storedAlike(data, image, this.format);
    image.releaseAround(alike);
    return { data: alike, warnings: image.warnings };
  }

  /** How many slices to begin ahead; none of series with multi-frame files. */
  #depth(): number {
    if (this.#coding === undefined || this.#opened !== undefined) return 0;
    const most = this.#slice(0).file.filesAhead();
    // Reading waits for the disk, also where no thread is free to decode
    if (this.#coding === "none") return most;
    return Math.min(framesAhead(this.#coding, this.format, this.frameCount), most);
  }

  #slice(index: number): SeriesSlice {
    const slice = this.#slices[checkedFrame(index, this.#slices.length)];
    if (slice === undefined) throw new Error("A checked index is one of a slice");
    return slice;
  }
}

/** A file that was read again, whose bytes must be those that the series was put together from. */
async function reopened(fileSha256: string, bytes: Uint8Array): Promise<DicomFileImage> {
  const image = readDicom(bytes);
  if (image.source.fileSha256 !== fileSha256)
    throw seriesInvalid(
      "changed",
      "Expected the folder to stay as it is while it is read; a file in it was changed. Send the request again once all files are there.",
    );
  await image.settle();
  return image;
}

function identityOf({ file, frame }: SeriesSlice, number: number): SliceIdentity {
  return {
    sopInstanceUid: file.source.sopInstanceUid,
    fileSha256: file.source.fileSha256,
    frame: file.frames.length > 1 ? frame + 1 : undefined,
    file: number,
  };
}

/** The same as `sha256sum` of the slices' hashes, one a line, in the order of the slices. */
function hashOf(slices: readonly SliceIdentity[]): string {
  return sha256(slices.map(({ fileSha256 }) => `${fileSha256}\n`).join(""));
}

function common<T>(values: readonly T[]): T | undefined {
  return new Set(values).size === 1 ? values[0] : undefined;
}
