/** The pages for people, as the tests read them: blocks, commands, headings and links. */
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { root } from "./server.js";

/**
 * In the order in which a reader goes through them: the commands of each go on from those before,
 * in one shell.
 */
export const COMMAND_PAGES = [
  "README.md",
  "docs/api.md",
  "docs/results.md",
  "docs/reading.md",
  "docs/models.md",
  "docs/manifest.md",
  "docs/operations.md",
  "docs/page.md",
  "docs/audit.md",
  "docs/gateway.md",
  "docs/gpu.md",
  "docs/benchmarks.md",
  "docs/security.md",
  "docs/standards.md",
  "docs/architecture.md",
  "SECURITY.md",
];

/** Every page whose links have to lead somewhere, by its path from the root. */
export function allPages(): string[] {
  const folders = [
    "",
    "docs",
    "bench",
    "models/burned-in-text",
    "models/ct-tissue",
    "models/examples",
    "test",
  ];
  return folders.flatMap((folder) =>
    readdirSync(path.join(root, folder))
      .filter((name) => name.endsWith(".md"))
      .map((name) => path.posix.join(folder, name)),
  );
}

export const pageText = (page: string): string => readFileSync(path.join(root, page), "utf8");

export interface Block {
  /** The page and the line where it begins, for messages. */
  at: string;
  /** The words behind the fence, for example "json answer". */
  info: string;
  lines: string[];
}

/** The fenced blocks of a page. What is indented with them is taken off. */
export function blocksOf(page: string): Block[] {
  const blocks: Block[] = [];
  let open: (Block & { indent: number }) | undefined;
  for (const [i, line] of pageText(page).split("\n").entries()) {
    const fence = /^(\s*)```(.*)$/.exec(line);
    if (open !== undefined && fence?.[2] === "") {
      blocks.push(open);
      open = undefined;
    } else if (open !== undefined) open.lines.push(line.slice(open.indent));
    else if (fence !== null)
      open = {
        at: `${page}:${i + 1}`,
        info: fence[2] ?? "",
        lines: [],
        indent: fence[1]?.length ?? 0,
      };
  }
  return blocks;
}

/** A page without its fenced blocks. */
export function proseOf(page: string): string {
  return pageText(page).replace(/^\s*```[\s\S]*?^\s*```$/gm, "");
}

/** Made from the program's own tables as a whole (scripts/documents.ts). */
const GENERATED_PAGES: readonly string[] = ["docs/engine.md", "docs/troubleshooting.md"];

/**
 * The words of a page's sentences and tables: not its commands and examples, and not what is
 * generated, which stands between a marker such as `<!-- errors -->` and the next empty line, or
 * the marker of its end.
 */
export function wordsOf(page: string): number {
  if (GENERATED_PAGES.includes(page)) return 0;
  const ends = /^<!-- (?:end of .*|its end) -->$/m;
  const ours = proseOf(page)
    .split(/^(?=<!-- (?!end of |its end))/m)
    .map((part) => {
      if (!part.startsWith("<!--")) return part;
      const end = ends.exec(part);
      return end === null ? part.slice(part.indexOf("\n\n")) : part.slice(end.index);
    });
  const tokens = ours
    .join("\n")
    .replaceAll(/<!--.*?-->/g, "")
    .split(/\s+/);
  return tokens.filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
}

export interface DocumentedCommand {
  at: string;
  text: string;
  /** What the page shows below the command. */
  output: string[];
  /** What the page shows as its answer in a `json answer` block of its own. */
  answer?: unknown;
  /** What it needs that the machine of the tests has not, or which test types it instead. */
  elsewhere?: string;
}

/** A block that a reader writes into a file, known by the words behind its fence. */
export interface DocumentedFile {
  at: string;
  file: string;
  text: string;
}

/** `console elsewhere: systemd`. */
const ELSEWHERE = /^console elsewhere: (.*\S)/;

/** Whether the shell waits for another line: a backslash, a pipe or an open quote. */
const goesOn = (text: string) => /[\\|]$/.test(text) || text.split("'").length % 2 === 0;

/**
 * What a reader of a page types and writes, in its order. Commands are the lines of console blocks
 * that begin with "$ ", and the lines that go on with them. `files` are blocks to be written into
 * files.
 */
export function stepsOf(
  page: string,
  files: readonly string[] = [],
): (DocumentedCommand | DocumentedFile)[] {
  const steps: (DocumentedCommand | DocumentedFile)[] = [];
  for (const { at, info, lines } of blocksOf(page)) {
    if (files.includes(info)) steps.push({ at, file: info, text: lines.join("\n") });
    let last = steps.findLast((step) => "output" in step);
    if (info === "json answer" && last !== undefined)
      last.answer = JSON.parse(lines.join("\n")) as unknown;
    if (info.split(" ")[0] !== "console") continue;
    const [, elsewhere] = ELSEWHERE.exec(info) ?? [];
    for (const line of lines)
      if (line.startsWith("$ ")) {
        last = { at, text: line.slice(2), output: [], ...(elsewhere && { elsewhere }) };
        steps.push(last);
      } else if (last?.output.length === 0 && goesOn(last.text)) last.text += `\n${line}`;
      else last?.output.push(line);
  }
  return steps;
}

/** The commands of a page, without the files between them. */
export const commandsOf = (page: string): DocumentedCommand[] =>
  stepsOf(page).filter((step) => "output" in step);

/** A heading as GitHub writes it behind "#". */
export const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, "")
    .replaceAll(" ", "-");

/** The name of a subtest as it is written, in TypeScript or in C++. */
const SUBTEST = /\btest\(\s*(["'`])((?:\\.|(?!\1).)*)\1/gi;

const anchors = new Map<string, Set<string>>();

/** What a link to a part of a file may end with: the headings of a page, the subtests of a test. */
export function anchorsOf(file: string): Set<string> {
  const known = anchors.get(file);
  if (known !== undefined) return known;
  const names = file.endsWith(".md")
    ? [...proseOf(file).matchAll(/^#+ (.*)$/gm)].map(([, heading = ""]) => heading)
    : [...pageText(file).matchAll(SUBTEST)].map(([, , name = ""]) => name);
  const found = new Set(names.map(anchorOf));
  anchors.set(file, found);
  return found;
}

/** The targets of the links and pictures of a page. */
export function linksOf(page: string): string[] {
  return [...proseOf(page).matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = ""]) => target);
}

/** The commands that a page names within its sentences. */
export function namedIn(page: string): string[] {
  return [...proseOf(page).matchAll(/`([^`\n]+)`/g)].map(([, text = ""]) => text);
}

const SAME = [
  [/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "<uuid>"],
  [/\b[0-9a-f]{64}\b/g, "<sha256>"],
  [/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "<time>"],
  [/\d[\d.,]*/g, "<number>"],
] as const;

/** Text with its numbers, times and ids taken out. */
const shapeOf = (text: string): string =>
  SAME.reduce((t, [what, name]) => t.replace(what, name), text);

/**
 * Where an answer has another shape than the page shows: every key of the page has to be there,
 * every element of a list has to have its like, texts are equal but for numbers, times and ids.
 * Undefined where it has the same.
 */
export function unlike(shown: unknown, found: unknown, at = "answer"): string | undefined {
  if (shown === null || found === null || at.endsWith(".state")) return undefined;
  if (Array.isArray(shown)) {
    if (!Array.isArray(found)) return `${at} is no list`;
    const missing = shown.findIndex((one) =>
      found.every((other) => unlike(one, other, "element") !== undefined),
    );
    return missing === -1 ? undefined : `${at}[${missing}] has no like`;
  }
  if (typeof shown === "object") {
    if (typeof found !== "object") return `${at} is no object`;
    for (const [key, value] of Object.entries(shown)) {
      const other = (found as Record<string, unknown>)[key];
      const why =
        other === undefined ? `${at}.${key} is missing` : unlike(value, other, `${at}.${key}`);
      if (why !== undefined) return why;
    }
    return undefined;
  }
  if (typeof shown === "string" && typeof found === "string")
    return shapeOf(shown) === shapeOf(found) ? undefined : `${at} is ${found}`;
  return typeof shown === typeof found ? undefined : `${at} is a ${typeof found}`;
}

/** A line of a page as a pattern of lines that are found; "..." stands for anything. */
function patternOf(line: string): RegExp {
  const parts = shapeOf(line.trimEnd())
    .split("...")
    .map((part) => part.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&").replace(/ +/g, " +"));
  return new RegExp(`^${parts.join(".*")}$`);
}

/**
 * The first line of a page's output that is not among the lines found, in the page's order. A line
 * follows the one before it, unless the page has "..." or an empty line between them.
 */
export function missingLine(
  shown: readonly string[],
  found: readonly string[],
): string | undefined {
  const shapes = found.map((line) => shapeOf(line.trimEnd()));
  /** Whether the page's lines from `at` on follow in what was found from `from` on. */
  let furthest = 0;
  const follows = (at: number, from: number, adjoins: boolean): boolean => {
    furthest = Math.max(furthest, at);
    const line = shown[at];
    if (line === undefined) return true;
    if (["", "..."].includes(line.trim())) return follows(at + 1, from, false);
    const pattern = patternOf(line);
    return shapes.some(
      (shape, i) =>
        i >= from &&
        (!adjoins || i === from) &&
        pattern.test(shape) &&
        follows(at + 1, i + 1, true),
    );
  };
  return follows(0, 0, false) ? undefined : shown[furthest];
}
