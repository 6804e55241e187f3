/** Proofs that come late, and objects that a PACS does not take: neither holds up anything else. */
import { copyFileSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import t from "tap";
import { openFile } from "../../../../src/images/dicom/dicom-file.js";
import {
  conditions,
  deliveringPlace,
  deliveryOf,
  infer,
  proven,
  startDelivering,
  statesOf,
} from "../../../support/deliveries.js";
import { HOUR_MS } from "../../../support/held.js";
import { freePort, shiftClock, type Place } from "../../../support/server.js";
import { dicomPeer, webPeer, type Faults } from "../../../support/store-peer.js";
import { until } from "../../../support/until.js";
import { webPacs } from "../../../support/web-pacs.js";

const SEG = "1.2.840.10008.5.1.4.1.1.66.4";
const ofPacs = (place: Place, name?: string) => deliveryOf(place, name).destinations["pacs"] ?? [];

/** A place whose server delivers to a peer of DICOM's protocol. */
async function dicomPlace(
  t: Parameters<typeof dicomPeer>[0],
  faults: Faults,
  more: object,
  lengths = {},
) {
  const pacs = await dicomPeer(t, faults);
  const to = { type: "dicom", host: "127.0.0.1", port: pacs.port, called_ae: "PACS", ...more };
  const place = deliveringPlace({}, { destinations: { pacs: to }, deliver: ["pacs"] }, undefined, {
    proofWithin: 600_000,
    ...lengths,
  });
  return { pacs, place };
}

await t.test("a PACS that shows objects later is looked at again, and sent nothing", async (t) => {
  const pacs = await webPacs(t);
  pacs.behave("hide");
  const place = deliveringPlace({ pacs }, {}, undefined, { proofWithin: 600_000 });
  const server = await startDelivering(t, place);
  await infer(server, { outputs: ["seg"] });
  await until("it was looked for several times", () => pacs.read.length > 3);
  await until("the look is written down", () => (ofPacs(place)[0]?.attempts ?? 0) > 2);
  t.match(ofPacs(place), [{ state: "sent", reason: /^missing: .*404/, tries: 0 }]);
  // The pause and what was found stand beside the receipt
  process.kill(server.servingPid(), "SIGKILL");
  pacs.behave("keep");
  await until("it is proven", () => proven(place));
  t.equal(pacs.sent.length, 1);
  t.same(
    Object.keys(ofPacs(place)[0] ?? {}).filter((key) => /attempt|asked/.test(key)),
    [],
  );
});

await t.test(
  "a PACS that fails to show one object is not away, and proves the others",
  async (t) => {
    const shown: string[] = [];
    const failing = new Set<string>();
    const ofFailing = () => shown.filter((uid) => failing.has(uid)).length;
    let goOn: () => void = () => undefined;
    const looked = new Promise<void>((resolve) => (goOn = resolve));
    t.teardown(goOn);
    const pacs = await webPeer(t, {
      get: async (uid) => {
        shown.push(uid);
        if (!failing.has(uid)) return undefined;
        // Its time may be over before the test has looked at it
        if (ofFailing() > 3) await looked;
        return { status: 500 };
      },
      post: (uids) => {
        if (failing.size === 0) failing.add(uids[0] ?? "");
        return undefined;
      },
    });
    const to = { type: "stow", url: `http://127.0.0.1:${pacs.port}/dicom-web`, timeout: "10m" };
    const place = deliveringPlace(
      {},
      { destinations: { pacs: to }, deliver: ["pacs"] },
      undefined,
      {
        proofWithin: 3_000,
      },
    );
    const server = await startDelivering(t, place);
    await infer(server);
    const states = () => statesOf(deliveryOf(place))?.toSorted();
    await until("the other object is proven", () => states()?.includes("proven"));
    await until("it was tried several times", () => ofFailing() > 3);
    t.same(states(), ["proven", "sent"]);
    t.same(await conditions(server), []);
    goOn();
    await until("it is set aside", () => states()?.includes("unproven"));
    t.same(states(), ["proven", "unproven"]);
    await until("that is told", async () =>
      (await conditions(server)).some(({ condition }) => condition === "delivery_set_aside"),
    );
    t.equal(failing.size, 1);
  },
);

await t.test("a commitment that is reported late counts, also over a restart", async (t) => {
  const listen = { port: await freePort() };
  let report: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (report = resolve));
  const asked: string[] = [];
  const { pacs, place } = await dicomPlace(
    t,
    {
      callBack: () => listen.port,
      reports: (transaction) => {
        asked.push(transaction);
        return held;
      },
    },
    { prove: "commitment", listen, timeout: "60s" },
  );
  const server = await startDelivering(t, place);
  await infer(server, { outputs: ["seg"] });
  const transactions = () => ofPacs(place)[0]?.transactions ?? [];
  await until("the request stands beside the receipt", () => transactions().length > 0);
  t.match(ofPacs(place), [{ state: "sent", asked: true, reason: /has not reported yet/ }]);
  t.same(transactions(), asked);
  // What comes later does not wait for that
  copyFileSync(path.join(place.input, "image.dcm"), path.join(place.input, "stat.dcm"));
  await infer(server, {
    input_image_path: path.join(place.input, "stat.dcm"),
    outputs: ["sr"],
    priority: "stat",
  });
  await until("the other is sent", () => statesOf(deliveryOf(place, "stat.dcm"))?.[0] === "sent");
  await until("there are two requests", () => asked.length === 2);
  const killed = server.servingPid();
  process.kill(killed, "SIGKILL");
  const isOpen = () =>
    new Promise<boolean>((resolve) => {
      const socket = connect(listen.port, "127.0.0.1");
      socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
      socket.once("connect", () => socket.destroy());
    });
  await until("the server is gone", () => server.servingPid() !== killed);
  await until("the next process listens", isOpen);
  report();
  await until("both are proven", () => proven(place) && proven(place, "stat.dcm"));
  t.match(ofPacs(place)[0], { state: "proven", how: "commitment" });
  t.equal(pacs.objects.size, 2);
});

for (const [failure, name, requests] of [
  [0x0110, "processing failure", 5],
  [0x0119, "the object has another SOP class", 1],
] as const)
  await t.test(`a peer that never commits (${name}) is asked ${requests} times`, async (t) => {
    const asked: string[] = [];
    const faults: Faults = {
      failure,
      reports: (transaction) => {
        asked.push(transaction);
        return Promise.resolve();
      },
    };
    // How long it rests between two, the test says: a report that comes late is no other request
    const pauses = { commitmentAgain: HOUR_MS, commitmentAgainMost: HOUR_MS };
    const { pacs, place } = await dicomPlace(t, faults, { prove: "commitment" }, pauses);
    const setAhead = shiftClock(place);
    const server = await startDelivering(t, place);
    const answer = infer(server, { outputs: ["seg"], deliver: "wait" });
    for (let i = 1; i < requests; i++) {
      await until(
        "a report is written down",
        () => asked.length === i && ofPacs(place)[0]?.tries === i,
      );
      setAhead(i * HOUR_MS);
    }
    const { body } = await answer;
    t.match(body.deliveries, [{ state: "unproven", reason: new RegExp(name) }]);
    t.equal(asked.length, requests);
    t.equal(pacs.objects.size, 1, "sent once");
  });

await t.test("an object that a PACS has no resources for holds up nobody", async (t) => {
  const seg = (uid: string) => segs.has(uid);
  const segs = new Set<string>();
  const stored: string[] = [];
  const { pacs, place } = await dicomPlace(
    t,
    {
      takes: (_, proposed) => proposed[0],
      status: (uid, sopClass) => {
        if (sopClass === SEG) segs.add(uid);
        else stored.push(uid);
        return seg(uid) ? 0xa700 : 0;
      },
    },
    { prove: false },
    { gatewayRetryMost: 200, outOfResources: 3_600_000 },
  );
  const server = await startDelivering(t, place);
  await infer(server);
  await until("the report is there", () => stored.length === 1);
  const states = () =>
    ofPacs(place).map(({ path: file, state }) => [/\.(\w+)\.dcm$/.exec(file)?.[1], state]);
  await until("the mask has failed", () => ofPacs(place).some(({ attempts = 0 }) => attempts >= 1));
  t.same(Object.fromEntries(states()), { seg: "waiting", sr: "accepted" });
  // What it takes in between says that it has room
  const mask = () => ofPacs(place).find(({ path: file }) => file.includes(".seg."));
  for (let i = 0; mask()?.state === "waiting"; i++) {
    const before = mask()?.tries ?? 0;
    const name = `more-${i}.dcm`;
    copyFileSync(path.join(place.input, "image.dcm"), path.join(place.input, name));
    const more = { input_image_path: path.join(place.input, name), outputs: ["sr"] };
    t.match((await infer(server, { ...more, deliver: "wait" })).body.deliveries, [
      { state: "accepted" },
    ]);
    await until("it was tried again", () => (mask()?.tries ?? 0) > before);
  }
  t.match(mask(), { state: "refused", tries: 5, reason: /^0xA700, out of resources/ });
  t.ok(pacs.objects.size > 1);
});

await t.test(
  "what a PACS has changed is set aside, or proven where it may change it",
  async (t) => {
    const renamed = (file: Buffer) => {
      const name = openFile(file).attributes.string("SeriesDescription") ?? "";
      if (name === "") throw new Error("The object has no SeriesDescription");
      const text = file.toString("latin1").replace(name, "X".repeat(name.length));
      return Buffer.from(text, "latin1");
    };
    const destinations: Record<string, object> = {};
    const sent: Record<string, number> = { strict: 0, open: 0 };
    for (const [name, more] of Object.entries({
      strict: {},
      open: { may_change: ["SeriesDescription"] },
    })) {
      const status = () => {
        sent[name]! += 1;
        return 0;
      };
      const { port } = await dicomPeer(t, { spoil: renamed, status });
      destinations[name] = {
        type: "dicom",
        host: "127.0.0.1",
        port,
        called_ae: "PACS",
        ...more,
      };
    }
    const place = deliveringPlace(
      {},
      { destinations, deliver: Object.keys(destinations) },
      undefined,
      { proofWithin: 600_000 },
    );
    const server = await startDelivering(t, place);
    await infer(server, { outputs: ["seg"], deliver: "wait" });
    for (const [name, expected] of [
      ["strict", { state: "unproven", reason: /^changed: Other values in SeriesDescription/ }],
      ["open", { state: "proven", coerced: ["SeriesDescription"] }],
    ] as const) {
      t.match(deliveryOf(place).destinations[name], [expected]);
      t.equal(sent[name], 1, "it is not sent again");
    }
  },
);
