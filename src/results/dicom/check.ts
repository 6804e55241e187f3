/**
 * The last look before anything is written: each object is read back with the reader that sources
 * are read with, and compared with the source, the model and the masks. What was written wrongly is
 * refused whole, never repaired.
 */
import { openFile, type DicomFile } from "../../images/dicom/dicom-file.js";
import { errors, RadserveError } from "../../base/errors.js";
import type { Attributes } from "../../images/image.js";
import { describeTag, type Tag } from "../../images/dicom/dictionary.js";
import { attributeOf } from "./element-writer.js";
import type { DicomObject } from "./elements.js";
import type { Making } from "./objects/kind.js";
import { OBJECTS } from "./objects/table.js";
import { anatomyOfSeries, MAY_BE_EMPTY, patientAndStudy, sideOfPicture } from "./source.js";
import type { DicomKind } from "../../manifest/manifest.js";
import { deviceUid, type Subject } from "./subject.js";

export interface Written {
  kind: DicomKind;
  object: DicomObject;
}

/** @throws RadserveError output_invalid, naming the object and what is wrong with it */
export async function checkObjects(making: Making, written: readonly Written[]): Promise<void> {
  const { subject } = making;
  const known = knownObjects(subject, written);
  for (const { kind, object } of written) {
    const file = readBack(kind, object);
    const { attributes } = file;
    const [empty] = emptyFaults(file);
    if (empty !== undefined) throw wrong(kind, empty);
    checkNames(kind, object, attributes, subject);
    checkCopies(kind, attributes, subject);
    const fault = await OBJECTS[kind].fault(file, object, making, known);
    if (fault !== undefined) throw wrong(kind, fault);
  }
}

let tagsThatMayBeEmpty: ReadonlySet<Tag> | undefined;

/** Attributes of an object of ours that are empty, at any depth, and must have a value. */
export function emptyFaults({ attributes }: DicomFile): string[] {
  tagsThatMayBeEmpty ??= new Set([...MAY_BE_EMPTY].map((keyword) => attributeOf(keyword).tag));
  const empty = [...attributes.emptyElements()].filter(
    (tag) => tagsThatMayBeEmpty?.has(tag) !== true,
  );
  return empty.map((tag) => `its ${describeTag(tag)} is empty`);
}

function wrong(kind: DicomKind, what: string): RadserveError {
  return errors.output_invalid(
    `The ${kind.toUpperCase()} object failed its check before it was written: ${what}. Nothing of this model was written; please report this fault.`,
    { output: kind },
  );
}

function readBack(kind: DicomKind, { bytes }: DicomObject): DicomFile {
  try {
    return openFile(bytes);
  } catch (error) {
    if (error instanceof RadserveError) throw wrong(kind, "it cannot be read back");
    throw error;
  }
}

/** SOP Instance UID to SOP Class UID of everything that an object may refer to. */
function knownObjects(
  { ids, others }: Subject,
  written: readonly Written[],
): ReadonlyMap<string, string> {
  const sources = [ids, ...others].flatMap(({ frames }) => frames);
  const objects = [...sources, ...written.map(({ object }) => object)];
  return new Map(objects.map(({ sopInstanceUid, sopClassUid }) => [sopInstanceUid, sopClassUid]));
}

function checkNames(
  kind: DicomKind,
  object: DicomObject,
  attributes: Attributes,
  subject: Subject,
): void {
  const expected: [string, string][] = [
    ["SOPClassUID", object.sopClassUid],
    ["SOPInstanceUID", object.sopInstanceUid],
    ["SeriesInstanceUID", object.seriesInstanceUid],
    ["StudyInstanceUID", subject.ids.studyInstanceUid],
  ];
  for (const [keyword, value] of expected)
    if (attributes.string(keyword) !== value)
      throw wrong(kind, `its ${keyword} is not the one it was given`);
  for (const keyword of [
    "Manufacturer",
    "ManufacturerModelName",
    "DeviceSerialNumber",
    "SoftwareVersions",
  ])
    if (attributes.string(keyword) === undefined) throw wrong(kind, `its ${keyword} is empty`);
  const [processor] = attributes.sequence("ContributingEquipmentSequence") ?? [];
  if (processor?.string("DeviceUID") !== deviceUid(subject.model))
    throw wrong(kind, "its Contributing Equipment is not the model");
}

/**
 * Patient, study and side read the same from our object as from the source, through both character
 * sets.
 */
function checkCopies(kind: DicomKind, attributes: Attributes, subject: Subject): void {
  const { attributes: source, ids, image } = subject;
  const anatomy = { ...anatomyOfSeries(source), ...sideOfPicture(image, source) };
  const expected = {
    ...patientAndStudy(source, ids.studyInstanceUid),
    ...(kind === "sc" ? anatomy : {}),
  };
  for (const [keyword, value] of Object.entries(expected)) {
    if (value === undefined) continue;
    if (Array.isArray(value) && typeof value[0] === "object") continue;
    const given = (Array.isArray(value) ? value : [value]).map(String).join("\\");
    const found = (attributes.strings(keyword) ?? []).join("\\");
    if (given !== found) throw wrong(kind, `its ${keyword} is not the source's`);
  }
}
