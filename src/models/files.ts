/**
 * A manifest's files, inside the model's folder or inside an installed package: where they lie, and
 * their hashes.
 */
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { realpath, stat } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, resolve, sep } from "node:path";
import { pipeline } from "node:stream/promises";
import { fileURLToPath } from "node:url";
import { canonicalJson } from "../base/canonical-json.js";
import type { Manifest } from "../manifest/manifest.js";
import type { Problem } from "./explain.js";
import { errno } from "../base/errno.js";
import { RadserveError } from "../base/errors.js";
import { openRegular } from "../files/regular-file.js";

type ModelFile = Manifest["files"][number];

const NPM = "npm:";

/** The folder of Radserve's own package.json, in a checkout and when installed. */
export function packageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!isOwnPackage(join(folder, "package.json"))) {
    const parent = dirname(folder);
    if (parent === folder)
      throw new Error("Radserve's package.json is missing above its own files");
    folder = parent;
  }
  return folder;
}

function isOwnPackage(file: string): boolean {
  if (!existsSync(file)) return false;
  const content = JSON.parse(readFileSync(file, "utf8")) as { name?: unknown };
  return content.name === "radserve";
}

/**
 * Absolute path of a manifest's file. `npm:PACKAGE/PATH` is found as Node finds PACKAGE from
 * Radserve's own folder; the package's `exports` do not matter, because the file is data that its
 * hash pins.
 * @throws Error if there is no such package, or if the path leads out of it
 */
export async function resolveModelFile(directory: string, path: string): Promise<string> {
  if (!path.startsWith(NPM)) return resolve(directory, path);
  const parts = path.slice(NPM.length).split("/");
  const depth = path.startsWith(`${NPM}@`) ? 2 : 1;
  const name = parts.slice(0, depth).join("/");
  const require = createRequire(join(packageRoot(), "package.json"));
  const home = (require.resolve.paths(name) ?? [])
    .map((folder) => join(folder, name))
    .find((folder) => existsSync(join(folder, "package.json")));
  if (home === undefined) throw new Error(`the package ${name} is not installed; run npm ci`);
  const [inside, file] = await Promise.all([
    realpath(home),
    realpath(join(home, ...parts.slice(depth))),
  ]);
  if (!file.startsWith(inside + sep)) throw new Error(`the path leads out of the package ${name}`);
  return file;
}

/**
 * Which file lay at a path, and in which state: it differs after any write, and after another file
 * took its place.
 */
export interface FileStamp {
  path: string;
  stamp: string;
  /** 0 for a file that is not there. */
  bytes: number;
}

/** The stamp of each file; a file that is not there has one too. */
export function fileStamps(
  directory: string,
  files: readonly { path: string }[],
): Promise<FileStamp[]> {
  return Promise.all(
    files.map(async ({ path }) => {
      try {
        const { dev, ino, size, mtimeNs, ctimeNs } = await stat(
          await resolveModelFile(directory, path),
          {
            bigint: true,
          },
        );
        return { path, stamp: [dev, ino, size, mtimeNs, ctimeNs].join(" "), bytes: Number(size) };
      } catch (error) {
        return { path, stamp: fault(error), bytes: 0 };
      }
    }),
  );
}

/** Every file that is missing or is not the one that the manifest pins. */
export async function verifyFiles(
  directory: string,
  files: readonly ModelFile[],
): Promise<Problem[]> {
  const checked = await Promise.all(files.map((file) => verifyFile(directory, file)));
  return checked.flat();
}

async function verifyFile(directory: string, file: ModelFile): Promise<Problem[]> {
  let found: string;
  try {
    found = await fileSha256(await resolveModelFile(directory, file.path));
  } catch (error) {
    return [{ path: file.path, message: `The file cannot be read: ${fault(error)}` }];
  }
  if (found === file.sha256) return [];
  const placeholder = /^0+$/.test(file.sha256);
  const message = placeholder
    ? `sha256 is still a placeholder of zeros; the file that lies there has ${found}: check where it comes from, then enter that`
    : `Expected sha256 ${file.sha256}, found ${found}: this is another file than the manifest describes`;
  return [{ path: file.path, message }];
}

/** Why a file cannot be read. */
export function fault(error: unknown): string {
  if (error instanceof RadserveError) return error.message.replace(/\.$/, "");
  const code = errno(error);
  if (code === "ENOENT") return "the file does not exist";
  if (code !== "") return code;
  return error instanceof Error ? error.message : "unknown reason";
}

/**
 * SHA-256 of a file, hex; read in pieces, because weights can be larger than memory allows.
 * @throws as openRegular does
 */
export async function fileSha256(path: string): Promise<string> {
  const hash = createHash("sha256");
  await pipeline((await openRegular(path)).createReadStream(), hash);
  return hash.digest("hex");
}

/** Every file that a manifest names: the graph, its companions, and the canary's tensors. */
export function modelFiles({
  files,
  canary,
  parts = [],
}: Pick<Manifest, "files" | "canary" | "parts">): Manifest["files"] {
  const canaries = [canary, ...parts.map((part) => part.canary)];
  return [
    ...files,
    ...canaries.flatMap((one) =>
      one === undefined
        ? []
        : [
            ...(one.input === undefined ? [] : [one.input]),
            ...(one.inputs ?? []).map((e) => e.file),
            ...one.expected.map((e) => e.file),
          ],
    ),
  ];
}

/**
 * Identity of a model: SHA-256 over its manifest's canonical JSON, then each file's declared hash
 * and path, a line each.
 */
export function modelSha256(manifest: Manifest): string {
  const lines = modelFiles(manifest).map((file) => `${file.sha256}  ${file.path}`);
  return createHash("sha256")
    .update([canonicalJson(manifest), ...lines, ""].join("\n"))
    .digest("hex");
}
