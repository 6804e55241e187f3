/**
 * No regular expression of the product takes time that grows with the square of a text, or faster:
 * / +$/ tries each blank as the first one, and looks on from it to the end. One attribute of some
 * megabytes holds up a thread for hours so.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { analyse } from "scslre";
import ts from "typescript";
import t from "tap";
import { root } from "../support/server.js";

const REPORTED = { Move: true, Self: true, Trade: true };

/** What is wrong with the regular expressions of a source, with the lines that they are in. */
function slowPatterns(source: string): string[] {
  const file = ts.createSourceFile("a.tsx", source, ts.ScriptTarget.Latest, true);
  const found: string[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isRegularExpressionLiteral(node)) {
      const end = node.text.lastIndexOf("/");
      const pattern = { source: node.text.slice(1, end), flags: node.text.slice(end + 1) };
      const { line } = file.getLineAndCharacterOfPosition(node.getStart());
      if (analyse(pattern, { reportTypes: REPORTED }).reports.length > 0)
        found.push(`${line + 1} ${node.text}`);
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

t.test("each pattern of the product is one that a long text does not slow down", (t) => {
  const found = ["src", "web"].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
      .filter((name) => /\.tsx?$/.test(name))
      .flatMap((name) =>
        slowPatterns(readFileSync(join(root, folder, name), "utf8")).map(
          (slow) => `${folder}/${name}:${slow}`,
        ),
      ),
  );
  t.strictSame(found, [], "Expected withoutEnd of base/ends.ts, or another way to say it.");
  t.end();
});

t.test("those that are slow are found", (t) => {
  t.strictSame(
    slowPatterns('text.replace(/ +$/, "");\n/^a+b*a+$/s.test(text);\n/^ +[a-z]*$/.test(text);'),
    ["1 / +$/", "2 /^a+b*a+$/s"],
  );
  t.end();
});
