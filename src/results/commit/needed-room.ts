/**
 * How much room a result takes at most: a disk that cannot hold it is found full before any work.
 */
import type { Image } from "../../images/image.js";
import type { Manifest, OutputKind } from "../../manifest/manifest.js";
import { labelsOf } from "../../manifest/outputs/outputs.js";
import { DOCUMENT_BYTES, type Size } from "../dicom/objects/kind.js";
import { OBJECTS } from "../dicom/objects/table.js";

/** Bytes of the picture of the largest image. */
const PICTURE = 4 * 2 ** 20;

function roomOf(kind: OutputKind, size: Size): number {
  if (kind === "png") return PICTURE;
  // A receipt tells as much as a report.
  return OBJECTS[kind === "json" ? "sr" : kind].room(size);
}

interface PlannedOutputs {
  entry: { manifest: Pick<Manifest, "outputs"> };
  outputs: readonly OutputKind[];
}

/** Bytes on the disk for the receipt and all files of the models that take the image. */
export function roomFor({ format, frameCount }: Image, models: readonly PlannedOutputs[]): number {
  const sizes = models.map(({ entry, outputs }) => {
    const labels = entry.manifest.outputs.flatMap(labelsOf).length;
    const size = { labels, frames: frameCount, pixels: format.rows * format.columns * frameCount };
    return outputs.reduce((sum, kind) => sum + roomOf(kind, size), 0);
  });
  return Math.ceil(sizes.reduce((sum, size) => sum + size, DOCUMENT_BYTES));
}
