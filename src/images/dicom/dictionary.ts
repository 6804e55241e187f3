/** The data dictionary (PS3.6), taken from dcmjs: keyword, tag and VR. */
import { createRequire } from "node:module";
import type dcmjs from "dcmjs";
import { ownValue } from "../../base/own-value.js";

type Data = (typeof dcmjs)["data"];
let loaded: Data | undefined;

/**
 * dcmjs as dcmjs-codecs requires it: to import it would load its other build beside that one, 4 MB
 * more in every thread. It is loaded when a thread first needs it, which takes tens of
 * milliseconds; the thread that serves HTTP does not.
 */
export function dcmjsData(): Data {
  return (loaded ??= (createRequire(import.meta.url)("dcmjs") as typeof dcmjs).data);
}

/** Tags are numbers, group * 65536 + element. */
export type Tag = number;

/** VRs of one value each: a backslash in them is text. */
export const SINGLE_VALUE_VRS = new Set(["LT", "ST", "UT", "UR"]);

type DictionaryEntry = Data["DicomMetaDictionary"]["dictionary"][string];
/** The entries that were looked up: files with many frames ask for the same ones for each. */
const entries = new Map<Tag, DictionaryEntry>();

function entryOf(tag: Tag): DictionaryEntry | undefined {
  const known = entries.get(tag);
  if (known !== undefined) return known;
  const entry: DictionaryEntry | undefined =
    dcmjsData().DicomMetaDictionary.dictionary[tagName(tag).toUpperCase()];
  if (entry !== undefined) entries.set(tag, entry);
  return entry;
}

/** `(7fe0,0010)`, as messages write it. */
export function tagName(tag: Tag): string {
  const hex = tag.toString(16).padStart(8, "0");
  return `(${hex.slice(0, 4)},${hex.slice(4)})`;
}

/** A tag, with its keyword if the dictionary has one: `Rows (0028,0010)`. */
export function describeTag(tag: Tag): string {
  const entry = entryOf(tag);
  return entry === undefined ? tagName(tag) : `${entry.name} ${tagName(tag)}`;
}

/**
 * VR of a tag in the dictionary, "UN" if it has none. The choices of the standard stay open as
 * dcmjs writes them: "xs" (US or SS), "ox" (OB or OW), "lt" (US, SS or OW).
 */
export function dictionaryVr(tag: Tag): string {
  if ((tag & 0xffff) === 0) return "UL";
  const group = tag >>> 16;
  // Private creators (PS3.5 section 7.8.1)
  if (group % 2 === 1) return (tag & 0xffff) >= 0x10 && (tag & 0xffff) <= 0xff ? "LO" : "UN";
  return entryOf(tag)?.vr ?? "UN";
}

/** Value Multiplicity of a tag (PS3.6): "1", "2-n"; "1-n" if the dictionary has none. */
export const multiplicityOf = (tag: Tag): string => entryOf(tag)?.vm ?? "1-n";

const tags = new Map<string, Tag>();

/** Tag of a keyword; undefined if the dictionary does not know it. */
export function tagOf(keyword: string): Tag | undefined {
  let tag = tags.get(keyword);
  if (tag === undefined) {
    const entry = ownValue(dcmjsData().DicomMetaDictionary.nameMap, keyword);
    if (entry === undefined) return undefined;
    tag = Number.parseInt(entry.tag.slice(1, 5) + entry.tag.slice(6, 10), 16);
    if (Number.isNaN(tag)) return undefined;
    tags.set(keyword, tag);
  }
  return tag;
}

/**
 * SOP classes that arrive in image folders and that dcmjs has no name for (PS3.4 annex B, PS3.3 F).
 */
const OTHER_SOP_CLASSES: Readonly<Record<string, string>> = {
  "1.2.840.10008.1.3.10": "Media Storage Directory (DICOMDIR)",
  "1.2.840.10008.5.1.4.1.1.1": "Computed Radiography Image Storage",
  "1.2.840.10008.5.1.4.1.1.1.1": "Digital X-Ray Image Storage - For Presentation",
  "1.2.840.10008.5.1.4.1.1.1.1.1": "Digital X-Ray Image Storage - For Processing",
  "1.2.840.10008.5.1.4.1.1.1.2": "Digital Mammography X-Ray Image Storage - For Presentation",
  "1.2.840.10008.5.1.4.1.1.1.2.1": "Digital Mammography X-Ray Image Storage - For Processing",
  "1.2.840.10008.5.1.4.1.1.1.3": "Digital Intra-Oral X-Ray Image Storage - For Presentation",
  "1.2.840.10008.5.1.4.1.1.7.1": "Multi-frame Single Bit Secondary Capture Image Storage",
  "1.2.840.10008.5.1.4.1.1.7.2": "Multi-frame Grayscale Byte Secondary Capture Image Storage",
  "1.2.840.10008.5.1.4.1.1.7.3": "Multi-frame Grayscale Word Secondary Capture Image Storage",
  "1.2.840.10008.5.1.4.1.1.7.4": "Multi-frame True Color Secondary Capture Image Storage",
  "1.2.840.10008.5.1.4.1.1.12.1": "X-Ray Angiographic Image Storage",
  "1.2.840.10008.5.1.4.1.1.12.1.1": "Enhanced XA Image Storage",
  "1.2.840.10008.5.1.4.1.1.12.2": "X-Ray Radiofluoroscopic Image Storage",
  "1.2.840.10008.5.1.4.1.1.12.2.1": "Enhanced XRF Image Storage",
  "1.2.840.10008.5.1.4.1.1.13.1.3": "Breast Tomosynthesis Image Storage",
  "1.2.840.10008.5.1.4.1.1.30": "Parametric Map Storage",
  "1.2.840.10008.5.1.4.1.1.77.1.1": "VL Endoscopic Image Storage",
  "1.2.840.10008.5.1.4.1.1.77.1.2": "VL Microscopic Image Storage",
  "1.2.840.10008.5.1.4.1.1.77.1.4": "VL Photographic Image Storage",
  "1.2.840.10008.5.1.4.1.1.77.1.6": "VL Whole Slide Microscopy Image Storage",
  "1.2.840.10008.5.1.4.1.1.481.1": "RT Image Storage",
  "1.2.840.10008.5.1.4.1.1.481.2": "RT Dose Storage",
  "1.2.840.10008.5.1.4.1.1.481.3": "RT Structure Set Storage",
  "1.2.840.10008.5.1.4.1.1.481.5": "RT Plan Storage",
  "1.2.840.10008.5.1.4.1.1.481.4": "RT Beams Treatment Record Storage",
  "1.2.840.10008.5.1.4.1.1.481.8": "RT Ion Plan Storage",
  "1.2.840.10008.5.1.4.1.1.104.1": "Encapsulated PDF Storage",
  "1.2.840.10008.5.1.4.1.1.104.2": "Encapsulated CDA Storage",
  "1.2.840.10008.5.1.4.1.1.104.3": "Encapsulated STL Storage",
  "1.2.840.10008.5.1.4.1.1.88.34": "Comprehensive 3D SR Storage",
  "1.2.840.10008.5.1.4.1.1.88.50": "Mammography CAD SR Storage",
  "1.2.840.10008.5.1.4.1.1.88.59": "Key Object Selection Document Storage",
  "1.2.840.10008.5.1.4.1.1.88.65": "Chest CAD SR Storage",
  "1.2.840.10008.5.1.4.1.1.88.67": "X-Ray Radiation Dose SR Storage",
  "1.2.840.10008.5.1.4.1.1.11.1": "Grayscale Softcopy Presentation State Storage",
  "1.2.840.10008.5.1.4.1.1.11.2": "Color Softcopy Presentation State Storage",
  "1.2.840.10008.5.1.4.1.1.9.1.1": "12-lead ECG Waveform Storage",
  "1.2.840.10008.5.1.4.1.1.9.1.2": "General ECG Waveform Storage",
};

/** Name of a SOP class for messages; the UID itself if no name is known. */
export function sopClassName(uid: string): string {
  const known = ownValue(OTHER_SOP_CLASSES, uid);
  if (known !== undefined) return known;
  const name = ownValue(dcmjsData().DicomMetaDictionary.sopClassNamesByUID, uid);
  return name === undefined ? `SOP class ${uid}` : `${spaced(name)} Storage`;
}

/** CTImage as CT Image, EnhancedMRImage as Enhanced MR Image. */
function spaced(name: string): string {
  return name.replace(/([a-z])([A-Z])/g, "$1 $2").replace(/([A-Z])([A-Z][a-z])/g, "$1 $2");
}
