/**
 * A DICOM file as an Image: frames are found when it is read and decoded when they are asked for.
 */
import { createHash } from "node:crypto";
import { release } from "../../addon/bytes.js";
import { errors } from "../../base/errors.js";
import {
  checkedFrame,
  addWarnings,
  warn,
  type Codec,
  type Image,
  type Interpretation,
  type PixelFormat,
  type SourceIdentity,
  type Warning,
} from "../image.js";
import type { DataSetAttributes } from "./attributes.js";
import { colourByValues } from "./coded-colour.js";
import { framesAhead } from "./decoders.js";
import { sopClassName } from "./dictionary.js";
import type { Element } from "./elements.js";
import { openFile, type DicomFile } from "./dicom-file.js";
import { readImagePixel, type PixelElement } from "./pixel-format.js";
import { frameReader, type DecodedFrame, type FrameReader } from "./frame-readers.js";
import { constantFrames, isConstant } from "./decode-check.js";
import { frameGeometry, type FrameGeometry } from "./geometry.js";
import { checkEmpty, interpretationReader } from "./interpretation.js";
import { checkSigned, warnOfSigned } from "./signed-pixels.js";
import { ReadAhead } from "./read-ahead.js";

export interface DicomFileImage extends Image {
  attributes: DataSetAttributes;
  /** The same as `frame`, on a decoder thread if one has room. */
  frameElsewhere(index: number): Promise<Uint8Array>;
  /**
   * Decides by values what the colours are where attribute and codestream contradict each other;
   * until then `format` says RGB of such an image. Reading a frame does it too. Throws
   * corrupt_image where the values do not tell, and what decoding throws.
   */
  settle(): Promise<void>;
  /** Frees the file's bytes as `release` does, unless `frame` is a part of them. */
  releaseAround(frame: Uint8Array): void;
}

/**
 * Reads a DICOM file. Nothing is decoded yet, but every frame is accounted for.
 * @param mostElements as openFile takes it, which throws TooManyElements Throws RadserveError:
 * corrupt_image, truncated_image, unsupported_transfer_syntax, unsupported_format, no_pixel_data.
 */
export function readDicom(bytes: Uint8Array, mostElements?: number): DicomFileImage {
  return new DicomImage(openFile(bytes, mostElements), bytes);
}

/**
 * A file that was opened already.
 * @param fileSha256 of its bytes, hex
 * Throws what readDicom throws.
 */
export function imageOf(file: DicomFile, bytes: Uint8Array, fileSha256: string): DicomFileImage {
  return new DicomImage(file, bytes, fileSha256);
}

class DicomImage implements DicomFileImage {
  readonly source: SourceIdentity;
  format: PixelFormat;
  readonly frameCount: number;
  readonly attributes: DataSetAttributes;
  readonly codec?: Codec;
  readonly warnings;
  readonly transforms = [];
  readonly #reader: FrameReader;
  readonly #tag: string;
  #settled: Promise<void> | undefined;
  readonly #frames: ReadAhead<DecodedFrame>;
  readonly #interpret: (frame: number) => Interpretation;
  readonly #geometry: (frame: number) => FrameGeometry;
  /** The pixels are signed, and those of the class are not. */
  readonly #isOddlySigned: boolean;
  /** Set once a frame was seen that is not constant, or that may well be. */
  #someFrameVaries = false;

  constructor(
    file: DicomFile,
    private readonly bytes: Uint8Array,
    private fileSha256?: string,
  ) {
    const { attributes, walk } = file;
    this.attributes = attributes;
    this.warnings = walk.warnings;
    const [keyword, element] = pixelElement(file);
    const pixel = readImagePixel(attributes, keyword, walk.warnings);
    this.#reader = frameReader(file, element, pixel);
    this.format = this.#reader.format;
    this.#tag = pixel.tag;
    if (this.#reader.codec !== undefined) this.codec = this.#reader.codec;
    this.frameCount = pixel.frameCount;
    checkGroups(attributes, this.frameCount, this.warnings);
    this.#frames = new ReadAhead(
      this.frameCount,
      (index, ahead) => this.#reader.read(index, ahead),
      () =>
        this.codec === undefined ? 0 : framesAhead(this.codec.kind, this.format, this.frameCount),
    );
    this.#isOddlySigned = warnOfSigned(file, this.format, this.warnings);
    this.source = identity(file, bytes.length, () => this.hash());
    this.#interpret = interpretationReader(attributes, this.format, this.warnings);
    this.#geometry = frameGeometry(attributes, this.frameCount, this.warnings);
    // Attributes that all frames share are read now, so that a wrong one refuses the file and not
    // its first model
    this.#interpret(0);
    this.#geometry(0);
  }

  async settle(): Promise<void> {
    const { doubt } = this.#reader;
    if (doubt !== undefined) await (this.#settled ??= this.#settle(doubt));
  }

  async #settle(doubt: string): Promise<void> {
    const { frameCount, format, warnings } = this;
    const { codec, read } = this.#reader;
    const found = { tag: this.#tag, doubt, format, frameCount, codec, read };
    const photometricInterpretation = await colourByValues(found, warnings);
    this.format = { ...format, photometricInterpretation };
  }

  async frame(index: number): Promise<Uint8Array> {
    if (this.#reader.doubt !== undefined) await this.settle();
    return this.#plausible(await this.#frames.get(checkedFrame(index, this.frameCount)), index);
  }

  async frameElsewhere(index: number): Promise<Uint8Array> {
    if (this.#reader.doubt !== undefined) await this.settle();
    return this.#plausible(
      await this.#reader.read(checkedFrame(index, this.frameCount), true),
      index,
    );
  }

  /** Takes over what was odd about a frame, and looks whether it can be what was compressed. */
  async #plausible(decoded: DecodedFrame, index: number): Promise<Uint8Array> {
    addWarnings(this.warnings, decoded.warnings ?? []);
    checkEmpty(this.#interpret(index), this.format, decoded.data, this.warnings);
    if (this.#isOddlySigned)
      checkSigned(decoded.data, this.format, this.#interpret(index).padding, index);
    if (!(await this.#isPlausible(decoded, index)))
      warn(
        this.warnings,
        "blank_frame",
        `Frame ${index + 1} is one value throughout, although its compressed data is long for that.`,
      );
    return decoded.data;
  }

  interpretation = (frame: number) => this.#interpret(checkedFrame(frame, this.frameCount));
  spacing = (frame: number) => this.#placed(frame).spacing;
  regions = (frame: number) => this.#placed(frame).regions;
  plane = (frame: number) => this.#placed(frame).plane;
  planeFault = (frame: number) => this.#placed(frame).planeFault;
  pixelAspect = (frame: number) => this.#placed(frame).pixelAspect;

  #placed(frame: number): FrameGeometry {
    return this.#geometry(checkedFrame(frame, this.frameCount));
  }

  hash(): string {
    return (this.fileSha256 ??= createHash("sha256").update(this.bytes).digest("hex"));
  }

  release(): void {
    this.hash();
    release(this.bytes);
  }

  releaseAround(frame: Uint8Array): void {
    if (frame.buffer !== this.bytes.buffer) this.release();
  }

  /**
   * False for a suspicious frame among good ones. Throws decode_suspect if all frames are
   * suspicious.
   */
  async #isPlausible(decoded: DecodedFrame, index: number): Promise<boolean> {
    if (!isSuspect(decoded, this.format)) {
      this.#someFrameVaries = true;
      return true;
    }
    for (let other = 0; other < this.frameCount && !this.#someFrameVaries; other++)
      if (other !== index && !isSuspect(await this.#reader.read(other), this.format))
        this.#someFrameVaries = true;
    if (!this.#someFrameVaries) throw constantFrames(this.frameCount, decoded.suspectBytes);
    return false;
  }
}

/**
 * A frame without its item would silently lose what the others have: its own rescale, its own
 * place.
 */
function checkGroups(attributes: DataSetAttributes, frames: number, warnings: Warning[]): void {
  const groups = attributes.sequence("PerFrameFunctionalGroupsSequence")?.length ?? 0;
  if (groups > 0 && groups < frames)
    throw errors.corrupt_image(
      `NumberOfFrames is ${frames} but PerFrameFunctionalGroupsSequence describes ${groups}. Correct the object at the source.`,
      { frames, described: groups },
    );
  if (groups > frames)
    warn(
      warnings,
      "extra_frames",
      `PerFrameFunctionalGroupsSequence describes ${groups} frames and NumberOfFrames says ${frames}; the first items were taken for them.`,
    );
}

function isSuspect(decoded: DecodedFrame, format: PixelFormat): boolean {
  const pixelBytes = (format.samplesPerPixel * format.bitsAllocated) / 8;
  return decoded.suspectBytes > 0 && isConstant(decoded.data, pixelBytes);
}

/**
 * @param hash of the file: it takes longer than all else that is read, and whoever needs it first
 * waits for it
 */
function identity(file: DicomFile, bytes: number, hash: () => string): SourceIdentity {
  const { attributes } = file;
  return {
    format: "dicom",
    get fileSha256() {
      return hash();
    },
    bytes,
    sopClassUid: attributes.string("SOPClassUID") ?? file.mediaStorageSopClass,
    sopInstanceUid: attributes.string("SOPInstanceUID"),
    studyInstanceUid: attributes.string("StudyInstanceUID"),
    seriesInstanceUid: attributes.string("SeriesInstanceUID"),
    transferSyntaxUid: file.transferSyntax.uid,
    modality: attributes.string("Modality"),
  };
}

/** Elements in which CT scanners of Elscint, later Philips, name how they compressed the pixels. */
const ELSCINT = { creator: "ELSCINT1", group: 0x07a1, element: 0x11 };

/** How the pixels are compressed in a private way; undefined if nothing says so. */
function privateCompression(
  attributes: DataSetAttributes,
): { creator: string; method: string } | undefined {
  const { creator, group, element } = ELSCINT;
  const method = attributes.privateValue(creator, group, element)?.trim();
  if (method === undefined || !/^PMSCT_\w{1,12}$/.test(method)) return undefined;
  return { creator, method };
}

function pixelElement(file: DicomFile): [PixelElement, Element] {
  const found = (["PixelData", "FloatPixelData", "DoubleFloatPixelData"] as const).flatMap(
    (keyword): [PixelElement, Element][] => {
      const element = file.attributes.element(keyword);
      return element === undefined || element.length === 0 ? [] : [[keyword, element]];
    },
  );
  const [first, second] = found;
  if (second !== undefined)
    throw errors.corrupt_image(
      `Expected one of PixelData, FloatPixelData and DoubleFloatPixelData (PS3.3 C.7.6.3), found ${found.map(([keyword]) => keyword).join(" and ")}. Correct the object at its source.`,
      { attribute: second[0] },
    );
  if (first !== undefined) return first;
  if (file.attributes.element("PixelData")?.encapsulated !== undefined)
    throw errors.corrupt_image(
      "PixelData has an undefined length and does not begin with an item (PS3.5 A.4), so nothing says where the pixels end. Send the object again from its source.",
      { attribute: "PixelData" },
    );
  const hidden = privateCompression(file.attributes);
  if (hidden !== undefined)
    throw errors.unsupported_format(
      `The pixels of the DICOM object are in private elements of ${hidden.creator}, compressed as ${hidden.method}, which is not read. ` +
        "Export it from its scanner or archive again, uncompressed or in a standard compression.",
      { format: hidden.method },
    );
  const uid = file.attributes.string("SOPClassUID") ?? file.mediaStorageSopClass;
  const is = uid === undefined ? "an object of no stated SOP class" : sopClassName(uid);
  throw errors.no_pixel_data(
    `The DICOM object is ${is} and holds no pixel data. Send an object that holds an image.`,
    uid === undefined ? undefined : { sop_class_uid: uid },
  );
}
