/**
 * Processes that work on foreign bytes: what they give up, and that none outlives the thread that
 * started it.
 */
import { loadAddon } from "./load-addon.js";

interface ConfineAddon {
  confine(mostData: number): void;
  limitData(mostData: number): void;
  limitProcessorTime(seconds: number): void;
  leave(status: number): never;
  endWithThread(pid: number): void;
  hasEnded(pid: number): void;
}

const addon = (): ConfineAddon => loadAddon("confine") as ConfineAddon;

/**
 * Takes from this process, for good, files, sockets, programs, other processes and memory for code;
 * native/confine says what exactly. What is open stays open.
 * @param mostData bytes of writable private memory that it may have
 * @throws Error where the kernel refuses; then nothing foreign may be decoded here
 */
export function confine(mostData: number): void {
  addon().confine(mostData);
}

/**
 * This process may have so many bytes of writable private memory from now on, and is the first that
 * the system ends where memory runs out. It may be called again with another number.
 */
export function limitData(mostData: number): void {
  addon().limitData(mostData);
}

/**
 * This process may use so many seconds of processor time more: then the system ends it with
 * SIGXCPU. 0 takes the limit away.
 */
export function limitProcessorTime(seconds: number): void {
  addon().limitProcessorTime(seconds);
}

/**
 * Ends this process at once. Node's own way out restores terminals and signals, and aborts where a
 * confined process may not; and it waits for native code that does not end.
 */
export function leave(status: number): never {
  return addon().leave(status);
}

/**
 * The child process is killed, and waited for, when this thread ends before `hasEnded` is called.
 */
export function endWithThread(pid: number): void {
  addon().endWithThread(pid);
}

export function hasEnded(pid: number): void {
  addon().hasEnded(pid);
}
