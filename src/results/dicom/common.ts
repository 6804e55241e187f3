/** What every result object holds: patient, study, series, equipment, and who processed what (IHE AI Results). */
import { RadserveError } from "../../base/errors.js";
import type { Attributes, Image, Warning } from "../../images/image.js";
import {
  type Code,
  type Label,
  type ModelOutput,
  type OutputKind,
  labelsOf,
} from "../../manifest/manifest.js";
import type { ModelEntry } from "../../models/entry.js";
import { VERSION } from "../../base/version.js";
import type { Dataset } from "./elements.js";
import { dateAndTime, fingerprint, patientAndStudy, zoneOf, type SourceIds } from "./source.js";
import { statedSides, type Side } from "./sides.js";
import { derivedUid } from "./uid.js";
import type { Finding, Measurement } from "../receipt/receipt.js";
import type { DicomObject } from "./dataset.js";

export type DicomKind = Extract<OutputKind, "sr" | "seg" | "sc">;

/** One model's results over one image, as far as every object needs it. */
export interface Subject {
  image: Image;
  /** The image's own, known to be there. */
  attributes: Attributes;
  ids: SourceIds;
  model: Pick<ModelEntry, "name" | "version" | "sha256" | "manifest" | "site" | "thresholds">;
  /** When the analysis began: admission. */
  startedAt: Date;
  /** Offset from UTC of the machine on which it began: "+0100". */
  utcOffset: string;
}

/** Fixed, so that a study's results sort together, behind what scanners number. */
const SERIES: Readonly<Record<DicomKind, { number: number; what: string }>> = {
  sr: { number: 9701, what: "report" },
  seg: { number: 9702, what: "segmentation" },
  sc: { number: 9703, what: "overlay" },
};

/** What the result depends on beside input and model: this hospital's thresholds; calibration is in the model's hash. */
function configuration({ model }: Subject): unknown {
  return { thresholds: model.site.thresholds };
}

/** Names the model, not the machine: other weights are another device. */
export function deviceUid(model: Pick<Subject["model"], "sha256">): string {
  return derivedUid("device", [model.sha256]);
}

/** Everything that makes one analysis different from another of the same kind. */
export function seedOf(subject: Subject): unknown[] {
  const { image, model, startedAt } = subject;
  const { source } = image;
  return [source.fileSha256, model.sha256, configuration(subject), startedAt.toISOString(), VERSION];
}

/** Of what is followed from one object to the next: stable while source, model and configuration are. */
export function trackingUid(subject: Subject, what: readonly unknown[]): string {
  const { image, model } = subject;
  return derivedUid("tracking", [fingerprint(image), model.sha256, configuration(subject), ...what]);
}

/** Code Value holds 16 characters; longer ones have an attribute of their own (PS3.3 section 8.1). */
const LONGEST_CODE_VALUE = 16;

export function codeItem({ value, scheme, meaning }: Code): Dataset {
  const place = value.length > LONGEST_CODE_VALUE ? "LongCodeValue" : "CodeValue";
  return { [place]: value, CodingSchemeDesignator: scheme, CodeMeaning: oneLine(meaning, 64) };
}

/**
 * The concept of a label or of a value. Models without codes are refused when they are loaded; this is where nothing is
 * written without one whatever came before.
 * @throws RadserveError output_invalid
 */
export function codeOf(named: { label: string; code?: Code | undefined }): Code {
  if (named.code === undefined) throw uncoded(named);
  return named.code;
}

export function uncoded({ label }: { label: string }): RadserveError {
  return new RadserveError(
    "output_invalid",
    `Expected a coded concept for "${label}"; its manifest gives none, and no DICOM object can tell it. Add the code to the manifest.`,
  );
}

/** Text for LO, SH and CS-like values, where a backslash would divide it. */
export function oneLine(text: string, longest: number): string {
  const plain = text.replace(/[\\\p{Cc}]+/gu, " ").trim();
  return Array.from(plain).slice(0, longest).join("").trim();
}

/** Text of several lines, for UT, ST and LT. */
export function freeText(text: string, longest = 10_000): string {
  return Array.from(text.replace(/[^\P{Cc}\n\r\t\f]/gu, " "))
    .slice(0, longest)
    .join("");
}

/** The model as equipment (PS3.3 C.7.5.1, C.7.5.2): every value is there. */
export function equipment(model: Subject["model"]): Dataset {
  return {
    Manufacturer: oneLine(model.manifest.manufacturer, 64),
    ManufacturerModelName: oneLine(model.name, 64),
    SoftwareVersions: model.version,
    DeviceSerialNumber: model.sha256,
  };
}

const PROCESSING_EQUIPMENT: Code = { value: "109102", scheme: "DCM", meaning: "Processing Equipment" };
/** Begins the description of our equipment item: by it, our own objects are known and never taken as inputs. */
const RUN_BY = "Run by Radserve";

function contributingEquipment(model: Subject["model"]): Dataset {
  return {
    ...equipment(model),
    PurposeOfReferenceCodeSequence: [codeItem(PROCESSING_EQUIPMENT)],
    DeviceUID: deviceUid(model),
    ContributionDescription: `${RUN_BY} ${VERSION}`,
  };
}

/** Whether an object is a result that Radserve wrote. */
export function isOwnObject(attributes: Attributes): boolean {
  const items = attributes.sequence("ContributingEquipmentSequence") ?? [];
  return items.some((item) => item.string("ContributionDescription")?.startsWith(RUN_BY) === true);
}

/** Designator of the few concepts that no public scheme has. */
export const OWN_SCHEME = "99RADSERVE";

/** Patient, study, series, equipment and the common attributes of an object (PS3.3 C.7.1 to C.7.3, C.7.5, C.12.1). */
export function commonModules(subject: Subject, kind: DicomKind): Dataset {
  const { attributes, ids, model, image, startedAt, utcOffset } = subject;
  const zone = zoneOf(attributes, utcOffset);
  const { date, time } = dateAndTime(startedAt, zone);
  const series = SERIES[kind];
  return {
    SpecificCharacterSet: "ISO_IR 192",
    ...patientAndStudy(attributes, ids.studyInstanceUid),
    SeriesInstanceUID: derivedUid("series", [
      ids.studyInstanceUid,
      ids.seriesInstanceUid,
      model.sha256,
      configuration(subject),
      VERSION,
      kind,
    ]),
    SeriesNumber: series.number,
    SeriesDescription: `${oneLine(`${model.name} ${model.version}`, 64 - series.what.length - 1)} ${series.what}`,
    InstanceNumber: instanceNumber(image),
    ContentDate: date,
    ContentTime: time,
    InstanceCreationDate: date,
    InstanceCreationTime: time,
    TimezoneOffsetFromUTC: zone,
    ...equipment(model),
    ContributingEquipmentSequence: [contributingEquipment(model)],
    CodingSchemeIdentificationSequence: [
      {
        CodingSchemeDesignator: OWN_SCHEME,
        CodingSchemeName: "Radserve",
        CodingSchemeResponsibleOrganization: "Radserve",
      },
    ],
  };
}

const SIDES: Readonly<Record<Side, Code>> = {
  L: { value: "7771000", scheme: "SCT", meaning: "Left" },
  R: { value: "24028007", scheme: "SCT", meaning: "Right" },
};

/** The side of a label's finding site: the manifest's, else the one that the source shows, if it states one only. */
export function sideOf({ image }: Subject, label: Label): Code | undefined {
  const [shown, ...others] = statedSides(image, undefined);
  if (label.laterality !== undefined) return label.laterality;
  return shown === undefined || others.length > 0 ? undefined : SIDES[shown];
}

/** As the source's, so that results sort as their images do. */
function instanceNumber(image: Image): number {
  const own = image.series === undefined ? image.attributes?.number("InstanceNumber") : 1;
  return own !== undefined && Number.isInteger(own) && own > 0 && own < 2 ** 31 ? own : 1;
}

/** One segment of a SEG: a label of one of the model's segmentations. */
export interface Segment {
  /** From 1, over all segmentations in the manifest's order. */
  number: number;
  output: number;
  /** Index in the output's labels. */
  index: number;
  label: Label;
}

export function segmentsOf(outputs: readonly ModelOutput[]): Segment[] {
  const segments: Segment[] = [];
  outputs.forEach((output, o) => {
    if (output.kind !== "segmentation") return;
    labelsOf(output).forEach((label, index) =>
      segments.push({ number: segments.length + 1, output: o, index, label }),
    );
  });
  return segments;
}

export function segmentTracking(subject: Subject, segment: Segment): { id: string; uid: string } {
  return {
    id: `${subject.model.name}: ${segment.label.label}`,
    uid: trackingUid(subject, ["segment", segment.output, segment.index]),
  };
}

const ARTIFICIAL_INTELLIGENCE: Code = { value: "123110", scheme: "DCM", meaning: "Artificial Intelligence" };

/** Algorithm Identification Macro (PS3.3 table 10-19); the same words as the equipment's. */
export function algorithm(model: Subject["model"]): Dataset {
  return {
    AlgorithmFamilyCodeSequence: [codeItem(ARTIFICIAL_INTELLIGENCE)],
    AlgorithmName: oneLine(model.name, 64),
    AlgorithmVersion: model.version,
    AlgorithmSource: oneLine(model.manifest.manufacturer, 64),
  };
}

/** Whether the source's pixels went through a lossy coder, and how far (PS3.3 C.7.6.1.1.5). */
export function lossiness(image: Image, attributes: Attributes): Dataset {
  const method = LOSSY[image.source.transferSyntaxUid ?? ""];
  if (attributes.string("LossyImageCompression") !== "01" && method === undefined)
    return { LossyImageCompression: "00" };
  const { rows, columns, samplesPerPixel, bitsStored } = image.format;
  const plain = (image.frameCount * rows * columns * samplesPerPixel * bitsStored) / 8;
  const said = attributes.numbers("LossyImageCompressionRatio") ?? [];
  const methods = attributes
    .strings("LossyImageCompressionMethod")
    ?.filter((m) => /^[A-Z0-9_ ]{1,16}$/.test(m));
  const estimate = Number(Math.max(1, plain / Math.max(1, image.source.bytes)).toFixed(2));
  return {
    LossyImageCompression: "01",
    LossyImageCompressionRatio: said.length > 0 ? said : [estimate],
    LossyImageCompressionMethod:
      methods !== undefined && methods.length > 0 ? methods : [method ?? "ISO_10918_1"],
  };
}

/** Transfer syntaxes that lose something, with their Lossy Image Compression Method (PS3.3 C.7.6.1.1.5.1). */
const LOSSY: Readonly<Record<string, string>> = {
  "1.2.840.10008.1.2.4.50": "ISO_10918_1",
  "1.2.840.10008.1.2.4.51": "ISO_10918_1",
  "1.2.840.10008.1.2.4.53": "ISO_10918_1",
  "1.2.840.10008.1.2.4.81": "ISO_14495_1",
  "1.2.840.10008.1.2.4.91": "ISO_15444_1",
  "1.2.840.10008.1.2.4.203": "ISO_15444_15",
  "1.2.840.10008.1.2.4.112": "ISO_18181_1",
};

/** What the report tells. */
export interface Said {
  findings: readonly Finding[];
  measurements: readonly Measurement[];
  /** The receipt's, of image and model. */
  warnings: readonly Warning[];
}

/** An object of ours in the same study that the report points to. */
export type Companion = Pick<DicomObject, "sopClassUid" | "sopInstanceUid" | "seriesInstanceUid">;
/** A report that another takes the place of; its study is that of the source as it was then. */
export interface Predecessor extends Companion {
  studyInstanceUid: string;
}
