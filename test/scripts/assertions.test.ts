/** No assertion of the tests is one that cannot fail. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";
import t from "tap";
import { root } from "../support/server.js";

/** Those of tap that take a pattern, of which a value may have more. */
const WITH_PATTERN = new Set(["match", "has"]);

const isEmpty = (node: ts.Node): boolean =>
  (ts.isArrayLiteralExpression(node) && node.elements.length === 0) ||
  (ts.isPropertyAssignment(node) &&
    ts.isObjectLiteralExpression(node.initializer) &&
    node.initializer.properties.length === 0);

/** The empty parts of a pattern; what a function in it makes of them is its own. */
function emptyParts(node: ts.Node): ts.Node[] {
  if (isEmpty(node)) return [node];
  if (ts.isFunctionLike(node) || ts.isCallExpression(node)) return [];
  const found: ts.Node[] = [];
  ts.forEachChild(node, (child) => void found.push(...emptyParts(child)));
  return found;
}

function emptyPatterns(node: ts.Node): ts.Node[] {
  const found: ts.Node[] = [];
  if (
    ts.isCallExpression(node) &&
    ts.isPropertyAccessExpression(node.expression) &&
    WITH_PATTERN.has(node.expression.name.text)
  )
    found.push(...emptyParts(node.arguments[1] ?? node));
  ts.forEachChild(node, (child) => void found.push(...emptyPatterns(child)));
  return found;
}

/** The lines of a source with empty patterns. */
function linesWithEmptyPatterns(source: string): number[] {
  const file = ts.createSourceFile("a.ts", source, ts.ScriptTarget.Latest, true);
  return emptyPatterns(file).map(
    (node) => file.getLineAndCharacterOfPosition(node.getStart()).line + 1,
  );
}

t.test("an empty list or object, as a part of a pattern, matches every other", (t) => {
  const found = readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .flatMap((name) =>
      linesWithEmptyPatterns(readFileSync(join(root, "test", name), "utf8")).map(
        (line) => `test/${name}:${line}`,
      ),
    );
  t.strictSame(
    found,
    [],
    "Expected { length: 0 } for an empty list, Object for any object, strictSame for an empty one.",
  );
  t.end();
});

t.test("they are found", (t) => {
  const source = [
    "t.match(answer, { warnings: [] });",
    "t.match(answer, [[], [1]]);",
    "t.match(answer, { skipped: {} });",
    "t.match(answer, { warnings: { length: 0 }, models: [{}] });",
    "t.match(answer, expected([]));",
    "t.strictSame(answer, []);",
  ];
  t.strictSame(linesWithEmptyPatterns(source.join("\n")), [1, 2, 3]);
  t.end();
});
