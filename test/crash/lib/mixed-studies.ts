/**
 * Studies as hospitals send them, by a seed: series of CT of different lengths, with a report, a
 * presentation state or a picture beside them that no model takes. Objects are small.
 */
import { CT, dicomFile, EXPLICIT, IMPLICIT, imageAttributes } from "../../support/dicom.js";
import { fileHead } from "../../../src/results/dicom/elements.js";
import { slice } from "../../support/series.js";

const ROOT = "1.2.826.0.1.3680043.8.498.62";
/** Of a series of CT. */
const MOST_SLICES = 8;
/** Parts of studies that have something beside their first series of CT. */
const PARTS = { secondSeries: 0.2, report: 0.2, presentation: 0.1, picture: 0.1 };
/** Studies whose slices are large enough to break off within one: rows and columns. */
const LARGE = { part: 0.06, size: 192 };
/** Objects in the transfer syntax that every peer takes. */
const IMPLICIT_PART = 0.3;

const REPORT = "1.2.840.10008.5.1.4.1.1.88.11";
const PRESENTATION = "1.2.840.10008.5.1.4.1.1.11.1";
const PICTURE = "1.2.840.10008.5.1.4.1.1.7";

/** All classes and transfer syntaxes of these studies, as a peer proposes them. */
export const CONTEXTS = [CT, REPORT, PRESENTATION, PICTURE].flatMap((abstractSyntax) =>
  [EXPLICIT, IMPLICIT].map((syntax) => ({ abstractSyntax, transferSyntaxes: [syntax] })),
);

export interface MixedObject {
  sopClassUid: string;
  sopInstanceUid: string;
  transferSyntax: string;
  dataSet: Buffer;
  /** With its File Meta Information. */
  file: Buffer;
}

export interface MixedSeries {
  uid: string;
  /** A job becomes of it. */
  isCt: boolean;
  objects: MixedObject[];
}

export interface MixedStudy {
  uid: string;
  series: MixedSeries[];
}

/** The study with a number. @param next numbers from 0 to 1 */
export function mixedStudy(number: number, next: () => number): MixedStudy {
  const uid = `${ROOT}.${number + 1}`;
  const series: MixedSeries[] = [];
  const names = (at: number, i: number) => ({
    StudyInstanceUID: uid,
    SeriesInstanceUID: `${uid}.${at}`,
    SOPInstanceUID: `${uid}.${at}.${i + 1}`,
    PatientID: `P${number}`,
  });
  const add = (isCt: boolean, count: number, make: (at: number, i: number) => MixedObject) => {
    const at = series.length + 1;
    const objects = Array.from({ length: count }, (_, i) => make(at, i));
    series.push({ uid: `${uid}.${at}`, isCt, objects });
  };
  const syntax = () => (next() < IMPLICIT_PART ? IMPLICIT : EXPLICIT);
  const isLarge = next() < LARGE.part;
  const ct = (at: number, i: number) => {
    const transferSyntax = syntax();
    const fill = (number * 7 + i) % 1000;
    const { size } = LARGE;
    const large = new Uint8Array(Int16Array.from({ length: size * size }, () => fill).buffer);
    return objectOf(CT, `${uid}.${at}.${i + 1}`, transferSyntax, () =>
      slice({
        z: i,
        fill,
        attributes: { ...names(at, i), ...(isLarge ? { Rows: size, Columns: size } : {}) },
        ...(isLarge ? { frames: [large] } : {}),
        preamble: false,
        meta: false,
        transferSyntax,
      }),
    );
  };
  const other = (sopClass: string, modality: string, isPicture: boolean) => (at: number) => {
    const transferSyntax = syntax();
    return objectOf(sopClass, `${uid}.${at}.1`, transferSyntax, () =>
      dicomFile({
        transferSyntax,
        preamble: false,
        meta: false,
        attributes: isPicture
          ? imageAttributes({ ...names(at, 0), SOPClassUID: sopClass, Modality: modality })
          : { ...names(at, 0), SOPClassUID: sopClass, Modality: modality },
        ...(isPicture ? { pixels: Buffer.alloc(16, number), pixelVr: "OB" } : {}),
      }),
    );
  };
  const slices = () => 1 + Math.floor(next() * MOST_SLICES);
  if (next() < PARTS.report) add(false, 1, other(REPORT, "SR", false));
  add(true, slices(), ct);
  if (next() < PARTS.picture) add(false, 1, other(PICTURE, "OT", true));
  if (next() < PARTS.secondSeries) add(true, slices(), ct);
  if (next() < PARTS.presentation) add(false, 1, other(PRESENTATION, "PR", false));
  return { uid, series };
}

function objectOf(
  sopClassUid: string,
  sopInstanceUid: string,
  transferSyntax: string,
  make: () => Buffer,
): MixedObject {
  const dataSet = make();
  const head = fileHead(sopClassUid, sopInstanceUid, transferSyntax);
  const file = Buffer.concat([head, dataSet]);
  return { sopClassUid, sopInstanceUid, transferSyntax, dataSet, file };
}
