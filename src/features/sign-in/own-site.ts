/**
 * Whether a request comes from the page itself. The proxy takes a cookie for a sign-in, and
 * browsers send that with requests that pages of other sites make, too.
 */
import type { IncomingMessage } from "node:http";

/** Whoever only loads something. */
const LOADS: ReadonlySet<string | undefined> = new Set(["GET", "HEAD"]);

/**
 * Browsers say by Sec-Fetch-Site (Fetch Metadata) whose page asks, where they came by TLS, and by
 * Origin (RFC 6454, 7) of requests that change something. What neither says comes from no browser
 * that could be led; it may load something.
 * @param origin under which browsers open the page
 */
export function isFromOwnSite(
  { method, headersDistinct: headers }: Pick<IncomingMessage, "method" | "headersDistinct">,
  origin: string,
): boolean {
  const loads = LOADS.has(method);
  const { "sec-fetch-site": sites = [], origin: origins = [] } = headers;
  // none: the person typed the address, or opened a bookmark
  const isOwn = (site: string) => site === "same-origin" || (loads && site === "none");
  return (
    sites.every(isOwn) &&
    origins.every((one) => one === origin) &&
    (loads || sites.length + origins.length > 0)
  );
}
