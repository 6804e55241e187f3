/**
 * When a process started, in clock ticks since boot, by the text of its /proc/PID/stat: tells it from a later one with
 * its number. Empty for one that has ended with all its threads and only waits for its parent to take note.
 */
export function startIn(stat: string): string | undefined {
  // The second field is the command in parentheses and may hold anything (proc(5)): the others are counted behind it
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, threads, start] = [fields[0], fields[17], fields[19]];
  // A killed thread finishes the system call that it is in, when the first one may have ended already
  return (state === "Z" || state === "X") && Number(threads) <= 1 ? "" : start;
}
