/** Multi-frame Functional Groups (PS3.3 C.7.6.16). */
import type { DataSetAttributes } from "./attributes.js";

/**
 * The attributes of one functional group macro for a frame (from 0): the per-frame item overrides the shared one.
 * Undefined if the object has neither; then the attributes at the top of the data set count.
 */
export function functionalGroup(
  attributes: DataSetAttributes,
  frame: number,
  macro: string,
): DataSetAttributes | undefined {
  const own = attributes.sequence("PerFrameFunctionalGroupsSequence")?.[frame]?.sequence(macro)?.[0];
  return own ?? attributes.sequence("SharedFunctionalGroupsSequence")?.[0]?.sequence(macro)?.[0];
}

/** Calls `read` once a frame if frames can differ, else once in all. */
export function perFrame<T>(attributes: DataSetAttributes, read: (frame: number) => T): (frame: number) => T {
  const varies = attributes.has("PerFrameFunctionalGroupsSequence");
  const known = new Map<number, T>();
  return (frame) => {
    const key = varies ? frame : 0;
    let value = known.get(key);
    if (value === undefined) {
      value = read(key);
      known.set(key, value);
    }
    return value;
  };
}
