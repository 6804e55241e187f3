/** What a kind of DICOM object is: whether it can be made, made, and checked. One file beside this one for each. */
import type { DicomFile } from "../../../images/dicom/dicom-file.js";
import type { Image } from "../../../images/image.js";
import type { Manifest } from "../../../manifest/manifest.js";
import type { Picture } from "../../../addon/picture.js";
import type { SegmentationType } from "../../forms.js";
import type { ReceiptModel } from "../../receipt/receipt.js";
import type { DicomObject } from "../elements.js";
import type { Masks } from "../grid.js";
import type { Companion, Said } from "../groups.js";
import type { FrameOutputs } from "../segments.js";
import type { Subject } from "../subject.js";

/** What is there to make objects of. */
export interface Material {
  image: Image;
  manifest: Pick<Manifest, "outputs">;
  /** Outputs for each frame of the image; needed for what is made of masks. */
  outputs: FrameOutputs | undefined;
  /** The SEG lies in a grid that nothing ties to the source. */
  isAdrift: boolean;
}

/** What an object is made of. */
export interface Making extends Material {
  subject: Subject;
  /** What the SEG is made of. */
  masks: Masks | undefined;
  segmentationType: SegmentationType;
  said: Said;
  predecessor?: ReceiptModel["predecessor"];
  /** The SEG, if it is written too. */
  seg: Companion | undefined;
  /** The overlay, the frames (from 0) that it shows, and its opacity. */
  picture: () => Promise<{ pixels: Picture; frames: readonly number[]; opacity: number }>;
}

export interface ObjectKind {
  /** It is made of masks: of every frame, a model that segments keeps what it gave. */
  ofMasks: boolean;
  /** Why it cannot be made of a source that others can refer to, in words; undefined if it can. Masks are there if it is made of them. */
  whyNot: (material: Material) => string | undefined;
  make: (making: Making) => Promise<DicomObject> | DicomObject;
  /**
   * What is wrong with the object as it reads back, in words; undefined if nothing is.
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

/** What the size of an object follows from. */
export interface Size {
  labels: number;
  frames: number;
  /** Of all frames. */
  pixels: number;
}

/** Bytes of a document, and of what it says of a label on a frame. */
export const DOCUMENT_BYTES = 2 ** 18;
export const FINDING_BYTES = 2048;

/** What is wrong with references, in words: none, or one to an object that does not exist or is of another class. */
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
