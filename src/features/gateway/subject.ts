/** Whose jobs they are that received images become. */
import type { Caller } from "../../jobs/call.js";

export const DOORS_SUBJECT = "gateway";

export const DOORS_CALLER: Caller = {
  subject: DOORS_SUBJECT,
  admin: false,
  inputRoots: undefined,
  outputRoots: undefined,
};
