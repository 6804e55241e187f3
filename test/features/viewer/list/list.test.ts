/** The list of results, with what somebody else may have put into its folder. */
import { keysFolder } from "../../../support/result-keys.js";
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  rmdirSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t from "tap";
import { withName } from "../../../../src/results/commit/commit.js";
import { badLists } from "../../../../src/features/viewer/list/files.js";
import { LIST_FOLDER } from "../../../../src/files/helper-names.js";
import { listResults, rebuild, rowOf } from "../../../../src/features/viewer/list/list.js";
import { hashesOf, sealWhose } from "../../../../src/features/viewer/list/whose.js";
import { createKey } from "../../../../src/files/key-file.js";
import { resultKeyIds, resultKeysIn, useResultKeys } from "../../../../src/results/receipt/seal.js";
import { readReceipt } from "../../../../src/results/receipt/read-receipt.js";
import { receiptOf } from "../../../support/receipts.js";

const LIST = { limit: 50, sees: () => true, read: (file: string) => readReceipt(file) };
const list = (root: string) => listResults([root], {}, LIST);
const descriptors = () => readdirSync("/proc/self/fd").length;

/** A root with a result `x.dcm`, and its line in the list. */
async function rootWith(dir: string): Promise<string> {
  const receipt = receiptOf({ week: 0, study: 1, score: 0.9 });
  await withName(dir, "x.dcm", {}, (held) => held.commit([], receipt));
  mkdirSync(path.join(dir, LIST_FOLDER));
  write(dir, "node", JSON.stringify(rowOf(receipt, { receipt: "x.dcm.json", input: "/in/x.dcm" })));
  return dir;
}

const fileOf = (dir: string, name: string) => path.join(dir, LIST_FOLDER, `${name}.jsonl`);
const write = (dir: string, name: string, ...lines: string[]) =>
  writeFileSync(fileOf(dir, name), lines.map((line) => `${line}\n`).join(""));

t.test("a file that cannot be used hides no other, is told, and keeps nothing open", async (t) => {
  const dir = await rootWith(t.testdir());
  symlinkSync("/nowhere", fileOf(dir, "dangling"));
  symlinkSync("/etc/passwd", fileOf(dir, "link"));
  mkdirSync(fileOf(dir, "folder"));
  const before = descriptors();
  for (let i = 0; i < 20; i++) t.equal((await list(dir)).results.length, 1);
  t.equal(descriptors(), before);
  const found = await listResults([dir, path.join(dir, "gone")], {}, LIST);
  t.match(found, { results: { length: 1 }, unreadable_lists: 4 }, "with a root that is not there");
  t.same(await badLists(dir), [
    { name: `${LIST_FOLDER}/dangling.jsonl`, why: "a symbolic link" },
    { name: `${LIST_FOLDER}/folder.jsonl`, why: "a folder" },
    { name: `${LIST_FOLDER}/link.jsonl`, why: "a symbolic link" },
  ]);
  const told: string[] = [];
  t.match(await rebuild(dir, (file) => told.push(path.basename(file))), { results: 1 });
  t.same(told, ["dangling.jsonl", "folder.jsonl", "link.jsonl"]);
  t.equal((await list(dir)).results.length, 1);
});

t.test("a list that cannot be made again stays", async (t) => {
  const dir = await rootWith(t.testdir());
  const before = readFileSync(fileOf(dir, "node"), "utf8");
  mkdirSync(fileOf(dir, "rebuilt"));
  await t.rejects(rebuild(dir, () => undefined));
  t.equal(readFileSync(fileOf(dir, "node"), "utf8"), before);
});

t.test("what a bare folder held stays listed until the folder is removed", async (t) => {
  const dir = await rootWith(t.testdir());
  const row = JSON.parse(readFileSync(fileOf(dir, "node"), "utf8")) as { receipt: string };
  for (const folder of ["away", "gone"])
    write(dir, folder, JSON.stringify({ ...row, receipt: `${folder}/x.dcm.json` }));
  mkdirSync(path.join(dir, "away"));
  const told: string[] = [];
  t.match(await rebuild(dir, (folder) => told.push(folder)), { results: 2, gone: 1 });
  t.same(told, [path.join(dir, "away")]);
  rmdirSync(path.join(dir, "away"));
  t.match(await rebuild(dir, () => undefined), { results: 1, gone: 1 });
});

t.test("lines of strangers take linear time, and are left out", async (t) => {
  const dir = await rootWith(t.testdir());
  const repeated = `{"at":"2027-01-01T00:00:00.000Z",${'"receipt":"a",'.repeat(80_000)}x`;
  write(dir, "repeated", repeated, repeated, repeated);
  write(dir, "long", `{"at":"2027-01-01T00:00:00Z","receipt":"${"a".repeat(30_000_000)}"}`);
  write(dir, "escaped", `{"at":"2027-01-01T00:00:00Z","receipt":"${'\\"'.repeat(100_000)}`);
  // Of the processor: others may have it for long
  const before = process.cpuUsage();
  const found = await list(dir);
  const { user, system } = process.cpuUsage(before);
  t.ok(user + system < 10e6);
  t.same(
    found.results.map(({ receipt }) => receipt),
    [path.join(dir, "x.dcm.json")],
  );
});

t.test("a field that a line has twice, or a time that is none, is no line", async (t) => {
  const dir = await rootWith(t.testdir());
  const good = readFileSync(fileOf(dir, "node"), "utf8").trim();
  write(
    dir,
    "twice",
    good.replace('"receipt":"x.dcm.json"', '"receipt":"y","receipt":"x.dcm.json"'),
  );
  write(dir, "time", good.replace(/"at":"[^"]*"/, '"at":"9999"'));
  write(dir, "outside", good.replace('"receipt":"x', '"receipt":"../../x'));
  t.equal((await list(dir)).results.length, 1);
});

t.test("a line by a wrong clock hides none of those before it", async (t) => {
  const dir = await rootWith(t.testdir());
  const good = readFileSync(fileOf(dir, "node"), "utf8").trim();
  const early = { ...(JSON.parse(good) as object), at: "1970-01-01T00:05:00.000Z", receipt: "y" };
  write(dir, "node", good, JSON.stringify(early));
  const { results } = await listResults([dir], { from: "2000-01-01T00:00:00.000Z" }, LIST);
  t.strictSame(
    results.map(({ receipt }) => receipt),
    [path.join(dir, "x.dcm.json")],
  );
});

t.test("what is told of a result is its receipt's, whatever its line says", async (t) => {
  const dir = await rootWith(t.testdir());
  const good = readFileSync(fileOf(dir, "node"), "utf8").trim();
  write(dir, "node", good.replaceAll('"mass"', '"nothing"').replace("completed", "partial"));
  const [row] = (await list(dir)).results;
  t.match(row, { status: "completed", trust: { trusted: true }, input: "/in/x.dcm" });
  t.same(row?.models[0]?.found, ["mass"]);
  const search = listResults([dir], { finding: "nothing" }, LIST);
  t.same((await search).results, [], "it is not found by what the line says");
});

t.test("of a result that is not trusted nothing is told but that it is there", async (t) => {
  const dir = await rootWith(t.testdir());
  const file = path.join(dir, "x.dcm.json");
  writeFileSync(file, readFileSync(file, "utf8").replace('"mass"', '"forged"'));
  t.match((await list(dir)).results, [{ trust: { trusted: false, why: "wrong_mac" } }]);
  t.same(
    (await list(dir)).results[0]?.models.flatMap(({ found }) => found),
    [],
  );
  truncateSync(file, 10);
  t.match((await list(dir)).results, [{ trust: { trusted: false, why: "no_receipt" } }]);
});

t.test("a result is found by any of its labels, also where its line has none", async (t) => {
  for (const [many, longest] of [
    [105, 0],
    [6_000, 64],
  ] as const) {
    const dir = t.testdir();
    const receipt = receiptOf({ week: 0, study: 1, score: 0.9 });
    const labelOf = (i: number) => `label-${i}-`.padEnd(longest, "x");
    const [model] = receipt.models;
    const [finding] = model!.findings;
    model!.findings = Array.from({ length: many }, (_, i) => ({ ...finding!, label: labelOf(i) }));
    await withName(dir, "x.dcm", {}, (held) => held.commit([], receipt));
    await rebuild(dir, () => undefined);
    const search = (wanted: string) => listResults([dir], { finding: wanted }, LIST);
    t.match(await search(labelOf(many - 1)), { results: { length: 1 } }, `${many} labels`);
    t.match(await search(labelOf(many - 1).toUpperCase()), { results: { length: 1 } });
    t.strictSame((await search("label")).results, [], "a part of a label is none");
    await rebuild(dir, () => undefined);
    t.match(await search(labelOf(many - 1)), { results: { length: 1 } }, "and once more");
  }
});

t.test("a patient is found after the key of before has gone", async (t) => {
  const place = t.testdir({ keys: {}, out: {} });
  const keysDir = path.join(place, "keys");
  const folder = resultKeysIn(keysDir);
  t.teardown(() => useResultKeys(keysFolder));
  const made = async (created?: string) => {
    const key = await createKey(folder, created);
    useResultKeys(keysDir);
    return key;
  };
  const first = await made();
  const dir = await rootWith(path.join(place, "out"));
  const receipt = receiptOf({ week: 0, study: 1, score: 0.9 });
  const names: Record<string, string> = { PatientID: "PAT-1", AccessionNumber: "ACC-1" };
  const whose = await sealWhose({ string: (keyword) => names[keyword] }, receipt);
  write(dir, "node", JSON.stringify(rowOf(receipt, { receipt: "x.dcm.json", whose })));

  const second = await made(first.created);
  await withName(dir, "x.dcm", {}, (held) => held.commit([], receipt));
  await rebuild(dir, () => undefined);
  rmSync(path.join(folder, `${first.kid}.json`));
  useResultKeys(keysDir);
  t.strictSame(await resultKeyIds(), [second.kid]);
  for (const wanted of [
    { patient: await hashesOf("patient", "pat-1") },
    { accession: await hashesOf("accession", "ACC-1") },
  ])
    t.match(await listResults([dir], wanted, LIST), {
      results: [{ trust: { trusted: true }, whose: { patient_id: "PAT-1" } }],
    });
});
