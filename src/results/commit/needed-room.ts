/** How much room a result takes at most: a disk that cannot hold it is found full before any work. */
import type { Image } from "../../images/image.js";
import type { Manifest, OutputKind } from "../../manifest/manifest.js";
import { labelsOf } from "../../manifest/outputs/outputs.js";

const MIB = 2 ** 20;
/** Bytes of a receipt or an SR, once for the document and once for each label of each frame. */
const DOCUMENT = MIB / 4;
const FINDING = 2048;
/** Bytes of the overlay of the largest image: compressed, and as it lies in a secondary capture. */
const PICTURE = 4 * MIB;
const CAPTURE = 12 * MIB;

interface PlannedOutputs {
  entry: { manifest: Pick<Manifest, "outputs"> };
  outputs: readonly OutputKind[];
}

/** Bytes on the disk for the receipt and all files of the models that take the image. */
export function roomFor({ format, frameCount }: Image, models: readonly PlannedOutputs[]): number {
  const bits = format.rows * format.columns * frameCount;
  const sizes = models.map(({ entry, outputs }) => {
    const labels = entry.manifest.outputs.flatMap(labelsOf).length;
    const findings = DOCUMENT + FINDING * (labels + 1) * frameCount;
    const size: Record<OutputKind, number> = {
      json: findings,
      png: PICTURE,
      sr: findings,
      // A bit a pixel and label, or a byte a pixel in a label map
      seg: DOCUMENT + Math.max(1, labels / 8) * bits + FINDING * labels * frameCount,
      rtstruct: DOCUMENT + bits + FINDING * labels * frameCount,
      sc: CAPTURE,
    };
    return outputs.reduce((sum, kind) => sum + size[kind], 0);
  });
  return Math.ceil(sizes.reduce((sum, size) => sum + size, DOCUMENT));
}
