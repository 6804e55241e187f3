/**
 * The report: Comprehensive 3D SR by TID 1500 (PS3.16). Regions are TID 1410 (boxes, and segments
 * on one frame) and TID 1411 (segments through a volume); what concerns the image as a whole, and
 * what was looked for and not found, is TID 1501. It is written also when nothing was found.
 */
import { ownValue } from "../../../base/own-value.js";
import type { Attributes } from "../../../images/image.js";
import { kindOf, type ModelOutput } from "../../../manifest/outputs/outputs.js";
import { resultKindOf } from "../../kinds/kinds.js";
import { dcm, own, sct, type Code } from "../../../manifest/texts.js";
import type { ReceiptModel } from "../../receipt/receipt.js";
import { coded, container, text, uidRef } from "../content.js";
import { dicomObject, type Dataset, type DicomObject } from "../elements.js";
import { frameOfReferenceOf } from "../frame-positions.js";
import { measurementGroups, type Companion, type ReportContents } from "../groups.js";
import { DOCUMENT_BYTES, FINDING_BYTES, referenceFault, type ObjectKind } from "./kind.js";
import { commonModules } from "../modules.js";
import { bySeries, referencedObjects, takeOver, type ReferencedSeries } from "../source.js";
import { deviceUid, seedOf, type Subject } from "../subject.js";

export const COMPREHENSIVE_3D_SR = "1.2.840.10008.5.1.4.1.1.88.34";

interface ReportInput {
  subject: Subject;
  said: ReportContents;
  /** The segmentation written beside it, if any. */
  seg: Companion | undefined;
  /** An earlier report of the same source by another version or configuration of the model. */
  predecessor?: ReceiptModel["predecessor"];
}

const ENGLISH: Code = { value: "en-US", scheme: "RFC5646", meaning: "English (United States)" };
const QUALITATIVE_EVALUATIONS: Code = {
  value: "C0034375",
  scheme: "UMLS",
  meaning: "Qualitative Evaluations",
};

const loinc = (value: string, meaning: string): Code => ({ value, scheme: "LN", meaning });

/**
 * PS3.16 CID 100, which TID 1500 names; the study's own codes are in Procedure Code Sequence, as
 * the source has them.
 */
const PROCEDURES: Readonly<Record<string, Code>> = {
  CT: loinc("25045-6", "CT unspecified body region"),
  MR: loinc("25056-3", "MRI unspecified body region"),
  NM: loinc("49118-3", "NM unspecified body region"),
  PT: loinc("44136-0", "PET unspecified body region"),
};

/** The procedure that gave the source: the imaging, not the analysis. */
function procedureReported({ image }: Subject): Code {
  return ownValue(PROCEDURES, image.source.modality ?? "") ?? sct("363679005", "Imaging procedure");
}

/** @throws RangeError for values that are not finite; the caller has refused them before */
export function structuredReport(input: ReportInput): DicomObject {
  const { subject } = input;
  const dataset: Dataset = {
    SOPClassUID: COMPREHENSIVE_3D_SR,
    Modality: "SR",
    ...commonModules(subject, "sr"),
    ReferencedPerformedProcedureStepSequence: [],
    CompletionFlag: "COMPLETE",
    VerificationFlag: "UNVERIFIED",
    PerformedProcedureCodeSequence: [],
    ...requests(subject),
    ...predecessors(input),
    ...evidence(input),
    ...container(undefined, dcm("126000", "Imaging Measurement Report"), "1500", contentOf(input)),
  };
  return dicomObject(dataset, seedOf(subject));
}

function contentOf({ subject, said, seg }: ReportInput): Dataset[] {
  const { model } = subject;
  const { groups, absent } = measurementGroups(subject, said, seg);
  return [
    coded("HAS CONCEPT MOD", dcm("121049", "Language of Content Item and Descendants"), ENGLISH),
    ...observer(model),
    coded("HAS CONCEPT MOD", dcm("121058", "Procedure reported"), procedureReported(subject)),
    ...(groups.length === 0
      ? []
      : [container("CONTAINS", dcm("126010", "Imaging Measurements"), undefined, groups)]),
    container("CONTAINS", QUALITATIVE_EVALUATIONS, undefined, [
      ...absent,
      ...statements(subject, said),
    ]),
  ];
}

/** TID 1002 and 1004: a device, which is the model. */
function observer(model: Subject["model"]): Dataset[] {
  const context = "HAS OBS CONTEXT";
  return [
    coded(context, dcm("121005", "Observer Type"), dcm("121007", "Device")),
    uidRef(context, dcm("121012", "Device Observer UID"), deviceUid(model)),
    text(context, dcm("121013", "Device Observer Name"), model.name),
    text(context, dcm("121014", "Device Observer Manufacturer"), model.manifest.manufacturer),
    text(context, dcm("121015", "Device Observer Model Name"), model.name),
    text(context, dcm("121016", "Device Observer Serial Number"), model.sha256),
  ];
}

/** The regulatory text and every caveat: coded, with the words beside the code. */
function statements({ model }: Subject, { warnings }: ReportContents): Dataset[] {
  const regulatory = own("regulatory", "Regulatory status");
  return [
    text("CONTAINS", regulatory, model.manifest.regulatory),
    ...warnings.flatMap(({ code, message }) => [
      coded("CONTAINS", own("caveat", "Caveat of the result"), caveatCode(code)),
      text("CONTAINS", dcm("121106", "Comment"), message),
    ]),
  ];
}

function caveatCode(code: string): Code {
  if (code === "outside_envelope")
    return own(code, "Outside the range in which the model was tested");
  const words = code.replaceAll("_", " ");
  return own(code, (words.charAt(0).toUpperCase() + words.slice(1)).slice(0, 64));
}

/**
 * The order that the images fulfil, if they say which (PS3.3 C.17.2, Referenced Request Sequence).
 */
function requests({ attributes, ids }: Subject): Dataset {
  const { AccessionNumber: accession } = takeOver(attributes, ["AccessionNumber"]);
  if (attributes.string("AccessionNumber") === undefined || accession === undefined) return {};
  const request = attributes.sequence("RequestAttributesSequence")?.[0];
  const asked =
    request === undefined
      ? {}
      : takeOver(request, ["RequestedProcedureID", "RequestedProcedureDescription"]);
  return {
    ReferencedRequestSequence: [
      {
        StudyInstanceUID: ids.studyInstanceUid,
        ReferencedStudySequence: [],
        AccessionNumber: accession,
        PlacerOrderNumberImagingServiceRequest: "",
        FillerOrderNumberImagingServiceRequest: "",
        RequestedProcedureID: "",
        RequestedProcedureDescription: "",
        ...asked,
        RequestedProcedureCodeSequence: [],
      },
    ],
  };
}

/**
 * Every object that the report refers to, by series (PS3.3 C.17.2.3); what is of other studies,
 * priors, stands apart (Pertinent Other Evidence Sequence).
 */
function evidence({ subject, seg }: ReportInput): Dataset {
  const { ids } = subject;
  const [own, ...others] = bySeries(subject);
  const written = seg === undefined ? [] : [seriesReference(seg)];
  return {
    CurrentRequestedProcedureEvidenceSequence: [
      {
        StudyInstanceUID: ids.studyInstanceUid,
        ReferencedSeriesSequence: [...(own?.series.map(evidenceSeries) ?? []), ...written],
      },
    ],
    ...(others.length === 0
      ? {}
      : {
          PertinentOtherEvidenceSequence: others.map(({ studyInstanceUid, series }) => ({
            StudyInstanceUID: studyInstanceUid,
            ReferencedSeriesSequence: series.map(evidenceSeries),
          })),
        }),
  };
}

const evidenceSeries = ({ seriesInstanceUid, frames }: ReferencedSeries): Dataset => ({
  SeriesInstanceUID: seriesInstanceUid,
  ReferencedSOPSequence: referencedObjects(frames),
});

function predecessors({ predecessor }: ReportInput): Dataset {
  if (predecessor === undefined) return {};
  const { series_instance_uid: seriesInstanceUid, sop_class_uid, sop_instance_uid } = predecessor;
  const report = {
    seriesInstanceUid,
    sopClassUid: sop_class_uid,
    sopInstanceUid: sop_instance_uid,
  };
  return {
    PredecessorDocumentsSequence: [
      {
        StudyInstanceUID: predecessor.study_instance_uid,
        ReferencedSeriesSequence: [seriesReference(report)],
      },
    ],
  };
}

function seriesReference({ sopClassUid, sopInstanceUid, seriesInstanceUid }: Companion): Dataset {
  const object = { ReferencedSOPClassUID: sopClassUid, ReferencedSOPInstanceUID: sopInstanceUid };
  return { SeriesInstanceUID: seriesInstanceUid, ReferencedSOPSequence: [object] };
}

/**
 * Whether the places of an output are told in the patient's millimetres, and not in pixels of a
 * frame.
 */
export const isInPatient = (output: ModelOutput): boolean =>
  kindOf(output).ofVolumes && resultKindOf(output).gives === "boxes";

export const sr: ObjectKind = {
  ofMasks: false,
  whyNot: ({ image, manifest }) =>
    manifest.outputs.some(isInPatient) &&
    image.attributes &&
    frameOfReferenceOf(image.attributes) === undefined
      ? "the source has no valid FrameOfReferenceUID, to which the places of boxes could be told"
      : undefined,
  room: ({ labels, frames }) => DOCUMENT_BYTES + FINDING_BYTES * (labels + 1) * frames,
  make: ({ subject, said, seg, predecessor }) =>
    structuredReport({ subject, said, seg, predecessor }),
  fault: ({ attributes }, _, __, known) => reportFault(attributes, known),
};

function reportFault(
  attributes: Attributes,
  known: ReadonlyMap<string, string>,
): string | undefined {
  if (attributes.string("VerificationFlag") !== "UNVERIFIED")
    return "it is not marked as unverified";
  const evidence = ["CurrentRequestedProcedureEvidenceSequence", "PertinentOtherEvidenceSequence"]
    .flatMap((keyword) => attributes.sequence(keyword) ?? [])
    .flatMap((study) => study.sequence("ReferencedSeriesSequence") ?? [])
    .flatMap((series) => series.sequence("ReferencedSOPSequence") ?? []);
  const fault = referenceFault(evidence, known);
  if (fault !== undefined) return fault;
  const listed = new Set(evidence.map((reference) => reference.string("ReferencedSOPInstanceUID")));
  const isWhole = (item: Attributes): boolean =>
    (item.sequence("ReferencedSOPSequence") ?? []).every((reference) =>
      listed.has(reference.string("ReferencedSOPInstanceUID")),
    ) && (item.sequence("ContentSequence") ?? []).every(isWhole);
  return isWhole(attributes) ? undefined : "it refers to an image that is not in its evidence";
}
