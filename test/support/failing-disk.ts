/** A disk that fails when a test says so (failing-disk.c). */
import { execFileSync } from "node:child_process";
import path from "node:path";
import { root, type Place } from "./server.js";

/**
 * What the server of a place does below a folder fails as a file says.
 * @returns the paths of that file, and of one in which stands what the disk was made to write
 */
export function failingDisk(place: Place, disk: string): { fault: string; synced: string } {
  const [fault, synced, shim] = ["fault", "synced", "failing-disk.so"].map((name) =>
    path.join(place.directory, name),
  ) as [string, string, string];
  const source = path.join(root, "test/support/failing-disk.c");
  execFileSync("cc", ["-shared", "-fPIC", "-o", shim, source, "-ldl"]);
  Object.assign(place.environment, {
    LD_PRELOAD: shim,
    TEST_DISK: disk,
    TEST_FAULT: fault,
    TEST_SYNCED: synced,
  });
  return { fault, synced };
}
