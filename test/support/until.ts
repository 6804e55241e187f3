/** Waiting for what has to come, with one bound for all that tests wait for. */

/**
 * Only what never comes is waited for so long: what a test waits for comes within a second or two,
 * and on a machine with much other work within some tens of them.
 */
export const LONGEST_WAIT_MS = 120_000;

/**
 * Between two looks that ask a server or read its processes: a loop without it takes more of the
 * processor than what it waits for.
 */
const LOOK_MS = 20;

/**
 * Looks again and again until it holds.
 * @param what the event, for the error of a test that waits in vain: "the neighbour is at work"
 * @param pause calls back when it is time for another look
 * @returns what the last look gave
 */
export async function until<T>(
  what: string,
  holds: () => T | Promise<T>,
  pause: (look: () => void) => unknown = (look) => setTimeout(look, LOOK_MS),
): Promise<Exclude<T, false | undefined>> {
  const end = Date.now() + LONGEST_WAIT_MS;
  for (;;) {
    const found = await holds();
    if (found !== false && found !== undefined) return found as Exclude<T, false | undefined>;
    if (Date.now() > end) throw inVain(what);
    await new Promise<void>(pause);
  }
}

/** A promise that is waited for no longer than anything else. */
export async function inTime<T>(what: string, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(inVain(what)), LONGEST_WAIT_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

const inVain = (what: string) => new Error(`Waited ${LONGEST_WAIT_MS / 1000} s for this: ${what}`);
