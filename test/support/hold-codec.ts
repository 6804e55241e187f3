/**
 * Loaded before a server and its threads (node --import, in NODE_OPTIONS), for held.ts: a frame in
 * JPEG XL stays in its codec while TEST_HELD has the folder `held`.
 */
import { randomBytes } from "node:crypto";
import { existsSync, writeFileSync } from "node:fs";
import Module from "node:module";
import path from "node:path";
import type codecs from "dcmjs-codecs";

const LOOK_MS = 10;

const at = (name: string) => path.join(process.env["TEST_HELD"] ?? "", name);

/** The call does not come back, and takes nothing of the processor; ending the thread ends it. */
function wait(): void {
  writeFileSync(path.join(at("begun"), randomBytes(8).toString("hex")), "");
  const cell = new Int32Array(new SharedArrayBuffer(4));
  while (existsSync(at("held"))) Atomics.wait(cell, 0, 0, LOOK_MS);
}

const loader = Module as unknown as { _load: (name: string, ...more: unknown[]) => unknown };
const load = loader._load;
let isHeld = false;
loader._load = (name, ...more) => {
  const found = load.call(Module, name, ...more);
  if (name !== "dcmjs-codecs" || isHeld) return found;
  isHeld = true;
  const { NativeCodecs } = found as typeof codecs;
  const decode = NativeCodecs.decodeJpegXl.bind(NativeCodecs);
  NativeCodecs.decodeJpegXl = (...words) => {
    wait();
    return decode(...words);
  };
  return found;
};
