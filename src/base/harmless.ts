/** Text of strangers, for terminals, tables and pages. */

/**
 * Characters that a terminal obeys (ECMA-48: C0 but tab and line feed, DEL, C1) or turns round
 * (Unicode UAX 9): names of files and values of attributes, which strangers choose, must not write
 * over what else stands there.
 */
// oxlint-disable-next-line no-control-regex -- these are what is looked for
const OBEYED = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** The text with such characters as JSON writes them, so that JSON stays the same JSON. */
export const harmless = (text: string): string =>
  text.replace(
    OBEYED,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
