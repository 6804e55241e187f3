/** Values that are made once for each key. */

/**
 * Remembers what `make` gives for a key, a promise too, so that callers at the same time share one.
 */
export function cached<K, V>(make: (key: K) => V): (key: K) => V {
  const known = new Map<K, V>();
  return (key) => {
    const value = known.get(key) ?? make(key);
    known.set(key, value);
    return value;
  };
}

/** The same for keys that are objects: a value is kept as long as its key is. */
export function cachedWith<K extends object, V>(make: (key: K) => V): (key: K) => V {
  const known = new WeakMap<K, V>();
  return (key) => {
    const value = known.get(key) ?? make(key);
    known.set(key, value);
    return value;
  };
}
