/**
 * Compares an object that was read back with the object that was sent: each decoded attribute at
 * any depth, so that neither the transfer syntax nor a peer's way of writing values matters, and
 * the pixels, byte for byte or decoded.
 */
import { withoutEnd, withoutEnds } from "../../../base/ends.js";
import { RadserveError } from "../../../base/errors.js";
import { textDecoder, type TextDecode } from "../../../images/dicom/charset.js";
import {
  describeTag,
  dictionaryVr,
  SINGLE_VALUE_VRS,
  tagOf,
  type Tag,
} from "../../../images/dicom/dictionary.js";
import { openFile, type DicomFile } from "../../../images/dicom/dicom-file.js";
import { itemsOf, type DataSet, type Element } from "../../../images/dicom/elements.js";
import { decimal, PADDING } from "../../../images/dicom/value-forms.js";
import type { Image } from "../../../images/image.js";
import { readImage } from "../../../images/read-image.js";
import { inOtherOrder } from "./byte-order.js";
import type { AttributeChange } from "../../../results/receipt/delivery.js";
import { mostReadBack, type ProofBy, type Proved } from "./destination.js";

/**
 * What a comparison found. A reason names attributes and quotes no value, which may be a person's.
 */
export type ObjectComparison =
  | { equal: true; coerced: string[]; changed_by: AttributeChange[] }
  /** @property attributes true where it is the object, with other values in attributes alone */
  | { equal: false; reason: string; attributes?: true; changed_by?: AttributeChange[] };

const tags = (...lines: string[]): ReadonlySet<Tag> =>
  new Set(lines.flatMap((line) => line.split(" ")).flatMap((keyword) => tagOf(keyword) ?? []));

let lists: { ignored: ReadonlySet<Tag>; coerced: ReadonlySet<Tag> } | undefined;

/** Made when it is needed: the dictionary is large. */
const attributes = () =>
  (lists ??= {
    /**
     * Attributes that say where an object lies and how it is written, but nothing about its
     * contents. They are not compared, and neither are File Meta Information, group lengths,
     * padding and private attributes: a peer may rewrite them or leave them out (PS3.4 section
     * B.4.1).
     */
    ignored: tags(
      // Text is compared decoded
      "SpecificCharacterSet",
      // Where the peer keeps it, and from where it can be had
      "RetrieveAETitle RetrieveURL RetrieveURI RetrieveLocationUID InstanceAvailability StorageMediaFileSetID StorageMediaFileSetUID",
      // What the peer notes of a coercion
      "InstanceCoercionDateTime OriginalAttributesSequence InstanceOriginStatus",
      // How the fragments lie
      "ExtendedOffsetTable ExtendedOffsetTableLengths",
    ),
    /**
     * Of the patient and the study, which a PACS sets to what the hospital knows (PS3.4 section
     * B.4.1.3). It is told.
     */
    coerced: tags(
      "PatientName PatientID IssuerOfPatientID IssuerOfPatientIDQualifiersSequence TypeOfPatientID OtherPatientIDs",
      "OtherPatientIDsSequence OtherPatientNames PatientBirthDate PatientBirthTime PatientSex PatientAge PatientComments",
      "ReferencedPatientSequence EthnicGroup StudyDate StudyTime StudyID StudyDescription AccessionNumber",
      "IssuerOfAccessionNumberSequence ReferringPhysicianName PhysiciansOfRecord NameOfPhysiciansReadingStudy",
      "ProcedureCodeSequence ReferencedStudySequence RequestAttributesSequence InstitutionName",
    ),
  });

const TEXTS = new Set("AE AS CS DA DS DT IS LO LT PN SH ST TM UC UI UR UT".split(" "));
/** Whose characters are those of Specific Character Set. */
const IN_CHARSET = new Set(["LO", "LT", "PN", "SH", "ST", "UC", "UT"]);
const PIXELS: readonly Tag[] = [0x7fe00008, 0x7fe00009, 0x7fe00010];
const DATA_SET_TRAILING_PADDING = 0xfffcfffc;
/**
 * What a change between planes and pixels changes beside the pixels, which are then compared
 * decoded.
 */
const OF_CODING = ["PlanarConfiguration", "PhotometricInterpretation"];

interface ComparedObject {
  file: DicomFile;
  dataSet: DataSet;
  decode: TextDecode;
}

/**
 * Compares two DICOM files.
 * @param sent what was sent
 * @param found what the peer has
 * @param how `mayChange`: keywords of attributes that the peer may change, beside those of the
 * patient and the study; `decodes`: pixels that are coded otherwise are decoded, and are different
 * without
 */
export async function compareObjects(
  sent: Buffer,
  found: Buffer,
  { mayChange = [], decodes = true }: { mayChange?: readonly string[]; decodes?: boolean } = {},
): Promise<ObjectComparison> {
  let files: [DicomFile, DicomFile];
  try {
    files = [openFile(sent), openFile(found, undefined, mostReadBack(sent))];
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    return { equal: false, reason: `What came back is not a whole DICOM object (${error.code}).` };
  }
  const [a, b] = files.map((file) => sideOf(file, file.dataSet, textDecoder([]))) as [
    ComparedObject,
    ComparedObject,
  ];
  try {
    const pixels = await pixelFault(files, [sent, found], decodes);
    const different = differing(a, b, pixels === "decoded");
    const allowed = tags(...mayChange);
    const changed = different.filter((tag) => !attributes().coerced.has(tag) && !allowed.has(tag));
    const isSame = pixels === undefined || pixels === "decoded";
    const changed_by = changesOf(b, different);
    if (changed.length > 0) {
      const reason = `Other values in ${tagNames(changed)}${byWhom(changed_by, changed)}.`;
      const isThis = isSame && !changed.some((tag) => IDENTITY.includes(tag));
      return { equal: false, reason, ...(isThis ? { attributes: true, changed_by } : {}) };
    }
    if (!isSame) return { equal: false, reason: pixels };
    return { equal: true, coerced: different.map(keywordOf), changed_by };
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    return { equal: false, reason: `What came back cannot be read to its end (${error.code}).` };
  }
}

/** SOPClassUID and SOPInstanceUID. */
const IDENTITY: readonly Tag[] = [0x00080016, 0x00080018];

const keywordOf = (tag: Tag): string => describeTag(tag).replace(/ .*/, "");

const ORIGINAL_ATTRIBUTES = 0x04000561;
const MODIFIED_ATTRIBUTES = 0x04000550;
const MODIFICATION = [
  { field: "system", tag: 0x04000563 },
  { field: "why", tag: 0x04000565 },
  { field: "at", tag: 0x04000562 },
] as const;
/** Characters of a peer's own words. */
const MOST_WORDS = 64;

/**
 * Who changed attributes, by what the object says itself (PS3.3 section C.12.1.1.9). What it tells
 * of attributes that do not differ was so before it was sent.
 */
function changesOf(object: ComparedObject, different: readonly Tag[]): AttributeChange[] {
  const items = itemsIn(object, object.dataSet.elements.get(ORIGINAL_ATTRIBUTES)) ?? [];
  return items.flatMap((item) => {
    const side = sideOf(object.file, item, object.decode);
    const before = itemsIn(side, item.elements.get(MODIFIED_ATTRIBUTES)) ?? [];
    const named = different.filter((tag) => before.some(({ elements }) => elements.has(tag)));
    if (named.length === 0) return [];
    const change: AttributeChange = { attributes: named.map(keywordOf) };
    for (const { field, tag } of MODIFICATION) {
      const element = item.elements.get(tag);
      const text = textsIn(side, element, vrOf(tag, element)).join(" ");
      const plain = text.replace(/\p{Cc}/gu, "?").slice(0, MOST_WORDS);
      if (plain !== "") change[field] = plain;
    }
    return [change];
  });
}

/** ", changed by PACS (COERCE)", as far as the peer says it of these. */
function byWhom(all: readonly AttributeChange[], changed: readonly Tag[]): string {
  const names = changed.map(keywordOf);
  const said = all.filter(({ attributes }) => attributes.some((one) => names.includes(one)));
  return said.length === 0 ? "" : `, changed by ${changersText(said)}`;
}

/** "ROUTER (COERCE) and PACS", of who changed attributes. */
export const changersText = (all: readonly AttributeChange[]): string =>
  [
    ...new Set(
      all.map(({ system = "a system without a name", why }) =>
        why === undefined ? system : `${system} (${why})`,
      ),
    ),
  ].join(" and ");

const MOST_NAMED = 5;
function tagNames(all: readonly Tag[]): string {
  const more = all.length > MOST_NAMED ? `, and ${all.length - MOST_NAMED} more` : "";
  return all.slice(0, MOST_NAMED).map(describeTag).join(", ") + more;
}

const SPECIFIC_CHARACTER_SET = 0x00080005;

/**
 * @param decode of the data set around an item, which holds where the item names no character set
 */
function sideOf(file: DicomFile, dataSet: DataSet, decode: TextDecode): ComparedObject {
  const charset = dataSet.elements.get(SPECIFIC_CHARACTER_SET);
  if (charset === undefined) return { file, dataSet, decode };
  const terms = Buffer.from(bytesOf(file, charset)).toString("latin1").split("\\");
  return { file, dataSet, decode: textDecoder(terms.map((term) => term.trim())) };
}

const bytesOf = ({ walk }: DicomFile, { offset, available }: Element): Uint8Array =>
  walk.bytes.subarray(offset, offset + available);

const isLookedAt = (tag: Tag, recoded: boolean) =>
  (tag >>> 16) % 2 === 0 &&
  (tag & 0xffff) !== 0 &&
  tag !== DATA_SET_TRAILING_PADDING &&
  !attributes().ignored.has(tag) &&
  !(recoded && OF_CODING.some((keyword) => tagOf(keyword) === tag));

/**
 * Tags of the attributes, of the outermost data set, in which the two differ. Pixels are left out.
 */
function differing(a: ComparedObject, b: ComparedObject, recoded: boolean): Tag[] {
  const all = new Set([...a.dataSet.elements.keys(), ...b.dataSet.elements.keys()]);
  return [...all]
    .filter((tag) => !PIXELS.includes(tag) && isLookedAt(tag, recoded) && !agree(a, b, tag))
    .sort((one, other) => one - other);
}

/** One that is empty is as one that is not there. */
function agree(a: ComparedObject, b: ComparedObject, tag: Tag): boolean {
  const [one, other] = [a.dataSet.elements.get(tag), b.dataSet.elements.get(tag)];
  const [items, others] = [itemsIn(a, one), itemsIn(b, other)];
  if (items !== undefined && others !== undefined)
    return (
      items.length === others.length &&
      items.every((item, i) => agreeInItems(a, b, item, others[i] ?? item))
    );
  const vr = vrOf(tag, one, other);
  if (TEXTS.has(vr)) return sameTexts(vr, textsIn(a, one, vr), textsIn(b, other, vr));
  return Buffer.compare(valueIn(a, one, vr), valueIn(b, other, vr)) === 0;
}

function agreeInItems(
  a: ComparedObject,
  b: ComparedObject,
  item: DataSet,
  other: DataSet,
): boolean {
  const [one, two] = [sideOf(a.file, item, a.decode), sideOf(b.file, other, b.decode)];
  const all = new Set([...item.elements.keys(), ...other.elements.keys()]);
  return (
    (other.doubled ?? []).length === 0 &&
    [...all].every((tag) => !isLookedAt(tag, false) || agree(one, two, tag))
  );
}

/** Undefined for what is no sequence; one that is not there has no items. */
const itemsIn = ({ file }: ComparedObject, element: Element | undefined): DataSet[] | undefined =>
  element === undefined || element.length === 0 ? [] : itemsOf(file.walk, element);

/** That of the file which says it; one that is written as UN, or without, has the other's. */
function vrOf(tag: Tag, ...elements: (Element | undefined)[]): string {
  const said = elements.flatMap((one) =>
    one?.encoding.explicit === true && one.vr !== "UN" ? one.vr : [],
  );
  return said[0] ?? dictionaryVr(tag);
}

/** Empty groups and components at the end of a name may be left out (PS3.5 section 6.2.1). */
function shortName(name: string): string {
  const groups = name.split("=").map((group) => withoutEnd(group, "^"));
  return withoutEnd(groups.join("="), "=");
}

function textsIn(
  { file, decode }: ComparedObject,
  element: Element | undefined,
  vr: string,
): string[] {
  if (element === undefined) return [""];
  const bytes = bytesOf(file, element);
  const text = IN_CHARSET.has(vr) ? decode(bytes, vr) : Buffer.from(bytes).toString("latin1");
  // Blanks at the beginning mean something in text of one value (PS3.5 table 6.2-1)
  if (SINGLE_VALUE_VRS.has(vr)) return [withoutEnd(text, PADDING)];
  const values = text.split("\\").map((value) => withoutEnds(value, PADDING));
  return vr === "PN" ? values.map(shortName) : values;
}

function sameTexts(vr: string, a: readonly string[], b: readonly string[]): boolean {
  if (a.length !== b.length) return false;
  return a.every((text, i) => {
    const other = b[i] ?? "";
    if (text === other || (vr !== "DS" && vr !== "IS")) return text === other;
    const number = decimal(text);
    return number !== undefined && number === decimal(other);
  });
}

/** The bytes of a value in Little Endian. */
function valueIn({ file }: ComparedObject, element: Element | undefined, vr: string): Uint8Array {
  if (element === undefined) return new Uint8Array(0);
  const bytes = bytesOf(file, element);
  return element.encoding.littleEndian ? bytes : inOtherOrder(bytes, vr);
}

/**
 * What is wrong with the pixels; "decoded" where they are the same, but compressed otherwise;
 * undefined where they are the same.
 */
async function pixelFault(
  files: readonly [DicomFile, DicomFile],
  bytes: readonly [Buffer, Buffer],
  decodes: boolean,
): Promise<string | undefined> {
  const [a, b] = files.map((file) =>
    PIXELS.map((tag) => file.dataSet.elements.get(tag)).find((element) => element !== undefined),
  );
  if (a === undefined && b === undefined) return undefined;
  if (a === undefined || b === undefined || a.tag !== b.tag)
    return "Pixels are on one side alone, or of another kind.";
  const coded = files.map((file, i) => codedPixels(file, i === 0 ? a : b));
  const isSame = Buffer.compare(coded[0] ?? Buffer.alloc(0), coded[1] ?? Buffer.alloc(0)) === 0;
  const isNative = a.encapsulated === undefined && b.encapsulated === undefined;
  if (isNative || (isSame && files[0].transferSyntax.uid === files[1].transferSyntax.uid))
    return isSame ? undefined : "Other pixels.";
  if (!decodes) return "Pixels are coded otherwise.";
  const [sent, found] = [await readImage(bytes[0]), await readImage(bytes[1])];
  if (sent.frameCount !== found.frameCount) return "Another number of frames.";
  // A peer may answer with frames of any size, which take long to decode
  if (sizeOf(sent) !== sizeOf(found)) return "Pixels of another size.";
  for (let frame = 0; frame < sent.frameCount; frame++)
    if (Buffer.compare(await sent.frame(frame), await found.frame(frame)) !== 0)
      return "Other pixels: they were compressed with loss, or changed.";
  return "decoded";
}

const sizeOf = ({ format }: Image): string =>
  [format.rows, format.columns, format.samplesPerPixel, format.bitsAllocated].join(" ");

/** Native pixels in Little Endian, or the fragments behind each other. */
function codedPixels(file: DicomFile, element: Element): Uint8Array {
  if (element.encapsulated === undefined)
    return valueIn(
      { file, dataSet: file.dataSet, decode: textDecoder([]) },
      element,
      vrOf(element.tag, element),
    );
  return Buffer.concat(
    element.encapsulated.fragments.map(({ offset, length }) =>
      file.walk.bytes.subarray(offset, offset + length),
    ),
  );
}

/** A comparison as the proof of a delivery. @param mayChange as `compareObjects` has it */
export async function proofBy(
  how: ProofBy,
  sent: Buffer,
  found: Buffer,
  mayChange: readonly string[] = [],
): Promise<Proved> {
  const compared = await compareObjects(sent, found, { mayChange });
  const { changed_by = [] } = compared;
  const whom = changed_by.length === 0 ? {} : { changed_by };
  if (!compared.equal) {
    const { reason, attributes } = compared;
    return attributes === true
      ? { state: "changed", reason, ...whom }
      : { state: "differs", reason };
  }
  const { coerced } = compared;
  return {
    state: "proven",
    how,
    at: new Date().toISOString(),
    ...(coerced.length === 0 ? {} : { coerced }),
    ...whom,
  };
}
