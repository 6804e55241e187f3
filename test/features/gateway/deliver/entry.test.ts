/** Entries of the queue by themselves: of which result they are. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import t, { type Test } from "tap";
import { createLog } from "../../../../src/base/log.js";
import type { OutboxEntry } from "../../../../src/features/gateway/deliver/entry.js";
import { Outbox } from "../../../../src/features/gateway/deliver/outbox.js";
import { withName } from "../../../../src/results/commit/commit.js";
import { deliveryText, readDelivery } from "../../../../src/results/receipt/delivery.js";
import { hashOfObjects } from "../../../../src/results/receipt/of-receipt.js";
import type { Receipt } from "../../../../src/results/receipt/receipt.js";
import { mounts } from "../../../support/audit.js";
import { deliveryFor, sample } from "../../../support/commits.js";

const NAME = "x";
const HELPER = `.${NAME}.delivery.json`;

/** A result with one object of DICOM lies in the folder. */
async function put(dir: string, content: string, id?: string): Promise<Receipt> {
  const { files, receipt } = sample(NAME, "pixels", { m: content });
  for (const output of receipt.models.flatMap(({ outputs }) => outputs))
    Object.assign(output, {
      sop_class_uid: "1.2.3",
      sop_instance_uid: "1.2.3.4",
      series_instance_uid: "1.2.3.5",
    });
  const delivery = id === undefined ? undefined : deliveryFor(id);
  await withName(dir, NAME, {}, (held) => held.commit(files, receipt, undefined, delivery));
  return receipt;
}

/** A queue whose settings name no destination, over the folders of a test. */
function queueOf(t: Test, warned: (message: string) => void = () => undefined) {
  const base = realpathSync(t.testdir({ out: {}, queue: {} }));
  const [dir, folder] = [`${base}/out`, `${base}/queue`];
  const log = createLog("silent");
  const warn = (facts: { request_id?: string }, message: string) =>
    warned(`${facts.request_id ?? ""} ${message}`);
  const node = () =>
    new Outbox({
      folder,
      outputRoots: [dir],
      destinations: {},
      webhooks: {},
      minimumFreeBytes: 0,
      log: Object.assign(log, { warn }),
      found: () => undefined,
      news: () => undefined,
    });
  const isQueued = (id: string) => existsSync(`${folder}/${id}.json`);
  const entry = (id: string, more: Partial<OutboxEntry> = {}): OutboxEntry => ({
    folder: dir,
    name: NAME,
    reused: false,
    delivery: deliveryFor(id),
    ...more,
  });
  return { dir, outbox: node(), node, isQueued, entry };
}

/** Another takes NAME over from whoever holds it. */
function takeOver(dir: string): void {
  const lock = `${dir}/.${NAME}.lock`;
  rmSync(lock, { force: true });
  writeFileSync(lock, "another");
}

t.test("who has lost the name writes nothing of a delivery", async (t) => {
  let dir = "";
  let isLost = true;
  const queue = queueOf(t, () => {
    if (isLost) takeOver(dir);
  });
  const { outbox, entry } = queue;
  ({ dir } = queue);
  await put(dir, "one", "a");
  const text = () => readFileSync(`${dir}/${HELPER}`, "utf8");
  const before = text();
  await outbox.keep(entry("a"));
  await t.rejects(outbox.adopt("a"), { code: "overloaded" });
  t.equal(text(), before);
  isLost = false;
  rmSync(`${dir}/.${NAME}.lock`);
  const pending = await outbox.adopt("a");
  if (pending === undefined) throw new Error("There is nothing to deliver");
  const adopted = text();
  t.not(adopted, before);
  const change = outbox.change(pending, (delivery) => {
    delivery.priority = "stat";
    takeOver(dir);
  });
  await t.rejects(change, { code: "overloaded" });
  t.equal(text(), adopted);
});

t.test("nor removes what a newer result has set aside", async (t) => {
  const { dir, outbox, entry } = queueOf(t);
  await put(dir, "one", "a");
  await put(dir, "two");
  const aside = `${dir}/.${NAME}.delivery.1`;
  const done = { ...deliveryFor("a"), open: false, destinations: {} };
  writeFileSync(`${aside}/previous.delivery.json`, await deliveryText(done, NAME));
  await outbox.keep(entry("a"));
  const pending = await outbox.adopt("a");
  if (pending === undefined) throw new Error("It was not found");
  await t.rejects(
    outbox.change(pending, () => takeOver(dir)),
    { code: "overloaded" },
  );
  t.ok(existsSync(`${aside}/previous.json`));
});

t.test("what is asked for of a result is not done with the one that replaces it", async (t) => {
  const warned: string[] = [];
  const { dir, outbox, isQueued, entry } = queueOf(t, (message) => warned.push(message));
  const objects_sha256 = hashOfObjects(await put(dir, "one"));
  await put(dir, "two");
  await outbox.keep(entry("a", { reused: true, objects_sha256 }));
  t.equal(await outbox.adopt("a"), undefined);
  t.match(warned, [/^a a result was replaced before it could be delivered/]);
  t.notOk(isQueued("a"));
  t.notOk(existsSync(`${dir}/${HELPER}`));

  await t.test("not with the delivery of that one either", async (t) => {
    await put(dir, "three", "b");
    const before = readFileSync(`${dir}/${HELPER}`, "utf8");
    const delivery = { ...deliveryFor("c"), destinations: { archive: null } };
    await outbox.keep(entry("c", { reused: true, objects_sha256, delivery }));
    t.equal(await outbox.adopt("c"), undefined);
    t.equal(warned.length, 2);
    t.equal(readFileSync(`${dir}/${HELPER}`, "utf8"), before);
  });
});

t.test("what lies on a share below an output root waits while that is away", async (t) => {
  const warned: string[] = [];
  const { dir, outbox, node, isQueued, entry } = queueOf(t, (message) => warned.push(message));
  const [share, point] = [`${dir}/share`, `${dir}/site`];
  for (const one of [share, point]) mkdirSync(one);
  if (!mounts(share, "1m")) {
    t.pass("skipped: mounting a tmpfs needs root");
    return;
  }
  const umount = (one: string) => execFileSync("umount", ["-l", one]);
  const bind = () => execFileSync("mount", ["--bind", share, point]);
  try {
    bind();
    const folder = `${point}/study`;
    mkdirSync(folder);
    await put(folder, "one", "a");
    await outbox.keep(entry("a", { folder }));
    const pending = await outbox.adopt("a");
    if (pending === undefined) throw new Error("There is nothing to deliver");
    umount(point);
    const change = () => outbox.change(pending, () => undefined);
    await t.rejects(change(), { code: "file_not_found" });
    await t.rejects(node().adopt("a"), { code: "file_not_found" }, "another node, or a restart");
    t.ok(isQueued("a"));
    bind();
    warned.length = 0;
    t.match(await node().adopt("a"), { id: "a" });
    await change();
    t.same(warned, []);
    rmSync(folder, { recursive: true });
    await change();
    t.notOk(isQueued("a"), "somebody has removed the result");
    t.match(warned, [/a result is not there/]);
    umount(point);
  } finally {
    umount(share);
  }
});

for (const [what, names] of [
  ["of the very result", true],
  ["of an entry that names none, as in 0.6,", false],
] as const)
  t.test(`what is asked for ${what} is added to its delivery`, async (t) => {
    const { dir, outbox, entry } = queueOf(t);
    const receipt = await put(dir, "one");
    const named = names ? { objects_sha256: hashOfObjects(receipt) } : {};
    await outbox.keep(entry("a", { reused: true, ...named }));
    t.match(await outbox.adopt("a"), { id: "a", place: "" });
    t.match(await readDelivery(`${dir}/${HELPER}`, NAME), {
      id: "a",
      destinations: { pacs: [{ sop_instance_uid: "1.2.3.4" }] },
    });
  });
