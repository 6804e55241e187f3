/** Encapsulated pixel data (PS3.5 annex A.4): the Basic Offset Table and the fragments behind it. */
import { warn } from "../image.js";
import { beginsCodestream } from "./codestream.js";
import { ITEM, SEQUENCE_END, tagAt, type Walk } from "./headers.js";

export interface Fragment {
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

export function readFragments(walk: Walk, start: number, end: number, little: boolean): Encapsulated {
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
    const length = walk.view.getUint32(offset + 4, little);
    const available = Math.min(length, end - offset - 8);
    const value = walk.bytes.subarray(offset + 8, offset + 8 + available);
    // Some writers leave the table out and begin with a frame; a table begins with the offset 0
    if (isTable && !beginsCodestream(value)) {
      result.offsetTable = value;
    } else {
      if (isTable)
        warn(
          walk.warnings,
          "missing_offset_table",
          "Encapsulated data begins with a frame instead of its Basic Offset Table.",
        );
      if (first < 0) first = offset;
      result.fragments.push({ relative: offset - first, offset: offset + 8, length: available });
    }
    if (available < length) return { ...result, truncated: true };
    offset += 8 + length;
  }
  return result;
}
