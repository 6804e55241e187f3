/** A result that somebody else has changed: nobody gets it as a result, and its way back. */
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { checkSeal, useResultKeys } from "../../../src/results/receipt/seal.js";
import type { Answer, Receipt } from "../../../src/results/receipt/receipt.js";
import { bulkPlace } from "../../support/bulk.js";
import { CT_SLICE, dicomFile, imageAttributes } from "../../support/dicom.js";
import { ADDON, needs } from "../../support/needs.js";
import { radserve, startServer } from "../../support/server.js";

t.setTimeout(300_000);

t.test("a result that is not trusted", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t, { RADSERVE_MINIMUM_FREE_DISK: "0", RADSERVE_FILES_BY_HTTP: "view" });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const image = path.join(place.input, "one.dcm");
  const attributes = imageAttributes({
    ...CT_SLICE,
    Rows: 16,
    Columns: 16,
    StudyInstanceUID: "1.2.3",
  });
  writeFileSync(image, dicomFile({ attributes, pixels: Buffer.alloc(512) }));
  const infer = async () => {
    const answer = await server.post("/single_inference", {
      input_image_path: image,
      output_folder_path: place.output,
      models: ["ct-tissue"],
    });
    return { status: answer.status, body: (await answer.json()) as Answer & { message?: string } };
  };
  const get = async (page: string, query: Record<string, string> = {}) => {
    const url = `${server.url}${page}?${new URLSearchParams(query).toString()}`;
    const answer = await fetch(url, { headers: { Authorization: server.token } });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  };
  const { body: first } = await infer();
  const receipt = first.receipt_path;
  let written = readFileSync(receipt, "utf8");
  const keys = path.join(place.directory, "state", "keys");
  t.equal(statSync(path.join(keys, "results")).mode & 0o777, 0o700);
  useResultKeys(keys);
  t.match(await checkSeal("receipt", "one.dcm", Buffer.from(written)), { trusted: true });
  t.equal((await infer()).body.reused, true);

  /** Says the opposite of every finding; no hash has to be changed for it. */
  const forged = () => {
    const said = JSON.parse(written) as Receipt;
    for (const finding of said.models[0]?.findings ?? []) finding.present = !finding.present;
    return `${JSON.stringify(said, null, 2)}\n`;
  };

  await t.test("is shown as such, without what it says", async (t) => {
    writeFileSync(receipt, forged());
    t.match(await get("/results", { path: receipt }), {
      status: 200,
      body: { trust: { trusted: false, why: "wrong_mac" } },
    });
    t.match((await get("/results/list")).body, {
      results: [{ trust: { trusted: false }, models: [{ found: { length: 0 } }] }],
    });
    const [{ input }] = (await get("/results/list")).body["results"] as [{ input: string }];
    for (const [page, query] of [
      ["/results/picture", { model: "ct-tissue" }],
      ["/results/marks", { model: "ct-tissue" }],
      ["/results/nifti", { model: "ct-tissue" }],
      ["/results/nifti", {}],
    ] as const)
      t.match(
        await get(page, { path: receipt, input_path: input, ...query }),
        { status: 409, body: { error: "result_untrusted", message: /adopt/ } },
        page,
      );
    const explained = await radserve(place, "explain", receipt);
    t.match(explained.stdout, /result_untrusted/);
    const drift = await radserve(place, "drift", place.output, "--json");
    t.match(JSON.parse(drift.stdout), { receipts: 0, untrusted: 1 });
    const verified = await radserve(place, "verify", receipt, "--input", image);
    t.equal(verified.status, 1);
    t.match(verified.stdout, /differs +MAC/);
  });

  await t.test("is computed again, and is then what it was", async (t) => {
    writeFileSync(receipt, forged());
    const { body } = await infer();
    t.equal(body.reused, false);
    t.strictSame(body.models[0]?.findings, first.models[0]?.findings);
    t.match(await get("/results", { path: receipt }), { body: { trust: { trusted: true } } });
    written = readFileSync(receipt, "utf8");
  });

  await t.test("of another image stays, and is named", async (t) => {
    const said = JSON.parse(written) as Receipt;
    said.source.sop_instance_uid = "9.9.9";
    writeFileSync(receipt, `${JSON.stringify(said, null, 2)}\n`);
    t.match(await infer(), { status: 409, body: { message: /not trusted/ } });
  });

  await t.test("that is huge is refused without being read", async (t) => {
    const said = JSON.parse(written) as Receipt;
    const [model] = said.models;
    const [finding] = model?.findings ?? [];
    if (model !== undefined && finding !== undefined)
      model.findings = Array.from({ length: 200_000 }, () => finding);
    writeFileSync(receipt, `${JSON.stringify(said, null, 2)}\n`);
    t.match(await get("/results", { path: receipt }), { status: 400, body: { message: /larger/ } });
  });

  await t.test("is adopted where it is computed again and equal, and nowhere else", async (t) => {
    writeFileSync(receipt, written.replace(/,\n {2}"mac": \{[^}]*\}/, ""));
    const dry = await radserve(place, "adopt", "--dry-run", "--json");
    t.equal(dry.status, 0, dry.stderr);
    t.match(JSON.parse(dry.stdout), { results: [{ path: receipt, outcome: "adopted" }] });
    t.match(await get("/results", { path: receipt }), { body: { trust: { why: "no_mac" } } });
    const done = await radserve(place, "adopt", place.output, "--json");
    t.equal(done.status, 0, done.stderr);
    t.match(await get("/results", { path: receipt }), { body: { trust: { trusted: true } } });
    t.equal(readFileSync(receipt, "utf8"), written, "the same bytes as when it was written");

    writeFileSync(receipt, forged());
    const refused = await radserve(place, "adopt", receipt, "--without-replay", "--json");
    t.equal(refused.status, 1);
    t.match(JSON.parse(refused.stdout), { results: [{ outcome: "refused" }] });

    writeFileSync(receipt, written.replace(/,\n {2}"mac": \{[^}]*\}/, ""));
    rmSync(image);
    const gone = await radserve(place, "adopt", receipt);
    t.equal(gone.status, 1);
    t.match(gone.stderr, /--without-replay/);
    const without = await radserve(place, "adopt", receipt, "--without-replay");
    t.equal(without.status, 0, without.stderr);
  });

  await t.test("a name that cannot be held keeps no other result from being adopted", async (t) => {
    const folder = path.join(place.output, "another");
    const lock = path.join(folder, `.${path.basename(receipt, ".json")}.lock`);
    mkdirSync(lock, { recursive: true });
    writeFileSync(path.join(folder, path.basename(receipt)), readFileSync(receipt));
    const unsigned = written.replace(/,\n {2}"mac": \{[^}]*\}/, "");
    writeFileSync(receipt, unsigned);
    const done = await radserve(place, "adopt", folder, receipt, "--without-replay", "--json");
    t.equal(done.status, 1, done.stderr);
    t.match(JSON.parse(done.stdout), {
      results: [
        { outcome: "refused", why: /lock/ },
        { path: receipt, outcome: "adopted" },
      ],
    });
    rmSync(folder, { recursive: true });
  });

  await t.test("a newer key signs, and older results are signed again", async (t) => {
    const made = await radserve(place, "key", "new", "--results");
    t.equal(made.status, 0, made.stderr);
    const done = await radserve(place, "adopt", "--json");
    t.match(JSON.parse(done.stdout), { results: [{ outcome: "signed_again" }] });
    const { body } = await get("/results", { path: receipt });
    t.match(body, { trust: { trusted: true, key_id: made.stdout.split(" ")[0] } });
    t.match((await radserve(place, "key", "list", "--results")).stdout, /signs/);
  });

  await t.test(
    "where the key is gone, or all of the state, each step says what to do",
    async (t) => {
      const state = path.join(place.directory, "fresh");
      const fresh = { ...place.environment, RADSERVE_STATE_DIR: state };
      const lost = { ...place, environment: fresh };
      writeFileSync(image, dicomFile({ attributes, pixels: Buffer.alloc(512) }));
      const early = await radserve(lost, "adopt");
      t.match([early.status, early.stderr], [2, /no.*key|none.*radserve init/i]);
      t.equal((await radserve(lost, "init")).status, 0);
      const told = await radserve(lost, "explain", receipt);
      t.equal(told.status, 0, "a receipt can be explained without the audit");
      t.match(told.stdout, /result_untrusted[\s\S]*a key that this installation does not have/);
      t.match(told.stderr, /expected the audit of a server/);
      const adopted = await radserve(lost, "adopt", "--json");
      t.equal(adopted.status, 0, adopted.stderr);
      t.match(JSON.parse(adopted.stdout), { results: [{ outcome: "adopted" }] });
      const keys = path.join(state, "keys", "results");
      const [compromised = ""] = readdirSync(keys);
      t.equal((await radserve(lost, "key", "new", "--results")).status, 0);
      rmSync(path.join(keys, compromised));
      rmSync(image);
      const refused = await radserve(lost, "adopt");
      t.match([refused.status, refused.stderr], [1, /Refused: .*--without-replay/]);
      t.equal((await radserve(lost, "adopt", "--without-replay")).status, 0);
      t.equal((await radserve(lost, "adopt")).stdout.match(/(\d) +trusted before/)?.[1], "1");
    },
  );

  await t.test("a list that somebody has put something into is a condition", async (t) => {
    mkdirSync(path.join(place.output, ".radserve-results", "x.jsonl"));
    const doctor = await radserve(place, "doctor");
    t.match(doctor.stdout, /x\.jsonl: a folder/);
    await server.logged(({ condition }) => condition === "list_unreadable");
    t.match((await get("/results/list")).status, 200);
  });
});
