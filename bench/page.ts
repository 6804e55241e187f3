/**
 * How soon Chromium shows a job of 100,000 images, and the next page of them, while a server works on it. Prints
 * milliseconds. Needs /usr/bin/chromium.
 */
import { once } from "node:events";
import { linkSync, mkdirSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { chromium } from "playwright-core";
import { bulkOf, writeSlice } from "../test/support/bulk.js";
import { makePlace, root, startServer } from "../test/support/server.js";

const IMAGES = Number(process.argv[2] ?? 100_000);
/** Fewer than the links that a file of ext4 may have. */
const LINKS = 10_000;

const place = makePlace({ RADSERVE_MODELS_DIR: path.join(root, "models") });
const folder = path.join(place.input, "many");
for (let i = 0; i < IMAGES; i++) {
  const [group, name] = [path.join(folder, String(Math.floor(i / LINKS))), `${i}.dcm`];
  if (i % LINKS === 0) {
    mkdirSync(group, { recursive: true });
    writeSlice(path.join(group, name), i);
  } else linkSync(path.join(group, `${i - (i % LINKS)}.dcm`), path.join(group, name));
}
const server = await startServer(place);
const bulk = bulkOf(server);
const id = await bulk.submit({
  input_folder_path: folder,
  output_folder_path: path.join(place.output, "many"),
  models: ["ct-tissue"],
  outputs: ["json"],
});
await bulk.until(id, ({ total }) => total !== null);
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const page = await (await browser.newContext()).newPage();
await page.goto(server.url);
await page.getByLabel("Token").fill(server.token);
await page.getByRole("button", { name: "Sign in" }).click();
await page.getByRole("heading", { level: 2, name: "The last hour" }).waitFor();

async function timed(
  name: string,
  act: () => Promise<unknown>,
  shown: () => Promise<unknown>,
): Promise<void> {
  const times: number[] = [];
  for (let i = 0; i < 5; i++) {
    await delay(200);
    const began = performance.now();
    await act();
    await shown();
    times.push(performance.now() - began);
  }
  const sorted = times.sort((a, b) => a - b).map(Math.round);
  console.log(`${name}: median ${sorted[2]} ms, most ${sorted[4]} ms`);
}

const rows = page.getByRole("region", { name: "Images" }).locator("tbody tr");
for (const what of ["while it runs", "paused"]) {
  await timed(
    `the job's page from nothing, ${what}`,
    () => page.goto(`${server.url}/?${Math.random()}#/jobs/${id}`),
    () => rows.first().waitFor(),
  );
  await page.getByRole("button", { name: /^Queued/ }).click();
  let number = 1;
  await timed(
    `the next fifty images, ${what}`,
    () => page.getByRole("button", { name: "Next" }).click(),
    async () => {
      number += 1;
      await page.getByText(`Page ${number}`).waitFor();
      await rows.first().waitFor();
    },
  );
  await bulk.send("POST", `/bulk_inference/${id}/pause`);
}
await browser.close();
await bulk.send("DELETE", `/bulk_inference/${id}`);
const state = place.environment["RADSERVE_STATE_DIR"] ?? "";
console.log(`${IMAGES} images; state in ${state} is removed`);
server.process.kill("SIGTERM");
if (server.process.exitCode === null) await once(server.process, "exit");
place.remove();
