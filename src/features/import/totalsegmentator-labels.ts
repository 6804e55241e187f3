/**
 * Codes and colours of labels, from the table in an installed totalsegmentator package. They are
 * facts of that package, read when a task is imported and named with their source.
 */
import { readdir } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { errors } from "../../base/errors.js";
import type { Label } from "../../manifest/outputs/fields.js";
import type { Code } from "../../manifest/texts.js";
import { sideOfCode } from "../../results/findings/sides.js";
import { readText } from "./json.js";

const TABLE = join("resources", "totalsegmentator_snomed_mapping.csv");

/** Prefixes of the table's columns, each of which has a scheme, a value and a meaning. */
const COLUMNS = {
  category: "SegmentedPropertyCategoryCodeSequence",
  code: "SegmentedPropertyTypeCodeSequence",
  laterality: "SegmentedPropertyTypeModifierCodeSequence",
  finding_site: "AnatomicRegionSequence",
  region_laterality: "AnatomicRegionModifierSequence",
} as const;

export interface LabelTable {
  /** The package with its version and licence, in words. */
  source: string;
  /** By the names of labels, without those. */
  labels: ReadonlyMap<string, Omit<Label, "label">>;
}

/**
 * @param folder of the package, where its __init__.py lies
 * @throws RadserveError bad_request for a folder that has no such table
 */
export async function readLabelTable(folder: string): Promise<LabelTable> {
  const at = resolve(folder);
  const [header = [], ...rows] = parsedCsv(await readText(join(at, TABLE)));
  const column = (name: string) => header.indexOf(name);
  const missing = ["Structure", "DicomRGBColor", ...Object.values(COLUMNS).map(valueOf)].filter(
    (name) => column(name) < 0,
  );
  if (missing.length > 0)
    throw errors.bad_request(
      `Expected the columns ${missing.join(", ")} in ${join(at, TABLE)}; it is a table of another version.`,
    );
  const codeIn = (row: readonly string[], prefix: string): Code | undefined => {
    const [scheme = "", value = "", meaning = ""] = [
      "CodingSchemeDesignator",
      "CodeValue",
      "CodeMeaning",
    ].map((part) => row[column(`${prefix}.${part}`)]);
    return value === "" ? undefined : { value, scheme, meaning };
  };
  const labels = rows.map((row): [string, Omit<Label, "label">] => {
    const { category, code, laterality, finding_site, region_laterality } = Object.fromEntries(
      Object.entries(COLUMNS).map(([field, prefix]) => [field, codeIn(row, prefix)]),
    );
    // Modifiers can be of other kinds than sides (an infiltrate's cause)
    const side = [laterality, region_laterality].find(
      (one) => one !== undefined && sideOfCode(one.value, one.scheme) !== undefined,
    );
    const colour = (row[column("DicomRGBColor")] ?? "").split(",").map(Number);
    const [red = NaN, green = NaN, blue = NaN] = colour;
    return [
      row[column("Structure")] ?? "",
      {
        ...(code && { code }),
        ...(category && { category }),
        ...(finding_site && { finding_site }),
        ...(side && { laterality: side }),
        ...(colour.length === 3 && !colour.some(Number.isNaN)
          ? { colour: [red, green, blue] as [number, number, number] }
          : {}),
      },
    ];
  });
  return { source: await sourceOf(at), labels: new Map(labels) };
}

const valueOf = (prefix: string): string => `${prefix}.CodeValue`;

/** Name, version and licence from the metadata that pip keeps beside a package. */
async function sourceOf(folder: string): Promise<string> {
  const beside = dirname(folder);
  const name = basename(folder).toLowerCase();
  const found = (await readdir(beside)).find(
    (one) => one.toLowerCase().startsWith(`${name}-`) && one.endsWith(".dist-info"),
  );
  if (found === undefined) return `${name}, version and licence not stated`;
  const metadata = await readText(join(beside, found, "METADATA"));
  const field = (key: string) => new RegExp(`^${key}: (.+)$`, "m").exec(metadata)?.[1];
  const licence = field("License-Expression") ?? field("License") ?? "not stated";
  return `${field("Name") ?? name} ${field("Version") ?? ""}, licence ${licence}`;
}

/** RFC 4180, for a table without line breaks in its fields. */
function parsedCsv(text: string): string[][] {
  return text
    .replace(/^\uFEFF/, "")
    .split(/\r?\n/)
    .filter((line) => line !== "")
    .map((line) =>
      Array.from(line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g), ([, quoted, plain = ""]) =>
        quoted === undefined ? plain.trim() : quoted.replaceAll('""', '"'),
      ),
    );
}
