/**
 * Roots that are not there on this node: gone, without an answer, an empty mount point, or another
 * folder in their place. The server finds that out by looking at them now and again; every thread
 * that opens a path is told.
 */
import { getEnvironmentData, setEnvironmentData } from "node:worker_threads";
import { stat } from "./disk.js";
import type { PathSide } from "./path-judgement.js";
import { isInside, isUnmounted } from "./roots.js";

interface WatchedRoot {
  side: PathSide;
  /** Its place among those of its side, from 1. */
  number: number;
  /** Its real path. */
  root: string;
}

interface Absence {
  /** Those with the longest paths first: of roots within each other the inner one says. */
  roots: readonly WatchedRoot[];
  /** A byte for each: 0 where it is there, else why it is absent. */
  absent: Uint8Array<SharedArrayBuffer>;
}

const ABSENCE = "roots of Radserve that are absent";
const REASONS = ["here", "other", "silent"] as const;
/** Whether a root is here, something else is in its place, or nothing answers. */
export type RootState = (typeof REASONS)[number];

const absence = (): Absence | undefined => getEnvironmentData(ABSENCE) as Absence | undefined;

/** For this thread, and for all that it starts from now on. @param real paths of the roots */
export function watchRoots(real: Readonly<Record<PathSide, readonly string[]>>): void {
  const ofSide = (side: PathSide): WatchedRoot[] =>
    real[side].map((root, i) => ({ side, number: i + 1, root }));
  const roots = [...ofSide("input"), ...ofSide("output")].sort(
    (a, b) => b.root.length - a.root.length,
  );
  const absent = new Uint8Array(new SharedArrayBuffer(roots.length));
  setEnvironmentData(ABSENCE, { roots, absent } satisfies Absence);
}

/** @param number the root's place among those of its side, from 1 */
export function tellAbsence(side: PathSide, number: number, state: RootState): void {
  const { roots, absent } = absence() ?? {};
  const at = roots?.findIndex((one) => one.side === side && one.number === number) ?? -1;
  if (absent !== undefined && at >= 0) Atomics.store(absent, at, REASONS.indexOf(state));
}

function stateOf(side: PathSide, realPath: string): RootState {
  const { roots, absent } = absence() ?? {};
  const at = roots?.findIndex((one) => one.side === side && isInside(realPath, [one.root])) ?? -1;
  return REASONS[absent !== undefined && at >= 0 ? Atomics.load(absent, at) : 0] ?? "here";
}

/** Whether a path lies in a root that is absent. */
export const isAbsent = (side: PathSide, realPath: string): boolean =>
  stateOf(side, realPath) !== "here";

/** Whether a path lies in a root that does not answer: whoever asks there waits without an end. */
export const isSilent = (side: PathSide, realPath: string): boolean =>
  stateOf(side, realPath) === "silent";

/** Whether what lies at a path is not the share of its root. @param dev of the folder */
export const isAway = (side: PathSide, realPath: string, dev: number): boolean =>
  isUnmounted(realPath, dev) || isAbsent(side, realPath);

/** The same of what lies at a root now. */
export const isAwayNow = (side: PathSide, root: string): Promise<boolean> =>
  stat(root).then(
    ({ dev }) => isAway(side, root, dev),
    () => true,
  );
