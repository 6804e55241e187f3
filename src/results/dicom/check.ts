/**
 * The last look before anything is written: each object is read back with the reader that sources are read with, and
 * compared with the source, the model and the masks. What was written wrongly is refused whole, never repaired.
 */
import { imageOf } from "../../images/dicom/dicom-image.js";
import { openFile, type DicomFile } from "../../images/dicom/dicom-file.js";
import { release } from "../../addon/bytes.js";
import { RadserveError } from "../../base/errors.js";
import type { Attributes } from "../../images/image.js";
import type { Picture } from "../../addon/picture.js";
import { describeTag, type Tag } from "../../images/dicom/dictionary.js";
import { attributeOf } from "./element-writer.js";
import type { DicomObject } from "./elements.js";
import { checkContours } from "./rtstruct.js";
import { isNear, isTurned, positionOf, WRITTEN_TOLERANCE, type Grid, type Masks } from "./grid.js";
import { LABEL_MAP_SEGMENTATION } from "./seg.js";
import { labelPlane, segmentPlanes, segmentsOf, type FrameOutputs } from "./segments.js";
import { anatomyOfSeries, MAY_BE_EMPTY, patientAndStudy } from "./source.js";
import { slideGeometry, type TilePosition } from "./slide.js";
import type { DicomKind } from "../../manifest/manifest.js";
import { deviceUid, type Subject } from "./subject.js";

export interface Written {
  kind: DicomKind;
  object: DicomObject;
  /** What a secondary capture has to show. */
  pixels?: Picture;
}

/**
 * @param outputs the masks in the source's frames, which an RTSTRUCT has to contain
 * @param masks those that the SEG has to contain; both undefined if neither is written
 * @throws RadserveError output_invalid, naming the object and what is wrong with it
 */
export async function checkObjects(
  subject: Subject,
  written: readonly Written[],
  outputs: FrameOutputs | undefined,
  masks: Masks | undefined,
): Promise<void> {
  const known = knownObjects(subject, written);
  for (const { kind, object, pixels } of written) {
    const file = readBack(kind, object);
    const { attributes } = file;
    const [empty] = emptyFaults(file);
    if (empty !== undefined) throw wrong(kind, empty);
    checkNames(kind, object, attributes, subject);
    checkCopies(kind, attributes, subject);
    if (kind === "sr") checkReport(attributes, known);
    if (kind === "sc") checkSources(kind, attributes.sequence("SourceImageSequence") ?? [], known);
    if (pixels !== undefined) await checkPixels(file, object, pixels);
    if (kind === "seg" && masks !== undefined) await checkMasks(file, object, subject, masks);
    if (kind === "rtstruct" && outputs !== undefined) {
      const fault = checkContours(attributes, subject, outputs);
      if (fault !== undefined) throw wrong(kind, fault);
    }
  }
}

let tagsThatMayBeEmpty: ReadonlySet<Tag> | undefined;

/** What an object of ours holds empty, at any depth, that must have a value. */
export function emptyFaults({ attributes }: DicomFile): string[] {
  tagsThatMayBeEmpty ??= new Set([...MAY_BE_EMPTY].map((keyword) => attributeOf(keyword).tag));
  const empty = [...attributes.emptyElements()].filter((tag) => tagsThatMayBeEmpty?.has(tag) !== true);
  return empty.map((tag) => `its ${describeTag(tag)} is empty`);
}

function wrong(kind: DicomKind, what: string): RadserveError {
  return new RadserveError(
    "output_invalid",
    `The ${kind.toUpperCase()} object failed its check before it was written: ${what}. Nothing of this model was written; please report this fault.`,
    { output: kind },
  );
}

function readBack(kind: DicomKind, { bytes }: DicomObject): DicomFile {
  try {
    return openFile(bytes);
  } catch (error) {
    if (error instanceof RadserveError) throw wrong(kind, "it cannot be read back");
    throw error;
  }
}

/** SOP Instance UID to SOP Class UID of everything that an object may refer to. */
function knownObjects({ ids, others }: Subject, written: readonly Written[]): ReadonlyMap<string, string> {
  const sources = [ids, ...others].flatMap(({ frames }) => frames);
  const objects = [...sources, ...written.map(({ object }) => object)];
  return new Map(objects.map(({ sopInstanceUid, sopClassUid }) => [sopInstanceUid, sopClassUid]));
}

function checkNames(kind: DicomKind, object: DicomObject, attributes: Attributes, subject: Subject): void {
  const expected: [string, string][] = [
    ["SOPClassUID", object.sopClassUid],
    ["SOPInstanceUID", object.sopInstanceUid],
    ["SeriesInstanceUID", object.seriesInstanceUid],
    ["StudyInstanceUID", subject.ids.studyInstanceUid],
  ];
  for (const [keyword, value] of expected)
    if (attributes.string(keyword) !== value) throw wrong(kind, `its ${keyword} is not the one it was given`);
  for (const keyword of ["Manufacturer", "ManufacturerModelName", "DeviceSerialNumber", "SoftwareVersions"])
    if (attributes.string(keyword) === undefined) throw wrong(kind, `its ${keyword} is empty`);
  const [processor] = attributes.sequence("ContributingEquipmentSequence") ?? [];
  if (processor?.string("DeviceUID") !== deviceUid(subject.model))
    throw wrong(kind, "its Contributing Equipment is not the model");
}

/** Patient, study and side read the same from our object as from the source, through both character sets. */
function checkCopies(kind: DicomKind, attributes: Attributes, subject: Subject): void {
  const { attributes: source, ids } = subject;
  const expected = {
    ...patientAndStudy(source, ids.studyInstanceUid),
    ...(kind === "sc" ? anatomyOfSeries(source) : {}),
  };
  for (const [keyword, value] of Object.entries(expected)) {
    if (Array.isArray(value) && typeof value[0] === "object") continue;
    const given = (Array.isArray(value) ? value : [value]).map(String).join("\\");
    const found = (attributes.strings(keyword) ?? []).join("\\");
    if (given !== found) throw wrong(kind, `its ${keyword} is not the source's`);
  }
}

/** @throws if a reference names an object that does not exist, or names it by another class */
function checkSources(
  kind: DicomKind,
  references: readonly Attributes[],
  known: ReadonlyMap<string, string>,
): void {
  if (references.length === 0) throw wrong(kind, "it refers to no source");
  for (const reference of references)
    if (
      known.get(reference.string("ReferencedSOPInstanceUID") ?? "") !==
      reference.string("ReferencedSOPClassUID")
    )
      throw wrong(kind, "it refers to an object that is neither the source nor written beside it");
}

function checkReport(attributes: Attributes, known: ReadonlyMap<string, string>): void {
  if (attributes.string("VerificationFlag") !== "UNVERIFIED")
    throw wrong("sr", "it is not marked as unverified");
  const evidence = ["CurrentRequestedProcedureEvidenceSequence", "PertinentOtherEvidenceSequence"]
    .flatMap((keyword) => attributes.sequence(keyword) ?? [])
    .flatMap((study) => study.sequence("ReferencedSeriesSequence") ?? [])
    .flatMap((series) => series.sequence("ReferencedSOPSequence") ?? []);
  checkSources("sr", evidence, known);
  const listed = new Set(evidence.map((reference) => reference.string("ReferencedSOPInstanceUID")));
  const visit = (item: Attributes): void => {
    for (const reference of item.sequence("ReferencedSOPSequence") ?? [])
      if (!listed.has(reference.string("ReferencedSOPInstanceUID")))
        throw wrong("sr", "it refers to an image that is not in its evidence");
    item.sequence("ContentSequence")?.forEach(visit);
  };
  visit(attributes);
}

/** The picture reads back bit by bit, through its compression. */
async function checkPixels(
  file: DicomFile,
  { bytes, sha256 }: DicomObject,
  { width, height, rgb }: Picture,
): Promise<void> {
  const image = imageOf(file, bytes, sha256);
  const { format } = image;
  const alike = format.rows === height && format.columns === width && format.samplesPerPixel === 3;
  const frame = alike ? await image.frame(0) : undefined;
  if (frame === undefined || Buffer.compare(rgb, frame) !== 0)
    throw wrong("sc", "its pixels are not the overlay's");
  release(frame);
}

/** Compares each frame with the mask that its own segment, and its source frame or position, lead to. */
async function checkMasks(
  file: DicomFile,
  { bytes, sha256, sopClassUid }: DicomObject,
  subject: Subject,
  { grid, outputs }: Masks,
): Promise<void> {
  const image = imageOf(file, bytes, sha256);
  const { outputs: model } = subject.model.manifest;
  const segments = segmentsOf(model);
  const isLabelMap = sopClassUid === LABEL_MAP_SEGMENTATION;
  const { rows, columns } = grid;
  const frames = file.attributes.sequence("PerFrameFunctionalGroupsSequence") ?? [];
  if (image.format.rows !== rows || image.format.columns !== columns)
    throw wrong("seg", "its size is not that of its grid");
  const wanted = (isLabelMap ? 1 : segments.length) * grid.frames;
  if (image.frameCount !== wanted || frames.length !== wanted)
    throw wrong("seg", "it has not one frame for each segment and frame of its grid");
  if (grid.sources === undefined) {
    checkOwnGrid(file.attributes, grid);
    checkSources("seg", file.attributes.sequence("SourceImageSequence") ?? [], knownObjects(subject, []));
  }
  const planeAt = segmentPlanes(model, outputs, rows * columns);
  const isSource = grid.sources !== undefined;
  const tiles = isSource ? slideGeometry(subject.image, subject.attributes)?.tiles : undefined;
  const seen = new Set<string>();
  for (const [index, groups] of frames.entries()) {
    const number = groups.sequence("SegmentIdentificationSequence")?.[0]?.number("ReferencedSegmentNumber");
    const segment = segments.find((candidate) => candidate.number === number);
    const frame = grid.frameOf(groups);
    if ((segment === undefined) !== isLabelMap || frame === undefined)
      throw wrong("seg", `its frame ${index + 1} is of no segment or no frame of its grid`);
    checkPosition(groups, grid, frame, index);
    if (tiles !== undefined) checkTile(groups, tiles[frame], index);
    const plane =
      segment === undefined ? labelPlane(model, outputs, frame, rows * columns) : planeAt(segment, frame);
    if (Buffer.compare(await image.frame(index), plane) !== 0)
      throw wrong("seg", `its frame ${index + 1} is not the mask of the model's output`);
    seen.add(`${segment?.number ?? ""} ${frame}`);
  }
  if (seen.size !== frames.length) throw wrong("seg", "two of its frames are of one segment and place");
}

function checkPosition(groups: Attributes, grid: Grid, frame: number, index: number): void {
  const position = positionOf(groups);
  if (position === undefined) return;
  if (!isNear(grid.plane(frame)?.position ?? [], position))
    throw wrong("seg", `its frame ${index + 1} lies elsewhere than it was decided`);
}

/** What ties a grid of its own to the source: frame of reference, direction and distance of its pixels, all at once. */
function checkOwnGrid(attributes: Attributes, grid: Grid): void {
  const { row = NaN, column = NaN } = grid.spacing(0) ?? {};
  const orientation = grid.plane(0)?.orientation ?? [];
  const meant = { orientation, spacing: [row, column], thickness: grid.thickness(0) ?? NaN } as const;
  if (attributes.string("FrameOfReferenceUID") === undefined || !isTurned(attributes, meant))
    throw wrong("seg", "its grid does not lie where it was decided");
}

/** A frame that names a tile of the slide names that of its source frame. */
function checkTile(groups: Attributes, tile: TilePosition | undefined, index: number): void {
  const [position] = groups.sequence("PlanePositionSlideSequence") ?? [];
  if (position === undefined || tile === undefined) return;
  const found: [number | undefined, number][] = [
    [position.number("RowPositionInTotalImagePixelMatrix"), tile.row],
    [position.number("ColumnPositionInTotalImagePixelMatrix"), tile.column],
    [position.number("XOffsetInSlideCoordinateSystem"), tile.x],
    [position.number("YOffsetInSlideCoordinateSystem"), tile.y],
  ];
  if (found.some(([value = NaN, expected]) => !(Math.abs(value - expected) <= WRITTEN_TOLERANCE)))
    throw wrong("seg", `its frame ${index + 1} is another tile than its source frame`);
}
