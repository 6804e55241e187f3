/**
 * docs/engine.md: the face of the engine of graphs, from its types and what is said of each in
 * src/graph/.
 */
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { DATA_TYPES } from "../src/graph/data-types.js";
import { ENGINE_ERRORS } from "../src/graph/errors.js";

const ENTRY = fileURLToPath(new URL("../../src/graph/index.ts", import.meta.url));

const HEAD = [
  "# How do I run my own ONNX models from Node.js?",
  "",
  "`radserve/engine`, which is also [the package radserve-engine](../engine/README.md), loads graphs and runs tensors through them on",
  "threads of its own. It knows nothing of images and manifests; Radserve's own inference stands on it. The package's page has a start,",
  "an example with worker threads, what it does not do, and the names of onnxruntime-node over it. This page lists the face; `npm run documents` writes it",
  "from the types in `src/graph/`.",
  "",
].join("\n");

/** The order of the page; what is not here comes after. */
const FIRST = ["createEngine", "Engine", "Model", "EngineError"];

const cell = (text: string) => text.replaceAll("|", "\\|").replaceAll(/\s+/g, " ").trim();

/** What is said of a symbol, its parameters and its errors. */
function said(symbol: ts.Symbol, checker: ts.TypeChecker): string {
  const parts = [ts.displayPartsToString(symbol.getDocumentationComment(checker))];
  for (const { name, text } of symbol.getJsDocTags(checker)) {
    const words = ts.displayPartsToString(text);
    if (name === "param") parts.push(words.replace(/^(\S+)\s/, "`$1`: "));
    if (name === "returns") parts.push(`Gives ${words}`);
    if (name === "throws") parts.push(`Fails with ${words}`);
  }
  const sentences = parts
    .filter((part) => part !== "")
    .map((part) => (/[.:]$/.test(part) ? part : `${part}.`));
  return cell(sentences.join(" "));
}

const isInternal = (symbol: ts.Symbol): boolean =>
  symbol.getJsDocTags().some(({ name }) => name === "internal");

/** A type as it is written, without its comments. */
const written = (node: ts.Node): string => node.getText().replaceAll(/\/\*\*[\s\S]*?\*\//g, "");

function signature(member: ts.ClassElement | ts.TypeElement): string | undefined {
  const { name } = member;
  if (name === undefined || ts.isPrivateIdentifier(name)) return undefined;
  const own = name.getText();
  if (ts.isMethodDeclaration(member) || ts.isMethodSignature(member)) {
    const parameters = member.parameters.map(written).join(", ");
    return `${own}(${parameters}): ${member.type?.getText() ?? "void"}`;
  }
  if (ts.isGetAccessor(member)) return `${own}: ${member.type?.getText() ?? ""}`;
  if (ts.isPropertyDeclaration(member) || ts.isPropertySignature(member))
    return `${own}${member.questionToken === undefined ? "" : "?"}: ${member.type?.getText() ?? "string"}`;
  return undefined;
}

function members(
  declaration: ts.ClassDeclaration | ts.InterfaceDeclaration,
  checker: ts.TypeChecker,
): string {
  const rows = declaration.members.flatMap((member) => {
    const shown = signature(member);
    const symbol = member.name && checker.getSymbolAtLocation(member.name);
    if (shown === undefined || symbol === undefined || isInternal(symbol)) return [];
    return [`| \`${cell(shown)}\` | ${said(symbol, checker)} |`];
  });
  return rows.length === 0 ? "" : `\n| | |\n| --- | --- |\n${rows.join("\n")}\n`;
}

/** The types of elements, and the arrays that hold them. */
function dataTypes(): string {
  const rows = Object.entries(DATA_TYPES).map(
    ([name, { arrays }]) => `| \`"${name}"\` | ${arrays.map((one) => `\`${one}\``).join(", ")} |`,
  );
  return `\n| Type | Its arrays |\n| --- | --- |\n${rows.join("\n")}\n`;
}

function section(symbol: ts.Symbol, checker: ts.TypeChecker): string {
  const real = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
  const declaration = real.declarations?.[0];
  const words = said(real, checker);
  const head = `## ${symbol.name}\n${words === "" ? "" : `\n${words}\n`}`;
  if (symbol.name === "DataType") return head + dataTypes();
  if (declaration === undefined) return head;
  if (ts.isClassDeclaration(declaration) || ts.isInterfaceDeclaration(declaration))
    return head + members(declaration, checker);
  if (ts.isTypeAliasDeclaration(declaration)) {
    const type = checker.getDeclaredTypeOfSymbol(real);
    const names = type.isUnion() && type.types.every((one) => one.isStringLiteral());
    const text = names
      ? type.types.map((one) => checker.typeToString(one)).join(" | ")
      : written(declaration.type).replace(/^\|\s*/, "");
    return `${head}\n\`${text.replaceAll(/\s+/g, " ")}\`\n`;
  }
  return `${head}\n\`${checker.typeToString(checker.getTypeOfSymbol(real))}\`\n`;
}

/** The text of docs/engine.md. */
export function engineFace(): string {
  const program = ts.createProgram([ENTRY], {
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    strict: true,
    skipLibCheck: true,
    noLib: true,
    types: [],
  });
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(ENTRY);
  const face = source && checker.getSymbolAtLocation(source);
  if (face === undefined) throw new Error(`${ENTRY} has no exports.`);
  const rank = ({ name }: ts.Symbol) =>
    (FIRST.indexOf(name) + FIRST.length + 1) % (FIRST.length + 1);
  const symbols = checker
    .getExportsOfModule(face)
    .filter(({ name }) => name !== "ENGINE_ERRORS" && name !== "EngineErrorCode")
    .sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1));
  const codes = Object.entries(ENGINE_ERRORS).map(([code, text]) => `| \`${code}\` | ${text} |`);
  const errors = `## Codes of errors\n\n| Code | When |\n| --- | --- |\n${codes.join("\n")}\n`;
  return [HEAD, ...symbols.map((symbol) => section(symbol, checker)), errors].join("\n");
}
