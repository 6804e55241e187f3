/** What becomes of results that wait: they are forged, replaced, of an older version or away. */
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t from "tap";
import {
  conditions,
  deliveringPlace,
  deliveryOf,
  infer,
  listed,
  proven,
  startDelivering,
} from "../../../support/deliveries.js";
import { writeSlice } from "../../../support/bulk.js";
import { radserve, type Place, type TestServer } from "../../../support/server.js";
import { webPacs } from "../../../support/web-pacs.js";
import { until } from "../../../support/until.js";

/** Another text of equal length in an SR, and its hash in the receipt: no hash contradicts it. */
function forge({ output }: Place): void {
  const [sr, receipt] = ["image.dcm.ct-tissue.sr.dcm", "image.dcm.json"].map((name) =>
    path.join(output, name),
  ) as [string, string];
  const hashOf = () => createHash("sha256").update(readFileSync(sr)).digest("hex");
  const before = hashOf();
  const text = readFileSync(sr, "latin1");
  const forged = text.replaceAll("Soft tissue", "Carcinoma! ");
  if (forged === text) throw new Error("There is nothing to forge in the SR");
  writeFileSync(sr, forged, "latin1");
  const said = readFileSync(receipt, "utf8");
  if (!said.includes(before)) throw new Error("The receipt has no hash of the SR");
  writeFileSync(receipt, said.replaceAll(before, hashOf()));
}

await t.test("a forged SR whose hash stands in the receipt is not delivered", async (t) => {
  const pacs = await webPacs(t);
  const place = deliveringPlace({ pacs });
  const server = await startDelivering(t, { ...place, remove: () => undefined });
  const isForged = () =>
    [...pacs.kept.values()].some((bytes) => Buffer.from(bytes).includes("Carcinoma!"));
  await t.test("when it is asked for again: it is computed again", async (t) => {
    t.equal((await infer(server, { deliver: "none" })).status, 200);
    forge(place);
    rmSync(path.join(place.output, ".image.dcm.delivery.json"), { force: true });
    const { body } = await infer(server, { deliver: "wait", destinations: ["pacs"] });
    t.match(body, { reused: false, deliveries: [{ state: "proven" }, { state: "proven" }] });
    t.equal(pacs.kept.size, 2);
    t.notOk(isForged());
  });
  await t.test("while it waits: it is a condition, and holds up no other", async (t) => {
    await pacs.stop();
    pacs.kept.clear();
    rmSync(path.join(place.output, "image.dcm.json"));
    for (const name of readdirSync(place.output).filter((one) => one.includes("image.dcm")))
      rmSync(path.join(place.output, name), { recursive: true });
    t.match((await infer(server, { deliver: "queue" })).body, { reused: false });
    await server.stop();
    forge(place);
    await pacs.start();
    const again = await startDelivering(t, place);
    await until("the condition is told", async () =>
      (await conditions(again)).some(({ condition }) => condition === "result_untrusted"),
    );
    t.equal(pacs.kept.size, 0);
    const { body } = await infer(again, { deliver: "wait" });
    t.match(body, { reused: false, deliveries: [{ state: "proven" }, { state: "proven" }] });
    t.equal(pacs.kept.size, 2);
    t.notOk(isForged());
    // Somebody has to look at the forged one
    t.match(await conditions(again), [{ condition: "result_untrusted" }]);
  });
});

await t.test("a file of a delivery that was changed or damaged loses no result", async (t) => {
  const pacs = await webPacs(t);
  await pacs.stop();
  const place = deliveringPlace({ pacs });
  const of = (name: string) => path.join(place.output, `.${name}.delivery.json`);
  const changed = (pattern: RegExp, by: string) => (file: string) => {
    writeFileSync(file, readFileSync(file, "utf8").replace(pattern, by));
  };
  const damages: Record<string, (file: string) => void> = {
    "uid.dcm": changed(/("series_instance_uid": ")[^"]*/g, "$1x/../../admin/reset?all=1#"),
    "id.dcm": changed(/("id": ")[^"]*/, "$1none"),
    "cut.dcm": (file) => truncateSync(file, 100),
    "empty.dcm": (file) => truncateSync(file, 0),
    "link.dcm": (file) => {
      symlinkSync("/nowhere", `${file}.link`);
      renameSync(`${file}.link`, file);
    },
  };
  const names = Object.keys(damages);
  const asked = (name: string) => ({
    input_image_path: path.join(place.input, name),
    outputs: ["sr"],
  });
  const first = await startDelivering(t, { ...place, remove: () => undefined });
  for (const [i, name] of [...names, "receipt.dcm"].entries()) {
    writeSlice(path.join(place.input, name), i);
    t.equal((await infer(first, asked(name))).status, 200);
  }
  const before = new Map(names.map((name) => [name, readFileSync(of(name))]));
  const untrusted = async (server: TestServer) =>
    (await conditions(server)).find(({ condition }) => condition === "result_untrusted")?.message;
  await until("the running server tells of them", async () => {
    // What it had begun to write of a delivery may lie over the damage
    for (const name of names) damages[name]!(of(name));
    return untrusted(first).then((message) => message?.endsWith(": 5."));
  });
  await first.stop();
  const receipt = path.join(place.output, "receipt.dcm.json");
  const text = readFileSync(receipt);
  writeFileSync(receipt, text.subarray(0, -100));
  await pacs.start();
  const server = await startDelivering(t, place);
  await until("so does the next one, and of a damaged receipt", async () =>
    untrusted(server).then((message) => message?.endsWith(": 6.")),
  );
  t.equal(pacs.kept.size, 0);
  t.match(await radserve(place, "deliver", "scan"), { status: 1, stderr: /cut\.dcm\.json is not/ });
  t.match(await radserve(place, "explain", path.join(place.output, "cut.dcm.json")), {
    stdout: /result_untrusted/,
  });
  const again = await infer(server, { ...asked("cut.dcm"), deliver: "wait" });
  t.match(again.body, { reused: true, deliveries: [{ state: "proven" }] });
  // At once: a server that finds none, or a part of one, may take it for a result that is gone
  const putBack = (file: string, bytes: Uint8Array) => {
    writeFileSync(`${file}.back`, bytes);
    renameSync(`${file}.back`, file);
  };
  for (const name of names.filter((one) => one !== "cut.dcm")) putBack(of(name), before.get(name)!);
  putBack(receipt, text);
  await until("what was put back is delivered", () => pacs.kept.size === 6);
  await until("the condition has ended", async () => (await conditions(server)).length === 0);
});

await t.test("what waited under version 0.6 is delivered once it is adopted", async (t) => {
  const pacs = await webPacs(t);
  await pacs.stop();
  const place = deliveringPlace({ pacs });
  const before = await startDelivering(t, { ...place, remove: () => undefined });
  await infer(before, { deliver: "queue" });
  await before.stop();
  // As 0.6 leaves it: no MAC, and no keys of results
  for (const name of ["image.dcm.json", ".image.dcm.delivery.json"]) {
    const file = path.join(place.output, name);
    const { mac, ...said } = JSON.parse(readFileSync(file, "utf8")) as { mac?: object };
    t.ok(mac, name);
    writeFileSync(file, `${JSON.stringify(said, null, 2)}\n`);
  }
  rmSync(path.join(place.environment["RADSERVE_STATE_DIR"]!, "keys", "results"), {
    recursive: true,
  });
  await pacs.start();
  const server = await startDelivering(t, place);
  await until("the condition is told", async () =>
    (await conditions(server)).some(({ condition }) => condition === "result_untrusted"),
  );
  t.equal(pacs.kept.size, 0);
  const adopted = await radserve(place, "adopt", "--without-replay");
  t.equal(adopted.status, 0, adopted.stderr);
  await until("both are proven", () => proven(place));
  t.equal(pacs.kept.size, 2);
  await until("the condition has ended", async () => (await conditions(server)).length === 0);
});

await t.test("what waits is delivered when the share of the results is back", async (t) => {
  const pacs = await webPacs(t);
  await pacs.stop();
  const place = deliveringPlace({ pacs });
  const server = await startDelivering(t, place);
  await infer(server);
  const [away, bare] = ["away", "bare"].map((name) => path.join(place.directory, name)) as [
    string,
    string,
  ];
  // As a mount point without its mount
  renameSync(place.output, away);
  mkdirSync(place.output);
  process.kill(server.servingPid(), "SIGKILL");
  await server.logged(({ msg }) =>
    msg.startsWith("a result that is to be delivered cannot be looked at"),
  );
  renameSync(place.output, bare);
  renameSync(away, place.output);
  await pacs.start();
  await until("the object is proven", () => proven(place));
  t.equal(pacs.kept.size, 2);
});

await t.test("a newer result waits for the one that it has replaced, which is named", async (t) => {
  const pacs = await webPacs(t);
  await pacs.stop();
  const place = deliveringPlace({ pacs });
  const server = await startDelivering(t, place);
  await infer(server, { outputs: ["seg"] });
  const first = deliveryOf(place).destinations["pacs"]?.[0]?.sop_instance_uid;
  await infer(server, { outputs: ["seg", "sr"] });
  const second = deliveryOf(place);
  t.match(second.replaces?.destinations["pacs"], [{ sop_instance_uid: first, state: "waiting" }]);
  t.match(
    (await listed(server)).map(({ replaced }) => replaced),
    [false, true],
  );
  // A queue that is lost is made again, with the one that was replaced
  process.kill(server.servingPid(), "SIGKILL");
  rmSync(path.join(place.environment["RADSERVE_STATE_DIR"]!, "deliveries"), {
    recursive: true,
    maxRetries: 10,
  });
  t.match(await radserve(place, "deliver", "scan"), {
    status: 0,
    stdout: /^2 undelivered results/,
  });
  await pacs.start();
  await until("the object is proven", () => proven(place));
  t.equal(pacs.sent[0], first);
  t.equal(pacs.kept.size, 3);
  await until(
    "the files of the delivery have gone",
    () => !readdirSync(place.output).some((name) => name.includes(".delivery.1")),
  );
});

await t.test(
  "what was asked for of a result is not sent of the one that replaced it",
  async (t) => {
    const pacs = await webPacs(t);
    await pacs.stop();
    const place = deliveringPlace({ pacs });
    const before = await startDelivering(t, { ...place, remove: () => undefined });
    await infer(before, { deliver: "none", outputs: ["seg"] });
    const { body } = await infer(before, { deliver: "queue", outputs: ["seg"] });
    t.match(body, { reused: true, deliveries: [{ state: "waiting" }] });
    await before.stop();
    // As if the queue had not looked at the entry yet
    const queue = path.join(place.environment["RADSERVE_STATE_DIR"]!, "deliveries");
    const [name] = readdirSync(queue).filter((one) => one.endsWith(".json"));
    const [entry, kept] = [path.join(queue, name!), path.join(place.directory, "kept")];
    renameSync(entry, kept);
    rmSync(path.join(place.output, ".image.dcm.delivery.json"));
    await pacs.start();
    const server = await startDelivering(t, place);
    t.match((await infer(server, { deliver: "none" })).body, { reused: false });
    renameSync(kept, entry);
    await server.logged(
      ({ msg, request_id }) =>
        msg.startsWith("a result was replaced before") && request_id === body.request_id,
    );
    await until("the entry has gone", () => !existsSync(entry));
    t.equal(pacs.kept.size, 0);
    t.notOk(existsSync(path.join(place.output, ".image.dcm.delivery.json")));
  },
);

await t.test("a file of the queue that is damaged is a condition until it is away", async (t) => {
  const pacs = await webPacs(t);
  await pacs.stop();
  const place = deliveringPlace({ pacs });
  const before = await startDelivering(t, { ...place, remove: () => undefined });
  await infer(before);
  await before.stop();
  const queue = path.join(place.environment["RADSERVE_STATE_DIR"]!, "deliveries");
  const [name] = readdirSync(queue).filter((one) => one.endsWith(".json"));
  const entry = path.join(queue, name!);
  truncateSync(entry, 20);
  await pacs.start();
  const server = await startDelivering(t, place);
  const isTold = async () =>
    (await conditions(server)).some(({ condition }) => condition === "delivery_unreadable");
  await until("the condition is told", isTold);
  t.equal(pacs.kept.size, 0);
  rmSync(entry);
  t.match(await radserve(place, "deliver", "scan"), { status: 0, stdout: /^1 undelivered result/ });
  await until("the object is proven", () => proven(place));
  await until("the condition has ended", async () => !(await isTold()));
});
