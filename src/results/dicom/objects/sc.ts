/**
 * The overlay picture for viewers that show neither reports nor segmentations: Secondary Capture
 * (PS3.3 A.8).
 */
import { packRle, rleHolds } from "../../../addon/bytes.js";
import type { Picture } from "../../../addon/picture.js";
import type { DicomFile } from "../../../images/dicom/dicom-file.js";
import { imageOf } from "../../../images/dicom/dicom-image.js";
import { encodedFrames } from "../../../images/dicom/frame-sources.js";
import { readImagePixel } from "../../../images/dicom/pixel-format.js";
import { RLE_LOSSLESS } from "../../../images/dicom/transfer-syntax.js";
import { dicomObject, type DicomObject } from "../elements.js";
import { referenceFault, type ObjectKind } from "./kind.js";
import { commonModules, lossiness } from "../modules.js";
import { analysed, anatomyOfSeries, referenced, sideOfPicture } from "../source.js";
import { seedOf, type Subject } from "../subject.js";
import { freeText, isCodeString } from "../values.js";

export const SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7";

/**
 * The object is in RLE Lossless: these pictures are plain over wide areas and shrink to a fifth,
 * which matters when every slice of a study has one. RLE has no colour transform, and most readers
 * support it.
 * @param frames those of the image (from 0) that the picture shows
 * @param opacity that its masks were drawn with
 */
export function secondaryCapture(
  subject: Subject,
  { width, height, rgb }: Picture,
  frames: readonly number[],
  opacity: number,
): DicomObject {
  const { image, attributes, ids, model } = subject;
  const sources = frames.flatMap((frame) => ids.frames[frame] ?? []);
  if (sources.length === 0) throw new Error("The picture is of frames of the image");
  const { manifest } = model;
  const files = image.series?.attributes ?? [attributes];
  const isClean = files.every((file) => file.string("BurnedInAnnotation") === "NO");
  return dicomObject(
    {
      SOPClassUID: SECONDARY_CAPTURE,
      Modality: modalityOf(image.source.modality),
      ...commonModules(subject, "sc"),
      ...anatomyOfSeries(attributes),
      ...sideOfPicture(image, attributes),
      ConversionType: "WSD",
      ImageType: ["DERIVED", "SECONDARY"],
      PatientOrientation: "",
      // If the source does not say that its pixels name nobody, the copy cannot either
      BurnedInAnnotation: isClean ? "NO" : "YES",
      ...lossiness(image, attributes),
      DerivationDescription: freeText(
        `Overlay of ${model.name} ${model.version} (${manifest.manufacturer}). ${manifest.regulatory}`,
        1024,
      ),
      SourceImageSequence: analysed(referenced(sources)),
      SamplesPerPixel: 3,
      PhotometricInterpretation: "RGB",
      // RLE keeps the colours apart
      PlanarConfiguration: 1,
      Rows: height,
      Columns: width,
      BitsAllocated: 8,
      BitsStored: 8,
      HighBit: 7,
      PixelRepresentation: 0,
      PixelData: packRle(rgb, height, width),
    },
    [...seedOf(subject), opacity],
    RLE_LOSSLESS,
  );
}

function modalityOf(modality: string | undefined): string {
  return modality !== undefined && isCodeString(modality) ? modality : "OT";
}

export const sc: ObjectKind = {
  ofMasks: false,
  whyNot: () => undefined,
  // Bytes of the overlay of the largest image, compressed in RLE
  room: () => 12 * 2 ** 20,
  make: async ({ subject, picture }) => {
    const { pixels, frames, opacity } = await picture();
    return secondaryCapture(subject, pixels, frames, opacity);
  },
  fault: async (file, object, { picture }, known) =>
    referenceFault(file.attributes.sequence("SourceImageSequence") ?? [], known) ??
    pixelFault(file, object, (await picture()).pixels),
};

/** The picture has to read back bit by bit, through its compression. */
function pixelFault(
  file: DicomFile,
  { bytes, sha256 }: DicomObject,
  { width, height, rgb }: Picture,
): string | undefined {
  const { format, frameCount } = imageOf(file, bytes, sha256);
  const element = file.attributes.element("PixelData");
  const pixel = readImagePixel(file.attributes, "PixelData", file.walk.warnings);
  const frames = element === undefined ? undefined : encodedFrames(file, element, pixel);
  const alike =
    frameCount === 1 &&
    format.rows === height &&
    format.columns === width &&
    format.samplesPerPixel === 3 &&
    format.bitsAllocated === 8 &&
    format.photometricInterpretation === "RGB";
  return alike && frames?.coding === "rle" && rleHolds(frames.bytesOf(0), rgb)
    ? undefined
    : "its pixels are not the overlay's";
}
