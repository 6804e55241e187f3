/**
 * The commands that the pages show are there, and do what they show. A block whose fence says
 * `console elsewhere: REASON` is not typed here. What else the pages say: pages.test.ts.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { demoSeries, samples } from "../../scripts/demo/samples.js";
import {
  COMMAND_PAGES,
  commandsOf,
  missingLine,
  namedIn,
  stepsOf,
  unlike,
  type DocumentedCommand,
} from "../support/pages.js";
import { Reader } from "../support/reader.js";
import { ADDON, commandsAre, needs } from "../support/needs.js";
import { freePort, root } from "../support/server.js";
import { webPacs } from "../support/web-pacs.js";

const withoutAddon = needs(ADDON);

/** Blocks that a reader writes into a file, and where. */
const FILES: Record<string, string> = {
  "json gateway": "/etc/radserve/gateway.json",
  "json out": "/etc/radserve/gateway.json",
};

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

/** What the README's demo leaves: .ci/run types the command that makes it, in another clone. */
async function afterTheDemo({ clone }: Reader): Promise<void> {
  const drawn = await samples();
  const input = path.join(clone, "demo-output/input");
  const series = path.join(clone, "demo-output/series");
  for (const folder of [input, series]) mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(input, "ct-phantom.dcm"), drawn.ct);
  writeFileSync(path.join(input, "ultrasound-burned-in.dcm"), drawn.ultrasound);
  for (const [i, slice] of demoSeries().entries())
    writeFileSync(path.join(series, `${i + 1}.dcm`), slice);
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
  "every command does what its page shows, typed from top to bottom into one shell",
  { skip: withoutAddon || commandsAre("curl", "python3", "echoscu", "storescu") },
  async (t) => {
    const reader = new Reader();
    await reader.start();
    t.teardown(() => reader.stop());
    await afterTheDemo(reader);
    const pacs = await webPacs(t);
    reader.learn("http://localhost:8042/dicom-web", pacs.url);
    reader.learn("11112", String(await freePort()));
    for (const page of COMMAND_PAGES)
      for (const step of stepsOf(page, Object.keys(FILES))) {
        if ("file" in step) reader.write(FILES[step.file] ?? "", step.text);
        else if (step.elsewhere !== undefined) t.comment(`${step.at}: ${step.elsewhere}`);
        else if (/^npm start\b/.test(step.text)) await reader.serve(step.text);
        else t.equal(await typeOut(reader, step), undefined, `${step.at}: ${step.text}`);
      }
  },
);
