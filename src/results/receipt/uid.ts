/**
 * Forms of what is read back from files: nothing but digits and dots goes into a query or a URL,
 * and no name leads out of a folder.
 */
import { z } from "zod";

/** PS3.5 section 9.1: no component begins with 0 unless it is 0. */
export const uid = z
  .string()
  .max(64)
  .regex(/^(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*))*$/, "Expected a UID (PS3.5 9.1)");

/** The name of a file beside another. */
// oxlint-disable-next-line no-control-regex -- no name of a file has it
export const PLAIN_NAME = /^[^/\u0000]{1,255}$/;
