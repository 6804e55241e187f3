/** A data directory of PostgreSQL that is not made before a test lets it. */
import { chmodSync, cpSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import type { Test } from "tap";
import { BIN_FOLDERS } from "./private-postgres.js";

/**
 * PostgreSQL's programs, of which `initdb` waits until `open` was called.
 * @param when it waits: before it begins, or when all is made and it has not ended
 */
export function gatedInitdb(
  t: Test,
  when: "before" | "at its end",
): { bin: string; open: () => void } {
  const top = mkdtempSync(path.join(os.tmpdir(), "radserve-gated-"));
  const gate = path.join(top, "open");
  const open = () => writeFileSync(gate, "");
  t.teardown(() => rmSync(top, { recursive: true, force: true }));
  // The account that the database runs as has to reach it
  chmodSync(top, 0o755);
  const native = path.join(top, "native");
  cpSync(path.dirname(BIN_FOLDERS.npm), native, { recursive: true, verbatimSymlinks: true });
  const bin = path.join(native, "bin");
  renameSync(path.join(bin, "initdb"), path.join(bin, "initdb.real"));
  // Without its folder nobody waits for it any more
  const wait = `until [ -e '${gate}' ] || [ ! -e '${top}' ]; do sleep 0.05; done`;
  const real = '"$0.real" "$@"';
  const script = when === "before" ? `${wait}\nexec ${real}` : `${real} || exit\n${wait}`;
  writeFileSync(path.join(bin, "initdb"), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return { bin, open };
}
