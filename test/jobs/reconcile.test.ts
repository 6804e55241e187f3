/** Jobs compared with what lies in their output folders, by the command and by its page. */
import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t from "tap";
import { reconciliationSchema, type Reconciliation } from "../../src/jobs/schema.js";
import { linesOf } from "../support/audit.js";
import { bulkPlace, startBulk, unmarked, writeSlice } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { radserve } from "../support/server.js";

t.test("a job compared with its folders", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t);
  const bulk = await startBulk(t, place);
  const { server } = bulk;
  Object.assign(place.environment, { RADSERVE_URL: server.url, RADSERVE_TOKEN: server.token });
  const input = path.join(place.input, "many");
  const output = path.join(place.output, "many");
  const at = (name: string) => path.join(output, name);
  for (const name of ["1.dcm", "2.dcm", "a/b/3.dcm", "a/b/4.dcm"])
    writeSlice(path.join(input, name), Number(/\d/.exec(name)![0]));
  writeFileSync(path.join(input, "5.dcm"), "no image, and skipped");
  const command = async (id: string, ...options: string[]) => {
    const { status, stdout, stderr } = await radserve(
      place,
      "jobs",
      "reconcile",
      id,
      "--json",
      ...options,
    );
    t.equal(stderr, "");
    return { status, ...(JSON.parse(stdout) as Omit<Reconciliation, "next_cursor">) };
  };
  const differences = ({ differences: found }: { differences: Reconciliation["differences"] }) =>
    found
      .map(({ difference, path: file, index }) => [
        difference,
        path.relative(output, file),
        index === null,
      ])
      .sort((a, b) => (String(a) < String(b) ? -1 : 1));

  const id = await bulk.submit({
    input_folder_path: input,
    output_folder_path: output,
    outputs: ["json", "sr"],
  });
  t.match(await bulk.ended(id), { counts: { succeeded: 4, skipped: 1 } });
  t.match(await command(id), { status: 0, checked: 4, differences: { length: 0 }, requeued: 0 });

  const bytes = readFileSync(at("2.dcm.ct-tissue.sr.dcm"));
  for (const name of ["1.dcm.json", "1.dcm.ct-tissue.sr.dcm"]) rmSync(at(name));
  appendFileSync(at("2.dcm.ct-tissue.sr.dcm"), "\0");
  rmSync(at("a/b/3.dcm.ct-tissue.sr.dcm"));
  writeFileSync(at("a/b/4.dcm.json"), "{}");
  writeFileSync(at("stray.txt"), "");
  writeFileSync(at("a/stray.txt"), "");
  mkdirSync(at("a/foreign/below"), { recursive: true });
  const expected = [
    ["output_differs", "2.dcm.ct-tissue.sr.dcm", false],
    ["output_missing", "a/b/3.dcm.ct-tissue.sr.dcm", false],
    ["receipt_invalid", "a/b/4.dcm.json", false],
    ["receipt_missing", "1.dcm.json", false],
    ["unlisted", "a/foreign", true],
    ["unlisted", "a/stray.txt", true],
    ["unlisted", "stray.txt", true],
  ];
  const found = await command(id);
  t.equal(found.status, 1);
  t.strictSame(differences(found), expected);

  const paged: Reconciliation["differences"] = [];
  for (let cursor: string | null = ""; cursor !== null;) {
    const query: string = cursor === "" ? "" : `&cursor=${cursor}`;
    const { body } = await bulk.send("POST", `/bulk_inference/${id}/reconcile?limit=1${query}`);
    const page = reconciliationSchema.strict().parse(body);
    t.ok(page.checked <= 1);
    paged.push(...page.differences);
    cursor = page.next_cursor;
  }
  t.strictSame(differences({ differences: paged }), expected, "page by page");
  t.match(await bulk.send("POST", `/bulk_inference/${id}/reconcile?cursor=3`), {
    status: 400,
    body: { error: "bad_request" },
  });
  const shown = await radserve(place, "jobs", "reconcile", id);
  t.match(shown, {
    status: 1,
    stdout: /receipt_missing.*1\.dcm\.json[^]*4 images compared: 7 differences\.\n$/,
  });

  const before = linesOf(place).length;
  t.match(await command(id, "--retry"), { status: 1, requeued: 3 });
  const [asked, done, ...pages] = linesOf(place)
    .slice(before)
    .filter(({ kind }) => kind === "reconcile");
  const who = { endpoint: "POST /bulk_inference/:id/reconcile", job_id: id, subject: "tester" };
  t.match(asked, { ...who, outcome: "asked", query: /retry=true/, checked: undefined });
  t.match(done, {
    ...who,
    outcome: "done",
    query: /retry=true/,
    checked: 4,
    differences: 4,
    requeued: 3,
  });
  t.ok(pages.length > 0, "the page of the folders");
  t.match(await bulk.ended(id), { state: "completed", counts: { succeeded: 4 } });
  t.same(readFileSync(at("2.dcm.ct-tissue.sr.dcm")), bytes, "the same bytes as before");
  t.strictSame(
    differences(await command(id)),
    [expected[2], ...expected.slice(4)],
    "what is another's stays",
  );
  await unmarked(output);
  t.notOk(readdirSync(output).some((name) => name.startsWith(".")));

  // Another job writes other results of the same images into the same folder
  const second = await bulk.submit({
    items: ["1.dcm", "2.dcm"].map((name) => ({
      input_image_path: path.join(input, name),
      output_folder_path: output,
    })),
    outputs: ["json"],
  });
  t.match(await bulk.ended(second), { counts: { succeeded: 2 } });
  t.match(differences(await command(id, "--retry")).slice(1, 3), [
    ["receipt_replaced", "1.dcm.json", false],
    ["receipt_replaced", "2.dcm.json", false],
  ]);
  t.match(await bulk.job(id), { state: "completed" }, "nothing of the other's is written over");
  t.strictSame(
    differences(await command(second)).filter(([difference]) => difference !== "unlisted"),
    [],
    "a list",
  );
  await bulk.server.post("/single_inference", {
    input_image_path: path.join(input, "1.dcm"),
    output_folder_path: output,
    outputs: ["json"],
    labels: ["bone"],
  });
  t.match(
    differences(await command(second)).filter(([difference]) => difference !== "unlisted"),
    [["receipt_replaced", "1.dcm.json", false]],
    "a result without files, too",
  );
  rmSync(output, { recursive: true });
  t.match(await command(second), { status: 1, differences: [{ index: 0 }, { index: 1 }] });
});
