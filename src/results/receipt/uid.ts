/** A UID in what is read back from files: nothing but digits and dots goes into a query or a URL. */
import { z } from "zod";

/** PS3.5 section 9.1: no component begins with 0 unless it is 0. */
export const uid = z
  .string()
  .max(64)
  .regex(/^(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*))*$/, "Expected a UID (PS3.5 9.1)");
