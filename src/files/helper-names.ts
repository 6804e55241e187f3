export const lockName = (name: string): string => `.${name}.lock`;
export const stagingName = (name: string): string => `.${name}.radserve`;
/** The longest helper beside NAME: the guard under which a dead owner's lock is removed. */
export const guardName = (name: string): string => `.${name}.lock.break`;
/** NAME, of what stands beside its results while they are written; undefined of any other entry of a folder. */
export function nameOfHelper(entry: string): string | undefined {
  return /^\.(.+)\.(?:radserve|lock|lock\.break)$/s.exec(entry)?.[1];
}

/** Names of folders that hold no results: what lies in one may be removed by the next writer of NAME. */
export function isStagingName(entry: string): boolean {
  const name = nameOfHelper(entry);
  return name !== undefined && entry === stagingName(name);
}
