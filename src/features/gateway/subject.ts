/** Whose jobs they are that received images become. */
import type { Caller } from "../../jobs/call.js";

export const GATEWAY_SUBJECT = "gateway";

export const GATEWAY_CALLER: Caller = {
  subject: GATEWAY_SUBJECT,
  admin: false,
  inputRoots: undefined,
  outputRoots: undefined,
};
