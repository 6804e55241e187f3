/**
 * Known vulnerabilities of what Radserve consists of: advisories.json names each library in the
 * version that is installed, the advisories about it, and whether Radserve reaches what they are
 * about. Another version of one fails a test, until somebody has looked again.
 */
import { readFileSync } from "node:fs";
import path from "node:path";
import { z } from "zod";
import { root } from "./installed.js";
import { HOLDERS, VIPS } from "./parts.js";
import { named, type Sbom } from "./sbom.js";

const advisorySchema = z.strictObject({
  /** CVE or GHSA, or several with one reason. */
  id: z.string().min(1),
  /** contained: hostile bytes reach it, and what comes of it ends with their own request. */
  reached: z.enum(["no", "contained", "yes"]),
  why: z.string().min(1),
});
const listSchema = z.strictObject({
  /** When somebody looked last. */
  looked_at: z.iso.date(),
  libraries: z.array(
    z.strictObject({
      /** As the SBOM names it: a package, or "package > part". */
      name: z.string(),
      version: z.string(),
      advisories: z.array(advisorySchema),
    }),
  ),
});

export const advisories = () =>
  listSchema.parse(
    JSON.parse(readFileSync(path.join(root, "scripts/sbom/advisories.json"), "utf8")),
  );

/** Parts that are not programs. */
const NO_CODE = ["machine-learning-model", "data"];

/**
 * The libraries that have to be on the list, with their versions: packages that package.json names,
 * the parts of those that hold others, and the native libraries of sharp.
 */
export function librariesOf(sbom: Sbom): Map<string, string> {
  const { dependencies } = z
    .object({ dependencies: z.record(z.string(), z.string()) })
    .parse(JSON.parse(readFileSync(path.join(root, "package.json"), "utf8")));
  const holders = new Set(Object.keys(HOLDERS));
  const isWanted = (name: string, type: unknown): boolean => {
    const [holder = "", part] = name.split(" > ");
    if (NO_CODE.includes(String(type))) return false;
    if (part !== undefined) return holders.has(holder);
    return name === VIPS || (name in dependencies && !holders.has(name));
  };
  return new Map(
    named(sbom)
      .filter(({ name, component }) => isWanted(name, component.type))
      .map(({ name, component }) => [name, component.version]),
  );
}

/** Differences between the list and what is installed, for people. */
export function advisoryFaults(
  installed: ReadonlyMap<string, string>,
  { libraries }: ReturnType<typeof advisories> = advisories(),
): string[] {
  const listed = new Map(libraries.map(({ name, version }) => [name, version]));
  const faults = [...installed].flatMap(([name, version]) => {
    const known = listed.get(name);
    if (known === version) return [];
    return known === undefined
      ? `${name} ${version} is not on the list`
      : `${name} is ${version}, and the list has looked at ${known}`;
  });
  const gone = [...listed.keys()].filter((name) => !installed.has(name));
  return [...faults, ...gone.map((name) => `${name} is on the list and not installed`)];
}

/** The table of SECURITY.md. */
export function advisoryRows(): string {
  const rows = advisories().libraries.flatMap(({ name, version, advisories: about }) =>
    about.map(
      ({ id, reached, why }) =>
        `| ${name.replace(" > ", ": ")} ${version} | ${id} | ${reached} | ${why} |`,
    ),
  );
  return `| Library | Advisory | Reached | Why |\n| --- | --- | --- | --- |\n${rows.join("\n")}`;
}
