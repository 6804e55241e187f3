/** One DICOM file of a series: what is kept of it once its bytes have been let go, or why it is no slice. */
import { RadserveError } from "../../base/errors.js";
import type { Interpretation, PixelFormat, SourceIdentity, Warning } from "../image.js";
import type { DataSetAttributes } from "./attributes.js";
import { readDicom } from "./dicom-image.js";
import type { FrameGeometry } from "./geometry.js";

const SEGMENTATIONS = ["1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7"];
const SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7";
/** Processing Equipment (PS3.16 CID 7005): the purpose of equipment that made an object out of other images (IHE AI Results). */
const PROCESSING_EQUIPMENT = "109102";

/** Why a readable object is not a slice: the end of its warning's code, and what it is called there. */
export interface LeftOut {
  code: string;
  what: string;
}

export interface SeriesFile {
  source: SourceIdentity;
  format: PixelFormat;
  attributes: DataSetAttributes;
  frames: FrameFacts[];
  warnings: Warning[];
  /** Reads the file's bytes again. */
  read(): Promise<Uint8Array>;
}

export interface FrameFacts extends FrameGeometry {
  interpretation: Interpretation;
}

/**
 * What a series needs of a file, or why the object is not a slice of one.
 * @param read gives the same bytes later; nothing of `bytes` is kept
 * Throws what readDicom throws for an image that cannot be used.
 */
export function seriesFile(bytes: Uint8Array, read: () => Promise<Uint8Array>): SeriesFile | LeftOut {
  let image: ReturnType<typeof readDicom>;
  try {
    image = readDicom(bytes);
  } catch (error) {
    if (error instanceof RadserveError && error.code === "no_pixel_data")
      return {
        code: "no_image",
        what: "DICOM objects without pixels (reports, presentation states, directories)",
      };
    throw error;
  }
  const attributes = image.attributes.withoutPixels();
  const derived = derivedObject(attributes, image.source);
  if (derived !== undefined) return derived;
  return {
    source: image.source,
    format: image.format,
    attributes,
    frames: Array.from({ length: image.frameCount }, (_, frame) => ({
      interpretation: image.interpretation(frame),
      spacing: image.spacing(frame),
      plane: image.plane(frame),
      pixelAspect: image.pixelAspect(frame),
    })),
    warnings: image.warnings,
    read,
  };
}

/** Objects with pixels that lie beside a series and are not slices of it. */
function derivedObject(attributes: DataSetAttributes, { sopClassUid }: SourceIdentity): LeftOut | undefined {
  if (SEGMENTATIONS.includes(sopClassUid ?? "")) return { code: "segmentation", what: "segmentations" };
  if ((attributes.strings("ImageType") ?? []).includes("LOCALIZER"))
    return { code: "localizer", what: "localizers (ImageType)" };
  const makers = attributes.sequence("ContributingEquipmentSequence") ?? [];
  const processed = makers.some((maker) =>
    (maker.sequence("PurposeOfReferenceCodeSequence") ?? []).some(
      (code) => code.string("CodeValue") === PROCESSING_EQUIPMENT,
    ),
  );
  if (processed && (sopClassUid ?? "").startsWith(SECONDARY_CAPTURE))
    return { code: "result", what: "pictures that an analysis made (ContributingEquipmentSequence)" };
  return undefined;
}
