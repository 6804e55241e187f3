/** A release before this one, for tests of upgrades. */
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { root, type Place } from "./server.js";

/** This program under a lower version's number; the packages are those of the clone. */
export function olderProgram({ directory }: Pick<Place, "directory">): string {
  const copy = path.join(directory, "older");
  mkdirSync(copy);
  for (const name of ["dist/src", "build/Release", "package.json"])
    cpSync(path.join(root, name), path.join(copy, name), { recursive: true });
  symlinkSync(path.join(root, "node_modules"), path.join(copy, "node_modules"));
  const file = path.join(copy, "package.json");
  writeFileSync(
    file,
    readFileSync(file, "utf8").replace(/"version": "[^"]+"/, '"version": "0.0.1"'),
  );
  return path.join(copy, "dist/src/main.js");
}
