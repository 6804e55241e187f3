/**
 * Segments in the grid of the model, as a receipt describes them, and the check of an object
 * against it.
 */
import type { EngineOutput } from "../../engine/types.js";
import type { DicomFile } from "../../images/dicom/dicom-file.js";
import { imageOf } from "../../images/dicom/dicom-image.js";
import type { ModelOutput } from "../../manifest/outputs/outputs.js";
import { isNear, isTurned, positionOf } from "./grid.js";
import { LABEL_MAP_SEGMENTATION, segmentOfFrame, segmentsOf } from "./segments.js";
import { CUBIC_MM_PER_ML } from "../kinds/segmentation.js";
import type { OutputFile, ReceiptModel } from "../receipt/receipt.js";
import { modelGridOf } from "../findings/volume-outputs.js";

type GridFacts = NonNullable<ReceiptModel["segmentation_grid"]>;

/**
 * Where the grid lies and what each segment has in it; undefined for segments in the source's
 * frames.
 * @param outputs those of the model, in the order of the manifest's
 * @throws RadserveError output_invalid if they are not all in one grid
 */
export function gridFacts(
  manifest: readonly ModelOutput[],
  outputs: readonly EngineOutput[],
): GridFacts | undefined {
  const grid = modelGridOf(outputs);
  if (grid === undefined) return undefined;
  const { slices, rows, columns, geometry } = grid;
  const { origin, columnDirection, rowDirection, columnSpacing, rowSpacing, sliceSpacing } =
    geometry;
  const ml = (columnSpacing * rowSpacing * sliceSpacing) / CUBIC_MM_PER_ML;
  return {
    slices,
    rows,
    columns,
    image_position_patient: [...origin],
    image_orientation_patient: [...columnDirection, ...rowDirection],
    pixel_spacing: [rowSpacing, columnSpacing],
    slice_spacing: sliceSpacing,
    segments: segmentsOf(manifest).map(({ number, output, index, label: { label } }) => {
      const given = outputs[output];
      const voxels = given?.kind === "segmentation" ? (given.model?.counts[index] ?? 0) : 0;
      return { number, label, voxels, ml: voxels * ml };
    }),
  };
}

/** Differences of a segmentation in the model's grid from its receipt, in words. */
export async function gridFaults(
  file: DicomFile,
  bytes: Uint8Array,
  { sha256 }: OutputFile,
  facts: GridFacts,
): Promise<string[]> {
  const { attributes } = file;
  const frames = attributes.sequence("PerFrameFunctionalGroupsSequence") ?? [];
  const [first] = frames;
  const isLabelMap = attributes.string("SOPClassUID") === LABEL_MAP_SEGMENTATION;
  const wanted = facts.slices * (isLabelMap ? 1 : facts.segments.length);
  const lies =
    attributes.number("Rows") === facts.rows &&
    attributes.number("Columns") === facts.columns &&
    frames.length === wanted &&
    isTurned(attributes, {
      orientation: facts.image_orientation_patient,
      spacing: facts.pixel_spacing,
      thickness: facts.slice_spacing,
    }) &&
    first !== undefined &&
    isNear(facts.image_position_patient, positionOf(first));
  if (!lies) return ["its grid is not the receipt's"];
  // Probabilities do not say which voxels were decided for
  if (attributes.string("SegmentationType") === "FRACTIONAL") return [];
  const image = imageOf(file, bytes, sha256);
  const counts = new Map<number, number>();
  for (const [frame, groups] of frames.entries()) {
    const number = segmentOfFrame(groups);
    for (const value of await image.frame(frame)) {
      if (value === 0) continue;
      const segment = number ?? value;
      counts.set(segment, (counts.get(segment) ?? 0) + 1);
    }
  }
  const wrong = facts.segments.filter(({ number, voxels }) => (counts.get(number) ?? 0) !== voxels);
  return wrong.map(
    ({ label, voxels }) => `its segment ${label} has not the receipt's ${voxels} voxels`,
  );
}
