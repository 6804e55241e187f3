/** Lists in parts. */

/** The elements in groups of at most `size`, in their order. */
export function* groupsOf<T>(elements: readonly T[], size: number): Generator<T[]> {
  for (let i = 0; i < elements.length; i += size) yield elements.slice(i, i + size);
}

/** The elements of each key, in their order, and the keys in that of their first elements. */
export function groupsBy<T, Key>(elements: Iterable<T>, keyOf: (element: T) => Key): Map<Key, T[]> {
  const groups = new Map<Key, T[]>();
  for (const element of elements) {
    const key = keyOf(element);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [element]);
    else group.push(element);
  }
  return groups;
}
