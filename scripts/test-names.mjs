/**
 * `node scripts/test-names.mjs [REVISION]`: the names of the tests in TypeScript and in C++ of a
 * revision (without one: of the working tree), one a line as FILE: NAME, sorted. `diff` of two such
 * lists shows what has moved. A name that is made at run time stands as it is written, with its
 * placeholders.
 */
import { spawnSync } from "node:child_process";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const [revision] = process.argv.slice(2);

function git(...words) {
  const { status, stdout, stderr } = spawnSync("git", words, {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 1 << 28,
  });
  if (status !== 0) throw new Error(stderr);
  return stdout;
}

const files =
  revision === undefined
    ? git("ls-files", "--cached", "--others", "--exclude-standard", "test", "native/test")
    : git("ls-tree", "-r", "--name-only", revision, "test", "native/test");

const textOf = (file) =>
  revision === undefined
    ? ts.sys.readFile(path.join(root, file))
    : git("show", `${revision}:${file}`);

/**
 * The first argument of each call of a method `test`, as it is written; a literal without its
 * quotes.
 */
function namesInTypeScript(text) {
  const names = [];
  const visit = (node) => {
    if (
      ts.isCallExpression(node) &&
      ts.isPropertyAccessExpression(node.expression) &&
      node.expression.name.text === "test" &&
      node.arguments.length > 1
    ) {
      const [name] = node.arguments;
      names.push(ts.isStringLiteralLike(name) ? name.text : name.getText());
    }
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile("test.ts", text, ts.ScriptTarget.Latest, true));
  return names;
}

const namesInCpp = (text) => [...text.matchAll(/^\s*TEST\(\s*"([^"]*)"/gm)].map(([, name]) => name);

const lines = files
  .split("\n")
  .filter((file) => /\.test\.ts$|_test\.cc$/.test(file))
  .flatMap((file) => {
    const text = textOf(file) ?? "";
    const names = file.endsWith(".ts") ? namesInTypeScript(text) : namesInCpp(text);
    return names.map((name) => `${file}: ${name.replace(/\s+/g, " ")}`);
  });
process.stdout.write(`${lines.sort().join("\n")}\n`);
