/**
 * Encapsulated pixel data (PS3.5 annex A.4): its offset tables and fragments, and which of those
 * make up which frame.
 */
import { errors, type RadserveError } from "../../base/errors.js";
import { warn, type Warning } from "../image.js";
import { beginsCodestream } from "./codestream.js";
import { count, ITEM, SEQUENCE_END, tagAt, type Walk } from "./headers.js";

interface Fragment {
  /** Offset of its item tag from the first fragment's item tag, as offset tables count. */
  relative: number;
  offset: number;
  length: number;
}

export interface Encapsulated {
  /** Bytes of the Basic Offset Table item; often empty. */
  offsetTable: Uint8Array;
  fragments: Fragment[];
  /** False if the Sequence Delimitation Item is missing. */
  delimited: boolean;
  /** The last fragment runs past the end of the file. */
  truncated: boolean;
  /** Offset behind the delimiter, or where the fragments end without one. */
  end: number;
}

/** @param kept false where the fragments are only counted */
export function readFragments(
  walk: Walk,
  start: number,
  end: number,
  little: boolean,
  kept: boolean,
): Encapsulated {
  const result: Encapsulated = {
    offsetTable: new Uint8Array(0),
    fragments: [],
    delimited: false,
    truncated: false,
    end,
  };
  let offset = start;
  let first = -1;
  for (let isTable = true; offset + 8 <= end; isTable = false) {
    let tag = tagAt(walk, offset, little);
    if (tag !== ITEM && tag !== SEQUENCE_END && !isTable && offset + 9 <= end) {
      // A fragment of odd length whose pad byte is not counted
      const next = tagAt(walk, offset + 1, little);
      if (next === ITEM || next === SEQUENCE_END) {
        tag = next;
        offset += 1;
      }
    }
    if (tag === SEQUENCE_END) return { ...result, delimited: true, end: offset + 8 };
    if (tag !== ITEM) return { ...result, end: offset };
    count(walk);
    const length = walk.view.getUint32(offset + 4, little);
    const available = Math.min(length, end - offset - 8);
    // Some writers leave the table out and begin with a frame; a table begins with the offset 0
    const value = isTable ? walk.bytes.subarray(offset + 8, offset + 8 + available) : undefined;
    if (value !== undefined && !beginsCodestream(value)) {
      result.offsetTable = value;
    } else {
      if (isTable)
        warn(
          walk.warnings,
          "missing_offset_table",
          "Encapsulated data begins with a frame instead of its Basic Offset Table.",
        );
      if (first < 0) first = offset;
      if (kept)
        result.fragments.push({ relative: offset - first, offset: offset + 8, length: available });
    }
    if (available < length) return { ...result, truncated: true };
    offset += 8 + length;
  }
  return result;
}

export interface FrameSource {
  fragments: Fragment[];
  /** Extended Offset Table Lengths: bytes of the frame without padding. */
  length?: number;
}

/**
 * A table of numbers in a file. None is read before their count is known to be that of the frames:
 * a table of hundreds of megabytes deflates to nearly nothing.
 */
export interface OffsetTable {
  entries: number;
  at: (index: number) => number;
}

export interface ExtendedOffsets {
  offsets: OffsetTable;
  lengths: OffsetTable | undefined;
}

interface Input {
  bytes: Uint8Array;
  encapsulated: Encapsulated;
  frameCount: number;
  /** Extended Offset Table (7FE0,0001) and Lengths (7FE0,0002). */
  extended: ExtendedOffsets | undefined;
  /** Whether a fragment begins a frame. */
  begins: (fragment: Uint8Array) => boolean;
  warnings: Warning[];
}

/**
 * Finds the fragments of every frame. One fragment a frame is taken as it is; otherwise the first
 * bytes of the fragments decide, and the offset tables only if those do not tell the frames apart:
 * tables in circulation are wrong more often than signatures. Throws RadserveError: corrupt_image,
 * truncated_image.
 */
export function findFrames(given: Input): FrameSource[] {
  const input = withoutEmpty(given);
  const { encapsulated, frameCount, warnings } = input;
  const { fragments } = encapsulated;
  if (encapsulated.truncated) throw cut(input, "inside a fragment of the pixel data");
  if (fragments.length < frameCount) {
    if (!encapsulated.delimited) throw cut(input, "before its last frame");
    throw errors.corrupt_image(
      `NumberOfFrames is ${frameCount} but the pixel data has ${fragments.length} fragments.`,
      { frames: frameCount, fragments: fragments.length },
    );
  }
  if (!encapsulated.delimited)
    warn(
      warnings,
      "missing_delimiter",
      "The pixel data ends without its Sequence Delimitation Item.",
    );
  const byTable = framesByTable(input);
  if (fragments.length === frameCount)
    return byTable ?? fragments.map((fragment) => ({ fragments: [fragment] }));
  const bySignature = framesBySignature(input);
  if (byTable !== undefined && bySignature !== undefined && !sameFrames(byTable, bySignature)) {
    warnTable(warnings, "it points into the middle of frames");
    return bySignature;
  }
  const found = byTable ?? bySignature;
  if (found !== undefined) return found;
  if (frameCount === 1) return [{ fragments }];
  throw errors.corrupt_image(
    `The pixel data has ${fragments.length} fragments for ${frameCount} frames and no offset table that tells them apart.`,
    { frames: frameCount, fragments: fragments.length },
  );
}

/**
 * Some writers append an empty fragment. If there are more fragments than frames, empty fragments
 * are not frames.
 */
function withoutEmpty(input: Input): Input {
  const { encapsulated, frameCount } = input;
  if (encapsulated.fragments.length <= frameCount) return input;
  const fragments = encapsulated.fragments.filter(({ length }) => length > 0);
  return { ...input, encapsulated: { ...encapsulated, fragments } };
}

function cut(input: Input, where: string): RadserveError {
  return errors.truncated_image(
    `The file ends ${where}: ${input.encapsulated.fragments.length} fragments are there for ${input.frameCount} frames. ` +
      "Send the file again from its source.",
  );
}

function warnTable(warnings: Warning[], problem: string): void {
  warn(
    warnings,
    "offset_table_wrong",
    `The offset table of the pixel data was not used: ${problem}.`,
  );
}

function sameFrames(a: FrameSource[], b: FrameSource[]): boolean {
  return a.every((frame, i) => frame.fragments[0] === b[i]?.fragments[0]);
}

/** Groups fragments into frames; `starts` are the indices of the frames' first fragments. */
function group(fragments: Fragment[], starts: number[]): FrameSource[] {
  return starts.map((start, i) => ({
    fragments: fragments.slice(start, starts[i + 1] ?? fragments.length),
  }));
}

function framesBySignature({
  bytes,
  encapsulated,
  frameCount,
  begins,
  warnings,
}: Input): FrameSource[] | undefined {
  const { fragments } = encapsulated;
  const starts = fragments
    .map((f, i) => (begins(bytes.subarray(f.offset, f.offset + f.length)) ? i : -1))
    .filter((i) => i >= 0);
  if (starts[0] !== 0) return undefined;
  if (starts.length === frameCount) return group(fragments, starts);
  if (starts.length < frameCount) return undefined;
  if (starts.length !== fragments.length) return undefined;
  warn(
    warnings,
    "extra_frames",
    `The pixel data has ${starts.length} frames; NumberOfFrames says ${frameCount}, and those were read.`,
  );
  return group(fragments, starts).slice(0, frameCount);
}

function framesByTable(input: Input): FrameSource[] | undefined {
  const { encapsulated, frameCount, extended, warnings } = input;
  const table = encapsulated.offsetTable;
  let offsets = extended?.offsets;
  if (offsets === undefined || offsets.entries === 0) {
    if (table.length === 0) return undefined;
    const view = new DataView(table.buffer, table.byteOffset, table.byteLength);
    offsets = { entries: table.length >>> 2, at: (i) => view.getUint32(i * 4, true) };
  }
  const { entries, at } = offsets;
  if (entries !== frameCount) {
    warnTable(warnings, `it has ${entries} entries for ${frameCount} frames`);
    return undefined;
  }
  const positions = new Map(encapsulated.fragments.map((f, i) => [f.relative, i]));
  const starts = Array.from({ length: entries }, (_, i) => positions.get(at(i)) ?? -1);
  if (starts[0] !== 0 || starts.some((start, i) => i > 0 && start <= (starts[i - 1] ?? 0))) {
    warnTable(warnings, "its offsets are not the beginnings of fragments in order");
    return undefined;
  }
  const frames: FrameSource[] = group(encapsulated.fragments, starts);
  const lengths = extended?.lengths;
  frames.slice(0, lengths?.entries ?? 0).forEach((frame, i) => {
    const length = lengths?.at(i) ?? 0;
    const total = frame.fragments.reduce((sum, f) => sum + f.length, 0);
    if (length > 0 && length <= total) frame.length = length;
  });
  return frames;
}

/** The bytes of one frame; a view of the file if it is one fragment. */
export function frameBytes(bytes: Uint8Array, source: FrameSource): Uint8Array {
  const parts = source.fragments.map(({ offset, length }) =>
    bytes.subarray(offset, offset + length),
  );
  const [only] = parts;
  const whole = only !== undefined && parts.length === 1 ? only : Buffer.concat(parts);
  return whole.subarray(0, source.length ?? whole.length);
}
