/** The pages say what the sources say, their links lead somewhere, and their commands do what they show. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { z } from "zod";
import { ctSeries, samples } from "../../scripts/demo/samples.js";
import { documents } from "../../scripts/documents.js";
import { bulkRequestSchema } from "../../src/bulk/schema.js";
import { singleRequestSchema } from "../../src/inference/request.js";
import { ROUTES } from "../../src/server/routes.js";
import {
  allPages,
  anchorsOf,
  blocksOf,
  COMMAND_PAGES,
  commandsOf,
  linksOf,
  missingLine,
  namedIn,
  pageText,
  proseOf,
  unlike,
  type DocumentedCommand,
} from "../support/pages.js";
import { Reader } from "../support/reader.js";
import { ADDON, commandsAre, needs } from "../support/needs.js";
import { root } from "../support/server.js";

const withoutAddon = needs(ADDON);

/** Commands that the test does not run, each with its reason. One that no page has any more is a failure. */
const NOT_RUN: readonly [RegExp, string][] = [
  [/^npm ci\b/, "builds the clone that this test runs in; .ci/run begins with it"],
  [/^sudo /, "needs root and systemd"],
  [
    /localhost:8500\/files|"\/srv\/images\/in\/sent|docs\/examples\/remote/,
    "needs RADSERVE_FILES_BY_HTTP; test/http/files.test.ts runs them",
  ],
  [
    /models import (nnUNet|exports)|^python export_nnunet/,
    "needs a trained network; test/models/import.test.ts imports small ones",
  ],
  [/^psql /, "needs the right to change a PostgreSQL server"],
  [/^npm run pack:deb/, "takes minutes; npm run test:deb and npm run test:container make it"],
  [/^docker /, "needs an engine of containers; npm run test:container builds and starts the same"],
  [/^npm run setup:gpu/, "downloads the CUDA libraries; npm run test:gpu-setup runs it"],
  [/^export RADSERVE_PROVIDERS=cuda/, "needs a GPU"],
  [/^bench\/gpu\.sh/, "needs a GPU"],
  [/^bench\/gpu-pack\.sh/, "downloads the CUDA libraries and packs for minutes"],
  [/^npm run bench:/, "takes minutes on a quiet machine"],
  [/^npm run setup(?!:)/, "builds the clone that this test runs in; .ci/run tries it in another"],
  [/^npm run test:crash/, "takes minutes; .ci/run runs the short form"],
];

t.setTimeout(900_000);

t.test("generated tables and openapi.yaml are as their sources say", (t) => {
  for (const [file, text] of documents())
    t.equal(
      readFileSync(file, "utf8"),
      text,
      `${path.basename(file)}: run npm run documents where it is old`,
    );
  t.end();
});

t.test("every relative link and anchor leads somewhere", (t) => {
  for (const page of allPages())
    for (const link of linksOf(page).filter((target) => !/^\w+:/.test(target))) {
      const [file = "", anchor] = link.split("#");
      const target = file === "" ? page : path.posix.join(path.posix.dirname(page), file);
      t.ok(existsSync(path.join(root, target)), `${page}: ${link}`);
      if (anchor !== undefined) t.ok(anchorsOf(target).has(anchor), `${page}: ${link}`);
    }
  t.end();
});

t.test(
  "each page that the README should lead to is linked there, and no page is too long to begin with",
  (t) => {
    const links = linksOf("README.md");
    for (const page of allPages().filter(
      (name) => /^(docs\/|[A-Z]+\.md$)/.test(name) && name !== "README.md",
    ))
      t.ok(links.includes(page), page);
    t.ok(pageText("README.md").split("\n").length <= 151, "the README has at most 150 lines");
    t.end();
  },
);

t.test("blocks are of known kinds, and commands stand in console blocks alone", (t) => {
  for (const page of COMMAND_PAGES) {
    for (const { at, info, lines } of blocksOf(page)) {
      t.ok(["console", "json", "json answer", "text"].includes(info), `${at}: a block of kind "${info}"`);
      if (info === "json") t.doesNotThrow(() => JSON.parse(lines.join("\n")) as unknown, at);
      if (info === "text")
        for (const line of lines)
          t.notMatch(line, /^(\$ |npm |npx |node |curl |sudo |(bin\/)?radserve )/, at);
    }
    t.notMatch(proseOf(page), /\n\n {4,}\S/, `${page} has no indented block`);
  }
  t.end();
});

t.test("routes, fields, npm scripts and codes in the pages are those that there are", (t) => {
  for (const { method, path: pattern } of ROUTES)
    t.match(pageText("README.md"), `\`${method} ${pattern.replaceAll(/:(\w+)/g, "{$1}")}\``);
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
      if (/^[a-z]+(_[a-z0-9]+)+$/.test(text))
        t.ok(sources.includes(text), `${page}: ${text} is in the sources`);
    }
  t.end();
});

t.test("tests that the page of security names are there", (t) => {
  const folders = readdirSync(path.join(root, "test"), { withFileTypes: true }).map(({ name }) => name);
  const tests = namedIn("docs/security.md").filter((text) => folders.includes(text.split("/")[0] ?? ""));
  t.ok(tests.length > 0);
  for (const name of tests)
    t.ok(
      [name, `${name}.test.ts`].some((file) => existsSync(path.join(root, "test", file))),
      name,
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

t.test(
  "commands and options that the pages name are those of the command line",
  { skip: withoutAddon },
  (t) => {
    const help = (...words: string[]) =>
      execFileSync(process.execPath, [path.join(root, "dist/src/main.js"), ...words, "--help"], {
        encoding: "utf8",
      });
    const known = new Map<string, string>();
    const helpOf = (words: string[]) => {
      const key = words.join(" ");
      known.set(key, known.get(key) ?? help(...words));
      return known.get(key) ?? "";
    };
    for (const page of [...COMMAND_PAGES, "CONTRIBUTING.md", "SECURITY.md"])
      for (const text of [...namedIn(page), ...commandsOf(page).map((command) => command.text)])
        for (const [, rest = ""] of text.matchAll(/(?:^|bin\/)radserve ([a-z][^|)#\n]*)/g)) {
          const [first = "", second = ""] = rest.split(" ");
          if (!new RegExp(`^  ${first}\\b`, "m").test(helpOf([]))) {
            t.fail(`${page}: there is no command "${first}" in ${text}`);
            continue;
          }
          const group = helpOf([first]).includes("Commands:");
          if (group) t.match(helpOf([first]), new RegExp(`^  ${second}\\b`, "m"), `${page}: ${text}`);
          for (const [option] of rest.matchAll(/--[a-z][a-z-]*/g))
            t.match(helpOf(group ? [first, second] : [first]), option, `${page}: ${text}`);
        }
    t.end();
  },
);

/** What a reader has at hand: the images of the demo, and a series. */
async function handOver({ clone, srv }: Reader): Promise<void> {
  const drawn = await samples();
  const demo = path.join(clone, "demo-output/input");
  const series = path.join(srv, "images/in/ct-series");
  for (const folder of [demo, series]) mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(demo, "ct-phantom.dcm"), drawn.ct);
  writeFileSync(path.join(demo, "ultrasound-burned-in.dcm"), drawn.ultrasound);
  for (const [i, slice] of ctSeries(4, 12).entries()) writeFileSync(path.join(series, `${i}.dcm`), slice);
}

const LONGEST_WAIT_MS = 120_000;
const LOOK_AGAIN_MS = 500;

/** What is wrong with what a command gave; undefined where it is as the page shows. */
function faultOf({ text, output, answer }: DocumentedCommand, found: { status: number; text: string }) {
  const expected = Number(/# ends with (\d+)/.exec(text)?.[1] ?? 0);
  if (found.status !== expected) return `status ${found.status}`;
  if (answer !== undefined) return unlike(answer, JSON.parse(found.text) as unknown);
  if (/\bcurl\b/.test(text) && /"error":"(?!job_state)/.test(found.text))
    return "an error that the page does not show";
  const missing = missingLine(output, found.text.split("\n"));
  return missing === undefined ? undefined : `no line like: ${missing}`;
}

/** A command that only looks is typed again until it shows what the page shows: a job takes its time. */
async function typeOut(reader: Reader, command: DocumentedCommand): Promise<string | undefined> {
  const looks = /^curl -s "?http/.test(command.text) && !/ -[Xd] /.test(command.text);
  const end = Date.now() + LONGEST_WAIT_MS;
  for (;;) {
    const found = await reader.type(command.text);
    const fault = faultOf(command, found);
    if (fault !== undefined && looks && Date.now() < end) {
      await delay(LOOK_AGAIN_MS);
      continue;
    }
    const ids = (value: unknown) => JSON.stringify(value).match(/"job_id":"([^"]+)"/)?.[1];
    const [shownId, foundId] = [ids(command.answer ?? {}), /"job_id":"([^"]+)"/.exec(found.text)?.[1]];
    if (shownId !== undefined && foundId !== undefined) reader.learn(shownId, foundId);
    return fault === undefined ? undefined : `${fault}\n${found.text.slice(0, 2_000)}`;
  }
}

t.test(
  "every command does what its page shows",
  { skip: withoutAddon || commandsAre("curl", "python3") },
  async (t) => {
    const reader = new Reader();
    await reader.start();
    t.teardown(() => reader.stop());
    await handOver(reader);
    const unused = new Set(NOT_RUN);
    for (const command of COMMAND_PAGES.flatMap((page) => commandsOf(page))) {
      const exception = NOT_RUN.find(([pattern]) => pattern.test(command.text));
      if (exception !== undefined) unused.delete(exception);
      else if (/^npm start\b/.test(command.text)) await reader.serve(command.text);
      else t.equal(await typeOut(reader, command), undefined, `${command.at}: ${command.text}`);
    }
    t.same([...unused], [], "every exception is that of a command");
  },
);
