/**
 * `npm run bench -- page [--results N]`: the list of results on the page, in Debian's Chromium,
 * with many results that are there: from the address to the first paint and to the rows of the
 * list, and the list's requests by themselves. Beside each time stands the processor time of
 * server, browser and bench together, which other work of the machine does not change.
 */
import { closeSync, linkSync, mkdirSync, openSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";
import type { z } from "zod";
import { descriptorPath } from "../src/files/descriptor.js";
import { ListWriter, type listedSchema } from "../src/features/viewer/list/list.js";
import { receiptText } from "../src/results/receipt/receipt.js";
import { CHROMIUM } from "../test/support/looks.js";
import { receiptOf } from "../test/support/receipts.js";
import { cpuSeconds } from "./lib/process-tree.js";
import { startServer } from "./lib/server.js";
import { median } from "./lib/statistics.js";

const { values } = parseArgs({ options: { results: { type: "string", default: "100000" } } });
const RESULTS = Number(values.results);
const PER_FOLDER = 500;
/** Hard links of one content: ext4 allows 65,000. */
const LINKS = 50_000;
const ROUNDS = 7;
/** 2026-01-01, and a result every ten minutes. */
const FIRST = Date.UTC(2026, 0, 1);
const APART_MS = 600_000;

/**
 * Receipts that are there, and their lines as the server writes them; every thousandth has a
 * finding that is rare.
 */
async function writeResults(root: string): Promise<void> {
  const list = new ListWriter([root], "bench");
  let content = "";
  for (let i = 0; i < RESULTS; i++) {
    const folder = join(root, String(Math.floor(i / PER_FOLDER)));
    if (i % PER_FOLDER === 0) {
      mkdirSync(folder);
      // Connections that the server has closed meanwhile are noticed
      await setImmediate();
    }
    const name = `chest-${i}.dcm.json`;
    const receipt = receiptOf({ week: 0, study: i, score: (i % 1000) / 1000 });
    receipt.timings.finished_at = new Date(FIRST + i * APART_MS).toISOString();
    receipt.source.modality = "CT";
    const [finding] = receipt.models[0]?.findings ?? [];
    if (finding !== undefined && i % 1000 === 999) finding.label = "nodule";
    if (i % LINKS === 0) writeFileSync((content = join(folder, name)), receiptText(receipt));
    else linkSync(content, join(folder, name));
    const fd = openSync(folder, "r");
    list.add({ fdPath: descriptorPath(fd), realPath: folder }, receipt, {
      name,
      input: join("/in", name),
    });
    closeSync(fd);
  }
}

const PAINT = `performance.getEntriesByName("first-contentful-paint")[0].startTime`;
const day = (i: number) => new Date(FIRST + i * APART_MS).toISOString().slice(0, 10);

interface Took {
  ms: number;
  cpu_ms: number;
}

/** Medians of the time that something takes, and of the processor time of all processes. */
async function repeated(work: () => Promise<unknown>): Promise<Took> {
  const took: Took[] = [];
  for (let i = 0; i < ROUNDS; i++) {
    const [began, before] = [performance.now(), cpuSeconds(process.pid)];
    await work();
    took.push({ ms: performance.now() - began, cpu_ms: 1000 * (cpuSeconds(process.pid) - before) });
  }
  const middle = (of: keyof Took) => Math.round(median(took.map((one) => one[of])));
  return { ms: middle("ms"), cpu_ms: middle("cpu_ms") };
}

const server = await startServer({ RADSERVE_FILES_BY_HTTP: "view" });
const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
try {
  await writeResults(server.output);
  const ask = async (query: Record<string, string>) => {
    const address = `${server.url}/results/list?${new URLSearchParams(query).toString()}`;
    const answer = await fetch(address, { headers: { Authorization: server.token } });
    if (!answer.ok) throw new Error(await answer.text());
    return (await answer.json()) as z.infer<typeof listedSchema>;
  };
  const timed = (query: Record<string, string>, rows: number) =>
    repeated(async () => {
      const { results } = await ask(query);
      if (results.length !== rows)
        throw new Error(`Expected ${rows} results, found ${results.length}.`);
    });
  // What begins after the latest of the second day begins with all that are later left out
  const { next_cursor: cursor } = await ask({ to: day(0), limit: "94" });
  const requests = {
    first_page: await timed({}, 50),
    last_page: await timed({ cursor: cursor ?? "" }, 50),
    text_of_one: await timed({ text: `chest-${Math.floor(RESULTS / 3)}.` }, 1),
    text_of_none: await timed({ text: "nobody" }, 0),
    rare_finding: await timed({ finding: "nodule" }, 50),
    first_day: await timed({ from: day(0), to: day(0) }, 50),
  };

  const page = await browser.newPage();
  await page.goto(server.url);
  await page.getByLabel("Token").fill(server.token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("link", { name: "Results" }).click();
  const rows = page.getByRole("region", { name: "Results" }).locator("tbody tr");
  await rows.first().waitFor();
  const paints: number[] = [];
  const shown = await repeated(async () => {
    await page.reload({ waitUntil: "commit" });
    await rows.nth(49).waitFor();
    paints.push(await page.evaluate<number>(PAINT));
  });
  const searched = (label: string, text: string, found: number) =>
    repeated(async () => {
      await page.getByLabel(label, { exact: true }).fill(text);
      await page.getByRole("button", { name: "Show", exact: true }).click();
      if (found === 0) await page.getByText("No result matches.").waitFor();
      else await rows.nth(found - 1).waitFor();
      if (found < 2) await rows.nth(found).waitFor({ state: "detached" });
      await page.getByRole("button", { name: "Clear" }).click();
      await rows.nth(49).waitFor();
    });
  const result = {
    results: RESULTS,
    requests,
    page: {
      first_paint: { ms: Math.round(median(paints)) },
      rows_of_the_first_page: shown,
      search_and_back: await searched("Path or UID", `chest-${Math.floor(RESULTS / 3)}.`, 1),
      search_without_a_hit_and_back: await searched("Path or UID", "nobody", 0),
    },
  };
  console.log(JSON.stringify(result, undefined, 2));
} finally {
  await browser.close();
  await server.stop();
}
