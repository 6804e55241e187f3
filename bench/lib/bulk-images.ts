/** CT slices and radiographs to measure bulk work with: real sizes, each another image by its UID and its pixels. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ctPhantom } from "../../scripts/demo/phantom.js";
import { attributesOf, compress, CT, dicomFile, SYNTAXES, type Raw } from "../../test/support/dicom.js";
import { radiograph } from "./pictures.js";

const DIGITAL_X_RAY_FOR_PRESENTATION = "1.2.840.10008.5.1.4.1.1.1.1";
/** Different pictures among the radiographs; encoding one takes about a second. */
const DX_PICTURES = 4;

const ROOT = "1.2.826.0.1.3680043.2.9";

function identity(kind: number, number: number): Record<string, string> {
  return {
    SOPInstanceUID: `${ROOT}.${kind}.1.${number + 1}`,
    SeriesInstanceUID: `${ROOT}.${kind}.2`,
    StudyInstanceUID: `${ROOT}.${kind}.3`,
    FrameOfReferenceUID: `${ROOT}.${kind}.4`,
    InstanceNumber: String(number + 1),
    PatientID: "BENCH",
    // What the standard asks for even where nothing is known (type 2): writers of other objects copy it.
    PatientName: "",
    PatientBirthDate: "",
    PatientSex: "",
    AccessionNumber: "",
    StudyID: "",
    ReferringPhysicianName: "",
    Manufacturer: "Bench",
    SeriesNumber: "1",
    StudyDate: "20260101",
    StudyTime: "120000",
  };
}

/** Native 512x512 of 16 bits: the phantom of the demo, every slice turned by a row and so of other pixels. */
export function writeCt(folder: string, count: number): string[] {
  mkdirSync(folder, { recursive: true });
  const { rows, columns, spacing, stored } = ctPhantom();
  return Array.from({ length: count }, (_, i) => {
    const words = new Uint16Array(stored.length);
    const turn = (i % rows) * columns;
    words.set(stored.subarray(turn));
    words.set(stored.subarray(0, turn), stored.length - turn);
    const data = new Uint8Array(words.buffer);
    const raw: Raw = { rows, columns, samples: 1, bitsAllocated: 16, bitsStored: 12, data };
    const attributes = attributesOf(raw, {
      ...identity(1, i),
      SOPClassUID: CT,
      Modality: "CT",
      ImageType: "ORIGINAL\\PRIMARY\\AXIAL",
      PixelSpacing: `${spacing}\\${spacing}`,
      ImagePositionPatient: `0\\0\\${i}`,
      ImageOrientationPatient: "1\\0\\0\\0\\1\\0",
      KVP: "120",
      SliceThickness: "1",
      RescaleIntercept: "-1024",
      RescaleSlope: "1",
      RescaleType: "HU",
      WindowCenter: "40",
      WindowWidth: "400",
    });
    const path = join(folder, `slice-${i}.dcm`);
    writeFileSync(path, dicomFile({ attributes, pixels: data }));
    return path;
  });
}

/** Radiographs of 3000x2500 with 12 bits, JPEG lossless (process 14, selection value 1). */
export async function writeDx(folder: string, count: number): Promise<string[]> {
  mkdirSync(folder, { recursive: true });
  const raw = radiograph(3000, 2500);
  const fragments: Uint8Array[] = [];
  for (let i = 0; i < Math.min(count, DX_PICTURES); i++) {
    const words = new Uint16Array(raw.data.buffer).slice();
    for (let at = i; at < words.length; at += 101) words[at] = (words[at]! + i) & 4095;
    const data = new Uint8Array(words.buffer);
    fragments.push((await compress("jpeg-lossless", { ...raw, data })).slice());
  }
  return Array.from({ length: count }, (_, i) => {
    const attributes = attributesOf(raw, {
      ...identity(2, i),
      SOPClassUID: DIGITAL_X_RAY_FOR_PRESENTATION,
      Modality: "DX",
      ImageType: "ORIGINAL\\PRIMARY",
      ImagerPixelSpacing: "0.14\\0.14",
      WindowCenter: "2048",
      WindowWidth: "4096",
      PresentationLUTShape: "IDENTITY",
      PatientOrientation: "L\\F",
      BurnedInAnnotation: "NO",
    });
    const path = join(folder, `radiograph-${i}.dcm`);
    const pixels = { fragments: [fragments[i % fragments.length]!] };
    writeFileSync(path, dicomFile({ transferSyntax: SYNTAXES["jpeg-lossless"], attributes, pixels }));
    return path;
  });
}
