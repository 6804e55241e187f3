/** `npm run readme`: writes the tables of errors and settings into README.md, and openapi.yaml, from their sources. */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { stringify } from "yaml";
import { settingsTable } from "../src/settings.js";
import { ERRORS } from "../src/base/errors.js";
import { openApi } from "../src/server/openapi.js";
import { ROUTES } from "../src/server/routes.js";

const file = (name: string) => fileURLToPath(new URL(`../../${name}`, import.meta.url));

const cell = (text: string) => text.replaceAll("|", "\\|");
const codeCell = (text: string) => (text === "" || text === "[]" ? "" : `\`${cell(text)}\``);

function errorRows(): string {
  const rows = Object.entries(ERRORS).sort(([, a], [, b]) => a.status - b.status);
  const head = "| Status | Code | Meaning |\n| --- | --- | --- |\n";
  return (
    head +
    rows.map(([code, { status, description }]) => `| ${status} | \`${code}\` | ${description} |`).join("\n")
  );
}

function settingRows(): string {
  const head = "| Variable | In the file | Default | Meaning |\n| --- | --- | --- | --- |\n";
  const rows = settingsTable().map(
    (s) => `| \`${s.variable}\` | ${codeCell(s.key ?? "")} | ${codeCell(s.default)} | ${cell(s.meaning)} |`,
  );
  return head + rows.join("\n");
}

/** Puts a table between its marker and the next empty line. */
function filled(text: string, marker: string, rows: string): string {
  const from = text.indexOf(`<!-- ${marker} -->`);
  if (from === -1) throw new Error(`README.md has no <!-- ${marker} -->`);
  const end = text.indexOf("\n\n", from);
  return `${text.slice(0, from)}<!-- ${marker} -->\n${rows}${text.slice(end)}`;
}

/** What both files should hold. */
export function documents(): Map<string, string> {
  let readme = readFileSync(file("README.md"), "utf8");
  readme = filled(readme, "errors", errorRows());
  readme = filled(readme, "settings", settingRows());
  return new Map([
    [file("README.md"), readme],
    [file("openapi.yaml"), stringify(openApi(ROUTES), { lineWidth: 110 })],
  ]);
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  for (const [path, text] of documents()) writeFileSync(path, text);
