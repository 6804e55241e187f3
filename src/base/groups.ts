/** Lists in parts. */

/** The elements in groups of at most `size`, in their order. */
export function* groupsOf<T>(elements: readonly T[], size: number): Generator<T[]> {
  for (let i = 0; i < elements.length; i += size) yield elements.slice(i, i + size);
}
