/** Waiting with an end. */

/**
 * Whether work has ended within some milliseconds; it goes on either way. Throws what the work
 * throws until then; a failure after that is handled, and told to nobody.
 */
export async function within(work: Promise<unknown>, milliseconds: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), milliseconds);
  });
  return Promise.race([work.then(() => true), late]).finally(() => clearTimeout(timer));
}
