/**
 * `npm run documents`: writes what the pages say of errors and settings, and openapi.yaml, from their sources. A table
 * stands in its page between a marker, such as `<!-- errors -->`, and the next empty line.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { stringify } from "yaml";
import { settingsTable } from "../src/config.js";
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

function filled(page: string, marker: string, rows: string): [string, string] {
  const path = file(page);
  const text = readFileSync(path, "utf8");
  const from = text.indexOf(`<!-- ${marker} -->`);
  if (from === -1) throw new Error(`${page} has no <!-- ${marker} -->`);
  const end = text.indexOf("\n\n", from);
  return [path, `${text.slice(0, from)}<!-- ${marker} -->\n${rows}${text.slice(end)}`];
}

/** What the generated files should hold, by their paths. */
export function documents(): Map<string, string> {
  return new Map([
    filled("docs/api.md", "errors", errorRows()),
    filled("docs/operations.md", "settings", settingRows()),
    [file("openapi.yaml"), stringify(openApi(ROUTES), { lineWidth: 110 })],
  ]);
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  for (const [path, text] of documents()) writeFileSync(path, text);
