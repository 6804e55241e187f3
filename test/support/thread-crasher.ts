/**
 * Loaded before the product (NODE_OPTIONS --import), so that a test can crash the bulk thread from
 * outside: whenever something appears in the folder that TEST_CRASH_FOLDER names, that thread, and
 * no other, throws.
 */
import { watch } from "node:fs";
import { isMainThread, workerData } from "node:worker_threads";
import type { BulkThreadOptions } from "../../src/jobs/messages.js";

const folder = process.env["TEST_CRASH_FOLDER"];
const data = workerData as Partial<BulkThreadOptions> | null;
if (!isMainThread && folder !== undefined && data?.window !== undefined)
  watch(folder, { persistent: false }, () => {
    throw new Error("planted by a test");
  });
