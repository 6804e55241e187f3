/**
 * Modules that every result object has: patient, study, series, equipment, and who processed what
 * (IHE AI Results).
 */
import { dcm, OWN_SCHEME } from "../../manifest/texts.js";
import { VERSION } from "../../base/version.js";
import type { Attributes, Codec, Image } from "../../images/image.js";
import { codeItem } from "./codes.js";
import type { Dataset } from "./elements.js";
import { dateAndTime, patientAndStudy, zoneOf } from "./source.js";
import type { DicomKind } from "../../manifest/manifest.js";
import { algorithmParameters, deviceUid, seriesUid, type Subject } from "./subject.js";
import { isCodeString, oneLine } from "./values.js";

/** Fixed, so that a study's results sort together, behind what scanners number. */
const SERIES: Readonly<Record<DicomKind, { number: number; what: string }>> = {
  sr: { number: 9701, what: "report" },
  seg: { number: 9702, what: "segmentation" },
  sc: { number: 9703, what: "overlay" },
  rtstruct: { number: 9704, what: "structure set" },
};

/**
 * Patient, study, series, equipment and the common attributes of an object (PS3.3 C.7.1 to C.7.3,
 * C.7.5, C.12.1).
 */
export function commonModules(subject: Subject, kind: DicomKind): Dataset {
  const { attributes, ids, model, image, startedAt, utcOffset } = subject;
  const zone = zoneOf(attributes);
  const { date, time } = dateAndTime(startedAt, zone ?? utcOffset);
  const series = SERIES[kind];
  return {
    SpecificCharacterSet: "ISO_IR 192",
    ...patientAndStudy(attributes, ids.studyInstanceUid),
    SeriesInstanceUID: seriesUid(subject, kind),
    SeriesNumber: series.number,
    SeriesDescription: `${oneLine(`${model.name} ${model.version}`, 64 - series.what.length - 1)} ${series.what}`,
    InstanceNumber: instanceNumber(image),
    ContentDate: date,
    ContentTime: time,
    InstanceCreationDate: date,
    InstanceCreationTime: time,
    // It would be that of the dates and times that are the source's, too (PS3.3 C.12.1.1.8)
    TimezoneOffsetFromUTC: zone,
    ...equipment(model),
    ContributingEquipmentSequence: [
      {
        ...contributingEquipment(model),
        ContributionDateTime: `${date}${time}${zone ?? utcOffset}`,
        ContributionDescription: `${RUN_BY} ${VERSION}${zone === undefined ? NO_ZONE : ""}`,
      },
    ],
    CodingSchemeIdentificationSequence: [
      {
        CodingSchemeDesignator: OWN_SCHEME,
        CodingSchemeName: "Radserve",
        CodingSchemeResponsibleOrganization: "Radserve",
      },
    ],
  };
}

/** The source's number, so that results sort as their images do. */
function instanceNumber(image: Image): number {
  const own = image.series === undefined ? image.attributes?.number("InstanceNumber") : 1;
  return own !== undefined && Number.isInteger(own) && own > 0 && own < 2 ** 31 ? own : 1;
}

/** The model as equipment (PS3.3 C.7.5.1, C.7.5.2): every value is there. */
function equipment(model: Subject["model"]): Dataset {
  return {
    Manufacturer: oneLine(model.manifest.manufacturer, 64),
    ManufacturerModelName: oneLine(model.name, 64),
    SoftwareVersions: model.version,
    DeviceSerialNumber: model.sha256,
  };
}

const PROCESSING_EQUIPMENT = dcm("109102", "Processing Equipment");
/**
 * Begins the description of our equipment item: by it, our own objects are known and never taken as
 * inputs.
 */
const RUN_BY = "Run by Radserve";
const NO_ZONE =
  ". The source gives no time zone, so that dates and times without an offset have none here";

function contributingEquipment(model: Subject["model"]): Dataset {
  return {
    ...equipment(model),
    PurposeOfReferenceCodeSequence: [codeItem(PROCESSING_EQUIPMENT)],
    DeviceUID: deviceUid(model),
  };
}

/** Whether an object is a result that Radserve wrote. */
export function isOwnObject(attributes: Attributes): boolean {
  const items = attributes.sequence("ContributingEquipmentSequence") ?? [];
  return items.some((item) => item.string("ContributionDescription")?.startsWith(RUN_BY) === true);
}

const ARTIFICIAL_INTELLIGENCE = dcm("123110", "Artificial Intelligence");

/** Algorithm Identification Macro (PS3.3 table 10-19); the same words as the equipment's. */
export function algorithm(subject: Pick<Subject, "model" | "roles">): Dataset {
  const { model } = subject;
  const parameters = algorithmParameters(subject);
  return {
    AlgorithmFamilyCodeSequence: [codeItem(ARTIFICIAL_INTELLIGENCE)],
    AlgorithmName: oneLine(model.name, 64),
    AlgorithmVersion: model.version,
    ...(parameters === undefined ? {} : { AlgorithmParameters: parameters }),
    AlgorithmSource: oneLine(model.manifest.manufacturer, 64),
  };
}

/**
 * Whether the source's pixels went through a lossy coder, and how far (PS3.3 C.7.6.1.1.5): as the
 * source says, or as its frames are compressed. What neither tells is left out.
 */
export function lossiness(image: Image, attributes: Attributes): Dataset {
  const files = image.series?.attributes ?? [attributes];
  const said = files.find((file) => file.string("LossyImageCompression") === "01");
  const coded = image.codec?.lossy === true ? image.codec : undefined;
  if (said === undefined && coded === undefined)
    return files.every((file) => file.string("LossyImageCompression") === "00")
      ? { LossyImageCompression: "00" }
      : {};
  const ratios = said?.numbers("LossyImageCompressionRatio") ?? [];
  const methods = said?.strings("LossyImageCompressionMethod")?.filter(isCodeString) ?? [];
  return {
    LossyImageCompression: "01",
    LossyImageCompressionRatio: ratios.length > 0 ? ratios : coded && ratioOf(image),
    LossyImageCompressionMethod: methods.length > 0 ? methods : coded && METHODS[coded.kind],
  };
}

/** About how much smaller the source's file is than its pixels. */
function ratioOf({ format, frameCount, source }: Image): number {
  const { rows, columns, samplesPerPixel, bitsStored } = format;
  const plain = (frameCount * rows * columns * samplesPerPixel * bitsStored) / 8;
  return Number(Math.max(1, plain / Math.max(1, source.bytes)).toFixed(2));
}

/** Lossy Image Compression Method (PS3.3 C.7.6.1.1.5.1). */
const METHODS: Readonly<Record<Codec["kind"], string>> = {
  jpeg: "ISO_10918_1",
  "jpeg-ls": "ISO_14495_1",
  jpeg2000: "ISO_15444_1",
  htj2k: "ISO_15444_15",
  "jpeg-xl": "ISO_18181_1",
};
