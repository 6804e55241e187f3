/**
 * The header `traceparent` of W3C Trace Context: by its trace-id a request is found again in the
 * logs of whoever passed it on. Radserve makes none and begins no spans.
 */

/** `version-traceid-parentid-flags`; zeros throughout are no id, and a later version may go on. */
const FORM = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?=-|$)/;
const LENGTH = 55;

/**
 * What of a header is a traceparent, without what a later version has added; undefined if it is
 * none, as the recommendation says for one that cannot be read.
 */
export function traceparentOf(given: string): string | undefined {
  const [found] = FORM.exec(given) ?? [];
  return found?.startsWith("00") === true && given.length > LENGTH ? undefined : found;
}
