/** A small image with an identity, for tests of result objects. */
import { attributesOf, dicomFile, picture, type Attributes } from "./dicom.js";

/** A greyscale radiograph of 24 x 32 pixels. @param coded its pixels in another syntax */
export function radiograph(more: Attributes = {}, coded: object = {}): Buffer {
  const raw = picture({ rows: 24, columns: 32, samples: 1, bitsAllocated: 8, bitsStored: 8 });
  const attributes = attributesOf(raw, {
    SOPClassUID: "1.2.840.10008.5.1.4.1.1.1",
    SOPInstanceUID: "1.2.3.1",
    StudyInstanceUID: "1.2.3.2",
    SeriesInstanceUID: "1.2.3.3",
    Modality: "CR",
    PatientID: "4711",
    AccessionNumber: "A-1",
    StudyDate: "20261121",
    InstanceNumber: "7",
    TimezoneOffsetFromUTC: "+0200",
    ...more,
  });
  return dicomFile({ attributes, pixels: raw.data, pixelVr: "OB", ...coded });
}
