/**
 * CT slices and radiographs to measure bulk work with: real sizes, each another image by its UID
 * and its pixels.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ctPhantom, ultrasoundPhantom } from "../../scripts/demo/phantom.js";
import {
  attributesOf,
  compress,
  CT,
  dicomFile,
  encodeAttributes,
  EXPLICIT,
  SYNTAXES,
  type Attributes,
  type FileOptions,
  type Raw,
} from "../../test/support/dicom.js";
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
    // What the standard asks for even where nothing is known (type 2): writers of other objects
    // copy it.
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

/**
 * With all that file meta information has to hold (PS3.10, section 7.1): other readers insist on
 * it.
 */
function part10(options: FileOptions & { attributes: Attributes }): Buffer {
  const { attributes, transferSyntax = EXPLICIT } = options;
  const encoding = { explicit: true, little: true };
  const elements = encodeAttributes(
    {
      FileMetaInformationVersion: Uint8Array.of(0, 1),
      MediaStorageSOPClassUID: attributes["SOPClassUID"]!,
      MediaStorageSOPInstanceUID: attributes["SOPInstanceUID"]!,
      TransferSyntaxUID: transferSyntax,
      ImplementationClassUID: ROOT,
    },
    encoding,
  );
  const length = encodeAttributes({ FileMetaInformationGroupLength: elements.length }, encoding);
  const body = dicomFile({ ...options, preamble: false, meta: false });
  return Buffer.concat([Buffer.alloc(128), Buffer.from("DICM"), length, elements, body]);
}

/** Words of each picture, turned by a row for each number, so that all have other pixels. */
export function turned(stored: Uint16Array, columns: number, number: number): Uint8Array {
  const words = new Uint16Array(stored.length);
  const turn = (number * columns) % stored.length;
  words.set(stored.subarray(turn));
  words.set(stored.subarray(0, turn), stored.length - turn);
  return new Uint8Array(words.buffer);
}

/**
 * Native, square, of 16 bits: the phantom of the demo, every slice turned by a row and so of other
 * pixels.
 */
export function writeCt(
  folder: string,
  count: number,
  side = 512,
  more: (number: number) => Attributes = () => ({}),
): string[] {
  mkdirSync(folder, { recursive: true });
  const { rows, columns, spacing, stored } = ctPhantom(side);
  return Array.from({ length: count }, (_, i) => {
    const data = turned(stored, columns, i);
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
      ...more(i),
    });
    const path = join(folder, `slice-${i}.dcm`);
    writeFileSync(path, part10({ attributes, pixels: data }));
    return path;
  });
}

/** Folders of one CT series each. */
export function writeSeries(folder: string, count: number, slices: number, side: number): string[] {
  return Array.from({ length: count }, (_, i) => {
    const path = join(folder, `series-${i}`);
    writeCt(path, slices, side, (slice) => ({
      SOPInstanceUID: `${ROOT}.4.1.${i + 1}.${slice + 1}`,
      SeriesInstanceUID: `${ROOT}.4.2.${i + 1}`,
      FrameOfReferenceUID: `${ROOT}.4.4.${i + 1}`,
    }));
    return path;
  });
}

const ULTRASOUND_MULTI_FRAME = "1.2.840.10008.5.1.4.1.1.3.1";
/** Different frames of a cine. */
const CINE_PICTURES = 5;

/** Cines of grey frames of 1024 x 768, JPEG baseline. */
export async function writeCine(folder: string, count: number, frames: number): Promise<string[]> {
  mkdirSync(folder, { recursive: true });
  const { rows, columns, pixels } = ultrasoundPhantom();
  const raw: Raw = { rows, columns, samples: 1, bitsAllocated: 8, bitsStored: 8, data: pixels };
  const coded: Uint8Array[] = [];
  for (let i = 0; i < CINE_PICTURES; i++) {
    const data = Uint8Array.from(pixels, (value, at) =>
      at % 97 === i ? Math.min(255, value + i) : value,
    );
    coded.push((await compress("jpeg", { ...raw, data })).slice());
  }
  return Array.from({ length: count }, (_, i) => {
    const attributes = attributesOf(raw, {
      ...identity(3, i),
      SOPClassUID: ULTRASOUND_MULTI_FRAME,
      Modality: "US",
      ImageType: "ORIGINAL\\PRIMARY",
      NumberOfFrames: String(frames),
      FrameTime: "33.3",
      LossyImageCompression: "01",
    });
    const fragments = Array.from(
      { length: frames },
      (_, frame) => coded[(i + frame) % CINE_PICTURES]!,
    );
    const path = join(folder, `cine-${i}.dcm`);
    writeFileSync(
      path,
      part10({ transferSyntax: SYNTAXES.jpeg, attributes, pixels: { fragments } }),
    );
    return path;
  });
}

/**
 * Radiographs of 3000x2500 with 12 bits: JPEG lossless (process 14, selection value 1), or another
 * lossless coding.
 */
export async function writeDx(
  folder: string,
  count: number,
  coder: "jpeg-lossless" | "jpeg2000" = "jpeg-lossless",
): Promise<string[]> {
  mkdirSync(folder, { recursive: true });
  const raw = radiograph(3000, 2500);
  const fragments: Uint8Array[] = [];
  for (let i = 0; i < Math.min(count, DX_PICTURES); i++) {
    const words = new Uint16Array(raw.data.buffer).slice();
    for (let at = i; at < words.length; at += 101) words[at] = (words[at]! + i) & 4095;
    const data = new Uint8Array(words.buffer);
    fragments.push((await compress(coder, { ...raw, data })).slice());
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
    writeFileSync(path, part10({ transferSyntax: SYNTAXES[coder], attributes, pixels }));
    return path;
  });
}
