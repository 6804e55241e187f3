/** Waiting for what has to come, with one bound for all that tests wait for. */
import type { Test } from "tap";

/**
 * Only what never comes is waited for so long: what a test waits for comes within a second or two,
 * and on a machine with much other work within some tens of them.
 */
export const LONGEST_WAIT_MS = 120_000;
/** After a failed assertion what else a file waits for may never come, and it is to end soon. */
const LONGEST_AFTER_FAILURE_MS = 5_000;

/**
 * Between two looks that ask a server or read its processes: looking takes of the processor what
 * the server itself wants. What comes soon is seen soon, and of a longer wait a tenth is lost.
 */
const [LEAST_LOOK_MS, MOST_LOOK_MS] = [5, 100];
const LOOK_PART = 0.1;

/** Where tap keeps its root in a process that has loaded it; programs without tests wait, too. */
const ROOT = Symbol.for("TAP private constructor");
/** scripts/test-together.mjs: the files are subtests of the root, and only one of them runs. */
const isShared = () => Reflect.has(globalThis, "subtestsOfFiles");

const failedIn = (test: Test): boolean =>
  !test.passing() || [...test.activeSubtests].some((one) => failedIn(one as Test));

/** An assertion of the file that runs has failed. */
function hasFailed(): boolean {
  const root = Reflect.get(globalThis, ROOT) as Test | undefined;
  if (root === undefined) return false;
  return isShared()
    ? [...root.activeSubtests].some((one) => failedIn(one as Test))
    : failedIn(root);
}

/** One wait, from now on. */
export class Wait {
  #began = Date.now();
  readonly #first = this.#began;

  /** @param what the event, for the error of a test that waits in vain */
  constructor(private readonly what: string) {}

  /** Something has come, and what is waited for is nearer. */
  goesOn(): void {
    this.#began = Date.now();
  }

  /** How long it is to the next look. */
  get pauseMs(): number {
    const part = LOOK_PART * (Date.now() - this.#first);
    return Math.min(MOST_LOOK_MS, Math.max(LEAST_LOOK_MS, part));
  }

  /** Once it has taken too long. */
  late(found = ""): Error | undefined {
    const limit = hasFailed() ? LONGEST_AFTER_FAILURE_MS : LONGEST_WAIT_MS;
    return Date.now() - this.#began > limit
      ? new Error(`Waited ${limit / 1000} s for this: ${this.what}. ${found}`.trim())
      : undefined;
  }

  /** @throws Error once it has taken too long */
  check(found?: string): void {
    const error = this.late(found);
    if (error !== undefined) throw error;
  }
}

/**
 * Looks again and again until it holds.
 * @param what the event, for the error of a test that waits in vain: "the neighbour is at work"
 * @param pause calls back when it is time for another look
 * @returns what the last look gave
 */
export async function until<T>(
  what: string,
  holds: () => T | Promise<T>,
  pause?: (look: () => void) => unknown,
): Promise<Exclude<T, false | undefined>> {
  const wait = new Wait(what);
  for (;;) {
    const found = await holds();
    if (found !== false && found !== undefined) return found as Exclude<T, false | undefined>;
    wait.check();
    await new Promise<void>(pause ?? ((look) => setTimeout(look, wait.pauseMs)));
  }
}

/** A promise that is waited for no longer than anything else. */
export async function inTime<T>(what: string, promise: Promise<T>): Promise<T> {
  const wait = new Wait(what);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setInterval(() => {
      const error = wait.late();
      if (error !== undefined) reject(error);
    }, 2 * MOST_LOOK_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearInterval(timer);
  }
}
