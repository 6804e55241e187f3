/**
 * Looks up a name that comes from outside in a record: from a file, a request, a manifest. A plain
 * look-up would find what every object inherits: under "constructor" a function, under "__proto__"
 * an object.
 */
export function ownValue<T>(record: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}
