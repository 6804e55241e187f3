/** Clients' names of folders: what they call a share, and what it is called here. */
import { withoutEnd } from "../base/ends.js";

/** One line of `path_map`: what clients call a folder, and what it is called here. */
export interface PathMapping {
  from: string;
  to: string;
}

/**
 * A folder as a client may name it: an absolute path of this machine, or a name that `path_map` may
 * translate, of Windows (`\\server\share`, `D:`) or with a scheme (`smb://server/share`). It is
 * published; programs whose regular expressions are not those of JavaScript do not all know `\0`.
 */
// oxlint-disable-next-line no-control-regex -- no path has this character
export const ABSOLUTE_NAME = /^(?:\/|\\\\|[A-Za-z][A-Za-z0-9+.-]*:)[^\u0000]*$/;
export const EXPECTED_NAME =
  "Expected an absolute path, beginning with /, or a name that RADSERVE_PATH_MAP translates";

const isWindowsStyle = (name: string) => name.includes("\\") || /^[A-Za-z]:/.test(name);

/**
 * The rest of a path after a mapping's client-side prefix, or undefined where the path is not under
 * it.
 */
function under(given: string, prefix: string): string | undefined {
  const bare = withoutEnd(prefix, "\\/");
  const windows = isWindowsStyle(bare);
  const fold = (text: string) => (windows ? text.replaceAll("\\", "/").toLowerCase() : text);
  if (fold(given) === fold(bare)) return "";
  if (!fold(given).startsWith(`${fold(bare)}/`)) return undefined;
  const rest = given.slice(bare.length);
  return windows ? rest.replaceAll("\\", "/") : rest;
}

/**
 * A client's path as this machine names it, and the way back for answers. The longest mapping that
 * fits is used; Windows names (`\\server\share\x`, `D:\x`) match whatever their case and slashes.
 */
export function translateIn(
  given: string,
  pathMap: readonly PathMapping[],
): { path: string; back: (local: string) => string } {
  const byLength = [...pathMap].sort((a, b) => b.from.length - a.from.length);
  for (const { from, to } of byLength) {
    const rest = under(given, from);
    if (rest === undefined) continue;
    const here = withoutEnd(to, "/");
    const there = withoutEnd(from, "\\/");
    const back = (local: string) => {
      if (local !== here && !local.startsWith(`${here}/`)) return local;
      const tail = local.slice(here.length);
      return there + (isWindowsStyle(from) ? tail.replaceAll("/", "\\") : tail);
    };
    return { path: here + rest || "/", back };
  }
  return { path: given, back: (local) => local };
}
