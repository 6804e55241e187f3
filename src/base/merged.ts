/** One record of several; of a name that several have, the last has its value. */
export const merged = <T>(records: readonly Readonly<Record<string, T>>[]): Record<string, T> =>
  Object.fromEntries(records.flatMap((record) => Object.entries(record)));
