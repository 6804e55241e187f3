/**
 * Images whose decoding a test holds and lets go, and requests whose time is over when the test
 * says so: how fast a machine is decides nothing.
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import { attributesOf, compress, dicomFile, SYNTAXES, type Attributes } from "./dicom.js";
import type { Place } from "./server.js";
import { until } from "./until.js";

/** The time of a request that is over when the test says so. */
export const HOUR_SECONDS = 3_600;
export const HOUR_MS = HOUR_SECONDS * 1000;

/** Three frames of them are worth a decoder thread, and one is more than a MiB of memory. */
const [ROWS, COLUMNS] = [1536, 1024];

/** A DICOM file in JPEG XL, which no decoder process takes: it is decoded on its thread. */
export async function heldImage(attributes: Attributes = {}, frames = 1): Promise<Buffer> {
  const ramp = Uint16Array.from({ length: ROWS * COLUMNS }, (_, i) => i % COLUMNS);
  const size = { rows: ROWS, columns: COLUMNS, samples: 1, bitsAllocated: 16, bitsStored: 12 };
  const raw = { ...size, data: new Uint8Array(ramp.buffer) };
  const fragment = await compress("jpeg-xl", raw);
  return dicomFile({
    transferSyntax: SYNTAXES["jpeg-xl"],
    attributes: attributesOf(raw, { ...attributes, NumberOfFrames: String(frames) }),
    pixels: { fragments: Array<Uint8Array>(frames).fill(fragment) },
  });
}

export interface Held {
  /** Resolves once the codec has so many frames more than when it was last asked. */
  atWork(frames?: number): Promise<void>;
  /** The hour of all requests that have one is over. */
  endHour(): void;
  /** Decodes all that is held and what comes. */
  release(): void;
}

/**
 * The threads of a server of this place are held in the codec by every frame in JPEG XL, as long as
 * the test wants, and can be ended there as in any codec.
 */
export function holdDecoding(t: Test, { directory, environment }: Place): Held {
  const folder = mkdtempSync(path.join(directory, "held-"));
  const [held, begun, hours] = ["held", "begun", "hours"].map((name) => path.join(folder, name));
  for (const each of [held!, begun!, hours!]) mkdirSync(each);
  const first = new URL("./hold-codec.js", import.meta.url).href;
  environment["NODE_OPTIONS"] = `${environment["NODE_OPTIONS"] ?? ""} --import=${first}`;
  environment["TEST_HELD"] = folder;
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
    endHour: () => writeFileSync(path.join(hours!, String(readdirSync(hours!).length)), ""),
    release,
  };
}
