/** What lies in an output folder is somebody else's until its MAC says otherwise. */
import "../../support/result-keys.js";
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { withName } from "../../../src/results/commit/commit.js";
import { earlierResult, type ResultKey } from "../../../src/results/commit/reuse.js";
import {
  deliverySchema,
  deliveryText,
  readDelivery,
  readDeliveryFile,
} from "../../../src/results/receipt/delivery.js";
import { isOfReceipt } from "../../../src/results/receipt/of-receipt.js";
import {
  LARGEST_UNTRUSTED,
  namesIn,
  readReceipt,
} from "../../../src/results/receipt/read-receipt.js";
import { receiptText, signedText, type Receipt } from "../../../src/results/receipt/receipt.js";
import { seal } from "../../../src/results/receipt/seal.js";
import { deliveryFor, sample } from "../../support/commits.js";
import { writeReceipt } from "../../support/receipts.js";

const NAME = "scan.dcm";

/** Commits a small result. */
async function put(dir: string, name = NAME, pixels = "pixels"): Promise<Receipt> {
  const { files, receipt } = sample(name, pixels, { a: `of ${pixels}` });
  await withName(dir, name, {}, (held) => held.commit(files, receipt));
  return receipt;
}

const at = (dir: string, name = NAME) => `${dir}/${name}.json`;
const text = (file: string) => readFileSync(file, "utf8");

async function trustOf(file: string, name?: string) {
  const found = await readReceipt(file, name);
  return found.kind === "receipt" ? found.trust : found;
}

/** Whether the same request would get what lies there. */
async function isReused(dir: string, receipt: Receipt): Promise<boolean | undefined> {
  const { source, models } = receipt;
  const key = (): ResultKey => ({
    file_sha256: source.file_sha256,
    ...(source.sop_instance_uid === undefined ? {} : { sop_instance_uid: source.sop_instance_uid }),
    models: models.map(({ name, sha256, site_thresholds }) => ({ name, sha256, site_thresholds })),
    outputs_requested: receipt.outputs_requested,
    outputs_from: receipt.outputs_from,
  });
  const existing = await readReceipt(at(dir));
  return (await earlierResult(dir, NAME, existing, key))?.reusable;
}

t.test("what was committed is trusted, also after its folder was moved", async (t) => {
  const dir = t.testdir({ from: {}, to: {} });
  const receipt = await put(`${dir}/from`);
  t.same(await trustOf(at(`${dir}/from`)), { trusted: true, key_id: "test" });
  t.equal(await isReused(`${dir}/from`, receipt), true);
  for (const file of [`${NAME}.json`, `${NAME}.a.png`])
    writeFileSync(`${dir}/to/${file}`, readFileSync(`${dir}/from/${file}`));
  t.match(await trustOf(at(`${dir}/to`)), { trusted: true });
  t.equal(await isReused(`${dir}/to`, receipt), true);
});

t.test("a receipt that was edited anywhere is neither trusted nor reused", async (t) => {
  const dir = t.testdir();
  const receipt = await put(dir);
  const written = text(at(dir));
  const edits: [string, (whole: string) => string][] = [
    ["a hash", (whole) => whole.replace(/"raw_sha256": "./, '"raw_sha256": "0')],
    ["a status", (whole) => whole.replace('"succeeded"', '"not_accepted"')],
    ["a timing", (whole) => whole.replace(/"request_id": "/, '"request_id": "x')],
    ["a blank", (whole) => whole.replace("{\n", "{ \n")],
    ["a field twice", (whole) => whole.replace("{\n", '{\n  "status": "partial",\n')],
    [
      "models twice, behind the others",
      (whole) => whole.replace(/,\n {2}"mac"/, `,\n  "models": []$&`),
    ],
    ["models twice, behind the MAC", (whole) => whole.replace(/\n\}\n$/, `,\n  "models": []$&`)],
    [
      "models twice, in the MAC",
      (whole) => whole.replace(/"\n {2}\}\n\}\n$/, `",\n  "models": []$&`),
    ],
    ["a field behind the MAC", (whole) => whole.replace(/\n\}\n$/, ',\n  "x": 1\n}\n')],
    ["a line end", (whole) => `${whole}\n`],
    ["the MAC", (whole) => whole.replace(/"hmac_sha256": "./, '"hmac_sha256": "g')],
    ["no MAC", (whole) => whole.replace(/,\n {2}"mac": \{[^}]*\}/, "")],
    ["another key", (whole) => whole.replace('"key_id": "test"', '"key_id": "none"')],
  ];
  for (const [what, edit] of edits) {
    writeFileSync(at(dir), edit(written));
    const found = await readReceipt(at(dir));
    t.not(text(at(dir)), written, what);
    if (found.kind === "receipt") {
      t.equal(found.trust.trusted, false, what);
      t.equal(await isReused(dir, receipt), false, `${what} is not reused`);
    } else t.equal(found.kind, "foreign", what);
  }
  writeFileSync(at(dir), written);
  t.equal(await isReused(dir, receipt), true);
});

t.test("why it is not trusted is told", async (t) => {
  const dir = t.testdir();
  await put(dir);
  const written = text(at(dir));
  writeFileSync(at(dir), written.replace(/,\n {2}"mac": \{[^}]*\}/, ""));
  t.same(await trustOf(at(dir)), { trusted: false, why: "no_mac" });
  writeFileSync(at(dir), written.replace('"key_id": "test"', '"key_id": "none"'));
  t.same(await trustOf(at(dir)), { trusted: false, why: "unknown_key" });
  writeFileSync(at(dir), written.replace('"succeeded"', '"not_accepted"'));
  t.same(await trustOf(at(dir)), { trusted: false, why: "wrong_mac" });
  writeFileSync(at(dir), JSON.stringify(JSON.parse(written)));
  t.same(await trustOf(at(dir)), { trusted: false, why: "wrong_mac" }, "another program's form");
});

t.test("a receipt under another NAME, or of another image, is not that result", async (t) => {
  const dir = t.testdir();
  await put(dir, "other.dcm", "other pixels");
  writeFileSync(at(dir), readFileSync(at(dir, "other.dcm")));
  t.same(await trustOf(at(dir)), { trusted: false, why: "wrong_mac" });
  const { receipt } = sample(NAME, "pixels", { a: "x" });
  receipt.source.sop_instance_uid = "9.9.9";
  await t.rejects(isReused(dir, receipt), { code: "output_name_taken", message: /not trusted/ });
  // A right one of another image, from another folder
  await writeReceipt(dir, NAME, sample(NAME, "else", { a: "x" }).receipt);
  t.match(await trustOf(at(dir)), { trusted: true });
  await t.rejects(isReused(dir, receipt), { code: "output_name_taken" });
});

t.test("links, folders and receipts that name files elsewhere are no receipts", async (t) => {
  const dir = t.testdir({ [`folder.json`]: {} });
  await put(dir);
  symlinkSync(at(dir), `${dir}/link.json`);
  t.same(await readReceipt(`${dir}/link.json`), { kind: "foreign" });
  t.same(await readReceipt(`${dir}/folder.json`), { kind: "foreign" });
  for (const name of ["../other/scan.dcm.a.png", "/etc/passwd", "a\0b"]) {
    const { receipt } = sample(NAME, "pixels", { a: "x" });
    for (const file of receipt.models[0]?.outputs ?? []) file.path = name;
    await writeReceipt(dir, NAME, receipt);
    t.match(await readReceipt(at(dir)), { kind: "foreign", why: "no_receipt" });
  }
});

t.test(
  "a UID that is none, a number beyond all, and nesting without end are refused",
  async (t) => {
    const dir = t.testdir();
    const write = (whole: string) => writeFileSync(at(dir), whole);
    const { receipt } = sample(NAME, "pixels", { a: "x" });
    const whole = receiptText(receipt);
    for (const bad of [
      whole.replace(/"media_type"/, '"sop_instance_uid": "1.2/../../admin?x#", "media_type"'),
      whole.replace(/"bytes": \d+/, '"bytes": 1e999'),
      whole.replace(/"bytes": \d+/, `"bytes": ${"9".repeat(400)}`),
      whole.replace('"transforms": []', `"transforms": [${"[".repeat(1e6)}${"]".repeat(1e6)}]`),
      whole.replace(
        '"transforms": []',
        `"transforms": [{"step":"x","y":${'{"a":'.repeat(2e5)}1${"}".repeat(2e5)}}]`,
      ),
    ]) {
      t.not(bad, whole);
      write(bad);
      t.match(await readReceipt(at(dir)), { kind: "foreign", why: "no_receipt" });
    }
  },
);

t.test("a huge file that is not ours is not read; one of ours is", async (t) => {
  const dir = t.testdir();
  const { receipt } = sample(NAME, "pixels", { a: "x" });
  const finding = { label: "x".repeat(400), present: true };
  const [model] = receipt.models;
  if (model !== undefined)
    model.findings = Array.from({ length: LARGEST_UNTRUSTED / 400 }, () => finding);
  const whole = receiptText(receipt);
  writeFileSync(at(dir), whole);
  const before = process.memoryUsage().rss;
  t.same(await readReceipt(at(dir)), { kind: "foreign", why: "too_large" });
  t.ok(process.memoryUsage().rss - before < LARGEST_UNTRUSTED, "it is not in memory");
  const signed = await seal("receipt", NAME, whole);
  writeFileSync(at(dir), signed);
  t.match(await readReceipt(at(dir)), { kind: "receipt", trust: { trusted: true } });
  writeFileSync(at(dir), signed.replace(/"hmac_sha256": "./, '"hmac_sha256": "0'));
  const found = await readReceipt(at(dir));
  if (!signed.includes('"hmac_sha256": "0')) t.same(found, { kind: "foreign", why: "too_large" });
});

t.test("among images, one that is not ours is read up to a length", async (t) => {
  const dir = t.testdir();
  const whole = receiptText(sample(NAME, "pixels", { a: "x" }).receipt);
  writeFileSync(at(dir), whole);
  t.match(await readReceipt(at(dir), NAME, whole.length), { kind: "receipt" });
  t.match(await readReceipt(at(dir), NAME, whole.length - 1), { why: "too_large" });
  writeFileSync(at(dir), await seal("receipt", NAME, whole));
  t.match(await readReceipt(at(dir), NAME, 1), { kind: "receipt", trust: { trusted: true } });
});

t.test("of a receipt that is not trusted only pictures of its NAME are no images", async (t) => {
  const dir = t.testdir();
  const { receipt } = sample(NAME, "pixels", { a: "x" });
  const [file] = receipt.models[0]?.outputs ?? [];
  if (file !== undefined) receipt.models[0]?.outputs.push({ ...file, path: "slice-7.dcm" });
  const names = async (whole: string) => {
    writeFileSync(at(dir), whole);
    const found = await readReceipt(at(dir));
    return found.kind === "receipt" ? [...namesIn(found, NAME)] : [];
  };
  t.same(await names(receiptText(receipt)), [`${NAME}.a.png`]);
  t.same(await names(await signedText(receipt, NAME)), [`${NAME}.a.png`, "slice-7.dcm"]);
});

t.test("a staged receipt that is not ours publishes nothing, and takes nothing away", async (t) => {
  const dir = t.testdir();
  const { receipt } = sample(NAME, "pixels", { a: "forged" });
  const staging = path.join(dir, `.${NAME}.radserve`);
  mkdirSync(`${staging}/files`, { recursive: true });
  writeFileSync(`${staging}/receipt.json`, receiptText(receipt));
  writeFileSync(`${staging}/files/${NAME}.a.png`, "forged");
  await withName(dir, NAME, {}, () => Promise.resolve());
  t.notOk(existsSync(at(dir)), "nothing was published");
  t.notOk(existsSync(staging));

  // Over a result that is trusted, with a receipt that lists its files
  const ours = await put(dir);
  mkdirSync(staging);
  writeFileSync(`${staging}/receipt.json`, receiptText(ours));
  await withName(dir, NAME, {}, () => Promise.resolve());
  t.equal(await isReused(dir, ours), true, "its files are still there");
});

t.test("a delivery that was edited is not one", async (t) => {
  const dir = t.testdir();
  const file = `${dir}/.${NAME}.delivery.json`;
  const receipt = await put(dir);
  const [written] = receipt.models[0]?.outputs ?? [];
  const object = {
    path: written?.path ?? "",
    model: "a",
    sop_class_uid: "1.2.840.10008.5.1.4.1.1.88.34",
    sop_instance_uid: "1.2.3",
    series_instance_uid: "1.2.4",
    sha256: written?.sha256 ?? "",
    state: "waiting" as const,
    at: "2026-01-01T00:00:00.000Z",
    tries: 0,
  };
  const delivery = { ...deliveryFor("ab"), destinations: { pacs: [object] } };
  const signed = await deliveryText(delivery, NAME);
  writeFileSync(file, signed);
  t.same(await readDelivery(file, NAME), delivery);
  for (const edited of [
    signed.replace('"pacs"', '"other"'),
    signed.replace('"series_instance_uid": "1.2.4"', '"series_instance_uid": "1.2.5"'),
    signed.replace(/,\n {2}"mac": \{[^}]*\}/, ""),
  ]) {
    writeFileSync(file, edited);
    t.equal(await readDelivery(file, NAME), undefined);
    t.match(await readDeliveryFile(file, NAME), { trust: { trusted: false } });
  }
  writeFileSync(file, signed);
  t.equal(await readDelivery(file, "other.dcm"), undefined, "under another NAME");
  const steered = { ...object, series_instance_uid: "x/../../admin/reset?all=1#" };
  t.equal(
    deliverySchema.safeParse({ ...delivery, destinations: { pacs: [steered] } }).success,
    false,
  );
  for (const outside of ["../x", "/etc/passwd"])
    t.equal(
      deliverySchema.safeParse({
        ...delivery,
        destinations: { pacs: [{ ...object, path: outside }] },
      }).success,
      false,
    );
  // The receipt has no object of these UIDs, so that nothing of it is sent even when it is signed
  t.equal(isOfReceipt(delivery, receipt), false);
});

t.test("what readers differ over is no receipt and no delivery", async (t) => {
  const dir = t.testdir();
  await put(dir);
  const unsigned = (whole: string) => whole.replace(/,\n {2}"mac": \{[^}]*\}/, "");
  const written = unsigned(text(at(dir)));
  const delivery = unsigned(await deliveryText(deliveryFor(NAME), NAME));
  const edits: [string, (whole: string) => string | Buffer][] = [
    ["a field twice", (whole) => whole.replace(/\n\}\n$/, ',\n  "schema": "x"\n}\n')],
    [
      "a field twice in other letters",
      (whole) => whole.replace("{\n", '{\n  "\\u0073chema": "x",\n'),
    ],
    ["a prototype", (whole) => whole.replace("{\n", '{\n  "__proto__": {},\n')],
    ["a byte order mark", (whole) => `\ufeff${whole}`],
    ["NUL", (whole) => `${whole}\0`],
    ["no UTF-8", (whole) => Buffer.from(whole.replace("{\n", '{\n  "x": "\xff",\n'), "latin1")],
    ["a number that no double holds", (whole) => whole.replace("{\n", '{\n  "x": 1e999,\n')],
    ["deep", (whole) => whole.replace("{\n", `{\n  "x": ${"[".repeat(40)}${"]".repeat(40)},\n`)],
  ];
  writeFileSync(at(dir), written);
  t.match(await trustOf(at(dir)), { trusted: false, why: "no_mac" });
  for (const [what, edit] of edits) {
    writeFileSync(at(dir), edit(written));
    t.same(await trustOf(at(dir)), { kind: "foreign", why: "no_receipt" }, what);
    writeFileSync(`${dir}/delivery`, edit(delivery));
    const found = await readDeliveryFile(`${dir}/delivery`, NAME);
    t.match(found, { delivery: undefined, trust: { trusted: false } }, `${what}, of a delivery`);
  }
  t.equal(await readDeliveryFile(`${dir}/none`, NAME), undefined);
});
