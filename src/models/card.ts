/**
 * `radserve models card`: a model on a page, in Markdown, from its manifest and what the site has
 * set; nothing is loaded.
 */
import { basename } from "node:path";
import { errors } from "../base/errors.js";
import { sopClassName } from "../images/dicom/dictionary.js";
import type { Manifest } from "../manifest/manifest.js";
import { labelsOf, type ModelOutput } from "../manifest/outputs/outputs.js";
import type { Code } from "../manifest/texts.js";
import type { CommandResult } from "./command-result.js";
import { modelFolders } from "./load.js";
import { readModelFolder, type SoundModel } from "./read.js";

/**
 * @param directory of the models; @param name of one of them
 * @throws RadserveError model_not_found, model_unavailable where its manifest cannot be read
 */
export async function modelsCard(directory: string, name: string): Promise<CommandResult> {
  const folders = await modelFolders(directory);
  const folder = folders.find((one) => basename(one) === name);
  if (folder === undefined)
    throw errors.model_not_found(
      `Expected one of ${folders.map((one) => basename(one)).join(", ")}; found ${name}.`,
    );
  const { model, problems } = await readModelFolder(folder);
  if (model === undefined)
    throw errors.model_unavailable(
      `The manifest of ${name} has mistakes. radserve models check ${folder} explains them.`,
    );
  const { manifest, sha256, site } = model;
  const text = cardOf(model);
  const data = { manifest, sha256, site, problems };
  return { text, exitCode: problems.length > 0 ? 1 : 0, data };
}

function cardOf(model: SoundModel): string {
  const { manifest, sha256 } = model;
  return [
    `# ${manifest.name} ${manifest.version}`,
    plain(manifest.description),
    `**${plain(manifest.regulatory)}**`,
    `## What it is for\n\n${plain(manifest.intended_use)}`,
    `## What it is\n\n${list(identity(manifest, sha256))}`,
    `## What it takes\n\n${list(taken(manifest))}`,
    ...caveats(manifest),
    `## What it says\n\n${manifest.outputs.map((output, o) => outputText(output, model.thresholds[o] ?? [])).join("\n\n")}`,
    `## How it is checked\n\n${list(checks(manifest))}`,
    "Written from the manifest. It does not say how well the model performs: its maker publishes that, and each site has to measure it on its own images.",
  ].join("\n\n");
}

/** A cell or sentence that no character of the manifest turns into markup. */
const plain = (text: string): string =>
  text.replaceAll(/\s+/g, " ").replaceAll(/[\\`*_[\]<>|#]/g, (character) => `\\${character}`);

/** What is said, and of what. */
type CardRow = [string, string];

const list = (rows: readonly (CardRow | undefined)[]): string =>
  rows.flatMap((row) => (row === undefined ? [] : [`- **${row[0]}:** ${row[1]}`])).join("\n");

const codeText = ({ value, scheme, meaning }: Code): string =>
  `${plain(meaning)} (${value}, ${scheme})`;

function identity(manifest: Manifest, sha256: string): CardRow[] {
  const { manufacturer, stage, release, required, execution, files } = manifest;
  return [
    ["Made by", plain(manufacturer)],
    ["Stage", `${stage}; release ${release}; ${required ? "required" : "not required"}`],
    ["Runs on", `${execution.providers.join(", ")}, in ${execution.precision}`],
    ["SHA-256 of manifest and files", `\`${sha256}\``],
    ...files.map(({ path, sha256: own }): CardRow => ["File", `\`${path}\`, SHA-256 \`${own}\``]),
  ];
}

/** Every rule of `accepts`, so that none can be left out of the card. */
function taken({ accepts, inputs, tiling, roles = [] }: Manifest): (CardRow | undefined)[] {
  const {
    rules = [],
    any_of = [],
    prefer = [],
    sop_class: classes,
    dimensions,
    ...others
  } = accepts;
  const named = Object.entries(others).map(([key, value]): CardRow => [
    plain(key.replaceAll("_", " ")),
    plain(Array.isArray(value) ? value.map(String).join(", ") : JSON.stringify(value)),
  ]);
  return [
    ["Of each", DIMENSIONS[dimensions] ?? dimensions],
    ...named,
    classes && ["SOP classes", classes.map((uid) => `${sopClassName(uid)} (${uid})`).join(", ")],
    ...rules.map(({ tag, reason, ...rule }): CardRow => [
      plain(tag),
      plain(`${ruleText(rule)}. ${reason}`),
    ]),
    ...any_of.map((list, i): CardRow => [`One of, ${i + 1}`, plain(rulesText(list))]),
    prefer.length === 0
      ? undefined
      : ["Of several series", plain(prefer.map((one) => ruleText({ ...one })).join(", then "))],
    ...roles.map(({ role, rules: own, any_of: lists = [], study }): CardRow => [
      `Role ${plain(role)}`,
      plain(
        [
          rulesText(own),
          ...(lists.length === 0 ? [] : [lists.map(rulesText).join(", or ")]),
          ...(study === undefined ? [] : [`of the ${study} study`]),
        ].join("; "),
      ),
    ]),
    ["Tensors", plain(inputs.map(({ tensor, dtype }) => `${tensor} (${dtype})`).join(", "))],
    tiling && ["Tiling", "window by window"],
  ];
}

const DIMENSIONS: Readonly<Record<string, string>> = {
  "2d_frames": "frame by itself",
  series: "series as one volume",
};

const rulesText = (rules: readonly { tag: string; reason?: string }[]): string =>
  rules.map(({ tag, ...rule }) => `${tag} ${ruleText({ ...rule, reason: undefined })}`).join("; ");

const ruleText = (rule: Record<string, unknown>): string =>
  Object.entries(rule)
    .filter(([, value]) => value !== undefined)
    .map(
      ([key, value]) =>
        `${key.replaceAll("_", " ")} ${Array.isArray(value) ? value.join(", ") : String(value)}`,
    )
    .join("; ");

function caveats({ envelope = [] }: Manifest): string[] {
  if (envelope.length === 0) return [];
  const rows = envelope.map(({ tag, caveat, ...rule }): CardRow => [
    plain(tag),
    plain(`${ruleText(rule)}; outside: ${caveat}`),
  ]);
  return [
    `## Where it was tried\n\nOutside these ranges each result says the caveat.\n\n${list(rows)}`,
  ];
}

function outputText(output: ModelOutput, thresholds: readonly number[]): string {
  const labels = labelsOf(output);
  const kind = output.kind.replaceAll("_", " ");
  if (labels.length === 0) return `A ${kind} (\`${output.kind}\`).`;
  const rows = labels.map(({ label, code, finding_site: place }, i) => {
    const threshold = thresholds[i];
    return [
      plain(label),
      code === undefined ? "" : codeText(code),
      place === undefined ? "" : codeText(place),
      threshold === undefined || Number.isNaN(threshold) ? "" : String(threshold),
    ];
  });
  const table = [
    ["Label", "Code", "Where", "Threshold here"],
    ["---", "---", "---", "---"],
    ...rows,
  ]
    .map((row) => `| ${row.join(" | ")} |`)
    .join("\n");
  return `By ${kind}:\n\n${table}`;
}

function checks({ canary, results }: Manifest): CardRow[] {
  const tolerance = canary?.tolerance.map(
    (one) => `${one.provider} ${one.precision}: ${one.absolute} absolute, ${one.relative} relative`,
  );
  return [
    [
      "Canary",
      tolerance === undefined
        ? "none"
        : `a stored case, run each time the model is loaded; it may differ by ${tolerance.join("; ")}`,
    ],
    ["Files of each result", results.outputs.join(", ")],
  ];
}
