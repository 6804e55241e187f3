/**
 * The highest versions of glibc's and libstdc++'s symbols that binaries need, by their dynamic symbol tables:
 * `node scripts/symbols.mjs [FILE...]` (default: what is built). With --most 2.31 it ends with 1 where one needs a newer
 * glibc.
 */
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const KINDS = ["GLIBC", "GLIBCXX", "CXXABI"];

const newer = (a, b) => {
  const [left, right] = [a, b].map((version) => version.split(".").map(Number));
  const at = left.findIndex((part, i) => part !== (right[i] ?? 0));
  return at !== -1 && left[at] > (right[at] ?? 0);
};

/** By kind, for example { GLIBC: "2.28", GLIBCXX: "3.4.22" }; a kind that the file does not need is absent. */
export function highestSymbols(file) {
  const table = execFileSync("objdump", ["-T", file], { encoding: "utf8", maxBuffer: 1 << 28 });
  const highest = {};
  for (const [, kind, version] of table.matchAll(/\b(GLIBC|GLIBCXX|CXXABI)_([\d.]+)/g))
    if (highest[kind] === undefined || newer(version, highest[kind])) highest[kind] = version;
  return highest;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { most: { type: "string" } },
  });
  const release = fileURLToPath(new URL("../build/Release", import.meta.url));
  const built = () =>
    readdirSync(release)
      .filter((name) => /\.node$|\.so/.test(name))
      .map((name) => path.join(release, name));
  for (const file of positionals.length > 0 ? positionals : built()) {
    const highest = highestSymbols(file);
    const said = KINDS.filter((kind) => highest[kind] !== undefined).map(
      (kind) => `${kind}_${highest[kind]}`,
    );
    console.log(`${path.basename(file)}\t${said.join("  ") || "none"}`);
    if (values.most !== undefined && highest.GLIBC !== undefined && newer(highest.GLIBC, values.most)) {
      console.error(`radserve: ${file} needs glibc ${highest.GLIBC}; at most ${values.most} is allowed.`);
      process.exitCode = 1;
    }
  }
}
