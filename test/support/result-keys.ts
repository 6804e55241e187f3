/**
 * One key of results for all test processes of this user: what a child has written, its parent
 * trusts. Imported for what it does.
 */
import { existsSync, mkdirSync, renameSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { resultKeysIn, useResultKeys } from "../../src/results/receipt/seal.js";

export const keysFolder = path.join(os.tmpdir(), `radserve-test-keys-${process.getuid?.()}`);

const folder = resultKeysIn(keysFolder);
const file = path.join(folder, "test.json");
if (!existsSync(file)) {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const key = {
    kid: "test",
    algorithm: "HS256",
    created: "2026-01-01T00:00:00.000Z",
    secret: Buffer.alloc(48, "test").toString("base64url"),
  };
  const part = path.join(folder, `.${process.pid}`);
  writeFileSync(part, JSON.stringify(key), { mode: 0o600 });
  renameSync(part, file);
}
useResultKeys(keysFolder);
