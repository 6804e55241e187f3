import { z } from "zod";

/**
 * PS3.5 section 6.2, AE: 16 characters of the default repertoire, no backslash, spaces at the ends
 * do not count.
 */
export const aeTitle = z
  .string()
  .regex(
    /^(?! )[\x20-\x5b\x5d-\x7e]{1,16}(?<! )$/,
    "Expected an AE title: at most 16 characters of ASCII, no backslash, no space at its ends",
  );
