/**
 * Roots that are not there on this node: gone, an empty mount point, or another folder in their
 * place. The server finds that out by looking at them now and again; every thread that opens a path
 * is told.
 */
import { getEnvironmentData, setEnvironmentData } from "node:worker_threads";
import type { PathSide } from "./path-judgement.js";
import { isInside, isUnmounted } from "./roots.js";

type RealRoots = Readonly<Record<PathSide, readonly string[]>>;

/** A byte for each root, those of inputs first: 1 where it is absent. */
interface Absence {
  roots: RealRoots;
  absent: Uint8Array<SharedArrayBuffer>;
}

const ABSENCE = "roots of Radserve that are absent";

const absence = (): Absence | undefined => getEnvironmentData(ABSENCE) as Absence | undefined;

/** For this thread, and for all that it starts from now on. @param roots their real paths */
export function watchRoots(roots: RealRoots): void {
  const count = roots.input.length + roots.output.length;
  const absent = new Uint8Array(new SharedArrayBuffer(count));
  setEnvironmentData(ABSENCE, { roots, absent } satisfies Absence);
}

const placeOf = ({ input }: RealRoots, side: PathSide, index: number): number =>
  side === "input" ? index : input.length + index;

/** @param number the root's place among those of its side, from 1 */
export function tellAbsence(side: PathSide, number: number, isAbsent: boolean): void {
  const watched = absence();
  if (watched === undefined) return;
  Atomics.store(watched.absent, placeOf(watched.roots, side, number - 1), isAbsent ? 1 : 0);
}

/** Whether a path lies in a root that is absent; of roots within each other the inner one says. */
export function isAbsent(side: PathSide, realPath: string): boolean {
  const watched = absence();
  if (watched === undefined) return false;
  const { roots, absent } = watched;
  const [inner] = [...roots[side].entries()]
    .filter(([, root]) => isInside(realPath, [root]))
    .sort(([, a], [, b]) => b.length - a.length);
  return inner !== undefined && Atomics.load(absent, placeOf(roots, side, inner[0])) === 1;
}

/** Whether what lies at a path is not the share of its root. @param dev of the folder */
export const isAway = (side: PathSide, realPath: string, dev: number): boolean =>
  isUnmounted(realPath, dev) || isAbsent(side, realPath);
