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

const PARTS = 10;

/**
 * The same for an answer from outside. Of a time in which this process itself stood still only one
 * part counts: what came meanwhile is seen first.
 */
export async function answersWithin(
  answer: Promise<unknown>,
  milliseconds: number,
): Promise<boolean> {
  for (let part = 0; part < PARTS; part++)
    if (await within(answer, milliseconds / PARTS)) return true;
  return false;
}
