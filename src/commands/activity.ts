/**
 * The work of a command, told on a terminal if it takes longer than two seconds; elsewhere nothing
 * is said.
 */

const QUIET_MS = 2_000;
const EACH_MS = 1_000;

let shown = false;

/** Takes away what is told, before anything else is written. */
export function clearActivity(): void {
  // ECMA-48: back to the first column, then erase to the end of the line
  if (shown) process.stderr.write("\r\u001b[K");
  shown = false;
}

/**
 * Does the work, and says what it is and for how long it has gone on.
 * @param what for people, for example "Loading the models"
 */
export async function during<T>(what: string, work: () => Promise<T>): Promise<T> {
  if (!process.stderr.isTTY) return work();
  const began = performance.now();
  let timer: NodeJS.Timeout | undefined;
  const tell = () => {
    process.stderr.write(`\r\u001b[K${what}: ${Math.round((performance.now() - began) / 1000)} s`);
    shown = true;
  };
  const quiet = setTimeout(() => {
    tell();
    timer = setInterval(tell, EACH_MS).unref();
  }, QUIET_MS).unref();
  try {
    return await work();
  } finally {
    clearTimeout(quiet);
    clearInterval(timer);
    clearActivity();
  }
}
