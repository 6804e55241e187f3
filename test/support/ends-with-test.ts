/**
 * What a test starts ends with it, also if it is killed: servers, their databases, and the folders
 * they were in.
 */
import { spawn } from "node:child_process";
import type { Writable } from "node:stream";

/** Where root's private databases lie. */
export const ROOTS_PLACE = "/var/lib/radserve-postgres";

/**
 * Reads names of folders until its standard input ends, which only this process holds open. Then it
 * ends every process whose environment or command line names one of them, and removes the folders,
 * with those where root's databases lie. PostgreSQL is told to stop at once, so that it takes its
 * processes and shared memory with it.
 */
const REAPER = `
trap "" INT TERM HUP
folders=$(grep -E "^/.+-[A-Za-z0-9]{6}$")
[ -n "$folders" ] || exit 0
all() {
  printf "%s\\n" "$folders"
  printf "%s\\n" "$folders" | grep -lsFf - ${ROOTS_PLACE}/*/state_directory | sed "s,/state_directory$,,"
}
left() {
  all | grep -lasFf - /proc/[0-9]*/environ /proc/[0-9]*/cmdline | cut -d / -f 3 | sort -u
}
for try in $(seq 100); do
  pids=$(left)
  [ -n "$pids" ] || break
  for pid in $pids; do
    case $(cat /proc/$pid/comm 2>/dev/null) in
      postgres) kill -QUIT $pid ;;
      *) kill -KILL $pid ;;
    esac
  done 2>/dev/null
  sleep 0.1
done
all | xargs -d "\\n" rm -rf`;

let reaper: Writable | undefined;

/**
 * @param folder a folder that mkdtemp made; what names it in its environment or command line ends
 * with this process
 */
export function endsWithTest(folder: string): void {
  if (!/^\/.+-[A-Za-z0-9]{6}$/.test(folder))
    throw new TypeError(`Expected a folder that mkdtemp made; found ${folder}.`);
  if (reaper === undefined) {
    // In a session of its own: what ends the test's group must not end it. Its output is nobody's:
    // who waits for the end of the test's output must not wait for it.
    const child = spawn("sh", ["-c", REAPER], {
      stdio: ["pipe", "ignore", "ignore"],
      detached: true,
      env: {},
    });
    child.unref();
    (child.stdin as unknown as { unref(): void }).unref();
    child.stdin.on("error", () => undefined);
    reaper = child.stdin;
  }
  reaper.write(`${folder}\n`);
}
