/**
 * A list that stands still under the eye and the pointer: what is asked for again shows new states
 * of the rows that are there, and rows come below them; those that are there go and move only when
 * somebody says so.
 */
import { useRef, useState } from "preact/hooks";

export interface Steady<T> {
  /** The rows that are shown, in the order in which they were shown first. */
  rows: readonly T[];
  /** There are other rows by now: how many are not shown; undefined where there are none. */
  changed: number | undefined;
  /** Shows the list as it is now. */
  renew: () => void;
  /** Shows the next answer as it comes: somebody has asked again. */
  renewNext: () => void;
}

/**
 * @param key what was asked for: another question has another list
 * @param rows those of the last answer; undefined before the first
 */
export function useSteady<T>(
  key: string,
  rows: readonly T[] | undefined,
  nameOf: (row: T) => string,
): Steady<T> | undefined {
  const shown = useRef<{ key: string; rows: readonly T[] } | undefined>(undefined);
  /** The rows of the last answer when somebody asked again: other rows are shown as they come. */
  const renewsAfter = useRef<readonly T[] | undefined>(undefined);
  const [, setRound] = useState(0);
  if (rows === undefined) return undefined;
  if (renewsAfter.current !== undefined && renewsAfter.current !== rows) {
    shown.current = undefined;
    renewsAfter.current = undefined;
  }
  const names = rows.map(nameOf);
  const before = shown.current?.key === key ? shown.current.rows : rows;
  const now = new Map(rows.map((row) => [nameOf(row), row]));
  const kept = before.map((row) => now.get(nameOf(row)) ?? row);
  // What comes below the last row moves none; an empty list has none that somebody could be reading
  const isBelow = kept.every((row, i) => nameOf(row) === names[i]);
  const current = isBelow ? rows : kept;
  shown.current = { key, rows: current };
  const known = new Set(current.map(nameOf));
  return {
    rows: current,
    changed: isBelow ? undefined : names.filter((name) => !known.has(name)).length,
    renew: () => {
      shown.current = undefined;
      setRound((round) => round + 1);
    },
    renewNext: () => {
      renewsAfter.current = rows;
    },
  };
}
