/**
 * Concatenations (PS3.3 C.7.6.16): one multi-frame image that lies in several objects, its parts. A
 * part holds some of the frames; taken for the whole it would be a body that ends where the part
 * ends.
 */
import type { RadserveError } from "../../base/errors.js";
import { groupsBy } from "../../base/groups.js";
import type { Attributes, Warning } from "../image.js";
import { seriesInvalid } from "./series-fault.js";

const LISTED = 10;

interface ConcatenationPart {
  /** ConcatenationUID: the parts of one image share it. */
  uid: string | undefined;
  /** InConcatenationNumber, from 1. */
  number: number | undefined;
  /** InConcatenationTotalNumber, which writers may leave out. */
  total: number | undefined;
  /** ConcatenationFrameOffsetNumber: how many frames lie in the parts before this one. */
  offset: number | undefined;
  frames: number;
}

/** The part of an object in a concatenation; undefined if it is a whole image. */
function partOf(attributes: Attributes, frames: number): ConcatenationPart | undefined {
  const part: ConcatenationPart = {
    uid: attributes.string("ConcatenationUID"),
    number: attributes.number("InConcatenationNumber"),
    total: attributes.number("InConcatenationTotalNumber"),
    offset: attributes.number("ConcatenationFrameOffsetNumber"),
    frames,
  };
  const { uid, number, total } = part;
  return (uid === undefined && number === undefined && total === undefined) || total === 1
    ? undefined
    : part;
}

/** For messages: "part 1 of 2 of a concatenation". */
function partName({ number, total }: ConcatenationPart): string {
  return `part ${number ?? "(unnumbered)"} of ${total ?? "an unknown number"} of a concatenation`;
}

/** A caveat for a file that is read by itself: its frames are frames, but not all of the image. */
export function partCaveats(attributes: Attributes | undefined): Warning[] {
  const part = attributes === undefined ? undefined : partOf(attributes, 0);
  if (part === undefined) return [];
  const message = `The file is ${partName(part)}: it does not hold all frames of the image, and its own are counted from 1.`;
  return [{ code: "incomplete_concatenation", message }];
}

/**
 * @throws series_invalid (incomplete_concatenation) if a file that is to be a volume by itself is a
 * part of one
 */
export function checkNoPart(attributes: Attributes | undefined): void {
  const part = attributes === undefined ? undefined : partOf(attributes, 0);
  if (part === undefined) return;
  throw incomplete(
    `Expected a whole multi-frame image as a volume, found ${partName(part)}. Send all its parts in one folder.`,
    { part: part.number, parts: part.total },
  );
}

/**
 * Every concatenation in a folder has all its parts, each once, and their frames follow each other
 * without a gap.
 * @returns caveats about concatenations that do not say how many parts they have
 * @throws series_invalid (incomplete_concatenation) with the numbers of the parts that are missing
 * or doubled
 */
export function checkConcatenations(
  files: readonly { attributes: Attributes; frames: readonly unknown[] }[],
): Warning[] {
  const parts = files.flatMap(({ attributes, frames }) => partOf(attributes, frames.length) ?? []);
  return [...groupsBy(parts, ({ uid }) => uid).values()].flatMap(checkParts);
}

/** The largest number of VR US. A file may write them in another VR. */
const MOST_PARTS = 65_535;

function checkParts(parts: readonly ConcatenationPart[]): Warning[] {
  const totals = [...new Set(parts.flatMap(({ total }) => total ?? []))];
  const [total, ...others] = totals;
  const unnumbered = parts.filter(
    ({ uid, number }) => uid === undefined || number === undefined,
  ).length;
  if (unnumbered > 0 || others.length > 0)
    throw incomplete(
      `Expected ConcatenationUID, InConcatenationNumber and one InConcatenationTotalNumber in the ${parts.length} parts of a concatenation; ` +
        (unnumbered > 0
          ? `${unnumbered} lack the UID or the number`
          : `found the totals ${totals.join(", ")}`) +
        ". Correct them at the source.",
      { parts: parts.length, unnumbered, totals },
    );
  const numbers = parts.map(({ number = 0 }) => number);
  const most = total ?? Math.max(...numbers);
  if (most > MOST_PARTS)
    throw incomplete(
      `Expected at most ${MOST_PARTS} parts of a concatenation, as their numbers allow (US), found ${most}. Correct InConcatenationTotalNumber and InConcatenationNumber at the source.`,
      { parts: most },
    );
  const missing = Array.from({ length: most }, (_, i) => i + 1).filter((n) => !numbers.includes(n));
  const doubled = [...new Set(numbers.filter((n, i) => numbers.indexOf(n) !== i))].sort(
    (a, b) => a - b,
  );
  const beyond = numbers.filter((n) => n < 1 || n > most);
  const faults = [
    ...faultOf(missing, "missing"),
    ...faultOf(doubled, "there more than once"),
    ...faultOf(beyond, "not a number of a part"),
  ];
  if (faults.length > 0 || (total === undefined && parts.length === 1))
    throw incomplete(
      `Expected every part of a concatenation of ${total ?? "an unknown number of"} parts once, found ${parts.length} ${parts.length === 1 ? "part" : "parts"}` +
        `${faults.map((fault) => `; ${fault}`).join("")}. Send all parts in one folder.`,
      { parts: total, missing: missing.slice(0, LISTED), doubled: doubled.slice(0, LISTED) },
    );
  checkOffsets(parts);
  if (total !== undefined) return [];
  const message = `The ${parts.length} parts of a concatenation do not say how many they are; whether parts behind the last are missing cannot be known.`;
  return [{ code: "concatenation_total_unknown", message }];
}

function faultOf(numbers: readonly number[], what: string): string[] {
  if (numbers.length === 0) return [];
  const more = numbers.length > LISTED ? ` and ${numbers.length - LISTED} more` : "";
  return [
    `${numbers.slice(0, LISTED).join(", ")}${more} ${numbers.length === 1 ? "is" : "are"} ${what}`,
  ];
}

/** The frames before a part are those of the parts before it. */
function checkOffsets(parts: readonly ConcatenationPart[]): void {
  let before = 0;
  for (const { number, offset, frames } of [...parts].sort(
    (a, b) => (a.number ?? 0) - (b.number ?? 0),
  )) {
    if (offset !== undefined && offset !== before)
      throw incomplete(
        `Expected ConcatenationFrameOffsetNumber ${before} in part ${number ?? 0} of a concatenation, behind the frames of the parts before it; found ${offset}. Send the parts again from their source.`,
        { part: number, expected_offset: before, offset },
      );
    before += frames;
  }
}

function incomplete(message: string, details: Record<string, unknown>): RadserveError {
  return seriesInvalid("incomplete_concatenation", message, details);
}
