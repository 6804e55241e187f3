/**
 * A kind of DICOM object: whether it can be made, how, and how it is checked. Each has a file
 * beside this one.
 */
import type { DicomFile } from "../../../images/dicom/dicom-file.js";
import type { Image } from "../../../images/image.js";
import type { Manifest } from "../../../manifest/manifest.js";
import type { Picture } from "../../../addon/picture.js";
import type { SegmentationType } from "../../forms.js";
import type { ReceiptModel } from "../../receipt/receipt.js";
import type { DicomObject } from "../elements.js";
import type { Masks } from "../grid.js";
import type { Companion, ReportContents } from "../groups.js";
import type { FrameOutputs } from "../segments.js";
import type { Subject } from "../subject.js";

/** The facts that are there before objects are made. */
export interface Material {
  image: Image;
  manifest: Pick<Manifest, "outputs">;
  /** Outputs for each frame of the image; needed for what is made of masks. */
  outputs: FrameOutputs | undefined;
  /** The frames by phases, or why they cannot be parted (subject.ts). */
  phases?: Subject["phases"];
  /** The SEG lies in a grid that nothing ties to the source. */
  isAdrift: boolean;
  /** Bytes that the SEG takes at most. */
  segBytes: number;
}

/** The facts of which an object is made. */
export interface Making extends Material {
  subject: Subject;
  /** The masks of which the SEG is made. */
  masks: Masks | undefined;
  segmentationType: SegmentationType;
  said: ReportContents;
  predecessor?: ReceiptModel["predecessor"];
  /** The SEG, if it is written too. */
  seg: Companion | undefined;
  /** The overlay, the frames (from 0) that it shows, and its opacity. */
  picture: () => Promise<{ pixels: Picture; frames: readonly number[]; opacity: number }>;
}

export interface ObjectKind {
  /** It is made of masks: of every frame, a model that segments keeps what it gave. */
  ofMasks: boolean;
  /**
   * Why it cannot be made of a source that others can refer to, in words; undefined if it can.
   * Masks are there if it is made of them.
   */
  whyNot: (material: Material) => string | undefined;
  make: (making: Making) => Promise<DicomObject> | DicomObject;
  /**
   * The fault of the object as it reads back, in words; undefined if there is none.
   * @param known SOP Instance UID to SOP Class UID of everything that it may refer to
   */
  fault: (
    file: DicomFile,
    object: DicomObject,
    making: Making,
    known: ReadonlyMap<string, string>,
  ) => Promise<string | undefined> | string | undefined;
  /** Bytes on the disk that it takes at most. */
  room: (size: Size) => number;
}

/** The numbers from which the size of an object follows. */
export interface Size {
  labels: number;
  frames: number;
  /** Pixels of all frames. */
  pixels: number;
}

/** Bytes of a document, and of what it says of a label on a frame. */
export const DOCUMENT_BYTES = 2 ** 18;
export const FINDING_BYTES = 2048;

/**
 * The fault of references, in words: there is none, or one is to an object that does not exist or
 * is of another class.
 */
export function referenceFault(
  references: readonly { string: (keyword: string) => string | undefined }[],
  known: ReadonlyMap<string, string>,
): string | undefined {
  if (references.length === 0) return "it refers to no source";
  const isKnown = (reference: (typeof references)[number]) =>
    known.get(reference.string("ReferencedSOPInstanceUID") ?? "") ===
    reference.string("ReferencedSOPClassUID");
  return references.every(isKnown)
    ? undefined
    : "it refers to an object that is neither the source nor written beside it";
}
