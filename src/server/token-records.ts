/**
 * Files of the keys folder, which many machines may share: each change is one atomic file
 * operation. And what it says of tokens: a record of each one that was issued, and a mark for each
 * that was revoked.
 */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import { errno } from "../base/errno.js";
import { namesIn } from "../files/key-file.js";
import { createPrivately, giveToOwnerOf, makePrivateFolder } from "../files/private-file.js";

const tokenRecordSchema = z.object({
  jti: z.string(),
  sub: z.string(),
  kid: z.string(),
  issued: z.string(),
  expires: z.string(),
  admin: z.boolean(),
  input_roots: z.array(z.string()).optional(),
  output_roots: z.array(z.string()).optional(),
  destinations: z.array(z.string()).optional(),
});

/** The record of an issued token, never the token itself. */
export type TokenRecord = z.infer<typeof tokenRecordSchema>;

/**
 * File name of a token's record and of its revocation: any jti, also another issuer's, makes a safe
 * one.
 */
export const nameOf = (jti: string): string => createHash("sha256").update(jti).digest("hex");

/** Whether an entry of a folder is such a name, and nothing temporary. */
export const isNameOfToken = (entry: string): boolean => /^[0-9a-f]{64}$/.test(entry);

const issuedIn = (folder: string) => path.join(folder, "tokens");
export const revokedIn = (folder: string) => path.join(folder, "revoked");

/**
 * Makes a folder of records below the keys; one that root once made for itself is given to the
 * owner of the keys.
 */
function makeRecords(folder: string, records: string): void {
  makePrivateFolder(records);
  giveToOwnerOf(folder, records);
}

export async function recordToken(folder: string, record: TokenRecord): Promise<void> {
  makeRecords(folder, issuedIn(folder));
  await createPrivately(
    path.join(issuedIn(folder), nameOf(record.jti)),
    `${JSON.stringify(record, null, 2)}\n`,
  );
}

/** Issued tokens, oldest first, each with whether it was revoked. */
export async function listTokens(folder: string): Promise<(TokenRecord & { revoked: boolean })[]> {
  const revoked = new Set(namesIn(revokedIn(folder)));
  const names = namesIn(issuedIn(folder)).filter((name) => !name.startsWith("."));
  const records = await Promise.all(
    names.map(async (name) => {
      const text = await readFile(path.join(issuedIn(folder), name), "utf8");
      return { ...tokenRecordSchema.parse(JSON.parse(text)), revoked: revoked.has(name) };
    }),
  );
  return records.sort((a, b) => a.issued.localeCompare(b.issued));
}

export const isRevoked = (folder: string, jti: string): boolean =>
  namesIn(revokedIn(folder)).includes(nameOf(jti));

/** Marks a token as revoked; every server that reads the folder refuses it within a second. */
export async function revokeToken(
  folder: string,
  jti: string,
): Promise<{ known: boolean; already: boolean }> {
  makeRecords(folder, revokedIn(folder));
  const known = namesIn(issuedIn(folder)).includes(nameOf(jti));
  try {
    await createPrivately(path.join(revokedIn(folder), nameOf(jti)), "");
    return { known, already: false };
  } catch (error) {
    if (errno(error) === "EEXIST") return { known, already: true };
    throw error;
  }
}
