/**
 * The list of results: what was written, the latest first, for those who may see it; made again
 * from receipts.
 */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t from "tap";
import type { z } from "zod";
import type { listedSchema } from "../../../src/features/viewer/list/list.js";
import type { Answer } from "../../../src/results/receipt/receipt.js";
import { textOf } from "../../support/audit.js";
import { bulkPlace } from "../../support/bulk.js";
import { CT_SLICE, dicomFile, imageAttributes } from "../../support/dicom.js";
import { ADDON, needs } from "../../support/needs.js";
import { issueToken, radserve, startServer } from "../../support/server.js";

type Listed = z.infer<typeof listedSchema>;

t.setTimeout(300_000);

t.test("the list of results", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t, { RADSERVE_MINIMUM_FREE_DISK: "0", RADSERVE_FILES_BY_HTTP: "view" });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const folder = path.join(place.output, "a");
  mkdirSync(folder);
  const list = async (query: Record<string, string> = {}, token = server.token) => {
    const headers = { Authorization: token };
    const answer = await fetch(
      `${server.url}/results/list?${new URLSearchParams(query).toString()}`,
      {
        headers,
      },
    );
    return { status: answer.status, body: (await answer.json()) as Listed & { error?: string } };
  };
  const names = async (query: Record<string, string> = {}, token = server.token) =>
    (await list(query, token)).body.results.map(({ receipt }) => path.basename(receipt));
  const found = async (question: Record<string, string>, url = server.url) => {
    const headers = { Authorization: server.token, "Content-Type": "application/json" };
    const body = JSON.stringify(question);
    const answer = await fetch(`${url}/results/search`, { method: "POST", headers, body });
    return ((await answer.json()) as Listed).results.map(({ receipt }) => path.basename(receipt));
  };
  const infer = async (
    name: string,
    attributes: object,
    output: string,
    models = ["ct-tissue"],
  ) => {
    const input_image_path = path.join(place.input, name);
    if (!existsSync(input_image_path))
      writeFileSync(
        input_image_path,
        dicomFile({
          attributes: imageAttributes({ ...CT_SLICE, ...attributes }),
          pixels: Buffer.alloc(512),
        }),
      );
    const request = { input_image_path, output_folder_path: output, models };
    const answer = await server.post("/single_inference", request);
    t.equal(answer.status, 200);
    return (await answer.json()) as Answer;
  };
  const size = { Rows: 16, Columns: 16 };
  const today = () => new Date().toISOString().slice(0, 10);
  const began = today();

  const nothing = { results: [], next_cursor: null, unreadable_results: 0, unreadable_lists: 0 };
  t.strictSame((await list()).body, nothing, "nothing was written yet");
  const first = await infer(
    "one.dcm",
    {
      ...size,
      PatientID: "P1",
      PatientName: "Doe^Jane",
      StudyDate: "20261120",
      SeriesDescription: "Abdomen",
      StudyInstanceUID: "1.2.3",
    },
    place.output,
  );
  await infer(
    "two.dcm",
    { ...size, PatientID: "P2", StudyInstanceUID: "1.2.4", AccessionNumber: "NO-2 " },
    folder,
  );
  await infer("three.dcm", { ...size, PatientID: "P1", StudyInstanceUID: "1.2.3" }, folder);
  const all = ["three.dcm.json", "two.dcm.json", "one.dcm.json"];

  await t.test("has each once, the latest first, with what was found", async (t) => {
    t.ok(
      (await infer("one.dcm", {}, place.output)).reused,
      "what is there already is not written again",
    );
    t.strictSame(await names(), all);
    const row = (await list()).body.results.at(-1)!;
    t.match(row, {
      receipt: first.receipt_path,
      input: path.join(place.input, "one.dcm"),
      status: "completed",
      modality: "CT",
      study: "1.2.3",
    });
    const present = first.models[0]!.findings.filter((one) => one.present).map(
      ({ label }) => label,
    );
    t.strictSame(row.models[0]!.found, present);
    t.match(row.whose, { patient_id: "P1", patient_name: "Doe Jane", study_date: "20261120" });
    t.match(row.whose, { description: "Abdomen" });
    const file = path.join(place.output, ".radserve-results");
    const lines = readdirSync(file).map((name) => readFileSync(path.join(file, name), "utf8"));
    t.notMatch(lines.join(), /"P1"|Jane|20261120|Abdomen/, "the disk has no name of a person");
    t.equal(statSync(file).mode & 0o777, 0o700);
  });

  await t.test("by page, and by what is asked for", async (t) => {
    const seen: string[] = [];
    let cursor: string | null = "";
    while (cursor !== null) {
      const { body }: { body: Listed } = await list({
        limit: "1",
        ...(cursor === "" ? {} : { cursor }),
      });
      seen.push(...body.results.map(({ receipt }) => path.basename(receipt)));
      cursor = body.next_cursor;
    }
    t.strictSame(seen, all);
    t.strictSame(await names({ patient: "P1" }), ["three.dcm.json", "one.dcm.json"]);
    t.strictSame(await names({ patient: " p1 " }), ["three.dcm.json", "one.dcm.json"]);
    t.strictSame(await names({ patient: "P" }), [], "the whole id alone");
    t.strictSame(await found({ study: "1.2.4" }), ["two.dcm.json"]);
    t.strictSame(await found({ study: "1.2.4 " }), ["two.dcm.json"]);
    t.strictSame(await found({ accession: "no-2" }), ["two.dcm.json"]);
    const now = new Date();
    const at = (hours: number) => new Date(now.getTime() + hours * 3_600_000).toISOString();
    t.strictSame(await found({ from: at(-1).replace("Z", "+00:00"), to: at(1) }), all);
    t.strictSame(await found({ from: at(1) }), []);
    t.strictSame(await found({ to: at(-1) }), [], "a time is not included");
    t.strictSame(await names({ text: "1.2.4" }), ["two.dcm.json"]);
    t.strictSame(await names({ text: "/A/T" }), ["three.dcm.json", "two.dcm.json"]);
    t.strictSame(await names({ model: "ct-tissue", modality: "CT", status: "completed" }), all);
    t.strictSame(await names({ model: "burned-in-text" }), []);
    t.strictSame(await names({ finding: "no such label" }), []);
    t.strictSame(await names({ from: began, to: today() }), all);
    t.strictSame(await names({ to: "2020-01-01" }), []);
    t.strictSame(await names({ from: "2999-01-01" }), []);
    t.match(await list({ from: "yesterday" }), { status: 400, body: { error: "bad_request" } });
  });

  await t.test("a line that is moved to another result names nobody", async (t) => {
    const file = path.join(place.output, ".radserve-results");
    const lists = () => readdirSync(file).filter((name) => name.endsWith(".jsonl"));
    const before = lists().map(
      (name) => [name, readFileSync(path.join(file, name), "utf8")] as const,
    );
    for (const [name, text] of before) {
      const ofOne = /"whose":\{[^}]*\}/.exec(
        text.split("\n").find((line) => line.includes("one.dcm.json")) ?? "",
      )![0];
      writeFileSync(path.join(file, name), text.replace(/"whose":\{[^}]*\}/g, ofOne));
    }
    const rows = (await list()).body.results;
    t.same(
      rows.map(({ whose }) => whose?.patient_id),
      [undefined, undefined, "P1"],
    );
    t.strictSame(await found({ accession: "no-2" }), []);
    for (const [name, text] of before) writeFileSync(path.join(file, name), text);
  });

  await t.test("planted lines neither give a result to another patient nor hide it", async (t) => {
    const lists = path.join(place.output, ".radserve-results");
    const line = readdirSync(lists)
      .filter((name) => name.endsWith(".jsonl"))
      .flatMap((name) => readFileSync(path.join(lists, name), "utf8").split("\n"))
      .find((text) => text.includes("two.dcm.json"));
    const two = JSON.parse(line ?? "") as { at: string; whose: object };
    const { stdout } = await radserve(place, "audit", "hash", "--patient", "P1");
    const later = { ...two, at: new Date(Date.parse(two.at) + 60_000).toISOString() };
    const planted = path.join(lists, "planted.jsonl");
    const { whose: _, ...bare } = later;
    for (const row of [
      { ...bare, patient: stdout.trim() },
      { ...later, patient: stdout.trim() },
      { ...later, whose: { ...two.whose, sealed: "x" } },
      { at: later.at, receipt: "a/two.dcm.json" },
    ]) {
      writeFileSync(planted, `${JSON.stringify(row)}\n`);
      t.strictSame(await found({ patient: "P1" }), ["three.dcm.json", "one.dcm.json"]);
      t.strictSame(await found({ patient: "P2" }), ["two.dcm.json"]);
      t.strictSame(await found({ accession: "NO-2" }), ["two.dcm.json"]);
      t.strictSame((await names()).sort(), all.toSorted(), "each once");
    }
    rmSync(planted);
    // Beyond the first page, too
    const first = (await list({ patient: "P1", limit: "1" })).body;
    t.match(first, { results: [{ receipt: /three/ }], next_cursor: String });
    t.strictSame(await names({ patient: "P1", cursor: first.next_cursor ?? "" }), ["one.dcm.json"]);
  });

  await t.test("another node of the installation finds them, too", async (t) => {
    const { environment } = place;
    const second = {
      ...place,
      // The folders are those of the first
      remove: () => undefined,
      environment: {
        ...environment,
        RADSERVE_STATE_DIR: path.join(place.directory, "state-two"),
        RADSERVE_KEYS_DIR: path.join(environment["RADSERVE_STATE_DIR"]!, "keys"),
      },
    };
    const other = await startServer(second, place);
    t.teardown(() => other.stop());
    t.strictSame(await found({ patient: "p1" }, other.url), ["three.dcm.json", "one.dcm.json"]);
  });

  await t.test("and who was looked for stands in the audit as a hash", (t) => {
    t.match(textOf(place), /"GET \/results\/list".*"patient":"[0-9a-f]{32}"/);
    t.notMatch(textOf(place), /P1|1\.2\.4|NO-2/i);
    t.end();
  });

  await t.test("for those who may see it", async (t) => {
    const narrowed = await issueToken(place, "--subject", "narrow", "--output-root", folder);
    t.strictSame(await names({}, narrowed), ["three.dcm.json", "two.dcm.json"]);
    t.equal((await list({}, "")).status, 401);
  });

  await t.test("whose share is away, it counts what it lacks", async (t) => {
    renameSync(folder, `${folder}-away`);
    mkdirSync(folder);
    t.match(
      (await list()).body,
      { results: { length: 1 }, unreadable_results: 2 },
      "a bare folder",
    );
    t.match((await list({ patient: "P2" })).body, {
      results: { length: 0 },
      unreadable_results: 1,
    });
    rmSync(folder, { recursive: true });
    t.match((await list()).body, { results: { length: 1 }, unreadable_results: 0 }, "it is gone");
    renameSync(`${folder}-away`, folder);
    t.match((await list()).body, { results: { length: 3 }, unreadable_results: 0 });
  });

  await t.test("without results that are gone, and again from receipts", async (t) => {
    rmSync(path.join(folder, "two.dcm.json"));
    t.strictSame(await names(), ["three.dcm.json", "one.dcm.json"]);
    const index = () => radserve(place, "results", "index");
    t.match((await index()).stdout, /: 2 results listed, 0 new, 1 gone$/m);
    t.strictSame(
      await names({ patient: "P1" }),
      ["three.dcm.json", "one.dcm.json"],
      "it knows what it knew",
    );
    await infer("four.dcm", { ...size, PatientID: "P4" }, folder);
    t.strictSame(
      await names(),
      ["four.dcm.json", "three.dcm.json", "one.dcm.json"],
      "the server goes on",
    );
    rmSync(path.join(place.output, ".radserve-results"), { recursive: true });
    t.strictSame(await names(), []);
    t.match((await index()).stdout, /: 3 results listed, 3 new, 0 gone$/m);
    t.strictSame(await names(), ["four.dcm.json", "three.dcm.json", "one.dcm.json"]);
    await infer("five.dcm", { ...size, PatientID: "P5" }, folder);
    t.strictSame(
      await names({ limit: "1" }),
      ["five.dcm.json"],
      "the writer sees that its file is gone",
    );
  });
});

t.test("a server that shows no results has no list", { skip: needs(ADDON) }, async (t) => {
  const server = await startServer(bulkPlace(t));
  t.teardown(() => server.stop());
  const answer = await fetch(`${server.url}/results/list`, {
    headers: { Authorization: server.token },
  });
  t.equal(answer.status, 404);
});
