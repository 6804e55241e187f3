/**
 * Loaded before a server (node --import, in NODE_OPTIONS), for held.ts: a timer of an hour ends
 * when something new lies in the folder `ended` of TEST_HOURS.
 */
import { readdirSync } from "node:fs";
import path from "node:path";

const LOOK_MS = 10;
/** Longer than all other timers. A deadline of an hour has lost some of it before it gets one. */
const NEARLY_AN_HOUR_MS = 3_000_000;

const ended = () => readdirSync(path.join(process.env["TEST_HOURS"] ?? "", "ended")).length;

const real = globalThis.setTimeout;
const onOrder = (act: () => void) => {
  const before = ended();
  // clearTimeout ends this one, too
  const timer = setInterval(() => {
    if (ended() === before) return;
    clearInterval(timer);
    act();
  }, LOOK_MS);
  return timer;
};
globalThis.setTimeout = new Proxy(real, {
  apply: (_, __, words: [act: () => void, ms?: number]) =>
    (words[1] ?? 0) < NEARLY_AN_HOUR_MS ? real(...words) : onOrder(words[0]),
});
