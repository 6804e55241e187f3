/**
 * Loaded before a server and its threads (node --import, in NODE_OPTIONS), for held.ts: a frame in
 * JPEG XL stays in its codec while TEST_HELD has the folder `held`, and a timer of an hour ends
 * when something new lies in the folder `hours`.
 */
import { randomBytes } from "node:crypto";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import Module from "node:module";
import path from "node:path";
import type codecs from "dcmjs-codecs";

const LOOK_MS = 10;
/** Longer than any other timer that is running meanwhile. */
const NEARLY_AN_HOUR_MS = 3_000_000;

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

const real = globalThis.setTimeout;
const onOrder = (act: () => void) => {
  const before = readdirSync(at("hours")).length;
  // clearTimeout ends this one, too
  const timer = setInterval(() => {
    if (readdirSync(at("hours")).length === before) return;
    clearInterval(timer);
    act();
  }, LOOK_MS);
  return timer;
};
globalThis.setTimeout = new Proxy(real, {
  apply: (_, __, words: [act: () => void, ms?: number]) =>
    (words[1] ?? 0) < NEARLY_AN_HOUR_MS ? real(...words) : onOrder(words[0]),
});
