/**
 * The pages say what the sources say, and their links lead somewhere; their commands:
 * documents.test.ts.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import t from "tap";
import { z } from "zod";
import { documents } from "../../scripts/documents.js";
import { bulkRequestSchema } from "../../src/jobs/schema.js";
import { singleRequestSchema } from "../../src/inference/request.js";
import { FILE_WARNINGS, MODEL_WARNINGS } from "../../src/base/warnings.js";
import {
  allPages,
  anchorOf,
  anchorsOf,
  blocksOf,
  COMMAND_PAGES,
  commandsOf,
  linksOf,
  namedIn,
  pageText,
  proseOf,
  wordsOf,
} from "../support/pages.js";

const root = fileURLToPath(new URL("../../..", import.meta.url));

const { PROGRAMS } = (await import(
  pathToFileURL(path.join(root, "scripts/programs.mjs")).href
)) as { PROGRAMS: Record<string, Record<string, unknown>> };

t.test("generated tables and openapi.yaml are as their sources say", (t) => {
  for (const [file, text] of documents())
    t.equal(
      readFileSync(file, "utf8"),
      text,
      `${path.basename(file)}: run npm run documents where it is old`,
    );
  t.end();
});

t.test(
  "a version of the changelog has each heading once: merges have doubled sections, of which one grew old",
  (t) => {
    for (const version of pageText("CHANGELOG.md").split("\n## ").slice(1)) {
      const headings = [...version.matchAll(/^### .*/gm)].map(([heading]) => heading);
      t.same(headings, [...new Set(headings)], version.slice(0, 20));
    }
    t.end();
  },
);

t.test("every relative link leads somewhere, and one to a test names a subtest of it", (t) => {
  for (const page of allPages())
    for (const link of linksOf(page).filter((target) => !/^\w+:/.test(target))) {
      const [file = "", anchor] = link.split("#");
      const target = file === "" ? page : path.posix.join(path.posix.dirname(page), file);
      const isThere = existsSync(path.join(root, target));
      t.ok(isThere, `${page}: ${link}`);
      if (isThere && (anchor !== undefined || /\.test\.ts$|_test\.cc$/.test(target)))
        t.ok(anchorsOf(target).has(anchor ?? ""), `${page}: ${link}`);
    }
  t.end();
});

t.test("the public workflow runs the commands with which the README begins", (t) => {
  const commands = commandsOf("README.md").filter(({ text }) => text.startsWith("npm ci"));
  t.equal(commands.length, 2);
  const workflow = pageText(".github/workflows/check.yml");
  for (const { text } of commands) t.ok(workflow.includes(`run: ${text.split(/ +#/)[0]}`), text);
  t.end();
});

t.test("the README is one page, and every page can be reached from it", (t) => {
  const reached = new Set(["README.md"]);
  for (const page of reached)
    for (const link of linksOf(page).filter((target) => !/^\w+:/.test(target))) {
      const file = path.posix.join(path.posix.dirname(page), link.split("#")[0] ?? "");
      if (file.endsWith(".md")) reached.add(file);
    }
  for (const page of allPages().filter((name) => /^(docs\/|[A-Z_]+\.md$)/.test(name)))
    t.ok(reached.has(page), page);
  t.ok(pageText("README.md").split("\n").length <= 131, "the README has at most 130 lines");
  t.end();
});

/** Where promises stand: each point of these sections leads to a test or to measured figures. */
const PROMISES = [
  ["README.md", "What is promised, and what is not"],
  ["SECURITY.md", "What the server promises"],
] as const;

/** A link to a subtest, or to measured figures. */
const EVIDENCE = /\]\((\.\.\/)?((native\/)?test\/|bench\/RESULTS\.md)[^)]*#/;
const partOf = (page: string, heading: string, level: string): string =>
  pageText(page)
    .split(`\n${level} ${heading}\n`)[1]
    ?.split(/\n##+ /)[0] ?? "";

t.test("each promise leads to a test or to figures", (t) => {
  for (const [page, heading] of PROMISES) {
    const points = partOf(page, heading, "##").match(/^- [^]*?(?=\n- |\n\n|$(?![^]))/gm) ?? [];
    t.ok(points.length >= 5, `${page}: ${heading}`);
    for (const point of points) t.match(point, EVIDENCE, page);
  }
  const rows = pageText("README.md").match(/^\| \w.*\|$/gm) ?? [];
  t.ok(rows.length >= 6, "the README compares");
  for (const row of rows.filter((text) => !text.startsWith("| Used by |"))) t.match(row, EVIDENCE);
  t.end();
});

/** A link to figures: to a section of one of the two pages that benches write. */
const FIGURES = /\]\(((?:[\w./]*\/)?(?:RESULTS|benchmarks)\.md)#([\w-]+)\)/;

/** Cells and sentences with such a link; where the head of a table has it, its rows. */
function figuresOf(page: string): { text: string; file: string; anchor: string }[] {
  return proseOf(page)
    .split("\n\n")
    .flatMap((block) => {
      const rows = block.startsWith("|") ? block.split("\n") : [];
      const head = FIGURES.exec(rows[0] ?? "");
      const parts =
        rows.length > 0
          ? rows.flatMap((row) => (FIGURES.test(row) ? row.split(" | ") : row))
          : block.split(/(?<=[.:;])\s/);
      return parts.flatMap((text) => {
        const [, target, anchor] = FIGURES.exec(text) ?? head ?? [];
        if (target === undefined || anchor === undefined) return [];
        return [{ text, file: path.posix.join(path.posix.dirname(page), target), anchor }];
      });
    });
}

/** The numbers of a text as they are written, without those in the targets of its links. */
const numbersOf = (text: string): string[] =>
  text.replaceAll(/\]\([^)]*\)/g, "").match(/\d+(?:[.,]\d+)*/g) ?? [];

t.test("figures stand as they were measured where their links lead", (t) => {
  const pages = allPages().filter((name) => /^(docs\/|README|SECURITY)/.test(name));
  for (const { text, file, anchor } of pages.flatMap(figuresOf)) {
    const section = pageText(file)
      .split("\n## ")
      .find((part) => anchorOf(part.split("\n")[0] ?? "") === anchor);
    const measured = new Set(numbersOf(section ?? ""));
    for (const number of numbersOf(text)) t.ok(measured.has(number), `${number} of ${text}`);
  }
  const page = "docs/benchmarks.md";
  const rows = (pageText(page).split("\n## ")[0] ?? "").match(/^\| .*\d.*\|$/gm) ?? [];
  t.ok(rows.length > 10, page);
  const found = figuresOf(page);
  for (const row of rows)
    t.ok(
      found.some(({ text }) => row.includes(text)),
      row,
    );
  t.end();
});

t.test("each attack that was tried leads to a test, or to a command", (t) => {
  const [, after = ""] = pageText("docs/security.md").split("\n## What was tried\n");
  const [, ...tables] = (after.split("\n## ")[0] ?? "").split("| --- |\n");
  const rows = tables.flatMap((table) => table.split("\n\n")[0]?.match(/^\|.*$/gm) ?? []);
  t.ok(rows.length > 80);
  for (const row of rows)
    t.ok(EVIDENCE.test(row) || /`(npm run (trial|bench) -- .*|\.ci\/run)` \|$/.test(row), row);
  t.end();
});

t.test("each row and section of the statements of conformance does, too", (t) => {
  const page = "docs/standards.md";
  for (const head of ["| Service |", "| Requirement on content |"]) {
    const [, ...rows] = pageText(page).split(`\n${head}`)[1]?.split("\n\n")[0]?.split("\n") ?? [];
    t.ok(rows.length > 8, head);
    for (const row of rows.slice(1)) t.match(row, EVIDENCE, head);
  }
  const sections = [...pageText(page).matchAll(/^### (.*)$/gm)].map(([, heading = ""]) => heading);
  t.ok(sections.length >= 6);
  for (const heading of sections.filter((one) => !["Overview", "Security"].includes(one)))
    t.match(partOf(page, heading, "###"), EVIDENCE, heading);
  t.end();
});

const MOST_WORDS = 40_000;

t.test("the documents are short: sentences and tables of ours, without what is generated", (t) => {
  const words = allPages()
    .filter((page) => page.startsWith("docs/"))
    .map((page): [string, number] => [page, wordsOf(page)]);
  for (const [page, count] of words) t.comment(`${page}: ${count} words`);
  const sum = words.reduce((total, [, count]) => total + count, 0);
  t.ok(sum <= MOST_WORDS, `${sum} words, of at most ${MOST_WORDS}`);
  t.end();
});

const KINDS = ["console", "json", "text", "js", "lua", "nginx", "python"];

t.test("blocks are of known kinds, and commands stand in console blocks alone", (t) => {
  for (const page of COMMAND_PAGES) {
    for (const { at, info, lines } of blocksOf(page)) {
      const [kind = "", ...words] = info.split(" ");
      t.ok(KINDS.includes(kind), `${at}: a block of kind "${info}"`);
      if (kind === "console" && words.length > 0) t.match(info, /^console elsewhere: \S/, at);
      if (kind === "json") t.doesNotThrow(() => JSON.parse(lines.join("\n")) as unknown, at);
      if (info === "text")
        for (const line of lines)
          t.notMatch(line, /^(\$ |npm |npx |node |curl |sudo |(bin\/)?radserve )/, at);
    }
    t.notMatch(proseOf(page), /\n\n {4,}\S/, `${page} has no indented block`);
  }
  t.end();
});

/** `npm run bench -- NAME` and the like. */
const NAMED = /npm run (bench|trial|pack|write) -- ([a-z][\w-]*)/g;

t.test("fields, npm scripts and codes in the pages are those that there are", (t) => {
  const api = pageText("docs/api.md");
  for (const schema of [singleRequestSchema, bulkRequestSchema])
    for (const field of Object.keys(z.toJSONSchema(schema, { io: "input" }).properties ?? {}))
      t.match(api, `\`${field}\``, `docs/api.md tells of ${field}`);
  const { scripts } = JSON.parse(pageText("package.json")) as { scripts: Record<string, string> };
  const sources = readdirSync(path.join(root, "src"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => readFileSync(path.join(root, "src", name), "utf8"))
    .join("\n");
  for (const page of [...COMMAND_PAGES, "CONTRIBUTING.md"])
    for (const text of [...namedIn(page), ...commandsOf(page).map((command) => command.text)]) {
      for (const [, script = ""] of text.matchAll(/npm run ([\w:-]+)/g))
        t.ok(scripts[script], `${page}: ${text}`);
      for (const [, kind = "", name = ""] of text.matchAll(NAMED))
        t.ok(Object.hasOwn(PROGRAMS[kind] ?? {}, name), `${page}: ${text}`);
      if (/^[a-z]+(_[a-z0-9]+)+$/.test(text))
        t.ok(sources.includes(text), `${page}: ${text} is in the sources`);
    }
  t.end();
});

t.test("every warning of the published tables is given somewhere", (t) => {
  const sources = readdirSync(path.join(root, "src"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts") && name !== "base/warnings.ts")
    .map((name) => readFileSync(path.join(root, "src", name), "utf8"))
    .join("\n");
  for (const code of [...Object.keys(FILE_WARNINGS), ...Object.keys(MODEL_WARNINGS)])
    t.ok(sources.includes(`"${code}"`), code);
  t.end();
});

t.test("the page of the architecture has a row for every room", (t) => {
  const rows = pageText("docs/architecture.md")
    .split("\n")
    .map((line) => /^\| (`.*?`) \|/.exec(line)?.[1] ?? "");
  const roomsOf = (folder: string) =>
    readdirSync(path.join(root, folder), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name);
  const rooms = [
    ...roomsOf("src").map((name) => `${name}/`),
    ...roomsOf("src/features").map((name) => `features/${name}/`),
    ...roomsOf("native").map((name) => (name === "test" ? "native/test/" : `${name}/`)),
  ];
  for (const room of rooms)
    t.ok(
      rows.some((row) => row.includes(`\`${room}\``)),
      room,
    );
  t.end();
});

t.test("files and folders that the architecture names are there", (t) => {
  for (const name of namedIn("docs/architecture.md").filter((text) =>
    /^[\w.-]*(\/|\.ts$)[\w./-]*$/.test(text),
  ))
    t.ok(
      ["", "src", "native"].some((folder) => existsSync(path.join(root, folder, name))),
      name,
    );
  t.end();
});
