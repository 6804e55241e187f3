/**
 * Images whose decoding a test holds and lets go, and hours that are over when the test says so:
 * how fast a machine is decides nothing.
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import { attributesOf, compress, dicomFile, SYNTAXES, type Attributes } from "./dicom.js";
import type { Place } from "./server.js";
import { until } from "./until.js";

/** A length of time that is over when the test says so. */
export const HOUR_SECONDS = 3_600;
export const HOUR_MS = HOUR_SECONDS * 1000;

/** Three frames of them are worth a decoder thread, and one is more than a MiB of memory. */
const [ROWS, COLUMNS] = [1536, 1024];

const ramp = Uint16Array.from({ length: ROWS * COLUMNS }, (_, i) => i % COLUMNS);
const size = { rows: ROWS, columns: COLUMNS, samples: 1, bitsAllocated: 16, bitsStored: 12 };
const raw = { ...size, data: new Uint8Array(ramp.buffer) };
let compressed: Promise<Uint8Array> | undefined;

/** A DICOM file in JPEG XL, which no decoder process takes: it is decoded on its thread. */
export async function heldImage(attributes: Attributes = {}, frames = 1): Promise<Buffer> {
  const fragment = await (compressed ??= compress("jpeg-xl", raw));
  return dicomFile({
    transferSyntax: SYNTAXES["jpeg-xl"],
    attributes: attributesOf(raw, { ...attributes, NumberOfFrames: String(frames) }),
    pixels: { fragments: Array<Uint8Array>(frames).fill(fragment) },
  });
}

/** Makes a module the first of a server of this place and of its threads. */
function preload(
  { directory, environment }: Place,
  module: string,
  variable: string,
  ...folders: string[]
): string[] {
  const folder = mkdtempSync(path.join(directory, "held-"));
  const first = new URL(module, import.meta.url).href;
  environment["NODE_OPTIONS"] = `${environment["NODE_OPTIONS"] ?? ""} --import=${first}`;
  environment[variable] = folder;
  return folders.map((name) => {
    mkdirSync(path.join(folder, name));
    return path.join(folder, name);
  });
}

export interface HeldDecoding {
  /** Resolves once the codec has so many frames more than when it was last asked. */
  atWork(frames?: number): Promise<void>;
  /** Decodes all that is held and what comes. */
  release(): void;
}

/**
 * The threads of a server of this place are held in the codec by every frame in JPEG XL, as long as
 * the test wants, and can be ended there as in any codec.
 */
export function holdDecoding(t: Test, place: Place): HeldDecoding {
  const [held, begun] = preload(place, "./hold-codec.js", "TEST_HELD", "held", "begun");
  const release = () => rmSync(held!, { recursive: true, force: true });
  t.teardown(release);
  let seen = 0;
  return {
    async atWork(frames = 1) {
      await until(
        `${frames} frames are with the codec`,
        () => readdirSync(begun!).length >= seen + frames,
      );
      seen = readdirSync(begun!).length;
    },
    release,
  };
}

/**
 * The same in this process, which has to be a test's own: what it loads from now on has other
 * timers.
 * @returns ends all that are running
 */
export async function holdHoursHere(t: Test): Promise<() => void> {
  const ended = path.join(t.testdir(), "ended");
  mkdirSync(ended);
  process.env["TEST_HOURS"] = path.dirname(ended);
  await import("./hold-hours.js");
  return () => writeFileSync(path.join(ended, String(readdirSync(ended).length)), "");
}

/**
 * Timers of an hour in a server of this place wait for the test, not for the hour.
 * @returns ends all that are running
 */
export function holdHours(place: Place): () => void {
  const [ended] = preload(place, "./hold-hours.js", "TEST_HOURS", "ended");
  return () => writeFileSync(path.join(ended!, String(readdirSync(ended!).length)), "");
}
