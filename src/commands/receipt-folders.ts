/** The folders whose receipts a command reads. */
import path from "node:path";
import { ConfigError } from "../base/errors.js";
import type { Config } from "../config.js";
import { remark } from "./run.js";

/** Those that were given, or else the output roots. @throws ConfigError where there are none */
export function receiptFolders(given: readonly string[], { output_roots }: Config): readonly string[] {
  const folders = given.length > 0 ? given.map((folder) => path.resolve(folder)) : output_roots;
  if (folders.length > 0) return folders;
  throw new ConfigError("Expected folders with receipts, or RADSERVE_OUTPUT_ROOTS; found neither.");
}

/** Says that a folder is left out. */
export const leftOut = (folder: string, why: string | undefined): void =>
  remark(`${folder} cannot be read (${why}); its receipts are left out.`);
