/**
 * The kernel's own lock of an open file, flock(2): it ends with the descriptor or its process, so
 * that none is stale.
 */
import { loadAddon } from "../addon/load-addon.js";

/**
 * Takes the lock of an open file; false if another open of the file has it. Throws where the system
 * has no locks.
 */
export function lockDescriptor(fd: number): boolean {
  return (loadAddon() as { lockDescriptor(fd: number): boolean }).lockDescriptor(fd);
}
