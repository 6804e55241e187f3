/** What a Content-Type says beside the type. */

/** RFC 2046 has 70 characters at most, and Orthanc sends 73. */
const BOUNDARY = /^[\x20-\x7e]{1,200}$/;

/** The parameters of a Content-Type (RFC 2045 section 5.1), by their names in lower case. */
export function parametersOf(type: string): ReadonlyMap<string, string> {
  const all = type.matchAll(/;\s*([^\s=;"]+)=(?:"([^"]*)"|([^\s;"]*))/g);
  return new Map(
    Array.from(all, ([, name = "", quoted, plain = ""]) => [name.toLowerCase(), quoted ?? plain]),
  );
}

/** The boundary that a Content-Type names; undefined where it names none that can be one. */
export function boundaryIn(type: string): string | undefined {
  const boundary = parametersOf(type).get("boundary");
  return boundary !== undefined && BOUNDARY.test(boundary) ? boundary : undefined;
}
