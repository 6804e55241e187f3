/**
 * The segmentation (PS3.3 A.51, C.8.20): binary, or fractional if the manifest calls the output probabilities, with a
 * frame for every segment and frame of its grid, the source's or one of its own; or a label map with one for every frame.
 * Empty frames are written too: what the model did not mark was looked at.
 */
import { packBits } from "../../addon/bytes.js";
import { isFractional } from "../../manifest/outputs/segmentation.js";
import { cieLab, labelColours } from "../picture/colour.js";
import { codeItem, codeOf, dcm, uncoded } from "./codes.js";
import { dicomObject, type Dataset, type DicomObject } from "./elements.js";
import { framePositions } from "./frame-positions.js";
import type { Masks } from "./grid.js";
import { algorithm, commonModules, lossiness } from "./modules.js";
import {
  areExclusive,
  labelPlane,
  segmentPlanes,
  segmentsOf,
  segmentTracking,
  type Segment,
  type SegmentationForm,
} from "./segments.js";
import { sideOf } from "./sides.js";
import { analysed, bySeries, referencedObjects, takeOver } from "./source.js";
import { seedOf, seriesUid, type Subject } from "./subject.js";
import { oneLine } from "./values.js";

export const SEGMENTATION = "1.2.840.10008.5.1.4.1.1.66.4";
export const LABEL_MAP_SEGMENTATION = "1.2.840.10008.5.1.4.1.1.66.7";

export function segmentation(subject: Subject, masks: Masks, form: SegmentationForm): DicomObject {
  const { image, attributes, model } = subject;
  const { grid, outputs } = masks;
  const { rows, columns, frames } = grid;
  const segments = segmentsOf(model.manifest.outputs);
  const isLabelMap = form === "labelmap";
  const dataset: Dataset = {
    SOPClassUID: isLabelMap ? LABEL_MAP_SEGMENTATION : SEGMENTATION,
    Modality: "SEG",
    ...commonModules(subject, "seg"),
    ...(isLabelMap ? { SeriesInstanceUID: seriesUid(subject, "labelmap") } : {}),
    // The side stands with each segment's region: General Series' Laterality is not for segmentations (C.7.3.1)
    ...takeOver(attributes, ["BodyPartExamined"]),
    ...framePositions(subject, grid, isLabelMap ? undefined : segments),
    ImageType: ["DERIVED", "PRIMARY"],
    ContentLabel: "SEGMENTATION",
    ContentDescription: oneLine(`${model.name} ${model.version}`, 64),
    ContentCreatorName: "",
    SamplesPerPixel: 1,
    PhotometricInterpretation: "MONOCHROME2",
    NumberOfFrames: (isLabelMap ? 1 : segments.length) * frames,
    Rows: rows,
    Columns: columns,
    PixelRepresentation: 0,
    BurnedInAnnotation: "NO",
    ...lossiness(image, attributes),
    SegmentsOverlap: areExclusive(outputs) ? "NO" : "UNDEFINED",
    SegmentSequence: [...(isLabelMap ? [background()] : []), ...segmentItems(subject, segments)],
    ...(grid.sources === undefined ? sourceImages(subject) : {}),
    ...references(subject),
    ...(isLabelMap ? labelMapModule(subject, masks) : pixelModule(subject, masks)),
  };
  return dicomObject(dataset, seedOf(subject));
}

/**
 * General Reference (PS3.3 C.12.4): what all frames together were made from, where none is that of one frame of the source
 * and Derivation Image cannot say it.
 */
function sourceImages(subject: Subject): Dataset {
  const frames = bySeries(subject).flatMap(({ series }) => series.flatMap(({ frames }) => frames));
  return { SourceImageSequence: analysed(referencedObjects(frames), "NO") };
}

/** Common Instance Reference (PS3.3 C.12.2): the series in whose grid it lies comes first, then those looked at with it. */
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
 * Image Pixel and Segmentation Image modules that depend on the type (PS3.3 C.8.20.2). Frames of one bit a pixel lie one
 * behind the other without padding, the first pixel in the lowest bit (PS3.5 8.1.1); probabilities have one byte a pixel.
 */
function pixelModule(subject: Subject, { grid, outputs }: Masks): Dataset {
  const { frames, rows, columns } = grid;
  const model = subject.model.manifest.outputs;
  const segments = segmentsOf(model);
  const pixels = rows * columns;
  const bits = model.some(isFractional) ? 8 : 1;
  const planeAt = segmentPlanes(model, outputs, pixels);
  const data = new Uint8Array(Math.ceil((segments.length * frames * pixels * bits) / 8));
  let at = 0;
  for (const segment of segments)
    for (let frame = 0; frame < frames; frame++, at += pixels)
      if (bits === 8) data.set(planeAt(segment, frame), at);
      else packBits(planeAt(segment, frame), data, at);
  return {
    ...{ BitsAllocated: bits, BitsStored: bits, HighBit: bits - 1, PixelData: data },
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
 * A label map: every pixel holds the number of its segment, and 0 is the background, which is padding and a segment of
 * its own, because every value has to be described (PS3.3 C.8.20.2.3).
 */
function labelMapModule({ model }: Subject, { grid, outputs }: Masks): Dataset {
  const { frames, rows, columns } = grid;
  const pixels = rows * columns;
  const data = new Uint8Array(frames * pixels);
  for (let frame = 0; frame < frames; frame++)
    data.set(labelPlane(model.manifest.outputs, outputs, frame, pixels), frame * pixels);
  return {
    ...{ BitsAllocated: 8, BitsStored: 8, HighBit: 7, PixelData: data },
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

function segmentItems(subject: Subject, segments: readonly Segment[]): Dataset[] {
  const { model } = subject;
  const colours = labelColours(model.manifest.outputs);
  return segments.map((segment) => {
    const { category, finding_site, label } = segment.label;
    const code = codeOf(segment.label);
    const laterality = sideOf(subject.image, segment.label);
    if (category === undefined) throw uncoded(segment.label);
    const { id, uid } = segmentTracking(subject, segment);
    const colour = colours[segment.output]?.[segment.index];
    const side = laterality === undefined ? {} : { AnatomicRegionModifierSequence: [codeItem(laterality)] };
    return {
      SegmentNumber: segment.number,
      SegmentLabel: oneLine(label, 64),
      SegmentedPropertyCategoryCodeSequence: [codeItem(category)],
      SegmentedPropertyTypeCodeSequence: [codeItem(code)],
      ...(finding_site === undefined
        ? {}
        : { AnatomicRegionSequence: [{ ...codeItem(finding_site), ...side }] }),
      SegmentAlgorithmType: "AUTOMATIC",
      SegmentAlgorithmName: oneLine(model.name, 64),
      SegmentationAlgorithmIdentificationSequence: [algorithm(subject)],
      TrackingID: id,
      TrackingUID: uid,
      ...(colour === undefined ? {} : { RecommendedDisplayCIELabValue: cieLab(colour) }),
    };
  });
}
