/** Every code of a warning, and every reason of a refused series, stands in the documents. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { root } from "../support/server.js";

const sources = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".ts"))
  .map((file) => readFileSync(join(root, "src", file), "utf8"));
const pages = readdirSync(join(root, "docs"))
  .filter((file) => file.endsWith(".md"))
  .map((file) => readFileSync(join(root, "docs", file), "utf8"))
  .join("\n");

/** What the first group of a pattern finds in all sources. */
const found = (pattern: RegExp): string[] => [
  ...new Set(
    sources.flatMap((source) => [...source.matchAll(pattern)].map(([, code = ""]) => code)),
  ),
];

const isTold = (code: string) => pages.includes(`\`${code}\``);

/** The code of an issue of zod, which is no code of ours. */
const NO_WARNINGS = new Set(["custom"]);

t.test("warnings", (t) => {
  const codes = [
    ...found(/\bwarn\(\s*[\w.#()]+,\s*"([a-z0-9_]+)"/g),
    ...found(/\{\s*code: "([a-z0-9_]+)",\s*message\b/g),
    ...found(/\bcode: "([a-z0-9_]+)",\s*message:/g),
    ...found(/\bcode: "([a-z0-9_]+)",\s*what:/g),
    ...found(/\breason: "([a-z0-9_]+)",\s*message:/g),
  ].filter((code) => !NO_WARNINGS.has(code));
  t.ok(codes.length > 60, `${codes.length} codes`);
  t.strictSame(codes.filter((code) => !isTold(code)).sort(), []);
  t.end();
});

t.test("reasons of refused series", (t) => {
  const reasons = found(/\bseriesInvalid\(\s*"([a-z0-9_]+)"/g);
  t.ok(reasons.length > 15, `${reasons.length} reasons`);
  t.strictSame(reasons.filter((reason) => !isTold(reason)).sort(), []);
  t.end();
});
