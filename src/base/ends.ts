/**
 * Text without what fills it up at its ends. A regular expression such as / +$/ looks on from every
 * blank of a text: one with a million of them inside holds up the thread for hours. This looks at
 * each character once.
 */

/** Without any of `characters` at its end. */
export function withoutEnd(text: string, characters: string): string {
  let end = text.length;
  while (end > 0 && characters.includes(text.charAt(end - 1))) end -= 1;
  return text.slice(0, end);
}

/** Without any of `characters` at its beginning and at its end. */
export function withoutEnds(text: string, characters: string): string {
  const rest = withoutEnd(text, characters);
  let start = 0;
  while (start < rest.length && characters.includes(rest.charAt(start))) start += 1;
  return rest.slice(start);
}
