/** The overlay picture for viewers that show neither reports nor segmentations: Secondary Capture (PS3.3 A.8). */
import { packRle } from "../../addon/bytes.js";
import type { Pixels } from "../picture/pixels.js";
import { codeItem, commonModules, freeText, lossiness, seedOf, type Subject } from "./common.js";
import { dcm } from "./content.js";
import { dicomObject, type DicomObject } from "./dataset.js";
import { anatomyOfSeries, referenced } from "./source.js";

export const SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7";
export const RLE_LOSSLESS = "1.2.840.10008.1.2.5";

/**
 * In RLE Lossless: these pictures are plain over wide areas and shrink to a fifth, which counts where every slice of a
 * study has one; of the compressions it is the one without colour transforms and the one that most readers have.
 * @param frames of the image (from 0) that the picture shows
 */
export function secondaryCapture(
  subject: Subject,
  { rows, columns, rgb }: Pixels,
  frames: readonly number[],
): DicomObject {
  const { image, attributes, ids, model } = subject;
  const sources = frames.flatMap((frame) => ids.frames[frame] ?? []);
  if (sources.length === 0) throw new Error("The picture is of frames of the image");
  const { manifest } = model;
  const burnedIn = attributes.string("BurnedInAnnotation") === "NO" ? "NO" : "YES";
  return dicomObject(
    {
      SOPClassUID: SECONDARY_CAPTURE,
      Modality: modalityOf(image.source.modality),
      ...commonModules(subject, "sc"),
      ...anatomyOfSeries(attributes),
      ConversionType: "WSD",
      ImageType: ["DERIVED", "SECONDARY"],
      PatientOrientation: "",
      // Where the source does not say that its pixels name nobody, the copy cannot either
      BurnedInAnnotation: burnedIn,
      ...lossiness(image, attributes),
      DerivationDescription: freeText(
        `Overlay of ${model.name} ${model.version} (${manifest.manufacturer}). ${manifest.regulatory}`,
        1024,
      ),
      SourceImageSequence: referenced(sources).map((item) => ({
        ...item,
        PurposeOfReferenceCodeSequence: [
          codeItem(dcm("121322", "Source image for image processing operation")),
        ],
      })),
      SamplesPerPixel: 3,
      PhotometricInterpretation: "RGB",
      // RLE keeps the colours apart
      PlanarConfiguration: 1,
      Rows: rows,
      Columns: columns,
      BitsAllocated: 8,
      BitsStored: 8,
      HighBit: 7,
      PixelRepresentation: 0,
      PixelData: packRle(rgb, rows, columns),
    },
    seedOf(subject),
    RLE_LOSSLESS,
  );
}

function modalityOf(modality: string | undefined): string {
  return modality !== undefined && /^[A-Z0-9_ ]{1,16}$/.test(modality) ? modality : "OT";
}
