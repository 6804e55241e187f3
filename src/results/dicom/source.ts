/**
 * The attributes that result objects take over from the source: patient, study, frame of reference,
 * and the frames they refer to.
 */
import { cachedWith } from "../../base/cached.js";
import { dcm } from "../../manifest/texts.js";
import { sha256 } from "../../files/durable-files.js";
import { dictionaryVr, multiplicityOf, tagOf } from "../../images/dicom/dictionary.js";
import { isUid, minutesOfOffset } from "../../images/dicom/value-forms.js";
import type { Attributes, Image } from "../../images/image.js";
import { statedSides } from "../findings/sides.js";
import { codeItem } from "./codes.js";
import type { Dataset, Value } from "./elements.js";
import { isOfForm } from "./values.js";

/** The object that a frame of an image was read from. */
export interface SourceFrame {
  sopClassUid: string;
  sopInstanceUid: string;
  /** From 1; undefined if the object has a single frame. */
  frameNumber: number | undefined;
}

/** The identifiers without which no object can refer to the source. */
export interface SourceIds {
  studyInstanceUid: string;
  seriesInstanceUid: string;
  /** In the order of the image's frames. */
  frames: readonly SourceFrame[];
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
    // Frame numbers are for multi-frame objects alone (PS3.3 section 10.3), those with a single
    // frame among them
    const ofMany =
      series === undefined &&
      (image.frameCount > 1 || image.attributes.has("SharedFunctionalGroupsSequence"));
    const frameNumber = slice === undefined ? (ofMany ? frame + 1 : undefined) : slice.frame;
    frames.push({ sopClassUid, sopInstanceUid, frameNumber });
  }
  return { studyInstanceUid, seriesInstanceUid, frames };
}

/** The identifiers of the other members of a case, or why no object can refer to one of them. */
export function companionIds({ case: members }: Image): readonly SourceIds[] | { missing: string } {
  const all = (members?.members.slice(1) ?? []).map(sourceIds);
  const [missing] = all.filter((ids) => "missing" in ids);
  return missing ?? all.filter((ids): ids is SourceIds => !("missing" in ids));
}

/** A series that an object refers to. */
export interface ReferencedSeries {
  seriesInstanceUid: string;
  frames: readonly SourceFrame[];
}

/**
 * Everything that results refer to, by study and series; the study and the series in which results
 * lie come first.
 */
export function bySeries({
  ids,
  others,
}: {
  ids: SourceIds;
  others: readonly SourceIds[];
}): { studyInstanceUid: string; series: ReferencedSeries[] }[] {
  const studies = new Map<string, Map<string, SourceFrame[]>>();
  for (const { studyInstanceUid, seriesInstanceUid, frames } of [ids, ...others]) {
    const series = studies.get(studyInstanceUid) ?? new Map<string, SourceFrame[]>();
    studies.set(studyInstanceUid, series);
    series.set(seriesInstanceUid, [...(series.get(seriesInstanceUid) ?? []), ...frames]);
  }
  return [...studies].map(([studyInstanceUid, series]) => ({
    studyInstanceUid,
    series: [...series].map(([seriesInstanceUid, frames]) => ({ seriesInstanceUid, frames })),
  }));
}

/**
 * Items of a reference sequence, one an object, with its frames if it has several (PS3.3 tables
 * 10-3, 10-11).
 */
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

/**
 * Items of SourceImageSequence for what an analysis was made from (PS3.3 C.7.6.16.2.6, C.12.4).
 * @param references of `referenced` or `referencedObjects`
 * @param preserved whether each pixel lies where it lay in the source; undefined for a picture,
 * where the attribute is left out
 */
export function analysed(references: readonly Dataset[], preserved?: "YES" | "NO"): Dataset[] {
  const purpose = codeItem(dcm("121322", "Source image for image processing operation"));
  return references.map((item) => ({
    ...item,
    SpatialLocationsPreserved: preserved,
    PurposeOfReferenceCodeSequence: [purpose],
  }));
}

/**
 * An attribute's value; undefined too if the standard does not allow it: it would make our object
 * invalid.
 */
function taken(attributes: Attributes, keyword: string): Value | undefined {
  const values = attributes.strings(keyword);
  const tag = tagOf(keyword) ?? 0;
  if (values === undefined || (values.length > 1 && multiplicityOf(tag) === "1")) return undefined;
  const vr = dictionaryVr(tag);
  const numbers = vr === "US" ? attributes.numbers(keyword) : undefined;
  if (numbers !== undefined) return numbers.length === values.length ? numbers : undefined;
  // An empty UID names nothing: it is an absent one, and nothing that a source may have is Type 2
  if (vr === "UI") return values.length > 0 && values.every(isUid) ? values : undefined;
  return values.every((value) => isOfForm(keyword, vr, value)) ? values : undefined;
}

/** Attributes of which a code has one (PS3.3 section 8.1). */
const CODE_VALUES = ["CodeValue", "LongCodeValue", "URNCodeValue"];
const CODE = [...CODE_VALUES, "CodingSchemeDesignator", "CodingSchemeVersion", "CodeMeaning"];

/** Sequences that are taken over, and which attributes of their items. */
const SEQUENCES: Readonly<Record<string, readonly string[]>> = {
  DeidentificationMethodCodeSequence: CODE,
  PatientBreedCodeSequence: CODE,
  PatientSpeciesCodeSequence: CODE,
  ProcedureCodeSequence: CODE,
  ReferencedStudySequence: ["ReferencedSOPClassUID", "ReferencedSOPInstanceUID"],
  IssuerOfAccessionNumberSequence: [
    "LocalNamespaceEntityID",
    "UniversalEntityID",
    "UniversalEntityIDType",
  ],
  IssuerOfPatientIDQualifiersSequence: [
    "UniversalEntityID",
    "UniversalEntityIDType",
    "IdentifierTypeCode",
  ],
  ReferencedPatientSequence: ["ReferencedSOPClassUID", "ReferencedSOPInstanceUID"],
  OtherPatientIDsSequence: ["PatientID", "IssuerOfPatientID", "TypeOfPatientID"],
};

export const PATIENT = [
  "PatientName",
  "PatientID",
  "PatientBirthDate",
  "PatientSex",
  "IssuerOfPatientID",
  "TypeOfPatientID",
  "PatientBirthTime",
  "OtherPatientIDs",
  "OtherPatientNames",
  "EthnicGroup",
  "PatientComments",
  "PatientSpeciesDescription",
  "PatientSpeciesCodeSequence",
  "PatientBreedDescription",
  "PatientBreedCodeSequence",
  "PatientIdentityRemoved",
  "DeidentificationMethod",
  "IssuerOfPatientIDQualifiersSequence",
  "OtherPatientIDsSequence",
  "DeidentificationMethodCodeSequence",
  "ReferencedPatientSequence",
  "QualityControlSubject",
  "ResponsiblePerson",
  "ResponsiblePersonRole",
  "ResponsibleOrganization",
];

/** Clinical Trial Subject (PS3.3 C.7.1.3): Type 1, one of Type 1C, Type 3, Type 2. */
const TRIAL_NAMES = ["ClinicalTrialSponsorName", "ClinicalTrialProtocolID"];
const TRIAL_SUBJECT = ["ClinicalTrialSubjectID", "ClinicalTrialSubjectReadingID"];
const TRIAL_MORE = ["ClinicalTrialTimePointID", "ClinicalTrialTimePointDescription"];
const TRIAL_NEVER_ABSENT: Dataset = {
  ClinicalTrialProtocolName: "",
  ClinicalTrialSiteID: "",
  ClinicalTrialSiteName: "",
};

export const STUDY = [
  "StudyDate",
  "StudyTime",
  "ReferringPhysicianName",
  "StudyID",
  "AccessionNumber",
  "StudyDescription",
  "PhysiciansOfRecord",
  "NameOfPhysiciansReadingStudy",
  "ConsultingPhysicianName",
  "IssuerOfAccessionNumberSequence",
  "ProcedureCodeSequence",
  "ReferencedStudySequence",
  "PatientAge",
  "PatientSize",
  "PatientWeight",
  "AdmittingDiagnosesDescription",
  "Occupation",
  "AdditionalPatientHistory",
  "AdmissionID",
  "MedicalAlerts",
  "Allergies",
  "PatientState",
  "PregnancyStatus",
  "LastMenstrualDate",
  "SmokingStatus",
  "SpecialNeeds",
  "PatientSexNeutered",
];

/** Type 2: present even if the source leaves them out. */
const NEVER_ABSENT: Dataset = {
  PatientName: "",
  PatientID: "",
  PatientBirthDate: "",
  PatientSex: "",
  StudyDate: "",
  StudyTime: "",
  ReferringPhysicianName: "",
  StudyID: "",
  AccessionNumber: "",
};

/** Type 2C: present if the species is not human. */
const OF_ANIMALS: Dataset = {
  PatientBreedDescription: "",
  PatientBreedCodeSequence: [],
  BreedRegistrationSequence: [],
  ResponsiblePerson: "",
  ResponsibleOrganization: "",
  PatientSexNeutered: "",
};

export function takeOver(attributes: Attributes, keywords: readonly string[]): Dataset {
  const dataset: Dataset = {};
  for (const keyword of keywords) {
    const inner = SEQUENCES[keyword];
    if (inner === undefined) dataset[keyword] = taken(attributes, keyword);
    else {
      const items = attributes.sequence(keyword)?.map((item) => filled(takeOver(item, inner)));
      if (items !== undefined && items.length > 0 && items.every((item) => isWhole(item, inner)))
        dataset[keyword] = items;
    }
  }
  return Object.fromEntries(Object.entries(dataset).filter(([, value]) => value !== undefined));
}

/** Codes need their value, scheme and meaning, references both UIDs; other items need something. */
function isWhole(item: Dataset, keywords: readonly string[]): boolean {
  const has = (keyword: string) => isFilled(item[keyword]);
  if (keywords === CODE)
    return CODE_VALUES.some(has) && ["CodingSchemeDesignator", "CodeMeaning"].every(has);
  return keywords[0]?.startsWith("Referenced") === true ? keywords.every(has) : keywords.some(has);
}

/**
 * Patient and study as the source has them; values that the standard does not allow are left out.
 */
export function patientAndStudy(attributes: Attributes, studyInstanceUid: string): Dataset {
  return { ...patientAndStudyOf(attributes), StudyInstanceUID: studyInstanceUid };
}

/** Every object of a source has them, and is checked against them. */
const patientAndStudyOf = cachedWith((attributes: Attributes): Dataset => ({
  ...NEVER_ABSENT,
  ...withSpecies(withRole(takeOver(attributes, [...PATIENT, ...STUDY]))),
  ...clinicalTrial(attributes),
}));

/**
 * Attributes that our objects may hold empty: Type 2, and Type 3 as the source has them (PS3.5
 * section 7.4).
 */
export const MAY_BE_EMPTY: ReadonlySet<string> = new Set([
  ...PATIENT,
  ...STUDY,
  ...Object.keys(OF_ANIMALS),
  ...Object.keys(TRIAL_NEVER_ABSENT),
  "BodyPartExamined",
  "Laterality",
  "PatientOrientation",
  "PositionReferenceIndicator",
  "ContentCreatorName",
  "OperatorsName",
  "RTROIInterpretedType",
  "ROIInterpreter",
  "RequestedProcedureID",
  "RequestedProcedureDescription",
  "RequestedProcedureCodeSequence",
  "PlacerOrderNumberImagingServiceRequest",
  "FillerOrderNumberImagingServiceRequest",
  "ReferencedPerformedProcedureStepSequence",
  "PerformedProcedureCodeSequence",
  "AcquisitionContextSequence",
]);

/**
 * For an animal, breed and responsible person are present, empty if they are unknown (PS3.3
 * C.7.1.1, C.7.2.2).
 */
function withSpecies({ PatientSpeciesDescription: species, ...patient }: Dataset): Dataset {
  const named = isFilled(species);
  if (!named && patient["PatientSpeciesCodeSequence"] === undefined) return patient;
  return { ...OF_ANIMALS, ...patient, ...(named ? { PatientSpeciesDescription: species } : {}) };
}

/** A person who answers for a patient has a role (Type 1C). */
function withRole({
  ResponsiblePerson: person,
  ResponsiblePersonRole: role,
  ...patient
}: Dataset): Dataset {
  const whole = isFilled(person) && isFilled(role);
  return whole ? { ...patient, ResponsiblePerson: person, ResponsiblePersonRole: role } : patient;
}

/** Only a whole module: parts of it name no subject of a trial. */
function clinicalTrial(attributes: Attributes): Dataset {
  const names = takeOver(attributes, TRIAL_NAMES);
  const subject = filled(takeOver(attributes, TRIAL_SUBJECT));
  if (
    !TRIAL_NAMES.every((keyword) => isFilled(names[keyword])) ||
    Object.keys(subject).length === 0
  )
    return {};
  const others = takeOver(attributes, Object.keys(TRIAL_NEVER_ABSENT));
  return {
    ...names,
    ...subject,
    ...TRIAL_NEVER_ABSENT,
    ...others,
    ...filled(takeOver(attributes, TRIAL_MORE)),
  };
}

const isFilled = (value: Value | undefined): boolean =>
  Array.isArray(value) && value.length > 0 && value[0] !== "";

function filled(dataset: Dataset): Dataset {
  return Object.fromEntries(Object.entries(dataset).filter(([, value]) => isFilled(value)));
}

/** The attributes that tell whose images they are. */
const IDENTITY = [
  "PatientName",
  "PatientID",
  "IssuerOfPatientID",
  "PatientBirthDate",
  "PatientSex",
  "AccessionNumber",
];

/** Which attributes have a value that is not taken over, or an item with one. */
function lackingIn(attributes: Attributes, keywords: readonly string[]): string[] {
  const ours = takeOver(attributes, keywords);
  return keywords.filter((keyword) => {
    const inner = SEQUENCES[keyword];
    if (inner === undefined)
      return (
        ours[keyword] === undefined &&
        (attributes.strings(keyword) ?? []).some((value) => value !== "")
      );
    const items = attributes.sequence(keyword);
    // Under another VR than SQ
    if (items === undefined) return attributes.has(keyword);
    return (
      (items.length > 0 && ours[keyword] === undefined) ||
      items.some((item) => lackingIn(item, inner).length > 0)
    );
  });
}

/**
 * The attributes that the source has and our objects cannot have: nobody should believe that it has
 * none.
 */
export function leftOut(attributes: Attributes): { identity: string[]; others: string[] } {
  const lacking = lackingIn(attributes, [...PATIENT, ...STUDY]);
  if (attributes.string(ZONE_NAME) !== undefined && zoneOf(attributes) === undefined)
    lacking.push(ZONE_NAME);
  return {
    identity: lacking.filter((keyword) => IDENTITY.includes(keyword)),
    others: lacking.filter((keyword) => !IDENTITY.includes(keyword)),
  };
}

/** Parts of the body that there is one of (PS3.16 table L-1), as Body Part Examined names them. */
const UNPAIRED = new Set([
  "ABDOMEN",
  "ABDOMENPELVIS",
  "AORTA",
  "BACK",
  "BLADDER",
  "BRAIN",
  "CEREBELLUM",
  "CERVIX",
  "CHEST",
  "CHESTABDOMEN",
  "CHESTABDPELVIS",
  "CIRCLEOFWILLIS",
  "COCCYX",
  "COLON",
  "CSPINE",
  "CTSPINE",
  "DUODENUM",
  "ESOPHAGUS",
  "FACE",
  "GALLBLADDER",
  "HEAD",
  "HEADNECK",
  "HEART",
  "ILEUM",
  "JAW",
  "JEJUNUM",
  "LARYNX",
  "LIVER",
  "LSPINE",
  "LSSPINE",
  "MEDIASTINUM",
  "MOUTH",
  "NECK",
  "NECKCHEST",
  "NECKCHESTABDOMEN",
  "NECKCHESTABDPELV",
  "NOSE",
  "PANCREAS",
  "PELVIS",
  "PENIS",
  "PHARYNX",
  "PROSTATE",
  "RECTUM",
  "SCALP",
  "SKULL",
  "SPINE",
  "SPLEEN",
  "SSPINE",
  "STERNUM",
  "STOMACH",
  "THYMUS",
  "THYROID",
  "TLSPINE",
  "TONGUE",
  "TRACHEA",
  "TSPINE",
  "URETHRA",
  "UTERUS",
  "VAGINA",
  "VULVA",
  "WHOLEBODY",
]);

/**
 * Side and part of the body as the source's series has them (PS3.3 C.7.3.1). If it names no side,
 * Laterality is empty: it is required, and unknown, unless the part of the body is known to be
 * unpaired.
 */
export function anatomyOfSeries(attributes: Attributes): Dataset {
  const side = attributes.string("Laterality");
  const unpaired = UNPAIRED.has(attributes.string("BodyPartExamined") ?? "");
  return {
    ...takeOver(attributes, ["BodyPartExamined"]),
    ...(side === "L" || side === "R" ? { Laterality: side } : unpaired ? {} : { Laterality: "" }),
  };
}

/**
 * The side of a picture, where the series names none: Image Laterality as the source has it, or the
 * one side that its frames or regions state. Laterality is then absent (PS3.3 C.7.3.1), because
 * pictures of both sides may lie in one series.
 */
export function sideOfPicture(image: Image, attributes: Attributes): Dataset {
  if (["L", "R"].includes(attributes.string("Laterality") ?? "")) return {};
  const own = image.series === undefined ? attributes.string("ImageLaterality") : undefined;
  const [shown, ...others] = statedSides(image, undefined);
  const side =
    own !== undefined && ["L", "R", "U", "B"].includes(own)
      ? own
      : others.length === 0
        ? shown
        : undefined;
  return side === undefined ? {} : { Laterality: undefined, ImageLaterality: side };
}

const ZONE_NAME = "TimezoneOffsetFromUTC";

/** Offset from UTC of the source's dates and times; undefined if it gives none. */
export function zoneOf(attributes: Attributes): string | undefined {
  const own = attributes.string(ZONE_NAME);
  return minutesOfOffset(own) === undefined ? undefined : own;
}

/** A moment as DA and TM in a zone, to the millisecond. */
export function dateAndTime(at: Date, zone: string): { date: string; time: string } {
  const sign = zone.startsWith("-") ? -1 : 1;
  const minutes = sign * (Number(zone.slice(1, 3)) * 60 + Number(zone.slice(3, 5)));
  const text = new Date(at.getTime() + minutes * 60_000).toISOString();
  return {
    date: text.slice(0, 10).replaceAll("-", ""),
    time: text.slice(11, 23).replaceAll(":", ""),
  };
}

/** Short text, for UIDs, that only tells whether two sources are the same. */
export function fingerprint(image: Image): string {
  const { source } = image;
  const named = image.series?.slices.map(({ sopInstanceUid }) => sopInstanceUid) ?? [
    source.sopInstanceUid,
  ];
  const others = image.case?.members.slice(1).map(fingerprint) ?? [];
  return sha256(
    JSON.stringify([source.studyInstanceUid, source.seriesInstanceUid, named, ...others]),
  );
}
