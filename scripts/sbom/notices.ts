/**
 * The third-party notices: the licence files of the installed production packages, word for word.
 */
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { installedPackages } from "./installed.js";
import { licenceOf, packagesOf, type Component, type Sbom } from "./sbom.js";

const LICENCE_FILE = /^(licen[cs]e|copying|notice|third.?party.?notices)([.-].*)?$/i;
const RULE = "=".repeat(80);

/** Texts of the licence files in a folder; ends of lines are those of Unix. */
function licenceTexts(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true })
    .filter(
      (entry) => entry.isFile() && LICENCE_FILE.test(entry.name) && !entry.name.endsWith(".meta"),
    )
    .map(({ name }) => name)
    .sort()
    .map((name) => readFileSync(path.join(folder, name), "utf8").replaceAll("\r\n", "\n").trim());
}

function body(texts: string[] | undefined): string {
  if (texts === undefined) return "It is part of the package above.";
  return texts.length > 0 ? texts.join("\n\n") : "The package has no licence file.";
}

/** One text: each component with its version and licence, and the licence files of its package. */
export function makeNotices(sbom: Sbom): string {
  const places = installedPackages();
  const section = (name: string, component: Component, texts: string[] | undefined) =>
    `${RULE}\n${name} ${component.version}\nLicence: ${licenceOf(component) ?? "not named"}\n\n${body(texts)}\n`;
  const sections = packagesOf(sbom).flatMap((component) => {
    const place = places.get(`${component.name}@${component.version}`);
    const texts = place === undefined ? [] : licenceTexts(place);
    const parts = component.components ?? [];
    return [
      section(component.name, component, texts),
      ...parts.map((part) => section(`${component.name} > ${part.name}`, part, undefined)),
    ];
  });
  const head =
    "Radserve is under Apache-2.0 (see LICENSE). An installed Radserve holds these packages and parts.\n";
  return [head, ...sections].join("\n");
}
