/** Image values for tests that need no file. */
import type { Attributes, Image, Interpretation } from "../../src/images/image.js";

/** Attribute values by keyword; an array of objects is a sequence. */
export type Values = Record<string, string | number | (string | number)[] | Values[]>;

function attributesOf(values: Values): Attributes {
  const list = (keyword: string) => {
    const value = values[keyword];
    if (value === undefined) return undefined;
    return Array.isArray(value) ? (value as (string | number)[]) : [value];
  };
  return {
    strings: (keyword) => list(keyword)?.map(String),
    string: (keyword) => list(keyword)?.map(String)[0],
    comparable: (keyword) => (list(keyword) ?? []).join("\\"),
    numbers: (keyword) =>
      list(keyword)
        ?.map(Number)
        .filter((n) => !Number.isNaN(n)),
    number: (keyword) => list(keyword)?.map(Number)[0],
    sequence: (keyword) => (values[keyword] as Values[] | undefined)?.map(attributesOf),
    has: (keyword) => keyword in values,
  };
}

interface Parts {
  source?: Partial<Image["source"]>;
  format?: Partial<Image["format"]>;
  interpretation?: Partial<Interpretation>;
  frameCount?: number;
  pixels?: Uint8Array;
  attributes?: Values;
}

/** Signed grey values of 16 bits. */
export const SIGNED_16: Omit<Image["format"], "rows" | "columns"> = {
  samplesPerPixel: 1,
  bitsAllocated: 16,
  bitsStored: 16,
  highBit: 15,
  signed: true,
  float: false,
  photometricInterpretation: "MONOCHROME2",
  packed422: false,
};

/** A DICOM CT slice in HU unless parts say otherwise. */
export function imageOf(parts: Parts = {}): Image {
  const { source, format, interpretation, frameCount = 1, pixels } = parts;
  const dicom = (source?.format ?? "dicom") === "dicom";
  const whole: Image["format"] = {
    ...SIGNED_16,
    rows: 16,
    columns: 16,
    ...format,
  };
  const bytes = (whole.rows * whole.columns * whole.samplesPerPixel * whole.bitsAllocated) / 8;
  return {
    source: {
      format: "dicom",
      fileSha256: "0".repeat(64),
      bytes: 0,
      sopClassUid: dicom ? "1.2.840.10008.5.1.4.1.1.2" : undefined,
      sopInstanceUid: undefined,
      studyInstanceUid: undefined,
      seriesInstanceUid: undefined,
      transferSyntaxUid: undefined,
      modality: dicom ? "CT" : undefined,
      ...source,
    },
    format: whole,
    frameCount,
    frame: () => Promise.resolve(pixels ?? new Uint8Array(bytes)),
    interpretation: () => ({
      modality: { kind: "identity" },
      units: dicom ? "HU" : undefined,
      voi: [],
      padding: undefined,
      palette: undefined,
      ...interpretation,
    }),
    spacing: () => undefined,
    plane: () => undefined,
    pixelAspect: () => 1,
    attributes: dicom ? attributesOf(parts.attributes ?? {}) : undefined,
    warnings: [],
    transforms: [],
  };
}
