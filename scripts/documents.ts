/**
 * `npm run documents`: writes what the pages say of errors, settings and outputs, and openapi.yaml,
 * from their sources. A table stands in its page between a marker, such as `<!-- errors -->`, and
 * the next empty line.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { stringify } from "yaml";
import { z } from "zod";
import { settingsTable, type SettingRow } from "../src/config.js";
import { ERRORS } from "../src/base/errors.js";
import { FILE_WARNINGS, MODEL_WARNINGS } from "../src/base/warnings.js";
import { singleRequestSchema } from "../src/inference/request.js";
import { bulkRequestSchema } from "../src/jobs/schema.js";
import { SERIES_FAULTS } from "../src/images/dicom/series-fault.js";
import { sopClassName } from "../src/images/dicom/dictionary.js";
import {
  decodable,
  EXPLICIT_VR_LITTLE_ENDIAN,
  IMPLICIT_VR_LITTLE_ENDIAN,
  RLE_LOSSLESS,
  transferSyntax,
} from "../src/images/dicom/transfer-syntax.js";
import { RT_STRUCTURE_SET } from "../src/results/dicom/objects/rtstruct.js";
import { SECONDARY_CAPTURE } from "../src/results/dicom/objects/sc.js";
import { SEGMENTATION } from "../src/results/dicom/objects/seg.js";
import { LABEL_MAP_SEGMENTATION } from "../src/results/dicom/segments.js";
import { COMPREHENSIVE_3D_SR } from "../src/results/dicom/objects/sr.js";
import { openApi } from "../src/server/openapi.js";
import { CLAIMS, type Route } from "../src/server/route.js";
import { engineFace } from "./engine-face.js";
import { advisoryRows } from "./sbom/advisories.js";
import { servingFeatures, settingTopics } from "../src/features.js";
import { partsOf, routesOf } from "../src/server/routes.js";

const FEATURES = await servingFeatures();
const ROUTES = routesOf(FEATURES);
const PARTS = partsOf(FEATURES);
const TOPICS = await settingTopics();

const file = (name: string) => fileURLToPath(new URL(`../../${name}`, import.meta.url));

const cell = (text: string) => text.replaceAll("|", "\\|");
const codeCell = (text: string) => (text === "" || text === "[]" ? "" : `\`${cell(text)}\``);

function errorRows(): string {
  const rows = Object.entries(ERRORS).sort(([, a], [, b]) => a.status - b.status);
  const head = "| Status | Code | Meaning |\n| --- | --- | --- |\n";
  return (
    head +
    rows
      .map(([code, { status, description }]) => `| ${status} | \`${code}\` | ${description} |`)
      .join("\n")
  );
}

function settingRows(): string {
  const head = "| Variable | In the file | Default | Meaning |\n| --- | --- | --- | --- |\n";
  const row = (s: SettingRow) =>
    `| \`${s.variable}\` | ${codeCell(s.key ?? "")} | ${codeCell(s.default)} | ${cell(s.meaning)} |`;
  const all = settingsTable(TOPICS);
  return [...new Set(all.map(({ topic }) => topic))]
    .map(
      (topic) =>
        `### ${topic}\n\n${head}${all
          .filter((s) => s.topic === topic)
          .map(row)
          .join("\n")}`,
    )
    .join("\n\n");
}

/** Method and path, as the contract writes it. */
const endpointOf = ({ method, path }: Route): string =>
  `\`${method} ${path.replaceAll(/:(\w+)/g, "{$1}")}\``;

/** What each endpoint asks of a token. */
function claimRows(): string {
  const asked = ({ auth, claims }: Route): string[] =>
    auth === "open"
      ? ["no token", ...CLAIMS.map(() => "")]
      : [
          auth === "local" ? "away from this machine" : "yes",
          ...CLAIMS.map((claim) => (claims.includes(claim) ? "yes" : "")),
        ];
  const row = (route: Route) => `| ${endpointOf(route)} | ${asked(route).join(" | ")} |`;
  const head = ["Endpoint", "Token", ...CLAIMS.map((claim) => `\`${claim}\``)];
  return [
    `| ${head.join(" | ")} |`,
    `| ${head.map(() => "---").join(" | ")} |`,
    ...ROUTES.map(row),
  ].join("\n");
}

/** Every endpoint, with what it does. */
function endpointRows(): string {
  const rows = ROUTES.map((route) => `| ${endpointOf(route)} | ${cell(route.summary)} |`);
  return ["| Endpoint | What it does |", "| --- | --- |", ...rows].join("\n");
}

/** The domain that nobody can have (RFC 2606): the addresses of a repository without a home. */
const NO_HOME = /(^|[.@/])example\.org\b/;

/** Where weaknesses are reported: the addresses in package.json, the one place that has them. */
function contact(): string {
  const { bugs } = JSON.parse(readFileSync(file("package.json"), "utf8")) as {
    bugs: { email: string };
  };
  return NO_HOME.test(bugs.email)
    ? `Write to whoever maintains the repository that you have this from. (Whoever that is: put your addresses into\n\`homepage\`, \`repository\` and \`bugs\` of package.json, and run \`npm run documents\`; they appear here.)`
    : `In confidence: <${bugs.email}>.`;
}

interface PublishedSchema {
  properties: { outputs: { items: { oneOf: OutputSchema[] } } };
}
interface OutputSchema {
  properties: Record<string, { const?: string }>;
  required: string[];
}

/**
 * Each kind of output with the fields that it needs and those that it may have, from the published
 * schema.
 */
function outputRows(): string {
  const schema = JSON.parse(
    readFileSync(file("models/model.schema.json"), "utf8"),
  ) as PublishedSchema;
  const listed = (names: string[]) => names.map((name) => `\`${name}\``).join(", ");
  const rows = schema.properties.outputs.items.oneOf.map(({ properties, required }) => {
    const others = Object.keys(properties).filter((name) => !required.includes(name));
    const needed = required.filter((name) => name !== "kind");
    return `| \`${properties["kind"]?.const ?? ""}\` | ${listed(needed)} | ${listed(others)} |`;
  });
  return `| \`kind\` | It needs | It may have |\n| --- | --- | --- |\n${rows.join("\n")}`;
}

const fieldTable = (rows: [name: string, meaning: string][], head = "Field"): string =>
  `| ${head} | Meaning |\n| --- | --- |\n${rows
    .map(([name, meaning]) => `| \`${name}\` | ${cell(meaning)} |`)
    .join("\n")}`;

/** Codes of one meaning that stand beside each other are one row. */
function codeRows(table: Readonly<Record<string, string>>): string {
  const rows: { codes: string[]; meaning: string }[] = [];
  for (const [code, meaning] of Object.entries(table))
    if (rows.at(-1)?.meaning === meaning) rows.at(-1)?.codes.push(`\`${code}\``);
    else rows.push({ codes: [`\`${code}\``], meaning });
  return `| Code | Meaning |\n| --- | --- |\n${rows
    .map(({ codes, meaning }) => `| ${codes.join(", ")} | ${cell(meaning)} |`)
    .join("\n")}`;
}

/** A schema as published: its fields, the kinds that it may be, or what its list holds. */
interface SchemaNode {
  description?: string;
  const?: string;
  properties?: Record<string, SchemaNode>;
  oneOf?: SchemaNode[];
  anyOf?: SchemaNode[];
  items?: SchemaNode;
}

const kindsOf = ({ oneOf, anyOf }: SchemaNode): SchemaNode[] => oneOf ?? anyOf ?? [];
const constOf = ({ properties = {} }: SchemaNode): string => {
  const named = ["kind", "encoding"].map((field) => properties[field]?.const);
  return named.find((name) => typeof name === "string") ?? "";
};

/** One step of a marker's path: a field's name, or "=KIND" for one of several kinds. */
function below(node: SchemaNode, step: string): SchemaNode {
  const inside = node.items ?? node;
  const next = step.startsWith("=")
    ? kindsOf(inside).find((kind) => constOf(kind) === step.slice(1))
    : inside.properties?.[step];
  if (next === undefined) throw new Error(`The schema has no ${step}`);
  return next;
}

/** Fields that have a meaning, or kinds; deep, with the fields of objects inside. */
function fieldsOf(node: SchemaNode, deep: boolean, before = ""): [string, string][] {
  const inside = node.items ?? node;
  const ofFields = Object.entries(inside.properties ?? {}).flatMap(([name, field]) => [
    ...(field.description === undefined
      ? []
      : [[`${before}${name}`, field.description] as [string, string]]),
    ...(deep && field.properties !== undefined ? fieldsOf(field, false, `${name}.`) : []),
  ]);
  const ofKinds = kindsOf(inside).flatMap((kind): [string, string][] =>
    kind.description === undefined || constOf(kind) === ""
      ? []
      : [[constOf(kind), kind.description]],
  );
  return [...ofFields, ...ofKinds];
}

/** Fields of outputs that several kinds have with one meaning: a table of their own. */
function commonRows(outputs: SchemaNode): [string, string][] {
  const all = kindsOf(outputs.items ?? outputs).flatMap((kind) => fieldsOf(kind, true));
  const texts = all.map((row) => row.join("\n"));
  return all.filter((row, i) => {
    const text = row.join("\n");
    return texts.indexOf(text) === i && texts.lastIndexOf(text) > i;
  });
}

interface GatewaySchema {
  properties: {
    rules: SchemaNode;
    destinations: { additionalProperties: { oneOf: SchemaNode[] } };
    webhooks: { additionalProperties: SchemaNode };
  };
}

/** The page of the gateway: what the published schema says of rules, destinations and webhooks. */
function gateway(): [string, string] {
  const { rules, destinations, webhooks } = (
    JSON.parse(readFileSync(file("schemas/gateway.schema.json"), "utf8")) as GatewaySchema
  ).properties;
  const rows = (node: SchemaNode) => fieldsOf(node, false);
  const meanings = new Map<string, Set<string>>();
  for (const [name, meaning] of destinations.additionalProperties.oneOf.flatMap(rows))
    meanings.set(name, (meanings.get(name) ?? new Set()).add(meaning));
  const ofDestinations = [...meanings].map(([name, all]): [string, string] => [
    name,
    [...all].join(" / "),
  ]);
  return filled("docs/gateway.md", {
    rules: fieldTable(rows(rules)),
    destinations: fieldTable(ofDestinations),
    webhooks: fieldTable(rows(webhooks.additionalProperties)),
  });
}

/** What the published schema says of the file that signs people in. */
const signInRows = () =>
  fieldsOf(
    JSON.parse(readFileSync(file("schemas/sign-in.schema.json"), "utf8")) as SchemaNode,
    false,
  );

/** The tables of the manifest's page that a marker such as `<!-- fields of tiling -->` asks for. */
function manifest(): [string, string] {
  const page = "docs/manifest.md";
  const schema = JSON.parse(readFileSync(file("models/model.schema.json"), "utf8")) as SchemaNode;
  const common = commonRows(below(schema, "outputs"));
  const tables: Record<string, string> = {
    outputs: outputRows(),
    "common fields of outputs": fieldTable(common),
  };
  const markers = readFileSync(file(page), "utf8").matchAll(/^<!-- (fields of (.+)) -->$/gm);
  for (const [, marker = "", where = ""] of markers) {
    const steps = where === "model.json" ? [] : where.split(" ");
    const node = steps.reduce(below, schema);
    const rows = fieldsOf(node, steps[0] === "outputs").filter(
      ([name, meaning]) => !common.some(([field, text]) => field === name && text === meaning),
    );
    const head = kindsOf(node.items ?? node).length > 0 ? "Kind" : "Field";
    tables[marker] = fieldTable(rows, head);
  }
  return filled(page, tables);
}

/** A page with these tables behind their markers. */
function filled(page: string, tables: Readonly<Record<string, string>>): [string, string] {
  const path = file(page);
  const text = Object.entries(tables).reduce(
    (filling, [marker, rows]) => withTable(filling, page, marker, rows),
    readFileSync(path, "utf8"),
  );
  return [path, text];
}

function withTable(text: string, page: string, marker: string, rows: string): string {
  const from = text.indexOf(`<!-- ${marker} -->`);
  if (from === -1) throw new Error(`${page} has no <!-- ${marker} -->`);
  // Several tables have a mark behind them, one ends with its empty line
  const mark = text.indexOf(`\n\n<!-- end of ${marker} -->`, from);
  const end = mark === -1 ? text.indexOf("\n\n", from) : mark;
  return `${text.slice(0, from)}<!-- ${marker} -->\n${rows}${text.slice(end)}`;
}

const TROUBLESHOOTING = `# Why did this fail?

Each answer that is an error has a code, a message and a request id. The message says what was expected, what was found
and what to do; this page says more for each code. It is made from the program's own table of errors.

Where to begin:

1. \`radserve explain REQUEST_ID\` (or a path of an image, a receipt, or a job's id) on the server: who asked, what
   came of it, by which model, and what to do. It reads the audit, the receipt and the job's items.
2. \`radserve status\`: whether the server is ready, and which model is not.
3. \`radserve doctor\`: everything that serving needs, each problem with its fix.
4. The log has a line for each request, with \`request_id\`, \`error\` and the status of each model.

`;

/** One section for each code; its heading is the code, so that a link may lead there. */
function troubleshooting(): string {
  const sections = Object.entries(ERRORS)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([code, { status, description, cause, remedy, ...rest }]) => {
      const wait =
        "retryAfter" in rest
          ? ` Programs may try again by themselves (\`Retry-After: ${rest.retryAfter}\`).`
          : "";
      return `## ${code}\n\n${status}. ${description}${wait}\n\n- **Why:** ${cause}\n- **What to do:** ${remedy}\n`;
    });
  return TROUBLESHOOTING + sections.join("\n");
}

/** What the schema of a request says of its fields. */
const requestRows = (schema: z.ZodType): string =>
  fieldTable(fieldsOf(z.toJSONSchema(schema, { io: "input" }) as SchemaNode, false));

function readSyntaxRows(): string {
  const rows = decodable().map(({ uid, name }) => `| ${name} | ${uid} |`);
  return `| Transfer syntax | UID |\n| --- | --- |\n${rows.join("\n")}`;
}

/** The objects that are written: what of the request asks for each, and how it is encoded. */
export const WRITTEN: readonly [kind: string, sopClassUid: string, transferSyntaxUid: string][] = [
  ["sr", COMPREHENSIVE_3D_SR, EXPLICIT_VR_LITTLE_ENDIAN],
  ["seg", SEGMENTATION, EXPLICIT_VR_LITTLE_ENDIAN],
  ["seg, as label map", LABEL_MAP_SEGMENTATION, EXPLICIT_VR_LITTLE_ENDIAN],
  ["rtstruct", RT_STRUCTURE_SET, IMPLICIT_VR_LITTLE_ENDIAN],
  ["sc", SECONDARY_CAPTURE, RLE_LOSSLESS],
];

function writtenRows(): string {
  const rows = WRITTEN.map(
    ([kind, uid, syntax]) =>
      `| ${kind} | ${sopClassName(uid)} | ${uid} | ${transferSyntax(syntax).name} |`,
  );
  return `| Output | SOP class | UID | Transfer syntax |\n| --- | --- | --- | --- |\n${rows.join("\n")}`;
}

/** What the generated files should hold, by their paths. */
export function documents(): Map<string, string> {
  return new Map([
    filled("docs/api.md", {
      errors: errorRows(),
      "fields of an image": requestRows(singleRequestSchema),
      "fields of a job": requestRows(bulkRequestSchema),
      endpoints: endpointRows(),
    }),
    gateway(),
    filled("docs/page.md", { "fields of sign-in": fieldTable(signInRows()) }),
    manifest(),
    filled("docs/reading.md", {
      warnings: codeRows(FILE_WARNINGS),
      "series faults": codeRows(SERIES_FAULTS),
    }),
    filled("docs/results.md", { warnings: codeRows(MODEL_WARNINGS) }),
    filled("docs/operations.md", { settings: settingRows() }),
    filled("docs/security.md", { claims: claimRows() }),
    filled("SECURITY.md", { advisories: advisoryRows(), contact: contact() }),
    filled("CODE_OF_CONDUCT.md", { contact: contact() }),
    filled("docs/standards.md", {
      "transfer syntaxes": readSyntaxRows(),
      "written objects": writtenRows(),
    }),
    [file("docs/engine.md"), engineFace()],
    [file("docs/troubleshooting.md"), troubleshooting()],
    [file("openapi.yaml"), stringify(openApi(ROUTES, PARTS), { lineWidth: 110 })],
  ]);
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  for (const [path, text] of documents()) writeFileSync(path, text);
