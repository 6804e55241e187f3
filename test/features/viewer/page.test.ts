/**
 * The page for people in Debian's Chromium, against a real server with real jobs. With
 * RADSERVE_PICTURES, a folder, it keeps a picture of each view there.
 */
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Page } from "playwright-core";
import t from "tap";
import { ctSeries, samples } from "../../../scripts/demo/samples.js";
import { bulkOf, hold, nameOf, writeMany, writeSlice, writeSlices } from "../../support/bulk.js";
import { privatePlace } from "../../support/private-postgres.js";
import type { Answer } from "../../../src/results/receipt/receipt.js";
import { useResultKeys } from "../../../src/results/receipt/seal.js";
import { receiptOf, writeReceipt } from "../../support/receipts.js";
import { CHROMIUM, look, signIn, startBrowser } from "../../support/looks.js";
import { ADDON, needs } from "../../support/needs.js";
import { freePort, PNG, issueToken, shiftClock, startServer } from "../../support/server.js";
import { LONGEST_WAIT_MS, until } from "../../support/until.js";

/** Images of the job that is looked at while it runs. */
const MANY = 1_000;

const heading = (page: Page, name: string | RegExp) =>
  page.getByRole("heading", { level: 1, name });

t.setTimeout(400_000);

/** Chromium without a window never hides a tab: what the page reads is told otherwise. */
const setHidden = (page: Page, hidden: boolean) =>
  page.evaluate(
    `Object.defineProperty(document, "hidden", { configurable: true, get: () => ${hidden} });
     document.dispatchEvent(new Event("visibilitychange"))`,
  );

t.test("what the page is made of", { skip: needs(ADDON) }, async (t) => {
  const place = privatePlace(t);
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const page = await fetch(server.url);
  const html = await page.text();
  const policy = page.headers.get("Content-Security-Policy") ?? "";
  t.match(policy, /default-src 'none'; script-src 'self'; style-src 'self'/);
  t.notMatch(policy, /unsafe|https?:/);
  t.equal(page.headers.get("Cache-Control"), "no-cache");
  t.notMatch(html, /<style|<script>|style=|https?:\/\//, "nothing inline, nothing from elsewhere");
  const parts = [...html.matchAll(/(?:src|href)="([^"]+)"/g)].map((match) => match[1]!);
  t.equal(parts.length, 3);
  for (const part of parts) {
    t.match(part, /^\.\/assets\/\w+-[A-Z0-9]{8}\.(js|css|svg)$/);
    const answer = await fetch(new URL(part, `${server.url}/`));
    t.match(answer, { status: 200 });
    t.match(answer.headers.get("Cache-Control"), /immutable/);
    t.equal(answer.headers.get("Content-Encoding"), "gzip");
    t.ok((await answer.arrayBuffer()).byteLength > 100);
  }
  for (const name of ["none.js", "..%2findex.html", "%2e%2e/index.html"])
    t.equal((await fetch(`${server.url}/assets/${name}`)).status, 404, name);
  t.match(await (await fetch(`${server.url}/overview`)).json(), { error: "unauthorized" });
  interface Overview {
    ready: boolean;
    history: unknown[];
    disks: { folder: string }[];
  }
  const overviewNow = async () => {
    const headers = { Authorization: server.token };
    return (await (await fetch(`${server.url}/overview`, { headers })).json()) as Overview;
  };
  await until("the models are loaded", async () => (await overviewNow()).ready);
  const overview = await overviewNow();
  t.match(overview, {
    ready: true,
    jobs: { open: false },
    models: [{ name: "ct-tissue", canary: true }],
  });
  t.equal(overview.history.length, 60);
  t.same(
    overview.disks.map(({ folder }) => folder),
    [place.output],
  );
});

t.test("the page", { skip: needs(ADDON, CHROMIUM) }, async (t) => {
  const place = privatePlace(t, {
    RADSERVE_PORT: String(await freePort()),
    RADSERVE_FILES_BY_HTTP: "upload,download,view",
    RADSERVE_JOB_REPORTS: "pictures",
  });
  // The clock of the server alone: a token that ends soon may end before somebody signs in with it
  const setClock = shiftClock(place);
  let server = await startServer(place);
  t.teardown(() => server.stop());
  const at = (...parts: string[]) => path.join(place.input, ...parts);
  const bulk = bulkOf(server);

  const browser = await startBrowser(t);
  const context = await browser.newContext();
  context.setDefaultTimeout(LONGEST_WAIT_MS);
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error" && !/Failed to load resource/.test(message.text()))
      complaints.push(message.text());
  });
  const elsewhere: string[] = [];
  page.on("request", (request) => {
    if (
      !request
        .url()
        .replace(/^blob:/, "")
        .startsWith(server.url)
    )
      elsewhere.push(request.url());
  });

  await t.test("a wrong token, and a good one", async (t) => {
    await page.goto(server.url);
    await page.getByLabel("Token").fill("nonsense");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").getByText("Invalid token").waitFor();
    await look(t, page, "sign-in");
    await page.getByLabel("Token").fill(server.token);
    await page.getByRole("button", { name: "Sign in" }).click();
    await heading(page, "All is well").waitFor();
    t.same(
      await page.evaluate("[localStorage.length, document.cookie]"),
      [0, ""],
      "kept for the tab alone",
    );
    await page.reload();
    await heading(page, "All is well").waitFor();
  });

  await t.test("one image, its result, and one that is refused", async (t) => {
    writeFileSync(at("chest.dcm"), (await samples()).ct);
    await page.getByRole("link", { name: "Send", exact: true }).click();
    await page.getByLabel("Image, or folder of one series").fill(at("chest.dcm"));
    await page.getByLabel("Folder for the results").fill(place.output);
    await look(t, page, "send");
    await page.getByRole("button", { name: "Send the image" }).click();
    await page.getByRole("heading", { name: /^ct-tissue / }).waitFor();
    t.ok(existsSync(path.join(place.output, "chest.dcm.json")));
    t.match(
      await page.getByRole("region", { name: "Measurements of ct-tissue" }).innerText(),
      /252\.7 cm²/,
    );
    t.match(
      await page.getByRole("region", { name: "Result" }).innerText(),
      /chest\.dcm\.ct-tissue\.png/,
    );
    await page.getByRole("list", { name: "Labels" }).waitFor();
    await page.locator("img.marks").waitFor();
    await look(t, page, "result");
    await page.getByLabel("Image, or folder of one series").fill("/etc/passwd");
    await page.getByRole("button", { name: "Send the image" }).click();
    await page.getByRole("alert").getByText("Path not allowed").waitFor();
    await look(t, page, "refused");
  });

  await t.test("a file that is dropped on the page", async (t) => {
    const drop = (name: string) =>
      page.evaluate(`(() => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([new Uint8Array(${JSON.stringify([...PNG])})], "${name}"));
        document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
      })()`);
    await page.getByRole("link", { name: "Overview", exact: true }).click();
    await page.locator("a[aria-current]", { hasText: "Overview" }).waitFor();
    await drop("dropped.png");
    await page.getByText("Uploaded 1 file.").waitFor();
    const path = await page.getByLabel("Image, or folder of one series").inputValue();
    t.ok(path.startsWith(`${place.input}/dropped-`) && path.endsWith("/dropped.png"), path);
    t.same(readFileSync(path), PNG);
    t.equal(
      await page.getByLabel("Folder for the results").inputValue(),
      place.output,
      "one that may be",
    );
  });

  await t.test("a path is completed as it is typed", async (t) => {
    const input = page.getByLabel("Image, or folder of one series");
    await input.fill(at("ch"));
    await page
      .locator(`#input-paths option[value="${at("chest.dcm")}"]`)
      .waitFor({ state: "attached" });
    await input.fill("/etc/pass");
    await page.locator("#input-paths option").first().waitFor({ state: "detached" });
    t.pass();
  });

  await t.test("a series: its slices, and what was marked on each", async (t) => {
    mkdirSync(at("series"), { recursive: true });
    ctSeries(8, 12, 128).forEach((bytes, i) => writeFileSync(at("series", `${9 - i}.dcm`), bytes));
    await page.getByLabel("Image, or folder of one series").fill(at("series"));
    await page.getByRole("button", { name: "Send the image" }).click();
    const stage = page.locator(".stage");
    await stage.locator("img.marks").waitFor();
    await page.getByRole("slider", { name: "Slice" }).fill("1");
    await page.locator(".stage[data-frame='1'] img.marks").waitFor();
    await page.locator(".tools").getByText("Slice 1 of 8").waitFor();
    const edges = (selector: string) =>
      page.evaluate<number[]>(
        `(() => { const { x, y, width, height } = document.querySelector("${selector}").getBoundingClientRect();
          return [x, y, width, height].map(Math.round); })()`,
      );
    t.same(
      await edges(".stage img.marks"),
      await edges(".stage .picture"),
      "the marks lie on the picture",
    );
    await stage.hover();
    await page.mouse.wheel(0, 100);
    await page.locator(".stage[data-frame='2'] img.marks").waitFor();
    await page.mouse.wheel(0, -100);
    await page.locator(".stage[data-frame='1'] img.marks").waitFor();
    await page.mouse.wheel(0, -100);
    await page.getByRole("slider", { name: "Slice" }).press("End");
    await page.locator(".stage[data-frame='8'] img.marks").waitFor();
    await page.getByRole("slider", { name: "Slice" }).fill("4");
    await page.locator(".stage[data-frame='4'] img.marks").waitFor();
    const corners = page.locator(".corners");
    t.match(await corners.innerText(), /W 400 L 40/);
    t.match(await page.locator(".corners .side").allInnerTexts(), ["R", "L", "A", "P"]);
    const box = (await page.locator(".stage .picture").boundingBox())!;
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    await corners.getByText(/^\(64, 64\) \d+ HU · \w+/).waitFor();
    const grey = () =>
      page.evaluate<number>(
        `document.querySelector("canvas.picture").getContext("2d").getImageData(64, 64, 1, 1).data[0]`,
      );
    const before = await grey();
    await page.getByLabel(/^Window/).selectOption("Bone");
    await corners.getByText("W 2500 L 480").waitFor();
    t.ok((await grey()) < before, "in a wider and higher window it is darker");
    await page.mouse.down();
    await page.mouse.move(box.x + box.width / 2 + 30, box.y + box.height / 2);
    await page.mouse.up();
    t.notMatch(await corners.innerText(), /W 2500 L/, "a drag sets it");
    await page.locator(".stage").press("i");
    t.ok(await page.getByRole("checkbox", { name: "Invert" }).isChecked());
    await page.locator(".stage").press("+");
    await corners.getByText("125 %").waitFor();
    await page.locator(".stage").press("o");
    await page.locator("img.marks").waitFor({ state: "detached" });
    await page.locator(".stage").press("o");
    await page.locator("img.marks").waitFor();
    t.match(await page.locator("#stage-keys").innerText(), /, t the texts in the corners/);
    await page.locator(".stage").press("t");
    await corners.getByText("125 %").waitFor({ state: "detached" });
    t.equal(
      await corners.locator("div:not(.side, .scale)").count(),
      0,
      "none of the texts is left",
    );
    t.match(
      await page.locator(".corners .side").allInnerTexts(),
      ["R", "L", "A", "P"],
      "sides stay",
    );
    t.notOk(await page.getByRole("checkbox", { name: "Corner texts" }).isChecked());
    await page.locator(".stage").press("t");
    await corners.getByText("125 %").waitFor();
    await page.getByRole("button", { name: "Fit" }).click();
    await corners.getByText("W 400 L 40").waitFor();
    t.equal(await grey(), before);
    await page.getByRole("slider", { name: "Opacity" }).fill("20");
    t.equal(await page.evaluate(`document.querySelector("img.marks").style.opacity`), "0.2");
    await page.getByRole("slider", { name: "Opacity" }).fill("60");
    await page.getByRole("button", { name: "bone", exact: true }).waitFor();
    await look(t, page, "series");
    await page.getByRole("checkbox", { name: "Labels" }).uncheck();
    await page.getByRole("list", { name: "Labels" }).waitFor({ state: "detached" });
    const findings = page.getByRole("region", { name: "Findings of ct-tissue" });
    t.equal(await findings.locator("tbody tr").count(), 4, "one row a label");
    t.match(await findings.innerText(), /bone[\s\S]*slices 1 to 8/);
    await findings.getByRole("button", { name: /^Show bone on slice \d$/ }).click();
    await page.locator(".stage:focus img.marks").waitFor();
    const alone = page.getByLabel("Findings of this slice alone");
    await alone.check();
    await page.locator(".stage").press("End");
    t.match(await findings.innerText(), /bone[\s\S]*slice \d/);
    await alone.uncheck();
    await page.getByRole("button", { name: "Coronal" }).click();
    await page.locator(".stage[data-plane='coronal 64'] img.marks").waitFor();
    t.match(await page.locator(".corners .side").allInnerTexts(), ["R", "L", "H", "F"]);
    t.same(
      await edges(".stage img.marks"),
      await edges(".stage .picture"),
      "the marks lie on the plane",
    );
    await page.locator(".corners").getByText("Coronal 64 of 128").waitFor();
    await page.locator(".stage").press("ArrowDown");
    await page.locator(".stage[data-plane='coronal 65'] img.marks").waitFor();
    await look(t, page, "coronal");
    await page.locator(".stage").press("p");
    await page.locator(".stage[data-plane='sagittal 64'] img.marks").waitFor();
    t.match(await page.locator(".corners .side").allInnerTexts(), ["A", "P", "H", "F"]);
    await look(t, page, "sagittal");
    await page.locator(".stage").press("p");
    await page.locator(".stage[data-frame] img.marks").waitFor();
    await page.getByLabel("Overlay").selectOption("none");
    await page.locator("img.marks").waitFor({ state: "detached" });
    await page.getByText("From the file to the model, step by step").click();
    t.match(await page.getByRole("region", { name: "What was found" }).innerText(), /rescale: /i);
    const saved = page.waitForEvent("download");
    await page.getByRole("button", { name: "Save series.ct-tissue.seg.dcm" }).click();
    t.equal((await saved).suggestedFilename(), "series.ct-tissue.seg.dcm");
    await page.getByRole("button", { name: "Verify" }).click();
    await page.getByText("Verified: every file and every replayed result is equal.").waitFor();
    await look(t, page, "verified");
  });

  await t.test("the list of results, and the way from one to the next", async (t) => {
    await page.getByRole("link", { name: "Results", exact: true }).click();
    const rows = page.getByRole("region", { name: "Results" }).locator("tbody tr");
    await page.getByRole("link", { name: "series", exact: true }).waitFor();
    t.match(await rows.allInnerTexts(), [
      /^.*series\s+\S+output\s+CT\s+ct-tissue: .*bone.*Completed/is,
      /chest\.dcm/,
    ]);
    await look(t, page, "results");
    await page.getByLabel("Path or UID").fill("nobody");
    await page.getByRole("button", { name: "Show", exact: true }).click();
    await page.getByText("No result matches.").waitFor();
    await page.getByRole("button", { name: "Clear" }).click();
    await page.getByRole("link", { name: "series", exact: true }).click();
    await page.locator(".stage[data-frame] img.marks").waitFor();
    await page.getByRole("link", { name: "Next result" }).click();
    await heading(page, "chest.dcm").waitFor();
    await page.locator("img.marks").waitFor();
    t.equal(await page.getByRole("link", { name: "Next result" }).count(), 0, "it is the last");
    await look(t, page, "one");
    await page.getByRole("link", { name: "Previous result" }).click();
    await heading(page, "series").waitFor();
    await page.getByRole("link", { name: "All results" }).click();
    await rows.first().waitFor();
    await page.getByRole("link", { name: "Send", exact: true }).click();
    await heading(page, "Send").waitFor();
  });

  await t.test("how the models do over time", async (t) => {
    await page.getByRole("link", { name: "Over time" }).click();
    await page.getByRole("heading", { name: "Nothing could be compared yet" }).waitFor();
    mkdirSync(path.join(place.output, "weeks"));
    useResultKeys(path.join(place.environment["RADSERVE_STATE_DIR"]!, "keys"));
    for (let week = 0; week < 4; week++)
      for (let study = 0; study < 30; study++) {
        const score = ((study * 7 + week) % 30) / 40 + (week === 3 ? 0.25 : 0);
        const name = `${week}-${study}`;
        const receipt = receiptOf({ week, study, score });
        await writeReceipt(path.join(place.output, "weeks"), name, receipt);
      }
    await page.getByRole("button", { name: "Refresh" }).click();
    // The results of today lie in a later week than the planted ones
    await page.getByRole("heading", { name: "cxr 1.0.0 on One" }).waitFor();
    const token = await issueToken(place, "--output-root", path.join(place.output, "weeks"));
    const other = await context.newPage();
    await signIn(other, { url: server.url, token });
    await other.getByRole("link", { name: "Over time" }).click();
    await other
      .getByRole("heading", { name: /^[1-9] of \d+ comparisons are beyond chance/ })
      .waitFor();
    t.match(
      await other.getByRole("region", { name: "Changes" }).innerText(),
      /Score of mass\s+Changed/,
    );
    t.match(await other.getByRole("region", { name: "Changes" }).innerText(), /Mann-Whitney/);
    await look(t, other, "drift");
    await other.close();
    await page.goBack();
    await heading(page, "Send").waitFor();
  });

  await t.test("jobs: none, one with failures, its images", async (t) => {
    await page.getByRole("link", { name: "Jobs", exact: true }).click();
    await page.getByText("No job yet.").waitFor();
    for (let z = 0; z < 120; z++) writeSlice(at("mixed", `${z}.dcm`), z);
    const whole = readFileSync(at("mixed", "1.dcm"));
    for (const i of [0, 1, 2]) writeFileSync(at("mixed", `cut-${i}.dcm`), whole.subarray(0, -20));
    for (const i of [0, 1]) writeFileSync(at("mixed", `notes-${i}.txt`), "CT of Tuesday");
    await page.getByRole("link", { name: "Send a folder" }).click();
    await page.getByLabel("All images of a folder, as a job").check();
    await page.getByLabel("Folder with images").fill(at("mixed"));
    await page.getByLabel("Folder for the results").fill(path.join(place.output, "mixed"));
    await page.getByRole("button", { name: "Send the folder" }).click();
    await heading(page, at("mixed")).waitFor();
    await page.getByRole("button", { name: "Retry 3 failed" }).waitFor({ timeout: 180_000 });
    await page.getByText("125 of 125 images").waitFor();
    const reasons = await page.getByRole("region", { name: "Failed, by reason" }).innerText();
    t.match(reasons, /3\s+Failed\s+Truncated image/);
    t.notMatch(reasons, /No image/);
    const harmless = page.getByRole("region", { name: "Not for these models, or no image" });
    t.match(await harmless.innerText(), /2\s+Skipped\s+No image/);
    const rows = page.getByRole("region", { name: "Images" }).locator("tbody tr");
    await page.getByRole("button", { name: "Failed 3", exact: true }).click();
    await rows.nth(2).waitFor();
    t.equal(await rows.count(), 3);
    await look(t, page, "job");
    const report = page.waitForEvent("download");
    await page.getByRole("button", { name: /^radserve-report-.*\.html$/ }).click();
    t.match((await report).suggestedFilename(), /^radserve-report-/);
    await harmless.getByRole("button", { name: "No image" }).click();
    await page.getByText("Only those with No image").waitFor();
    await rows.nth(1).getByText("notes-1.txt").waitFor();
    t.equal(await rows.count(), 2);
    await page.getByRole("button", { name: "Succeeded 120" }).click();
    await rows.first().getByText("ct-tissue:").waitFor();
    await page.getByRole("region", { name: "Images" }).getByRole("link").first().click();
    await page.locator(".stage[data-frame='1'] img.marks").waitFor();
    t.notMatch(page.url(), new RegExp(place.input), "no path in the address");
    await look(t, page, "item");
    const { hash } = new URL(page.url());
    await page.getByRole("link", { name: "The job", exact: true }).click();
    await page.getByRole("button", { name: "Succeeded 120" }).waitFor();
    await setHidden(page, true);
    await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
    await page.getByRole("heading", { name: "Result", exact: true }).waitFor();
    await setHidden(page, false);
    // As in a tab that was opened behind this one, and is looked at now
    await page.locator(".stage[data-frame='1'] img.marks").waitFor();
    await page.getByRole("link", { name: "The job", exact: true }).click();
    await page.getByRole("button", { name: "Succeeded 120" }).click();
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByText("Page 2").waitFor();
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByText("Page 3").waitFor();
    await page.getByRole("region", { name: "Images" }).locator("tbody tr").nth(19).waitFor();
    await page
      .getByRole("region", { name: "Images" })
      .locator("tbody tr")
      .nth(20)
      .waitFor({ state: "detached" });
    t.ok(await page.getByRole("button", { name: "Next" }).isDisabled(), "the last page");
    await page.getByRole("button", { name: "Failed 3", exact: true }).click();
    await rows.nth(2).waitFor();
    writeFileSync(at("mixed", "cut-0.dcm"), whole);
    await page.getByRole("button", { name: "Retry 3 failed" }).click();
    await page.getByRole("button", { name: "Retry 2 failed" }).waitFor();
    await page.getByRole("button", { name: "The list has changed: show it" }).click();
    await rows.nth(2).waitFor({ state: "detached" });
    t.match(await rows.allInnerTexts(), [/cut-1/, /cut-2/]);
  });

  await t.test("what a job warns of", async (t) => {
    mkdirSync(at("notes"));
    writeFileSync(at("notes", "notes.txt"), "CT of Tuesday");
    const output_folder_path = path.join(place.output, "notes");
    const id = await bulk.submit({ input_folder_path: at("notes"), output_folder_path });
    await bulk.ended(id);
    await page.goto(`${server.url}/#/jobs/${id}`);
    await page.getByText("No image of the job was analysed").waitFor();
    t.pass();
  });

  await t.test("which images of a job are shown changes by hand alone", async (t) => {
    const names = writeSlices(at("few"), 4);
    const output = path.join(place.output, "few");
    const release = await hold(t, output, names);
    const id = await bulk.submit({ input_folder_path: at("few"), output_folder_path: output });
    await bulk.until(id, ({ counts }) => counts.running > 0);
    await page.goto(`${server.url}/#/jobs/${id}`);
    const chosen = page
      .getByRole("group", { name: "Images by state" })
      .locator("[aria-pressed=true]");
    await chosen.getByText("Running").waitFor();
    await release();
    await page.getByText("4 of 4 images").waitFor();
    t.equal(await chosen.innerText(), "Running 0");

    const replaced = page.getByRole("alert").getByText("Replaced by a newer result.");
    const marks = page.locator(".stage[data-frame='1'] img.marks");
    const input_image_path = at("few", names[0]!);
    writeSlice(input_image_path, 0, { PatientID: "OTHER" });
    const body = { input_image_path, output_folder_path: output };
    t.equal((await server.post("/single_inference", body)).status, 200);
    await page.goto(`${server.url}/#/jobs/${id}/1`);
    await marks.waitFor();
    t.equal(await replaced.count(), 0);
    await page.goto(`${server.url}/#/jobs/${id}/0`);
    await replaced.waitFor();
  });

  await t.test("a result of JSON alone that was replaced says so", async (t) => {
    writeSlices(at("alone"), 2);
    const output_folder_path = path.join(place.output, "alone");
    const outputs = ["json"];
    const id = await bulk.submit({ input_folder_path: at("alone"), output_folder_path, outputs });
    await bulk.ended(id);
    const [first, second] = await bulk.items(id);
    const body = { input_image_path: second?.input_image_path, output_folder_path, outputs };
    const answer = await server.post("/single_inference", { ...body, labels: ["bone"] });
    const { finished_at } = (await answer.json()) as Answer;
    t.ok(second?.finished_at !== undefined && second.finished_at < finished_at);
    const replaced = page.getByRole("alert").getByText("Replaced by a newer result.");
    const shown = page.getByText("Verify this result");
    await page.goto(`${server.url}/#/jobs/${id}/${first?.index}`);
    await shown.waitFor();
    t.equal(await replaced.count(), 0);
    await page.goto(`${server.url}/#/jobs/${id}/${second?.index}`);
    await replaced.waitFor();
  });

  await t.test("a job is paused, resumed and cancelled", async (t) => {
    writeMany(at("many"), MANY);
    const output = path.join(place.output, "many");
    // More of them than run at once: the job stands there until it is cancelled
    const from = (first: number) => Array.from({ length: 16 }, (_, i) => nameOf(first + i));
    const release = await hold(t, output, from(MANY / 2));
    const id = await bulk.submit({ input_folder_path: at("many"), output_folder_path: output });
    await page.getByRole("link", { name: "Jobs", exact: true }).click();
    await page.getByRole("link", { name: at("many") }).click();
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByText("No more images start until the job is resumed.").waitFor();
    t.match(await bulk.job(id), { state: "paused", paused_reason: { code: "paused_by_request" } });
    const orders = () => page.locator(".orders button").allInnerTexts();
    t.match(await orders(), ["Resume", "Cancel"], "and not Pause");
    await look(t, page, "paused");
    await page.getByRole("link", { name: "Overview", exact: true }).click();
    await page
      .locator(".facts div", { hasText: "Paused jobs" })
      .getByRole("link", { name: "1" })
      .click();
    await page.getByRole("link", { name: at("many") }).click();
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByRole("button", { name: "Pause" }).waitFor();
    t.match(await orders(), ["Pause", "Cancel"], "and not Resume");
    await page.getByText("images a second").or(page.getByText("a second")).first().waitFor();
    await page.getByRole("link", { name: "Jobs", exact: true }).click();
    await heading(page, "Jobs").waitFor();
    await page.getByRole("link", { name: at("many") }).waitFor();
    await look(t, page, "jobs");
    await page.getByRole("link", { name: at("many") }).click();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Yes, cancel the rest" }).click();
    // Let go before that, the job may be done when the order comes
    await bulk.until(id, ({ state }) => state === "cancelled");
    await release();
    await page.getByText("Cancelled").first().waitFor();
    const { counts } = await bulk.until(
      id,
      (job) => job.state === "cancelled" && job.counts.running === 0,
    );
    t.ok(
      counts.succeeded > 0 && counts.cancelled > 0 && counts.succeeded + counts.cancelled === MANY,
    );
    const whole = new Intl.NumberFormat("en");
    const words = `${whole.format(counts.succeeded)} of ${whole.format(MANY)} images (`;
    await page
      .getByText(words)
      .and(page.getByText(`, ${whole.format(counts.cancelled)} cancelled`))
      .waitFor();
    t.match(
      await orders(),
      [`Run the other ${whole.format(counts.cancelled)}`],
      "neither Pause nor Resume",
    );
    await look(t, page, "cancelled");
    // Half of those that stood: they are among the rest, however much was done before the order
    const releaseLast = await hold(t, output, from(MANY / 2).slice(8));
    await page.getByRole("button", { name: "Run the other" }).click();
    await page.getByRole("button", { name: "Pause" }).waitFor();
    t.match(await bulk.until(id, (job) => job.counts.succeeded > counts.succeeded), {
      state: "running",
    });
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Yes, cancel the rest" }).click();
    await bulk.until(id, ({ state }) => state === "cancelled");
    await releaseLast();
    await bulk.until(id, (job) => job.state === "cancelled" && job.counts.running === 0);
  });

  await t.test("the overview tells of what was done; by keys alone one gets to it", async (t) => {
    await page.goto(`${server.url}/#/jobs`);
    // Anew: a change of views within the page takes the focus to the view
    await page.reload();
    await heading(page, "Jobs").waitFor();
    await page.keyboard.press("Tab");
    t.equal(await page.evaluate("document.activeElement.textContent"), "Skip to content");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByText(/[1-9][\d,]* done, [1-9]\d* failed/).waitFor();
    t.equal(
      await page.evaluate("document.activeElement.tagName"),
      "MAIN",
      "and the reader is taken there",
    );
    await page.getByRole("region", { name: "Nodes" }).getByText("Alive").waitFor();
    await look(t, page, "overview");
  });

  await t.test("nothing is asked for while the tab is in the background", async (t) => {
    // As the browser tells it: the log of the server comes later
    let asked = 0;
    page.on("request", (request) => (asked += Number(request.url().endsWith("/overview"))));
    await setHidden(page, true);
    const before = asked;
    // Longer than the page waits between two questions
    await page.waitForTimeout(6_000);
    t.ok(asked - before <= 1, "at most the one that was under way");
    const back = page.waitForResponse(/overview/);
    await setHidden(page, false);
    await back;
  });

  await t.test("the server goes away and comes back", async (t) => {
    const ended = once(server.process, "exit");
    server.process.kill("SIGTERM");
    await ended;
    await page.getByRole("heading", { name: "No connection" }).waitFor();
    t.ok(await page.getByRole("region", { name: "Models" }).isVisible(), "what was known stays");
    await look(t, page, "away");
    await page.getByRole("link", { name: "Over time" }).click();
    await page
      .getByRole("heading", { name: "No connection" })
      .or(page.getByText("No connection"))
      .first()
      .waitFor();
    server = await startServer(place);
    await page.getByRole("button", { name: "Refresh" }).click();
    await page.getByText(/receipts\. The last week is compared/).waitFor();
    await page.getByRole("link", { name: "Overview", exact: true }).click();
    await page.getByRole("alert").waitFor({ state: "detached" });
    await page.getByRole("status").getByText("Ready", { exact: true }).waitFor();
  });

  await t.test("a token that expires", async (t) => {
    const token = await issueToken(place, "--expires", "1h");
    const other = await context.newPage();
    await signIn(other, { url: server.url, token });
    await heading(other, /well|Ready/).waitFor();
    await other.getByRole("link", { name: "Over time" }).click();
    await other.getByText(/receipts\. The last week is compared/).waitFor();
    setClock(2 * 3_600_000);
    await other.getByRole("alert").getByText("Token expired").waitFor();
    t.ok(await other.getByLabel("Token", { exact: true }).isVisible(), "another can be given");
    t.equal(await other.evaluate("sessionStorage.length"), 0);
    await other.close();
    await page.getByRole("button", { name: "Sign out" }).click();
    t.equal(await page.evaluate("sessionStorage.length"), 0);
  });

  t.same(complaints, [], "nothing failed in the page, and the policy refused nothing");
  t.same(elsewhere, [], "nothing was asked of anybody else");
});
