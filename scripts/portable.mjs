/**
 * The addon for packages: built by the machine's own compiler for every Linux with glibc 2.31 or
 * newer, in build/portable. Its headers and C library are those of Debian 11, three packages pinned
 * by SHA-256 and kept in ~/.cache/radserve/sysroot. `node scripts/portable.mjs` prints the folder
 * of the binaries.
 */
import { createHash } from "node:crypto";
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import { Buffer } from "node:buffer";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { BINARIES } from "./prebuilt.mjs";
import { runProgram, tryProgram } from "./run.mjs";
import { highestSymbols, isNewer } from "./symbols.mjs";

/** The oldest glibc that packages are for: that of Debian 11 and Ubuntu 20.04. */
export const OLDEST_GLIBC = "2.31";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const cache = path.join(
  process.env.XDG_CACHE_HOME ?? path.join(os.homedir(), ".cache"),
  "radserve",
);

/** Where this machine gets Debian's packages from: the mirrors of its own apt. */
function pools() {
  const { stdout } = tryProgram("apt-get", ["indextargets", "--format", "$(SITE)"]);
  const sites = new Set(stdout.split("\n").filter((site) => /^https?:/.test(site)));
  return [...sites].map((site) => `${site.replace(/\/$/, "")}/pool/main`);
}

const PACKAGES = [
  [
    "g/glibc/libc6_2.31-13+deb11u11_amd64.deb",
    "05f7264da867b37f4c5ce49266b558ea1e81e05a9464f623152fca70f3550282",
  ],
  [
    "g/glibc/libc6-dev_2.31-13+deb11u11_amd64.deb",
    "e7f7b45d9c5cfcf37609f0b6efd3c645272c812144703af89dfd32218fcb0fd3",
  ],
  [
    "l/linux/linux-libc-dev_5.10.223-1_amd64.deb",
    "e3be603bd12377bb90fcfb0f2048ca3a81c886e49d6f09945b82159d1c54f7b2",
  ],
];

/** A package by its hash, from the first pool that has it. */
async function fetchPackage(name, sha256) {
  const faults = [];
  for (const pool of pools()) {
    const address = `${pool}/${name.replaceAll("+", "%2b")}`;
    try {
      const answer = await fetch(address);
      const bytes = Buffer.from(await answer.arrayBuffer());
      const found = createHash("sha256").update(bytes).digest("hex");
      if (answer.ok && found === sha256) return bytes;
      faults.push(
        `${address}: ${answer.ok ? `has sha256 ${found}, expected ${sha256}` : answer.status}`,
      );
    } catch (error) {
      faults.push(`${address}: ${error.cause?.message ?? error.message}`);
    }
  }
  throw new Error(
    `${path.basename(name)} could not be fetched from apt's mirrors (apt-get indextargets).\n${faults.join("\n")}`,
  );
}

/** Links of Debian's packages name places of a whole system: here they stay inside the folder. */
function keepLinksInside(sysroot) {
  for (const name of readdirSync(sysroot, { recursive: true, encoding: "utf8" })) {
    const link = path.join(sysroot, name);
    if (!lstatSync(link).isSymbolicLink() || !readlinkSync(link).startsWith("/")) continue;
    const target = path.relative(path.dirname(link), path.join(sysroot, readlinkSync(link)));
    rmSync(link);
    symlinkSync(target, link);
  }
}

/** Headers and libraries of glibc 2.31; fetched once. */
async function fetchSysroot() {
  const mark = createHash("sha256").update(JSON.stringify(PACKAGES)).digest("hex").slice(0, 16);
  const sysroot = path.join(cache, "sysroot", mark);
  if (existsSync(sysroot)) return sysroot;
  mkdirSync(path.dirname(sysroot), { recursive: true });
  const work = mkdtempSync(`${sysroot}-`);
  try {
    for (const [name, sha256] of PACKAGES) {
      const file = path.join(work, "package.deb");
      writeFileSync(file, await fetchPackage(name, sha256));
      runProgram("dpkg-deb", ["-x", file, path.join(work, "root")]);
    }
    keepLinksInside(path.join(work, "root"));
    renameSync(path.join(work, "root"), sysroot);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return sysroot;
}

/**
 * Builds what has changed, and gives the folder of the binaries, none of which needs a newer glibc.
 * @param binaries the names of those that are wanted: all of Radserve's, or another alone
 */
export async function buildPortable(binaries = BINARIES) {
  const sysroot = await fetchSysroot();
  const require = createRequire(import.meta.url);
  const cli = path.join(path.dirname(require.resolve("cmake-js/package.json")), "bin", "cmake-js");
  const out = path.join(root, "build/portable");
  // A tree configured for other headers or another runtime would be built as before; configuring is
  // cheap.
  rmSync(path.join(out, "CMakeCache.txt"), { force: true });
  const options = [
    `--CDCMAKE_TOOLCHAIN_FILE=${path.join(root, "cmake/old-glibc.cmake")}`,
    `--CDRADSERVE_SYSROOT=${sysroot}`,
    "--CDRADSERVE_WARNINGS_AS_ERRORS=ON",
  ];
  const jobs = String(process.env.RADSERVE_BUILD_JOBS ?? 2);
  const [own] = binaries === BINARIES ? [] : binaries;
  const target = own === undefined ? [] : ["--target", path.parse(own).name];
  const where = ["--directory", root, "--out", out];
  const words = ["build", ...where, "--parallel", jobs, ...target, ...options];
  const environment = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => name !== "ONNXRUNTIME_ROOT"),
  );
  runProgram(process.execPath, [cli, ...words], { cwd: root, env: environment });
  const release = path.join(out, "Release");
  for (const name of binaries) {
    const { GLIBC, GLIBCXX } = highestSymbols(path.join(release, name));
    if (GLIBC === undefined || isNewer(GLIBC, OLDEST_GLIBC) || GLIBCXX !== undefined)
      throw new Error(
        `${name} needs glibc ${GLIBC} and ${GLIBCXX ?? "no"} GLIBCXX; expected glibc ${OLDEST_GLIBC} at most and none.`,
      );
  }
  return release;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log(await buildPortable());
