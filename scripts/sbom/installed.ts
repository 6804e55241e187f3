/**
 * Which npm packages an installed Radserve has: those of the lock file that are not for development
 * alone, and are there.
 */
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";

export const root = fileURLToPath(new URL("../../..", import.meta.url));

const FOLDER = "node_modules/";

const lockSchema = z.object({
  packages: z.record(
    z.string(),
    z.object({
      version: z.string(),
      dev: z.boolean().optional(),
      hasInstallScript: z.boolean().optional(),
      engines: z.union([z.object({ node: z.string().optional() }), z.array(z.string())]).optional(),
    }),
  ),
});

export interface Locked {
  /** The package's folder from the clone, for example `node_modules/pg`. */
  place: string;
  name: string;
  version: string;
  hasInstallScript: boolean;
  /** The versions of Node that it says it runs on; undefined where it says nothing. */
  node: string | undefined;
}

/**
 * The packages of the lock file that are not for development alone, also those for other machines.
 */
export function productionPackages(): Locked[] {
  const text = readFileSync(path.join(root, "package-lock.json"), "utf8");
  return Object.entries(lockSchema.parse(JSON.parse(text)).packages)
    .filter(([place, { dev }]) => place !== "" && dev !== true)
    .map(([place, { version, hasInstallScript = false, engines }]) => ({
      place,
      name: place.slice(place.lastIndexOf(FOLDER) + FOLDER.length),
      version,
      hasInstallScript,
      node: engines === undefined || Array.isArray(engines) ? undefined : engines.node,
    }));
}

/** NAME@VERSION to the absolute folder of each that is installed. */
export function installedPackages(): Map<string, string> {
  return new Map(
    productionPackages()
      .map(({ name, version, place }): [string, string] => [
        `${name}@${version}`,
        path.join(root, place),
      ])
      .filter(([, folder]) => existsSync(folder)),
  );
}
