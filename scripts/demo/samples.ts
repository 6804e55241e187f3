/** The phantoms as DICOM files (Explicit VR Little Endian), serialised by dcmjs. */
import { createHash } from "node:crypto";
import dcmjs from "dcmjs";
import { composePage } from "../../src/addon/picture.js";
import { Drawing } from "../../src/results/picture/drawing.js";
import { atlas } from "../../src/results/picture/text.js";
import { ctPhantom, ultrasoundPhantom, type CtPhantom } from "./phantom.js";

const CT_IMAGE_STORAGE = "1.2.840.10008.5.1.4.1.1.2";
const ULTRASOUND_IMAGE_STORAGE = "1.2.840.10008.5.1.4.1.1.6.1";
const EXPLICIT_VR_LITTLE_ENDIAN = "1.2.840.10008.1.2.1";

/** A UID under 2.25 (PS3.5 B.2) from a name: the samples are the same bytes at every run. */
function uidOf(name: string): string {
  const digest = createHash("sha256").update(`radserve sample ${name}`).digest();
  return `2.25.${BigInt(`0x${digest.subarray(0, 16).toString("hex")}`)}`;
}

type Dataset = Record<string, unknown>;

function identity(name: string, sopClass: string): Dataset {
  return {
    SOPClassUID: sopClass,
    SOPInstanceUID: uidOf(`${name} instance`),
    StudyInstanceUID: uidOf(`${name} study`),
    SeriesInstanceUID: uidOf(`${name} series`),
    PatientName: "Phantom^Radserve",
    PatientID: "PHANTOM-1",
    PatientBirthDate: "",
    PatientSex: "O",
    StudyDate: "20260101",
    StudyTime: "120000",
    StudyID: "1",
    AccessionNumber: "",
    ReferringPhysicianName: "",
    SeriesNumber: "1",
    InstanceNumber: "1",
    Manufacturer: "Radserve",
  };
}

function serialise(dataset: Dataset, pixels: Uint8Array, vr: "OB" | "OW"): Uint8Array {
  const meta = {
    FileMetaInformationVersion: new Uint8Array([0, 1]).buffer,
    MediaStorageSOPClassUID: dataset["SOPClassUID"],
    MediaStorageSOPInstanceUID: dataset["SOPInstanceUID"],
    TransferSyntaxUID: EXPLICIT_VR_LITTLE_ENDIAN,
    ImplementationClassUID: uidOf("implementation"),
    ImplementationVersionName: "RADSERVE_DEMO",
  };
  const { DicomDict, DicomMetaDictionary } = dcmjs.data;
  const file = new DicomDict(DicomMetaDictionary.denaturalizeDataset(meta));
  file.dict = DicomMetaDictionary.denaturalizeDataset(dataset);
  file.dict["7FE00010"] = { vr, Value: [Uint8Array.from(pixels).buffer] };
  return new Uint8Array(file.write());
}

export interface Samples {
  ct: Uint8Array;
  truth: CtPhantom["truth"];
  ultrasound: Uint8Array;
}

/** @param more attributes instead of those of a slice of its own */
function ctSlice(phantom: CtPhantom, z = 0, more: Dataset = {}): Uint8Array {
  const half = (phantom.rows * phantom.spacing) / 2;
  const dataset = {
    ...identity("ct", CT_IMAGE_STORAGE),
    Modality: "CT",
    ImageType: ["ORIGINAL", "PRIMARY", "AXIAL"],
    SeriesDescription: "Radserve phantom, chest",
    BodyPartExamined: "CHEST",
    PatientPosition: "HFS",
    FrameOfReferenceUID: uidOf("ct frame of reference"),
    PositionReferenceIndicator: "",
    ImagePositionPatient: [-half, -half, z],
    ImageOrientationPatient: [1, 0, 0, 0, 1, 0],
    SliceThickness: 5,
    KVP: 120,
    SamplesPerPixel: 1,
    PhotometricInterpretation: "MONOCHROME2",
    Rows: phantom.rows,
    Columns: phantom.columns,
    PixelSpacing: [phantom.spacing, phantom.spacing],
    BitsAllocated: 16,
    BitsStored: 12,
    HighBit: 11,
    PixelRepresentation: 0,
    WindowCenter: 40,
    WindowWidth: 400,
    RescaleIntercept: -1024,
    RescaleSlope: 1,
    RescaleType: "HU",
    ...more,
  };
  return serialise(dataset, new Uint8Array(phantom.stored.buffer), "OW");
}

/** What a careless console burns in: every line here is invented. */
export const BURNED_IN = [
  { text: "ST. ELSEWHERE GENERAL", x: 28, y: 44, size: 25 },
  { text: "DOE, JANE  F  1970-01-01", x: 28, y: 80, size: 25 },
  { text: "ID 4711-0815", x: 28, y: 116, size: 25 },
  { text: "2026-01-01  12:00", x: 776, y: 44, size: 25 },
  { text: "C5-1  Abdomen", x: 776, y: 80, size: 25 },
  { text: "TIS 0.4   MI 1.2", x: 776, y: 116, size: 25 },
  { text: "Depth 15.2 cm", x: 28, y: 730, size: 23 },
  { text: "Liver right lobe", x: 776, y: 730, size: 23 },
];

function ultrasoundPicture(): Uint8Array {
  const { rows, columns, pixels } = ultrasoundPhantom();
  const drawing = new Drawing();
  for (const { text, x, y, size } of BURNED_IN)
    drawing.text(text, x, y, { size, face: "regular", colour: [230, 230, 230] });
  const rgb = Uint8Array.from(
    { length: 3 * pixels.length },
    (_, i) => pixels[Math.floor(i / 3)] ?? 0,
  );
  const whole = { x: 0, y: 0, width: columns, height: rows };
  const { rgb: drawn } = composePage({
    width: columns,
    height: rows,
    background: Uint8Array.of(0, 0, 0),
    opacity: 0,
    panels: [{ ...whole, picture: { width: columns, height: rows, rgb }, marks: [] }],
    drawing: drawing.list(),
    glyphs: atlas.bytes,
  });
  const grey = pixels.map((_, i) => drawn[3 * i] ?? 0);
  const dataset = {
    ...identity("ultrasound", ULTRASOUND_IMAGE_STORAGE),
    Modality: "US",
    ImageType: ["ORIGINAL", "PRIMARY"],
    SeriesDescription: "Radserve phantom, burned-in text",
    BurnedInAnnotation: "YES",
    SamplesPerPixel: 1,
    PhotometricInterpretation: "MONOCHROME2",
    Rows: rows,
    Columns: columns,
    BitsAllocated: 8,
    BitsStored: 8,
    HighBit: 7,
    PixelRepresentation: 0,
  };
  return serialise(dataset, grey, "OB");
}

export function samples(): Promise<Samples> {
  const phantom = ctPhantom();
  return Promise.resolve({
    ct: ctSlice(phantom),
    truth: phantom.truth,
    ultrasound: ultrasoundPicture(),
  });
}

/** A series of the chest, from the lowest slice up, so many millimetres apart. */
export function ctSeries(count: number, apart: number, size = 512): Uint8Array[] {
  return Array.from({ length: count }, (_, i) => {
    const z = (i - (count - 1) / 2) * apart;
    return ctSlice(ctPhantom(size, z), z, {
      SOPInstanceUID: uidOf(`ct series instance ${i}`),
      SeriesInstanceUID: uidOf("ct series"),
      SeriesNumber: "2",
      InstanceNumber: String(count - i),
    });
  });
}

/** The series that the demo draws, and that commands of the pages use. */
export const demoSeries = (): Uint8Array[] => ctSeries(4, 12);
