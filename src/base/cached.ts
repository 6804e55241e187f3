/** Values that are made once for each key. */

/**
 * Remembers what `make` gives for a key: undefined too, and a promise, so that callers at the same
 * time share one.
 */
export function cached<K, V>(make: (key: K) => V): (key: K) => V {
  return remembered(new Map<K, V>(), make);
}

/** The same for keys that are objects: a value is kept as long as its key is. */
export function cachedWith<K extends object, V>(make: (key: K) => V): (key: K) => V {
  return remembered(new WeakMap<K, V>(), make);
}

function remembered<K, V>(
  known: Pick<Map<K, V>, "has" | "get"> & { set(key: K, value: V): unknown },
  make: (key: K) => V,
): (key: K) => V {
  return (key) => {
    if (!known.has(key)) known.set(key, make(key));
    return known.get(key) as V;
  };
}
