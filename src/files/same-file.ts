/**
 * Which file something is, whatever it is called. Inode numbers have 64 bits: as JavaScript's
 * numbers, those above 2^53 are rounded to each other (Lustre, SMB shares of NTFS, overlayfs), so
 * that two files would be taken for one. The types ask for exact ones.
 */
import type { BigIntStats } from "node:fs";

type Place = Pick<BigIntStats, "dev" | "ino">;

/** The same text for the same file, until that is removed. */
export const fileKey = ({ dev, ino }: Place): string => `${dev}:${ino}`;

/** False where one is not there. */
export const isSameFile = (one: Place | undefined, other: Place | undefined): boolean =>
  one !== undefined && other !== undefined && fileKey(one) === fileKey(other);
