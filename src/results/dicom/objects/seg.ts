/**
 * The segmentation (PS3.3 A.51, C.8.20): binary, or fractional if the manifest calls the output
 * probabilities, with a frame for every segment and frame of its grid, the source's or one of its
 * own; or a label map with one for every frame. Empty frames are written too: what the model did
 * not mark was looked at.
 */
import { dcm } from "../../../manifest/texts.js";
import { packBits } from "../../../addon/bytes.js";
import { MAX_FILE_BYTES } from "../../../files/descriptor.js";
import type { DicomFile } from "../../../images/dicom/dicom-file.js";
import { imageOf } from "../../../images/dicom/dicom-image.js";
import type { Attributes } from "../../../images/image.js";
import type { ModelOutput } from "../../../manifest/outputs/outputs.js";
import { isFractional } from "../../../manifest/outputs/segmentation.js";
import { cieLab, labelColours } from "../../colour.js";
import { codeItem, codeOf, propertyType, uncoded } from "../codes.js";
import { checkMany, dicomObject, type Dataset, type DicomObject } from "../elements.js";
import { framePositions } from "../frame-positions.js";
import {
  isNear,
  isTurned,
  positionOf,
  WRITTEN_TOLERANCE,
  type FrameGrid,
  type Masks,
} from "../grid.js";
import { slideGeometry, type TilePosition } from "../slide.js";
import {
  DOCUMENT_BYTES,
  FINDING_BYTES,
  referenceFault,
  type Material,
  type ObjectKind,
} from "./kind.js";
import { algorithm, commonModules, lossiness } from "../modules.js";
import {
  areExclusive,
  LABEL_MAP_SEGMENTATION,
  labelPlane,
  segmentationForm,
  segmentOfFrame,
  segmentPlanes,
  segmentsOf,
  partName,
  partsOf,
  phasesIn,
  segmentTracking,
  type PhaseSegment,
  type SegmentationForm,
} from "../segments.js";
import { sideOf } from "../../findings/sides.js";
import type { ModelGrid } from "../../findings/volume-outputs.js";
import { analysed, bySeries, referencedObjects, takeOver } from "../source.js";
import { seedOf, seriesUid, type Subject } from "../subject.js";
import { oneLine } from "../values.js";

/** Elements and items of the functional groups of a frame, with its references and its place. */
const LEAST_OF_FRAME = 30;
const LABEL_MAP_TAKES_LESS =
  "of labels that do not overlap a label map takes less (RADSERVE_SEGMENTATION_TYPE)";

export const SEGMENTATION = "1.2.840.10008.5.1.4.1.1.66.4";

export function segmentation(subject: Subject, masks: Masks, form: SegmentationForm): DicomObject {
  const { image, attributes, model } = subject;
  const { grid } = masks;
  const { rows, columns, frames } = grid;
  const parts = partsIn(subject, grid);
  const isLabelMap = form === "labelmap";
  const frameCount = (isLabelMap ? 1 : segmentsOf(model.manifest.outputs).length) * frames;
  checkMany(frameCount, LEAST_OF_FRAME, isLabelMap ? undefined : LABEL_MAP_TAKES_LESS);
  const dataset: Dataset = {
    SOPClassUID: isLabelMap ? LABEL_MAP_SEGMENTATION : SEGMENTATION,
    Modality: "SEG",
    ...commonModules(subject, "seg"),
    ...(isLabelMap ? { SeriesInstanceUID: seriesUid(subject, "labelmap") } : {}),
    // The side stands with each segment: General Series' Laterality is not for segmentations
    // (C.7.3.1)
    ...takeOver(attributes, ["BodyPartExamined"]),
    ...framePositions(subject, grid, isLabelMap ? undefined : parts),
    ImageType: ["DERIVED", "PRIMARY"],
    ContentLabel: "SEGMENTATION",
    ContentDescription: oneLine(`${model.name} ${model.version}`, 64),
    ContentCreatorName: "",
    SamplesPerPixel: 1,
    PhotometricInterpretation: "MONOCHROME2",
    NumberOfFrames: frameCount,
    Rows: rows,
    Columns: columns,
    PixelRepresentation: 0,
    BurnedInAnnotation: "NO",
    // Type 1 here (PS3.3 C.8.20.2)
    LossyImageCompression: "00",
    ...lossiness(image, attributes),
    SegmentsOverlap:
      areExclusive(model.manifest.outputs) && !isParted(subject) ? "NO" : "UNDEFINED",
    SegmentSequence: [...(isLabelMap ? [background()] : []), ...segmentItems(subject, parts)],
    ...(grid.sources === undefined ? sourceImages(subject) : {}),
    ...references(subject),
    ...(isLabelMap ? labelMapModule(subject, masks) : pixelModule(subject, masks)),
  };
  return dicomObject(dataset, seedOf(subject));
}

const isParted = ({ phases }: Subject): boolean =>
  phases !== undefined && typeof phases !== "string";

/** The segments of a subject, on the frames of each phase; a grid of its own has one phase. */
function partsIn(subject: Subject, grid: FrameGrid): PhaseSegment[] {
  const segments = segmentsOf(subject.model.manifest.outputs);
  if (grid.sources !== undefined) return partsOf(segments, phasesIn(subject));
  const frames = Array.from({ length: grid.frames }, (_, frame) => frame);
  return partsOf(segments, [{ name: "", frames }]);
}

/**
 * General Reference (PS3.3 C.12.4): what all frames together were made from, where none is that of
 * one frame of the source and Derivation Image cannot say it.
 */
function sourceImages(subject: Subject): Dataset {
  const frames = bySeries(subject).flatMap(({ series }) => series.flatMap(({ frames }) => frames));
  return { SourceImageSequence: analysed(referencedObjects(frames), "NO") };
}

/**
 * Common Instance Reference (PS3.3 C.12.2): the series in whose grid it lies comes first, then
 * those looked at with it.
 */
function references(subject: Subject): Dataset {
  const [own, ...others] = bySeries(subject).map(({ studyInstanceUid, series }) => ({
    StudyInstanceUID: studyInstanceUid,
    ReferencedSeriesSequence: series.map(({ seriesInstanceUid, frames }) => ({
      SeriesInstanceUID: seriesInstanceUid,
      ReferencedInstanceSequence: referencedObjects(frames),
    })),
  }));
  return {
    ReferencedSeriesSequence: own?.ReferencedSeriesSequence ?? [],
    ...(others.length === 0 ? {} : { StudiesContainingOtherReferencedInstancesSequence: others }),
  };
}

/**
 * Image Pixel and Segmentation Image modules that depend on the type (PS3.3 C.8.20.2). Frames of
 * one bit a pixel lie one behind the other without padding, the first pixel in the lowest bit
 * (PS3.5 8.1.1); probabilities have one byte a pixel.
 */
function pixelModule(subject: Subject, { grid, outputs }: Masks): Dataset {
  const { frames, rows, columns } = grid;
  const model = subject.model.manifest.outputs;
  const parts = partsIn(subject, grid);
  const pixels = rows * columns;
  const bits = model.some(isFractional) ? 8 : 1;
  const planeAt = segmentPlanes(model, outputs, pixels);
  const segments = segmentsOf(model).length;
  const data = new Uint8Array(Math.ceil((segments * frames * pixels * bits) / 8));
  let at = 0;
  for (const part of parts)
    for (const frame of part.phase.frames) {
      if (bits === 8) data.set(planeAt(part, frame), at);
      else packBits(planeAt(part, frame), data, at);
      at += pixels;
    }
  return {
    BitsAllocated: bits,
    BitsStored: bits,
    HighBit: bits - 1,
    PixelData: data,
    ...(bits === 1
      ? { SegmentationType: "BINARY" }
      : {
          SegmentationType: "FRACTIONAL",
          SegmentationFractionalType: "PROBABILITY",
          MaximumFractionalValue: 255,
        }),
  };
}

/**
 * A label map: every pixel holds the number of its segment, and 0 is the background, which is
 * padding and a segment of its own, because every value has to be described (PS3.3 C.8.20.2.3).
 */
function labelMapModule({ model }: Subject, { grid, outputs }: Masks): Dataset {
  const { frames, rows, columns } = grid;
  const pixels = rows * columns;
  const data = new Uint8Array(frames * pixels);
  for (let frame = 0; frame < frames; frame++)
    data.set(labelPlane(model.manifest.outputs, outputs, frame, pixels), frame * pixels);
  return {
    BitsAllocated: 8,
    BitsStored: 8,
    HighBit: 7,
    PixelData: data,
    PixelPaddingValue: 0,
    SegmentationType: "LABELMAP",
  };
}

const BACKGROUND = dcm("125040", "Background");

function background(): Dataset {
  return {
    SegmentNumber: 0,
    SegmentLabel: "Background",
    SegmentedPropertyCategoryCodeSequence: [codeItem(BACKGROUND)],
    SegmentedPropertyTypeCodeSequence: [codeItem(BACKGROUND)],
    SegmentAlgorithmType: "AUTOMATIC",
    SegmentAlgorithmName: "Background",
  };
}

function segmentItems(subject: Subject, segments: readonly PhaseSegment[]): Dataset[] {
  const { model } = subject;
  const colours = labelColours(model.manifest.outputs);
  return segments.map((segment) => {
    const { category, finding_site } = segment.label;
    const code = codeOf(segment.label);
    const side = sideOf(subject.image, segment.label);
    if (category === undefined) throw uncoded(segment.label);
    const { id, uid } = segmentTracking(subject, segment);
    const colour = colours[segment.output]?.[segment.index];
    return {
      SegmentNumber: segment.number,
      SegmentLabel: partName(segment),
      SegmentedPropertyCategoryCodeSequence: [codeItem(category)],
      SegmentedPropertyTypeCodeSequence: [
        propertyType(code, finding_site === undefined ? side : undefined),
      ],
      AnatomicRegionSequence: finding_site && [
        { ...codeItem(finding_site), AnatomicRegionModifierSequence: side && [codeItem(side)] },
      ],
      SegmentAlgorithmType: "AUTOMATIC",
      SegmentAlgorithmName: oneLine(model.name, 64),
      SegmentationAlgorithmIdentificationSequence: [algorithm(subject)],
      TrackingID: id,
      TrackingUID: uid,
      ...(colour === undefined ? {} : { RecommendedDisplayCIELabValue: cieLab(colour) }),
    };
  });
}

/** Bytes that a segmentation in a grid takes at most. */
export function segBytesOf(
  outputs: readonly ModelOutput[],
  { slices, rows, columns }: Pick<ModelGrid, "slices" | "rows" | "columns">,
  form: SegmentationForm,
): number {
  const frames = (form === "labelmap" ? 1 : segmentsOf(outputs).length) * slices;
  return frames * ((rows * columns) / (form === "binary" ? 8 : 1) + FINDING_BYTES);
}

/** Why one is not written that neither readers nor deliveries of ours could read. */
export const tooLong = ({ segBytes }: Pick<Material, "segBytes">): string | undefined =>
  segBytes > MAX_FILE_BYTES
    ? `it would take ${Math.ceil(segBytes / 2 ** 20)} MiB, and objects of less than 2048 MiB are written; ${LABEL_MAP_TAKES_LESS}`
    : undefined;

export const seg: ObjectKind = {
  ofMasks: true,
  whyNot: (material) =>
    material.isAdrift
      ? "the source has no FrameOfReferenceUID, which would say where the model's grid lies"
      : tooLong(material),
  // A bit a pixel and label, or a byte a pixel in a label map
  room: ({ labels, frames, pixels }) =>
    DOCUMENT_BYTES + Math.max(1, labels / 8) * pixels + FINDING_BYTES * labels * frames,
  make: ({ subject, masks, segmentationType }) => {
    if (masks === undefined) throw new Error("A segmentation is made of masks");
    return segmentation(subject, masks, segmentationForm(subject, segmentationType));
  },
  fault: (file, object, { subject, masks }, known) =>
    masks === undefined ? undefined : maskFault(file, object, subject, masks, known),
};

/**
 * Compares each frame with the mask that its own segment, and its source frame or position, lead
 * to.
 */
async function maskFault(
  file: DicomFile,
  { bytes, sha256, sopClassUid }: DicomObject,
  subject: Subject,
  { grid, outputs }: Masks,
  known: ReadonlyMap<string, string>,
): Promise<string | undefined> {
  const image = imageOf(file, bytes, sha256);
  const { outputs: model } = subject.model.manifest;
  const segments = partsIn(subject, grid);
  const isLabelMap = sopClassUid === LABEL_MAP_SEGMENTATION;
  const { rows, columns } = grid;
  const frames = file.attributes.sequence("PerFrameFunctionalGroupsSequence") ?? [];
  if (image.format.rows !== rows || image.format.columns !== columns)
    return "its size is not that of its grid";
  const wanted = (isLabelMap ? 1 : segmentsOf(model).length) * grid.frames;
  if (image.frameCount !== wanted || frames.length !== wanted)
    return "it has not one frame for each segment and frame of its grid";
  if (grid.sources === undefined) {
    const sources = file.attributes.sequence("SourceImageSequence") ?? [];
    const fault = ownGridFault(file.attributes, grid) ?? referenceFault(sources, known);
    if (fault !== undefined) return fault;
  }
  const planeAt = segmentPlanes(model, outputs, rows * columns);
  const isPlaced = grid.sources !== undefined && typeof subject.phases !== "string";
  const tiles = isPlaced ? slideGeometry(subject.image, subject.attributes)?.tiles : undefined;
  const seen = new Set<string>();
  for (const [index, groups] of frames.entries()) {
    const number = segmentOfFrame(groups);
    const segment = segments.find((candidate) => candidate.number === number);
    const frame = grid.frameOf(groups);
    if ((segment === undefined) !== isLabelMap || frame === undefined)
      return `its frame ${index + 1} is of no segment or no frame of its grid`;
    const elsewhere =
      positionFault(groups, grid, frame, index) ??
      (tiles === undefined ? undefined : tileFault(groups, tiles[frame], index));
    if (elsewhere !== undefined) return elsewhere;
    if (segment?.phase.frames.includes(frame) === false)
      return `its frame ${index + 1} is of another phase than its segment`;
    const plane =
      segment === undefined
        ? labelPlane(model, outputs, frame, rows * columns)
        : planeAt(segment, frame);
    if (Buffer.compare(await image.frame(index), plane) !== 0)
      return `its frame ${index + 1} is not the mask of the model's output`;
    seen.add(`${segment?.number ?? ""} ${frame}`);
  }
  if (seen.size !== frames.length) return "two of its frames are of one segment and place";
  return undefined;
}

function positionFault(
  groups: Attributes,
  grid: FrameGrid,
  frame: number,
  index: number,
): string | undefined {
  const position = positionOf(groups);
  if (position === undefined || isNear(grid.plane(frame)?.position ?? [], position))
    return undefined;
  return `its frame ${index + 1} lies elsewhere than it was decided`;
}

/**
 * The tie of a grid of its own to the source: frame of reference, direction and distance of its
 * pixels, all at once.
 */
function ownGridFault(attributes: Attributes, grid: FrameGrid): string | undefined {
  const { row = NaN, column = NaN } = grid.spacing(0) ?? {};
  const orientation = grid.plane(0)?.orientation ?? [];
  const meant = {
    orientation,
    spacing: [row, column],
    thickness: grid.thickness(0) ?? NaN,
  } as const;
  if (attributes.string("FrameOfReferenceUID") === undefined || !isTurned(attributes, meant))
    return "its grid does not lie where it was decided";
  return undefined;
}

/** A frame that names a tile of the slide names that of its source frame. */
function tileFault(
  groups: Attributes,
  tile: TilePosition | undefined,
  index: number,
): string | undefined {
  const [position] = groups.sequence("PlanePositionSlideSequence") ?? [];
  if (position === undefined || tile === undefined) return undefined;
  const found: [number | undefined, number][] = [
    [position.number("RowPositionInTotalImagePixelMatrix"), tile.row],
    [position.number("ColumnPositionInTotalImagePixelMatrix"), tile.column],
    [position.number("XOffsetInSlideCoordinateSystem"), tile.x],
    [position.number("YOffsetInSlideCoordinateSystem"), tile.y],
  ];
  if (found.some(([value = NaN, expected]) => !(Math.abs(value - expected) <= WRITTEN_TOLERANCE)))
    return `its frame ${index + 1} is another tile than its source frame`;
  return undefined;
}
