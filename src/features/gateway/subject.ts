/** Whose jobs they are that received images become. */
export const DOORS_SUBJECT = "doors";
