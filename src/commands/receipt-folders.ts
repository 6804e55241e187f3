/** The folders whose receipts a command reads. */
import { accessSync, constants } from "node:fs";
import path from "node:path";
import { ConfigError } from "../base/errors.js";
import { requireFolder, type Config } from "../config.js";
import { remark } from "./run.js";

/**
 * Those that were given, or else the output roots. @throws where there are none, or one cannot be
 * read: none of it is no change
 */
export function receiptFolders(
  given: readonly string[],
  { output_roots }: Config,
): readonly string[] {
  const folders = given.length > 0 ? given.map((folder) => path.resolve(folder)) : output_roots;
  if (folders.length === 0)
    throw new ConfigError(
      "Expected folders with receipts, or RADSERVE_OUTPUT_ROOTS; found neither.",
    );
  for (const folder of folders) {
    requireFolder(folder, given.length > 0 ? "folders" : "RADSERVE_OUTPUT_ROOTS");
    accessSync(folder, constants.R_OK | constants.X_OK);
  }
  return folders;
}

export const leftOut = (folder: string, why: string | undefined): void =>
  remark(`${folder} cannot be read (${why}); its receipts are left out.`);
