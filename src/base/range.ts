/** The least and the greatest of some numbers. */

/** Infinity and -Infinity if there are none. */
export function rangeOf(values: readonly number[]): [number, number] {
  return values.reduce(
    ([least, most], value) => [Math.min(least, value), Math.max(most, value)],
    [Infinity, -Infinity],
  );
}
