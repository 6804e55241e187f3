/**
 * The report that a job leaves in its output folder, from a real server, and as Chromium shows it
 * from the disk.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import t from "tap";
import { samples } from "../../../scripts/demo/samples.js";
import { markName } from "../../../src/files/folder-mark.js";
import { reportName, unfinishedName } from "../../../src/files/report-names.js";
import { bulkPlace, cancelledJob, startBulk, writeSlice } from "../../support/bulk.js";
import { withDurations } from "../../support/durations.js";
import { CHROMIUM, look, startBrowser } from "../../support/looks.js";
import { ADDON, needs } from "../../support/needs.js";
import { sharedDatabase } from "../../support/postgres.js";
import { until } from "../../support/until.js";

const DEAD = "0b6d8f2e-6a0a-4f0e-9a8e-1b2c3d4e5f60";
t.setTimeout(900_000);

t.test("a job with findings and failures", { skip: needs(ADDON, CHROMIUM) }, async (t) => {
  const { pool, url } = await sharedDatabase(t);
  const place = bulkPlace(t, {
    ...withDurations({ nodeBeat: 500 }),
    DATABASE_URL: url,
    RADSERVE_JOB_REPORTS: "pictures",
  });
  place.environment["RADSERVE_INPUT_ROOTS"] = `${place.input}:${place.output}`;
  const at = (name: string) => path.join(place.input, "mixed", name);
  for (let z = 0; z < 12; z++)
    writeSlice(at(`${z}.dcm`), z, {
      PatientName: "Quince^Peter",
      Manufacturer: z < 6 ? "ACME" : "Globex",
      ManufacturerModelName: z < 6 ? "ACME One" : "Two <b>",
    });
  writeFileSync(at("phantom & co.dcm"), (await samples()).ct);
  writeFileSync(at("cut.dcm"), readFileSync(at("0.dcm")).subarray(0, -20));
  writeFileSync(at("notes.txt"), "CT of Tuesday");
  const bulk = await startBulk(t, place);
  const folder = path.join(place.output, "mixed");
  const id = await bulk.submit({
    input_folder_path: path.join(place.input, "mixed"),
    output_folder_path: folder,
  });
  const ended = await bulk.ended(id);
  const names = { html: reportName(id, "html"), csv: reportName(id, "csv") };
  t.same(ended.report, {
    html_path: path.join(folder, names.html),
    csv_path: path.join(folder, names.csv),
    error: null,
  });
  const read = () =>
    [names.html, names.csv].map((name) => readFileSync(path.join(folder, name), "utf8"));
  const [html = "", csv = ""] = read();

  await t.test("the table has every label of every image", (t) => {
    const lines = csv.trimEnd().split("\r\n");
    t.match(lines[0], /^index,input_image_path,state,/);
    t.equal(lines.filter((line) => line.includes(",ct-tissue,")).length, 13 * 4);
    t.match(csv, /cut\.dcm,failed,false,truncated_image,/);
    t.match(csv, /notes\.txt,skipped,false,no_image,/);
    t.match(csv, /,CT,ACME One,ct-tissue,1\.0\.0,false,succeeded,bone,/);
    t.notMatch(csv + html, /Quince/, "whose images they are stands nowhere");
    t.end();
  });

  await t.test("the page opens from the disk and asks nobody", async (t) => {
    const page = await (await (await startBrowser(t)).newContext({ offline: true })).newPage();
    const asked: string[] = [];
    page.on("request", (request) => asked.push(request.url()));
    const complaints: string[] = [];
    page.on("console", (message) => complaints.push(message.text()));
    const file = pathToFileURL(path.join(folder, names.html)).href;
    await page.goto(file);
    t.same(
      asked.filter((one) => one !== file && !one.startsWith("data:")),
      [],
    );
    t.same(complaints, [], "its own policy refuses nothing of it");
    const text = await page.locator("main").innerText();
    t.match(text, /1 × Truncated image/);
    t.match(text, /What to do:/);
    t.match(text, /1 × No image/);
    t.match(text, /Ran on 13 images\.(?! It failed)/);
    t.match(text, /Globex Two <b>/, "what a file says is text");
    t.equal(await page.locator("main b").count(), 0);
    t.match(text, /all steps\s+13/);
    const pictures = page.locator(".pictures img");
    t.ok((await pictures.count()) >= 4);
    t.ok(
      await page.evaluate(
        "[...document.images].every((image) => image.complete && image.naturalWidth > 0)",
      ),
    );
    const href = (await page.locator(".pictures a").first().getAttribute("href")) ?? "";
    t.ok(
      readdirSync(folder).includes(decodeURIComponent(href)),
      "a picture leads to the one beside it",
    );
    await look(t, page, "report");
  });

  await t.test("what a dead node has begun is written again, with the same bytes", async (t) => {
    const rest = unfinishedName(id, "csv", DEAD);
    writeFileSync(path.join(folder, rest), "half a ta");
    writeFileSync(path.join(folder, names.html), "of before");
    writeFileSync(path.join(folder, markName(id)), "");
    await pool.query(
      `update radserve.job set report = null, marked = true, report_token = $2,
         report_until = now() - interval '1 s' where id = $1`,
      [id, DEAD],
    );
    await until("the mark of the job has gone", () => !readdirSync(folder).includes(markName(id)));
    t.same(read(), [html, csv]);
    t.notOk(readdirSync(folder).includes(rest));
  });

  await t.test("a claim that holds is another node's", async (t) => {
    writeFileSync(path.join(folder, markName(id)), "");
    await pool.query(
      `update radserve.job set report = null, marked = true, report_token = $2,
         report_until = now() + interval '4 min' where id = $1`,
      [id, DEAD],
    );
    writeSlice(path.join(place.input, "other", "0.dcm"));
    const other = await bulk.submit({
      input_folder_path: path.join(place.input, "other"),
      output_folder_path: path.join(place.output, "other"),
    });
    t.match(await bulk.ended(other), { report: { error: null } });
    t.match(await bulk.job(id), { finished_at: null, report: null });
    await pool.query("update radserve.job set report_until = null where id = $1", [id]);
    t.match(await bulk.ended(id), { report: { error: null } });
  });

  await t.test("results and reports are no inputs, and belong to the job", async (t) => {
    const again = await bulk.submit({
      input_folder_path: folder,
      output_folder_path: path.join(place.output, "again"),
    });
    const { total } = await bulk.ended(again);
    t.equal(total, 0);
    t.match((await bulk.send("POST", `/bulk_inference/${id}/reconcile`)).body["differences"], {
      length: 0,
    });
  });

  await t.test("a folder without the mark of the job gets none, and the job ends", async (t) => {
    await pool.query("update radserve.job set report = null, marked = true where id = $1", [id]);
    const { report } = await bulk.ended(id);
    t.match(report, { html_path: null, error: { error: "path_not_allowed" } });
  });

  await t.test("a list has its report beside the results of its first image", async (t) => {
    const items = [0, 1].map((z) => {
      const input = path.join(place.input, `=${z}.dcm`);
      writeSlice(input, z);
      return { input_image_path: input, output_folder_path: path.join(place.output, String(z)) };
    });
    const id = await bulk.submit({ items });
    const { report } = await bulk.ended(id);
    t.equal(report?.html_path, path.join(place.output, "0", reportName(id, "html")));
    t.same(
      readdirSync(path.join(place.output, "1")).filter((name) => name.includes("report")),
      [],
    );
  });
});

t.test("a job that is cancelled has a report", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t, { RADSERVE_JOB_REPORTS: "text" });
  const bulk = await startBulk(t, place);
  const folder = path.join(place.output, "many");
  const { id, job } = await cancelledJob(t, bulk, path.join(place.input, "many"), folder);
  const there = readdirSync(folder).filter((name) => name.startsWith("radserve-report-"));
  t.equal(there.length, 2);
  const html = readFileSync(path.join(folder, reportName(id, "html")), "utf8");
  t.match(html, new RegExp(`<dt>Cancelled</dt><dd>${job.counts.cancelled}</dd>`));
  t.match(html, /<dt>State<\/dt><dd>cancelled<\/dd>/);
  t.notMatch(html, /<img/);
});
