/**
 * The commands that the pages show are there, and do what they show; what else the pages say:
 * pages.test.ts.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { ctSeries, samples } from "../../scripts/demo/samples.js";
import {
  COMMAND_PAGES,
  commandsOf,
  missingLine,
  namedIn,
  unlike,
  type DocumentedCommand,
} from "../support/pages.js";
import { Reader } from "../support/reader.js";
import { ADDON, commandsAre, needs } from "../support/needs.js";
import { root } from "../support/server.js";

const withoutAddon = needs(ADDON);

/**
 * Commands that the test does not run, each with its reason. One that no page has any more is a
 * failure.
 */
const NOT_RUN: readonly [RegExp, string][] = [
  [/^npm ci\b/, "builds the clone that this test runs in; .ci/run begins with it"],
  [/^sudo /, "needs root and systemd"],
  [
    /localhost:8500\/files|"\/srv\/images\/in\/sent|docs\/examples\/remote/,
    "needs RADSERVE_FILES_BY_HTTP; test/http/files.test.ts runs them",
  ],
  [
    /models import (nnUNet|exports|weights)|^python export_nnunet|^(pip install|totalseg_)/,
    "needs trained networks; test/features/import imports small ones",
  ],
  [/models canary my-models\/body/, "needs the model of the command before"],
  [/^psql /, "needs the right to change a PostgreSQL server"],
  [
    /^docker /,
    "needs an engine of containers; npm run trial -- container builds and starts the same",
  ],
  [/^(kubectl|helm) /, "needs a cluster; test/deploy/helm.test.ts looks at what the chart gives"],
  [/^npm run setup:gpu/, "downloads the CUDA libraries; npm test -- --group gpu-setup runs it"],
  [/^npm run setup:openvino/, "downloads OpenVINO; npm test -- --group openvino runs it"],
  [/models compare models\/tissue|RADSERVE_PROVIDERS=openvino/, "needs OpenVINO"],
  [/^export RADSERVE_PROVIDERS=cuda/, "needs a GPU"],
  [/^bench\/gpu\.sh/, "needs a GPU"],
  [/^bench\/gpu-pack\.sh/, "downloads the CUDA libraries and packs for minutes"],
  [/^npm run bench/, "takes minutes on a quiet machine"],
  [/^npm run setup(?!:)/, "builds the clone that this test runs in; .ci/run tries it in another"],
  [/^npm run trial -- crash/, "takes minutes; .ci/run runs the short form"],
];

t.setTimeout(900_000);

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
          if (group)
            t.match(helpOf([first]), new RegExp(`^  ${second}\\b`, "m"), `${page}: ${text}`);
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
  for (const [i, slice] of ctSeries(4, 12).entries())
    writeFileSync(path.join(series, `${i}.dcm`), slice);
}

const LONGEST_WAIT_MS = 120_000;
const LOOK_AGAIN_MS = 500;

/** What is wrong with what a command gave; undefined where it is as the page shows. */
function faultOf(
  { text, output, answer }: DocumentedCommand,
  found: { status: number; text: string },
) {
  const expected = Number(/# ends with (\d+)/.exec(text)?.[1] ?? 0);
  if (found.status !== expected) return `status ${found.status}`;
  if (answer !== undefined) return unlike(answer, JSON.parse(found.text) as unknown);
  if (/\bcurl\b/.test(text) && /"error":"(?!job_state)/.test(found.text))
    return "an error that the page does not show";
  const missing = missingLine(output, found.text.split("\n"));
  return missing === undefined ? undefined : `no line like: ${missing}`;
}

/**
 * A command that only looks is typed again until it shows what the page shows: a job takes its
 * time.
 */
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
    const [shownId, foundId] = [
      ids(command.answer ?? {}),
      /"job_id":"([^"]+)"/.exec(found.text)?.[1],
    ];
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
