/** What result objects take over from the source: patient, study, frame of reference, and the frames they refer to. */
import { createHash } from "node:crypto";
import { dictionaryVr, tagOf } from "../../dicom/dictionary.js";
import type { Attributes, Image } from "../../image.js";
import type { Dataset, Value } from "./elements.js";

/** The object, and where it has several the frame of it (from 1), that a frame of an image was read from. */
export interface SourceFrame {
  sopClassUid: string;
  sopInstanceUid: string;
  frameNumber: number | undefined;
}

/** The identifiers without which no object can refer to the source. */
export interface SourceIds {
  studyInstanceUid: string;
  seriesInstanceUid: string;
  /** In the order of the image's frames. */
  frames: readonly SourceFrame[];
}

const UID = /^(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*))+$/;

function isUid(text: string | undefined): text is string {
  return text !== undefined && text.length <= 64 && UID.test(text);
}

/** Why no DICOM object can be made of this image's results, or what its frames are called. */
export function sourceIds(image: Image): SourceIds | { missing: string } {
  const { source, series } = image;
  if (image.attributes === undefined)
    return { missing: `the source is ${source.format.toUpperCase()} and no DICOM object` };
  const { studyInstanceUid, seriesInstanceUid, sopClassUid } = source;
  if (!isUid(studyInstanceUid)) return { missing: "the source has no valid StudyInstanceUID" };
  if (!isUid(seriesInstanceUid)) return { missing: "the source has no valid SeriesInstanceUID" };
  if (!isUid(sopClassUid)) return { missing: "the source has no valid SOPClassUID" };
  const frames: SourceFrame[] = [];
  for (let frame = 0; frame < image.frameCount; frame++) {
    const slice = series?.slices[frame];
    const sopInstanceUid = slice === undefined ? source.sopInstanceUid : slice.sopInstanceUid;
    if (!isUid(sopInstanceUid)) return { missing: "the source has no valid SOPInstanceUID" };
    const ofMany = series === undefined && isMultiFrame(image.attributes, image.frameCount);
    const frameNumber = slice === undefined ? (ofMany ? frame + 1 : undefined) : slice.frame;
    frames.push({ sopClassUid, sopInstanceUid, frameNumber });
  }
  return { studyInstanceUid, seriesInstanceUid, frames };
}

/** Frame numbers are for multi-frame objects alone (PS3.3 section 10.3), those with a single frame among them. */
function isMultiFrame(attributes: Attributes, frames: number): boolean {
  return frames > 1 || attributes.has("SharedFunctionalGroupsSequence");
}

/** Items of a reference sequence, one an object, with its frames where it has several (PS3.3 tables 10-3, 10-11). */
export function referenced(frames: readonly SourceFrame[]): Dataset[] {
  const objects = new Map<string, Dataset & { ReferencedFrameNumber?: number[] }>();
  for (const { sopClassUid, sopInstanceUid, frameNumber } of frames) {
    let item = objects.get(sopInstanceUid);
    if (item === undefined) {
      item = { ReferencedSOPClassUID: sopClassUid, ReferencedSOPInstanceUID: sopInstanceUid };
      objects.set(sopInstanceUid, item);
    }
    if (frameNumber !== undefined) (item.ReferencedFrameNumber ??= []).push(frameNumber);
  }
  return [...objects.values()];
}

/** The same without frame numbers: for evidence and series references. */
export function referencedObjects(frames: readonly SourceFrame[]): Dataset[] {
  return referenced(frames.map((frame) => ({ ...frame, frameNumber: undefined })));
}

/** What a value of a VR has to look like (PS3.5 table 6.2-1); values of other VRs are taken as they are. */
const FORMS: Readonly<Record<string, RegExp>> = {
  AS: /^\d{3}[DWMY]$/,
  CS: /^[A-Z0-9_ ]{1,16}$/,
  DA: /^\d{4}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])$/,
  DS: /^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$/,
  DT: /^\d{4,14}(?:\.\d{1,6})?(?:[-+]\d{4})?$/,
  IS: /^[-+]?\d{1,12}$/,
  LO: /^[^\\]{0,64}$/su,
  SH: /^[^\\]{0,16}$/su,
  TM: /^(?:[01]\d|2[0-3])(?:[0-5]\d(?:(?:[0-5]\d|60)(?:\.\d{1,6})?)?)?$/,
  UI: /^(?=.{1,64}$)[0-9]+(?:\.[0-9]+)*$/,
};

function isOfForm(vr: string, value: string): boolean {
  return value === "" || (FORMS[vr]?.test(value) ?? true);
}

function taken(attributes: Attributes, keyword: string): Value | undefined {
  const values = attributes.strings(keyword);
  if (values === undefined) return undefined;
  const vr = dictionaryVr(tagOf(keyword) ?? 0);
  if (vr === "US") return attributes.numbers(keyword);
  // What the standard does not allow would make our object invalid too, and says nothing that can be relied upon
  return values.every((value) => isOfForm(vr, value)) ? values : undefined;
}

const CODE = ["CodeValue", "CodingSchemeDesignator", "CodingSchemeVersion", "CodeMeaning"];

/** Sequences that are taken over, and which attributes of their items. */
const SEQUENCES: Readonly<Record<string, readonly string[]>> = {
  DeidentificationMethodCodeSequence: CODE,
  ProcedureCodeSequence: CODE,
  ReferencedStudySequence: ["ReferencedSOPClassUID", "ReferencedSOPInstanceUID"],
  IssuerOfAccessionNumberSequence: ["LocalNamespaceEntityID", "UniversalEntityID", "UniversalEntityIDType"],
  IssuerOfPatientIDQualifiersSequence: ["UniversalEntityID", "UniversalEntityIDType", "IdentifierTypeCode"],
  ReferencedPatientSequence: ["ReferencedSOPClassUID", "ReferencedSOPInstanceUID"],
  OtherPatientIDsSequence: ["PatientID", "IssuerOfPatientID", "TypeOfPatientID"],
};

const PATIENT = [
  ...["PatientName", "PatientID", "PatientBirthDate", "PatientSex", "IssuerOfPatientID", "TypeOfPatientID"],
  ...["PatientBirthTime", "OtherPatientIDs", "OtherPatientNames", "EthnicGroup", "PatientComments"],
  ...["PatientSpeciesDescription", "PatientIdentityRemoved", "DeidentificationMethod"],
  ...["IssuerOfPatientIDQualifiersSequence", "OtherPatientIDsSequence", "DeidentificationMethodCodeSequence"],
  ...["ReferencedPatientSequence"],
  ...["QualityControlSubject", "ResponsiblePerson", "ResponsiblePersonRole", "ResponsibleOrganization"],
];

const CLINICAL_TRIAL = [
  ...["ClinicalTrialSponsorName", "ClinicalTrialProtocolID", "ClinicalTrialProtocolName"],
  ...["ClinicalTrialSiteID", "ClinicalTrialSiteName", "ClinicalTrialSubjectID"],
  ...["ClinicalTrialSubjectReadingID", "ClinicalTrialTimePointID", "ClinicalTrialTimePointDescription"],
];

const STUDY = [
  ...["StudyDate", "StudyTime", "ReferringPhysicianName", "StudyID", "AccessionNumber", "StudyDescription"],
  ...["PhysiciansOfRecord", "NameOfPhysiciansReadingStudy", "ConsultingPhysicianName"],
  ...["IssuerOfAccessionNumberSequence", "ProcedureCodeSequence", "ReferencedStudySequence"],
  ...["PatientAge", "PatientSize", "PatientWeight", "AdmittingDiagnosesDescription", "Occupation"],
  ...["AdditionalPatientHistory", "AdmissionID", "MedicalAlerts", "Allergies", "PatientState"],
  ...["PregnancyStatus", "LastMenstrualDate", "SmokingStatus", "SpecialNeeds", "PatientSexNeutered"],
];

/** Type 2: there, even where the source leaves them out. */
const NEVER_ABSENT: Dataset = {
  ...{ PatientName: "", PatientID: "", PatientBirthDate: "", PatientSex: "" },
  ...{ StudyDate: "", StudyTime: "", ReferringPhysicianName: "", StudyID: "", AccessionNumber: "" },
};

export function takeOver(attributes: Attributes, keywords: readonly string[]): Dataset {
  const dataset: Dataset = {};
  for (const keyword of keywords) {
    const inner = SEQUENCES[keyword];
    if (inner === undefined) dataset[keyword] = taken(attributes, keyword);
    else {
      const items = attributes.sequence(keyword)?.map((item) => takeOver(item, inner));
      if (items !== undefined && items.length > 0 && items.every((item) => isWhole(item, inner)))
        dataset[keyword] = items;
    }
  }
  return Object.fromEntries(Object.entries(dataset).filter(([, value]) => value !== undefined));
}

/** Codes need their value, scheme and meaning, references both UIDs; other items need something. */
function isWhole(item: Dataset, keywords: readonly string[]): boolean {
  const filled = (keyword: string) => {
    const value = item[keyword];
    return Array.isArray(value) && value.length > 0 && value[0] !== "";
  };
  if (keywords === CODE)
    return ["CodeValue", "CodingSchemeDesignator", "CodeMeaning"].every((keyword) => filled(keyword));
  return keywords[0]?.startsWith("Referenced") === true ? keywords.every(filled) : keywords.some(filled);
}

/** Patient and study as the source has them; values that the standard does not allow are left out. */
export function patientAndStudy(attributes: Attributes, studyInstanceUid: string): Dataset {
  const trial = attributes.has("ClinicalTrialProtocolID") ? CLINICAL_TRIAL : [];
  return {
    ...NEVER_ABSENT,
    ...takeOver(attributes, [...PATIENT, ...trial, ...STUDY]),
    StudyInstanceUID: studyInstanceUid,
  };
}

/** Side and part of the body as the source's series has them. */
export function anatomyOfSeries(attributes: Attributes): Dataset {
  const side = attributes.string("Laterality");
  return {
    ...takeOver(attributes, ["BodyPartExamined"]),
    ...(side === "L" || side === "R" ? { Laterality: side } : {}),
  };
}

const ZONE = /^[+-](?:0\d|1[0-4])[0-5]\d$/;

/** Offset from UTC of the source's dates and times, which ours stand beside; else that of this machine. */
export function zoneOf(attributes: Attributes, at: Date): string {
  const own = attributes.string("TimezoneOffsetFromUTC");
  if (own !== undefined && ZONE.test(own)) return own;
  const minutes = -at.getTimezoneOffset();
  const size = Math.abs(minutes);
  const two = (n: number) => String(n).padStart(2, "0");
  return `${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}${two(size % 60)}`;
}

/** A moment as DA and TM in a zone, to the millisecond. */
export function dateAndTime(at: Date, zone: string): { date: string; time: string } {
  const sign = zone.startsWith("-") ? -1 : 1;
  const minutes = sign * (Number(zone.slice(1, 3)) * 60 + Number(zone.slice(3, 5)));
  const text = new Date(at.getTime() + minutes * 60_000).toISOString();
  return { date: text.slice(0, 10).replaceAll("-", ""), time: text.slice(11, 23).replaceAll(":", "") };
}

/** Short text that tells nothing but whether two sources are the same: for UIDs. */
export function fingerprint(image: Image): string {
  const { source } = image;
  const named = image.series?.slices.map(({ sopInstanceUid }) => sopInstanceUid) ?? [source.sopInstanceUid];
  return createHash("sha256")
    .update(JSON.stringify([source.studyInstanceUid, source.seriesInstanceUid, named]))
    .digest("hex");
}
