/** The bulk pages over a real socket, with the real engine and a private PostgreSQL. */
import {
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t from "tap";
import { itemListSchema, jobListSchema } from "../../src/jobs/schema.js";
import { isMarkName } from "../../src/files/folder-mark.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { ADDON, needs } from "../support/needs.js";
import {
  bulkPlace,
  hold,
  JOB_PAGES,
  nameOf,
  startBulk,
  writeMany,
  writeSlice,
  type Bulk,
} from "../support/bulk.js";
import { dicomFile, imageAttributes } from "../support/dicom.js";
import { slice } from "../support/series.js";
import { issueToken, PNG } from "../support/server.js";

/** Images of a job that is still at work when smaller ones have ended. */
const MANY = 400;
/** More of them than run at once: where they are held, a job stands. */
const MIDDLE = Array.from({ length: 16 }, (_, i) => nameOf(MANY / 2 + i));
const SR = "1.2.840.10008.5.1.4.1.1.88.33";

t.test("bulk inference", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t);
  place.environment["RADSERVE_PATH_MAP"] = JSON.stringify([
    { from: "\\\\pacs\\in", to: place.input },
    { from: "\\\\pacs\\out", to: place.output },
  ]);
  place.environment["RADSERVE_OUTPUT_ROOTS"] = `${place.output}:${place.input}`;
  const bulk = await startBulk(t, place);
  const { send, submit, ended, items } = bulk;
  const at = (...parts: string[]) => path.join(place.input, ...parts);
  const out = (...parts: string[]) => path.join(place.output, ...parts);

  await t.test("a folder of mixed things", async (t) => {
    writeSlice(at("mixed", "Ärzte", "one.dcm"), 1);
    writeSlice(at("mixed", "Ärzte", "no-extension"), 2);
    writeSlice(at("mixed", "scout"), 3, { ImageType: "ORIGINAL\\PRIMARY\\LOCALIZER" });
    writeFileSync(
      at("mixed", "report.dcm"),
      dicomFile({ attributes: imageAttributes({ SOPClassUID: SR }) }),
    );
    writeFileSync(at("mixed", "notes.txt"), "CT of Tuesday");
    writeFileSync(at("mixed", "empty.dcm"), "");
    const whole = readFileSync(at("mixed", "Ärzte", "one.dcm"));
    writeFileSync(at("mixed", "cut.dcm"), whole.subarray(0, whole.length - 20));
    symlinkSync(at("mixed"), at("mixed", "Ärzte", "loop"));
    symlinkSync("/etc", at("mixed", "away"));
    symlinkSync("nowhere", at("mixed", "dangling.dcm"));
    mkdirSync(at("mixed", ".one.dcm.radserve"));
    writeSlice(at("mixed", ".one.dcm.radserve", "hidden.dcm"));
    const answer = await send("POST", "/bulk_inference", {
      input_folder_path: at("mixed"),
      output_folder_path: out("mixed"),
    });
    t.match(answer, { status: 202, body: { total: null, job_id: /^[0-9a-f-]{36}$/ } });
    const id = answer.body["job_id"] as string;
    t.equal(answer.headers.get("Location"), `/bulk_inference/${id}`);
    t.equal(answer.body["status_url"], `/bulk_inference/${id}`);
    const job = await ended(id);
    t.match(job, {
      state: "completed",
      total: 9,
      counts: { queued: 0, running: 0, succeeded: 2, failed: 3, skipped: 4 },
      estimated_end: null,
      paused_reason: null,
      request: { input_folder_path: at("mixed"), output_folder_path: out("mixed") },
    });
    const byName = new Map(
      (await items(id)).map((item) => [path.relative(at("mixed"), item.input_image_path), item]),
    );
    for (const name of ["one.dcm", "no-extension"]) {
      const item = byName.get(`Ärzte/${name}`)!;
      t.match(item, {
        state: "succeeded",
        attempts: 1,
        reused: false,
        output_folder_path: out("mixed", "Ärzte"),
        receipt_path: out("mixed", "Ärzte", `${name}.json`),
        models: [{ name: "ct-tissue", status: "succeeded" }],
      });
      t.ok(receiptSchema.parse(JSON.parse(readFileSync(item.receipt_path!, "utf8"))));
      t.ok(item.outputs.length > 0);
      for (const { path: file } of item.outputs) t.ok(existsSync(file), path.extname(file));
    }
    t.match(byName.get("scout"), { state: "skipped", reason: { code: "no_model_accepts" } });
    t.match(byName.get("report.dcm"), {
      state: "skipped",
      reason: { code: "no_image", message: /SR|Report/ },
    });
    t.match(byName.get("notes.txt"), { state: "skipped", reason: { code: "no_image" } });
    t.match(byName.get("empty.dcm"), { state: "skipped", reason: { code: "empty_file" } });
    t.match(byName.get("cut.dcm"), { state: "failed", error: { error: "truncated_image" } });
    t.match(byName.get("away"), { state: "failed", error: { error: "path_not_allowed" } });
    t.match(byName.get("dangling.dcm"), { state: "failed", error: { error: "input_not_found" } });
    t.notOk(existsSync(out("mixed", ".one.dcm.radserve")));
    const logged = JSON.stringify(bulk.server.log);
    t.notMatch(logged, /mixed|rzte|one\.dcm/, "no path is logged");
  });

  await t.test(
    "own results are never inputs, and a second run writes the same bytes",
    async (t) => {
      for (const z of [1, 2]) writeSlice(at("same", "a", `${z}.dcm`), z);
      const body = {
        input_folder_path: at("same"),
        output_folder_path: at("same"),
        outputs: ["png", "sr", "seg", "sc"],
      };
      const first = await ended(await submit(body));
      t.match(first, { state: "completed", total: 2, counts: { succeeded: 2 } });
      const bytes = contents(at("same"));
      t.ok(bytes.size >= 2 + 2 * 5, "objects, pictures and receipts lie beside the inputs");
      const again = await submit(body);
      t.match(await ended(again), { total: 2, counts: { succeeded: 2, skipped: 0 } });
      t.strictSame(
        (await items(again)).map(({ reused }) => reused),
        [true, true],
      );
      t.strictSame(contents(at("same")), bytes);
      const nested = await submit({
        input_folder_path: at("same"),
        output_folder_path: at("same", "out"),
      });
      t.match(await ended(nested), { total: 2, counts: { succeeded: 2 } });
      t.match(
        await ended(
          await submit({ input_folder_path: at("same"), output_folder_path: out("third") }),
        ),
        {
          total: 2,
        },
      );
    },
  );

  await t.test("a list of items", async (t) => {
    for (const z of [1, 2]) writeSlice(at("list", `${z}.dcm`), z);
    writeFileSync(at("list", "2.dcm"), slice({ z: 2, preamble: false }));
    const item = (name: string, folder = "list") => ({
      input_image_path: at("list", name),
      output_folder_path: out(folder),
    });
    const answer = await send("POST", "/bulk_inference", {
      items: [item("1.dcm"), item("none"), item("2.dcm")],
    });
    t.match(answer, { status: 202, body: { total: 3 } });
    const id = answer.body["job_id"] as string;
    t.match(await ended(id), { counts: { succeeded: 2, failed: 1 } });
    t.match(await items(id), [
      {
        index: 0,
        state: "succeeded",
        input_image_path: at("list", "1.dcm"),
        output_folder_path: out("list"),
      },
      { index: 1, state: "failed", attempts: 1, error: { error: "input_not_found" } },
      {
        index: 2,
        state: "succeeded",
        receipt_path: out("list", "2.dcm.json"),
        warnings: [{ code: "missing_preamble" }],
      },
    ]);
    t.strictSame(
      (await items(id, "&state=failed")).map(({ index, outputs }) => [index, outputs]),
      [[1, []]],
    );
    const pages = async (query: string) => {
      const seen: number[][] = [];
      for (let cursor: string | null = ""; cursor !== null;) {
        const next: string = cursor === "" ? "" : `&cursor=${cursor}`;
        const { body } = await send("GET", `/bulk_inference/${id}/items?limit=1${query}${next}`);
        const page = itemListSchema.parse(body);
        seen.push(page.items.map(({ index }) => index));
        cursor = page.next_cursor;
      }
      return seen;
    };
    t.strictSame(await pages(""), [[0], [1], [2]]);
    t.strictSame(await pages("&state=succeeded"), [[0], [2]]);
    const refused = async (list: object[]) => send("POST", "/bulk_inference", { items: list });
    t.match(await refused([item("1.dcm"), { ...item("2.dcm"), input_image_path: "/etc/passwd" }]), {
      status: 403,
      body: { error: "path_not_allowed", message: /^items\[1\]: /, details: { index: 1 } },
    });
    t.match(await refused([{ ...item("1.dcm"), output_folder_path: "/etc" }]), {
      status: 403,
      body: { details: { index: 0 } },
    });
    t.match(await refused([{ ...item("1.dcm"), input_image_path: "1.dcm" }]), {
      status: 400,
      body: { message: /^items\[0\]\.input_image_path: .*absolute/ },
    });
    mkdirSync(out("real"));
    symlinkSync("real", out("alias"));
    for (const folders of [
      ["x", "x"],
      ["x", "./x/"],
      ["real", "alias"],
    ] as const)
      t.match(
        await refused([item("2.dcm"), item("1.dcm", folders[0]), item("1.dcm", folders[1])]),
        {
          status: 400,
          body: { message: /^items\[1\] and items\[2\] would write/, details: { indices: [1, 2] } },
        },
      );
    const many = Array.from({ length: 10_001 }, () => item("1.dcm"));
    t.match(await refused(many), {
      status: 400,
      body: { message: /items: Expected at most 10000 entries/ },
    });
    t.match(await refused([]), { status: 400 });
  });

  await t.test("bodies and queries that are not as documented", async (t) => {
    const folders = { input_folder_path: at("list"), output_folder_path: out("x") };
    const cases: [string, unknown, RegExp, number?][] = [
      ["no JSON", '{"items": x}', /fault at line 1, column 11/],
      ["a list", "[]", /Expected an object; found a list/],
      ["prototype", '{"__proto__": {}}', /Expected a JSON object; found a field named "__proto__"/],
      ["disguised prototype", '{"_\\u005fpr\\u006fto__": {}}', /field named "__proto__"/],
      ["null", "null", /found null/],
      [
        "a key with NUL",
        { ...folders, idempotency_key: "\0" },
        /idempotency_key: Expected text without NUL/,
      ],
      [
        "half a character",
        { ...folders, output_folder_path: out("x\ud800") },
        /Expected text without NUL/,
      ],
      ["unknown", { ...folders, output_folder: "/x" }, /output_folder: Unknown field/],
      ["both", { ...folders, items: [] }, /items/],
      [
        "a file",
        { ...folders, input_folder_path: at("list", "1.dcm") },
        /name a folder; found a file/,
      ],
      ["missing", { ...folders, input_folder_path: at("none") }, /nothing is there/, 404],
      [
        "models",
        { ...folders, models: ["ct-tisue"] },
        /no model is called "ct-tisue"; the nearest is "ct-tissue"/,
        404,
      ],
    ];
    for (const [name, body, message, status = 400] of cases) {
      const answer = await send("POST", "/bulk_inference", body);
      t.equal(answer.status, status, name);
      t.match(answer.body.message, message, name);
    }
    for (const query of ["limit=0", "limit=x", "cursor=x", "state=done", "page=2"])
      t.match(
        await send("GET", `/bulk_inference?${query}`),
        { status: 400, body: { error: "bad_request" } },
        query,
      );
    t.notOk(existsSync(out("x")), "what is refused makes no folder");
  });

  await t.test("an idempotency key", async (t) => {
    const body = {
      input_folder_path: at("list"),
      output_folder_path: out("once"),
      idempotency_key: "night 1",
    };
    const answers = await Promise.all([1, 2, 3].map(() => send("POST", "/bulk_inference", body)));
    t.equal(new Set(answers.map((answer) => answer.body["job_id"])).size, 1);
    t.strictSame(answers.map(({ status }) => status).sort(), [200, 200, 202]);
    const turned = Object.fromEntries(Object.entries(body).reverse());
    t.match(await send("POST", "/bulk_inference", turned), { status: 200 });
    t.match(await send("POST", "/bulk_inference", { ...body, outputs: ["json"] }), {
      status: 409,
      body: { error: "idempotency_conflict" },
    });
    const other = await tokenOf(bulk, "other");
    t.match(await send("POST", "/bulk_inference", { ...body, outputs: ["json"] }, other), {
      status: 202,
    });
  });

  await t.test("jobs belong to their subject", async (t) => {
    const id = await submit({ input_folder_path: at("list"), output_folder_path: out("mine") });
    await ended(id);
    const other = await tokenOf(bulk, "somebody else");
    const admin = await tokenOf(bulk, "chief", "--admin");
    for (const [method, page] of JOB_PAGES)
      t.match(
        await send(method, `/bulk_inference/${id}${page}`, undefined, other),
        { status: 404, body: { error: "job_not_found" } },
        `${method} ${page}`,
      );
    for (const unknown of ["00000000-0000-4000-8000-000000000000", "x", "%00"])
      t.match(await send("GET", `/bulk_inference/${unknown}`), {
        status: 404,
        body: { error: "job_not_found" },
      });
    t.match(await send("GET", `/bulk_inference/${id}`, undefined, admin), { status: 200 });
    const ids = async (token?: string, query = "") => {
      const { body } = await send("GET", `/bulk_inference${query}`, undefined, token);
      return jobListSchema.strict().parse(body);
    };
    t.strictSame(await ids(other), { jobs: [], next_cursor: null });
    const all = (await ids(undefined, "?limit=100")).jobs.map((job) => job.job_id);
    t.equal(all[0], id, "newest first");
    t.ok((await ids(admin, "?limit=100")).jobs.length > all.length, "another subject's too");
    const seen: string[] = [];
    for (let cursor: string | null = ""; cursor !== null;) {
      const page = await ids(undefined, `?limit=2${cursor === "" ? "" : `&cursor=${cursor}`}`);
      seen.push(...page.jobs.map((job) => job.job_id));
      cursor = page.next_cursor;
    }
    t.strictSame(seen, all, "page by page the same");
    t.strictSame((await ids(undefined, "?state=cancelled")).jobs, []);
  });

  await t.test("failed images run again once they are mended", async (t) => {
    const whole = readFileSync(at("list", "1.dcm"));
    mkdirSync(at("mend"));
    writeFileSync(at("mend", "a.dcm"), whole.subarray(0, 300));
    copyFileSync(at("list", "2.dcm"), at("mend", "b.dcm"));
    const id = await submit({ input_folder_path: at("mend"), output_folder_path: out("mend") });
    t.match(await ended(id), { state: "completed", counts: { failed: 1, succeeded: 1 } });
    writeFileSync(at("mend", "a.dcm"), whole);
    t.match(await send("POST", `/bulk_inference/${id}/retry`), {
      status: 200,
      body: { job_id: id },
    });
    t.match(await ended(id), { state: "completed", counts: { failed: 0, succeeded: 2 } });
    t.match(await items(id), [
      { state: "succeeded", attempts: 1 },
      { state: "succeeded", attempts: 1 },
    ]);
  });

  await t.test("cancelled half way", async (t) => {
    writeMany(at("many"), MANY);
    const release = await hold(t, out("many"), MIDDLE);
    const id = await submit({
      input_folder_path: at("many"),
      output_folder_path: out("many"),
      outputs: ["json"],
    });
    await bulk.until(id, ({ counts }) => counts.succeeded >= 5);
    const cancelled = await send("DELETE", `/bulk_inference/${id}`);
    t.match(cancelled, { status: 200, body: { state: "cancelled", counts: { queued: 0 } } });
    await release();
    const job = await ended(id);
    t.equal(job.state, "cancelled");
    t.ok(job.counts.cancelled > 0 && job.counts.succeeded >= 5);
    t.equal(job.counts.cancelled + job.counts.succeeded, job.total);
    const receipts = readdirSync(out("many")).filter((name) => name.endsWith(".json"));
    t.equal(receipts.length, job.counts.succeeded, "what is written stays, and nothing more comes");
    t.match(await send("DELETE", `/bulk_inference/${id}`), {
      status: 200,
      body: { state: "cancelled" },
    });
    t.match(await send("POST", `/bulk_inference/${id}/pause`), {
      status: 409,
      body: { error: "job_state", message: /this one is cancelled/ },
    });
    rmSync(out("many", receipts[1]!));
    t.match(await send("POST", `/bulk_inference/${id}/reconcile?limit=1000&retry=true`), {
      status: 409,
      body: { error: "job_state", message: /not cancelled/ },
    });
    t.match(await send("POST", `/bulk_inference/${id}/retry`), {
      status: 200,
      body: { state: "running" },
    });
    const whole = await ended(id);
    t.match(whole, { state: "completed", counts: { cancelled: 0, succeeded: job.total } });
    t.match(await send("POST", `/bulk_inference/${id}/purge`), { status: 200 });
    t.match(await send("GET", `/bulk_inference/${id}`), { status: 404 });
    t.ok(existsSync(out("many", receipts[0]!)), "forgetting a job touches no result");
  });

  await t.test("paused by hand, and not starved by a larger job", async (t) => {
    const releaseMiddle = await hold(t, out("large"), MIDDLE);
    const releaseLast = await hold(t, out("large"), [nameOf(MANY - 1)]);
    const large = await submit({
      input_folder_path: at("many"),
      output_folder_path: out("large"),
      outputs: ["json"],
    });
    await bulk.until(large, ({ counts }) => counts.succeeded >= 2);
    t.match(await send("POST", `/bulk_inference/${large}/purge`), {
      status: 409,
      body: { error: "job_state" },
    });
    t.match(await send("POST", `/bulk_inference/${large}/pause`), {
      status: 200,
      body: { state: "paused", paused_reason: { code: "paused_by_request" } },
    });
    await releaseMiddle();
    const still = await bulk.until(large, ({ counts }) => counts.running === 0);
    const small = await submit({ input_folder_path: at("list"), output_folder_path: out("small") });
    await ended(small);
    t.strictSame((await bulk.job(large)).counts, still.counts, "nothing of it ran meanwhile");
    t.match(await send("POST", `/bulk_inference/${large}/resume`), {
      status: 200,
      body: { paused_reason: null },
    });
    await bulk.until(large, ({ counts }) => counts.succeeded > still.counts.succeeded);
    const second = await submit({
      input_folder_path: at("list"),
      output_folder_path: out("second"),
    });
    const { finished_at: early } = await ended(second);
    await releaseLast();
    const last = await ended(large);
    t.match(last, { state: "completed", counts: { succeeded: MANY } });
    t.ok(
      Date.parse(early!) < Date.parse(last.finished_at!),
      "the small job ended before the large one",
    );
    t.match(await send("POST", `/bulk_inference/${large}/resume`), { status: 409 });
  });

  await t.test("in the client's names of files", async (t) => {
    const id = await submit({
      input_folder_path: "\\\\PACS\\in\\mixed\\Ärzte\\",
      output_folder_path: "\\\\pacs\\out\\named",
    });
    await ended(id);
    const [item] = await items(id, "&state=succeeded");
    t.match(item, {
      input_image_path: /^\\\\pacs\\in\\mixed\\Ärzte\\[\w.-]+$/,
      output_folder_path: "\\\\pacs\\out\\named",
      receipt_path: /^\\\\pacs\\out\\named\\[\w.-]+\.json$/,
    });
    t.notMatch(JSON.stringify(await items(id)), new RegExp(place.directory), "no name of ours");
  });

  await t.test("single requests go on, and the figures are told", async (t) => {
    const release = await hold(t, out("beside"), MIDDLE);
    const id = await submit({
      input_folder_path: at("many"),
      output_folder_path: out("beside"),
      outputs: ["json"],
    });
    await bulk.until(id, ({ counts }) => counts.running > 0);
    const single = await send("POST", "/single_inference", {
      input_image_path: at("list", "1.dcm"),
      output_folder_path: out("single"),
    });
    t.match(single, { status: 200, body: { status: "completed" } });
    t.ok((await bulk.job(id)).counts.queued > 0, "answered while the job still had images waiting");
    await send("DELETE", `/bulk_inference/${id}`);
    await release();
    await ended(id);
    const text = await (await fetch(`${bulk.server.url}/metrics`)).text();
    t.match(text, /radserve_bulk_items_total\{state="succeeded"\} [1-9]/);
    t.match(text, /radserve_bulk_items_queued \d/);
  });

  await t.test("many files with one content", async (t) => {
    mkdirSync(at("pictures"));
    writeFileSync(at("pictures", "a.png"), PNG);
    linkSync(at("pictures", "a.png"), at("pictures", nameOf(1)));
    const id = await submit({
      input_folder_path: at("pictures"),
      output_folder_path: out("pictures"),
    });
    t.match(await ended(id), { total: 2 });
    rmSync(at("pictures"), { recursive: true });
  });
});

function contents(folder: string): Map<string, string> {
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).sort();
  return new Map(
    files
      .filter(
        // A mark may go meanwhile: its job has ended
        (name) => !isMarkName(path.basename(name)) && statSync(path.join(folder, name)).isFile(),
      )
      .map((name) => [name, readFileSync(path.join(folder, name), "base64")]),
  );
}

const tokenOf = (bulk: Bulk, subject: string, ...options: string[]): Promise<string> =>
  issueToken(bulk.place, "--subject", subject, ...options);
