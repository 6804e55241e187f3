/** Whose jobs they are that received images become. */
export const GATEWAY_SUBJECT = "gateway";
