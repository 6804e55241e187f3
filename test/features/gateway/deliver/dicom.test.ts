/**
 * C-STORE out, and the three ways to read back: what a PACS may answer, and what it may do wrong.
 */
import { once } from "node:events";
import { rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import t, { type Test } from "tap";
import { durations, setDurations } from "../../../../src/base/durations.js";
import { COMMITMENT, readReport } from "../../../../src/features/gateway/deliver/call-back.js";
import { destinationSchema } from "../../../../src/features/gateway/deliver/destination-settings.js";
import { call } from "../../../../src/features/gateway/dimse/requestor.js";
import { openFile } from "../../../../src/images/dicom/dicom-file.js";
import { readImage } from "../../../../src/images/read-image.js";
import { TestCa } from "../../../support/certificates.js";
import { BIG_ENDIAN, DEFLATED, EXPLICIT, IMPLICIT, random, RLE } from "../../../support/dicom.js";
import {
  destinationOf,
  pictureToSend,
  provedBy,
  sentTo,
  slicesToSend,
} from "../../../support/pacs.js";
import { freePort } from "../../../support/server.js";
import { dicomPeer, type Faults } from "../../../support/store-peer.js";
import { until } from "../../../support/until.js";

async function peer(t: Test, faults: Faults = {}, more: object = {}, timeout?: number) {
  const pacs = await dicomPeer(t, faults);
  const to = { type: "dicom", host: "127.0.0.1", port: pacs.port, called_ae: "PACS" };
  return { pacs, destination: destinationOf(t, { ...to, ...more }, timeout) };
}
const states = (told: ReadonlyMap<string, unknown>) => [...told.values()];

await t.test("objects are stored over several associations, read back and proven", async (t) => {
  const objects = slicesToSend(150);
  const { pacs, destination } = await peer(t, {}, { associations: 2 });
  const told = await sentTo(destination, objects);
  t.equal(told.size, 150);
  t.ok(states(told).every((sent) => JSON.stringify(sent) === '{"state":"stored"}'));
  t.equal(pacs.objects.size, 150);
  t.equal(pacs.visits(), 3, "64 objects of one association");
  t.match(await provedBy(destination, objects[70]!), { state: "proven", how: "c-get", at: /Z$/ });
  pacs.close();
  t.match(states(await sentTo(destination, objects.slice(0, 1))), [
    { state: "away", reason: /ECONNREFUSED/ },
  ]);
  t.match(await provedBy(destination, objects[0]!), { state: "away" });
});

await t.test("a status is success, a warning, a refusal or another try", async (t) => {
  const expected: [number, object][] = [
    [0xb000, { state: "stored", warning: '0xB000, elements were coerced, "because"' }],
    [0xb007, { state: "stored", warning: /^0xB007/ }],
    [0x0111, { state: "stored", warning: /there already/ }],
    [0xa700, { state: "away", full: true, reason: '0xA700, out of resources, "because"' }],
    [0xa702, { state: "away", reason: /^0xA702, out of resources/ }],
    [0xa900, { state: "refused", reason: /^0xA900, the data set does not match/ }],
    [0xa901, { state: "refused" }],
    [0xc000, { state: "refused", reason: /^0xC000, cannot be understood/ }],
    [0xc123, { state: "refused", reason: /^0xC123, cannot be understood/ }],
    [0x0122, { state: "refused", reason: /^0x0122, SOP class/ }],
    [0x0124, { state: "refused", reason: /^0x0124, not authorized/ }],
    [0x0110, { state: "away", answered: true, reason: /^0x0110, processing failure/ }],
    [0xfe00, { state: "away", answered: true }],
    [0xd123, { state: "away", answered: true, reason: /^0xD123/ }],
  ];
  const objects = slicesToSend(expected.length);
  const { destination } = await peer(t, {
    status: (uid) => expected[objects.findIndex((one) => one.sop_instance_uid === uid)]?.[0] ?? 0,
    comment: "because\n",
  });
  const told = await sentTo(destination, objects);
  for (const [i, [status, sent]] of expected.entries())
    t.match(told.get(objects[i]!.sop_instance_uid), sent, status.toString(16));
});

await t.test(
  "bytes change by the transfer syntax alone, where the peer takes no other",
  async (t) => {
    const [object] = slicesToSend(1);
    const implicit = await peer(t, {
      takes: (_, proposed) => proposed.find((uid) => uid === IMPLICIT),
    });
    t.match(states(await sentTo(implicit.destination, [object!])), [{ state: "stored" }]);
    const stored = openFile(implicit.pacs.objects.get(object!.sop_instance_uid)!);
    t.equal(stored.transferSyntax.uid, IMPLICIT);
    t.equal(stored.transferSyntax.explicit, false);
    t.match(await provedBy(implicit.destination, object!), { state: "proven" });
    const coded = { ...object!, transfer_syntax_uid: "1.2.840.10008.1.2.5" };
    t.match(
      states(await sentTo((await peer(t, { takes: () => undefined })).destination, [coded])),
      [{ state: "refused", reason: "The peer does not take CT Image Storage in RLE Lossless." }],
    );
  },
);

await t.test(
  "a picture in RLE Lossless goes uncompressed where the peer takes no RLE",
  async (t) => {
    const { object, raw } = await pictureToSend();
    const sopClass = object.sop_class_uid;
    for (const syntax of [RLE, EXPLICIT, IMPLICIT, BIG_ENDIAN]) {
      const takes: Faults["takes"] = (abstract, proposed) =>
        proposed.find((uid) => abstract !== sopClass || uid === syntax);
      const { pacs, destination } = await peer(t, { takes });
      t.match(states(await sentTo(destination, [object])), [{ state: "stored" }], syntax);
      const stored = pacs.objects.get(object.sop_instance_uid)!;
      const { transferSyntax, attributes: found } = openFile(stored);
      t.equal(transferSyntax.uid, syntax);
      t.equal(found.number("PlanarConfiguration"), syntax === RLE ? 1 : 0);
      const image = await readImage(stored);
      t.strictSame(Buffer.from(await image.frame(0)), Buffer.from(raw.data), "bit by bit");
      t.match(await provedBy(destination, object), { state: "proven" });
    }
    const { destination } = await peer(t, { takes: () => undefined });
    const reason =
      /^The peer does not take Secondary Capture .* in RLE Lossless\. Nor does it in Exp/;
    t.match(states(await sentTo(destination, [object])), [{ state: "refused", reason }]);
  },
);

await t.test("a peer of Big Endian alone gets masks and reports in it", async (t) => {
  const [object] = slicesToSend(1);
  const { pacs, destination } = await peer(t, {
    takes: (uid, proposed) =>
      proposed.find((one) => uid !== object!.sop_class_uid || one === BIG_ENDIAN),
  });
  t.match(states(await sentTo(destination, [object!])), [{ state: "stored" }]);
  t.equal(openFile(pacs.objects.get(object!.sop_instance_uid)!).transferSyntax.uid, BIG_ENDIAN);
  t.match(await provedBy(destination, object!), { state: "proven", how: "c-get" });
});

await t.test("what a connection breaks with is away; the others go through", async (t) => {
  const objects = slicesToSend(4);
  const bad = objects[1]!.sop_instance_uid;
  const { pacs, destination } = await peer(t, { breaks: (uid) => uid === bad });
  const told = await sentTo(destination, objects);
  t.match(
    objects.map(({ sop_instance_uid: uid }) => told.get(uid)),
    [
      { state: "stored" },
      { state: "away", answered: true },
      { state: "stored" },
      { state: "stored" },
    ],
    "what was stored after it says that it is the object",
  );
  t.equal(pacs.visits(), 2);
  const always = await peer(t, { breaks: () => true });
  const away = await sentTo(always.destination, objects);
  const [first, second, ...others] = objects.map(({ sop_instance_uid: uid }) => away.get(uid));
  t.match([first, second], [{ state: "away", lost: true }, { lost: true }]);
  t.match(others, [{ state: "away", untried: true }, { untried: true }]);
  t.equal(always.pacs.visits(), 2, "after two in turn it is not the objects");
});

await t.test("after three objects that a PACS has no resources for no other is sent", async (t) => {
  const objects = slicesToSend(5);
  const { destination } = await peer(t, { status: () => 0xa700 });
  const told = await sentTo(destination, objects);
  const fulls = objects.map(({ sop_instance_uid: uid }) => {
    const sent = told.get(uid);
    return sent?.state === "away" && [sent.full, sent.untried];
  });
  const [tried, untried] = [
    [true, undefined],
    [undefined, true],
  ];
  t.strictSame(fulls, [tried, tried, tried, untried, untried]);
});

await t.test("a PACS that hangs is away, and what is interrupted is, too", async (t) => {
  const objects = slicesToSend(2);
  const hanging = await peer(t, { hangs: true }, {}, 0.3);
  t.match(states(await sentTo(hanging.destination, objects)), [
    { state: "away" },
    { state: "away" },
  ]);
  t.match(await provedBy(hanging.destination, objects[0]!), {
    state: "away",
    reason: "The peer took too long.",
  });
  const { destination } = await peer(t, { hangs: true });
  const told = await sentTo(destination, objects, AbortSignal.timeout(200));
  t.match(states(told), [{ state: "away" }, { state: "away" }]);
  const proof = destination.prove(objects[0]!, new AbortController().signal);
  destination.close();
  t.match(await proof, { state: "away" });
});

await t.test("whoever stops listening ends the sending", async (t) => {
  const { pacs, destination } = await peer(t);
  for await (const [, sent] of destination.send(slicesToSend(130), new AbortController().signal)) {
    t.same(sent, { state: "stored" });
    break;
  }
  t.ok(pacs.objects.size < 130);
});

await t.test("a rejected association is told in words", async (t) => {
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", () => socket.end(Buffer.from([3, 0, 0, 0, 0, 4, 0, 1, 1, 7])));
  }).listen(0, "127.0.0.1");
  t.teardown(() => server.close());
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const destination = destinationOf(t, {
    type: "dicom",
    host: "127.0.0.1",
    port,
    called_ae: "PACS",
  });
  const [sent] = states(await sentTo(destination, slicesToSend(1)));
  t.match(sent, { state: "away", reason: /rejected permanently: called AE title not recognized/ });
});

const WAYS = ["c-get", "c-move", "commitment"] as const;

for (const prove of WAYS)
  await t.test(
    `${prove}: proven, missing, differing, and answers that prove nothing`,
    async (t) => {
      const [object] = slicesToSend(1);
      const uid = object!.sop_instance_uid;
      const listen = async () => ({ port: await freePort(), host: "127.0.0.1" });
      const tried = async (faults: Faults, sent: () => void = () => undefined) => {
        const at = await listen();
        const way = prove === "c-get" ? {} : { listen: at };
        const callBack = faults.callBack ?? (prove === "c-move" ? () => at.port : undefined);
        const { destination } = await peer(
          t,
          { ...faults, ...(callBack && { callBack }) },
          { prove, ...way },
        );
        t.match(states(await sentTo(destination, [object!])), [{ state: "stored" }]);
        sent();
        return provedBy(destination, object!);
      };
      t.match(await tried({}), { state: "proven", how: prove });
      t.match(await tried({ lies: true }), { state: "missing" }, "a liar is caught");
      if (prove === "commitment") {
        const reasons: [number, string, RegExp][] = [
          [0x0110, "failed", /0x0110, processing failure/],
          [0x0112, "missing", /0x0112, no such object instance/],
          [0x0119, "refused", /0x0119, the object has another SOP class/],
          [0x0122, "refused", /0x0122, SOP class not supported/],
          [0x0131, "failed", /0x0131, duplicate transaction UID/],
          [0x0213, "failed", /0x0213, resource limitation/],
        ];
        for (const [failure, state, reason] of reasons)
          t.match(await tried({ failure }), { state, reason });
        t.match(await tried({ answer: 0x0110 }), { state: "failed" });
        t.match(await tried({ answer: 0x0122 }), { state: "not_provable" });
      } else {
        const changed = await tried({ spoil: (file) => file.fill(0xff, file.length - 2) });
        t.match(changed, { state: "differs", reason: "Other pixels." });
        t.match(await tried({ answer: 0xc000 }), { state: "missing", reason: /0xC000/ });
        t.match(await tried({ answer: 0xa701 }), { state: "away" });
        t.match(await tried({ answer: 0xa900 }), { state: "not_provable" });
        const { deliveryWhole } = durations;
        const impatient = () => setDurations({ deliveryWhole: 200 });
        const pending = await tried({ pends: true }, impatient);
        t.match(pending, { state: "away" }, "one that goes on without end");
        setDurations({ deliveryWhole });
      }
      const none = await peer(
        t,
        { takes: (uid, proposed) => (uid === object!.sop_class_uid ? proposed[0] : undefined) },
        { prove, ...(prove === "c-get" ? {} : { listen: await listen() }) },
      );
      t.match(
        await provedBy(none.destination, object!),
        { state: "not_provable", reason: /does not take/ },
        uid,
      );
    },
  );

await t.test("a commitment may be reported over an association that the peer opens", async (t) => {
  const listen = { port: await freePort() };
  const { destination } = await peer(
    t,
    { callBack: () => listen.port },
    { prove: "commitment", listen },
  );
  const [object] = slicesToSend(1);
  await sentTo(destination, [object!]);
  // Nothing is compared, and so the file is not read
  writeFileSync(object!.path, "");
  t.match(await provedBy(destination, object!), { state: "proven", how: "commitment" });
});

await t.test("a port for calls back that is taken is told as that", async (t) => {
  const listen = { port: await freePort() };
  const [object] = slicesToSend(1);
  const { destination } = await peer(
    t,
    { callBack: () => listen.port },
    { prove: "c-move", listen },
  );
  await sentTo(destination, [object!]);
  t.match(await provedBy(destination, object!), { state: "proven" });
  // As `radserve deliver verify` beside a server
  const second = await peer(t, {}, { prove: "c-move", listen });
  t.match(await provedBy(second.destination, object!), {
    state: "away",
    reason: `Expected a free port at 127.0.0.1:${listen.port}, where the peer calls back; another program has it, perhaps the running server.`,
  });
});

await t.test("an object may be moved after C-MOVE was answered", async (t) => {
  const listen = { port: await freePort() };
  let move: () => void = () => undefined;
  const mayMove = new Promise<void>((resolve) => (move = resolve));
  const faults = { callBack: () => listen.port, movesLate: () => mayMove };
  const { destination } = await peer(t, faults, { prove: "c-move", listen });
  const [object] = slicesToSend(1);
  await sentTo(destination, [object!]);
  t.match(await provedBy(destination, object!), { state: "missing" });
  move();
  await until(
    "it is proven by what came",
    async () => (await provedBy(destination, object!)).state === "proven",
  );
});

await t.test("a commitment may be reported before the request is answered", async (t) => {
  const { destination } = await peer(t, { early: true }, { prove: "commitment" });
  const [object] = slicesToSend(1);
  await sentTo(destination, [object!]);
  t.match(await provedBy(destination, object!), { state: "proven", how: "commitment" });
});

await t.test("a commitment that is never reported is away", async (t) => {
  const { destination } = await peer(t, { callBack: () => 1 }, { prove: "commitment" }, 0.3);
  t.match(await provedBy(destination, slicesToSend(1)[0]!), { state: "away" });
});

await t.test("without a port no request takes the association of another one", async (t) => {
  const held = new Map<string, () => void>();
  const reports = (transaction: string) =>
    new Promise<void>((resolve) => held.set(transaction, resolve));
  const { pacs, destination } = await peer(t, { reports }, { prove: "commitment" });
  const commitments = destination.commitments!;
  const reported: string[] = [];
  const visits: number[] = [];
  commitments.listen(({ transaction }) => {
    visits.push(pacs.visits());
    return reported.push(transaction) > 0;
  });
  const objects = slicesToSend(1);
  const { signal } = new AbortController();
  const transactions = Array.from({ length: 17 }, (_, i) => `1.2.3.${i}`);
  const asked = transactions.map((one) => commitments.ask(one, objects, signal));
  await Promise.all(asked.slice(0, 16));
  await until("the peer has sixteen requests", () => held.size >= 16);
  held.get(transactions[0]!)!();
  t.equal(await asked[16], "asked");
  t.strictSame(reported, transactions.slice(0, 1));
  t.strictSame(visits, [16], "the last one waits for a place");
  await until("the peer has the last request", () => held.size === 17);
  for (const report of held.values()) report();
  await until("all are reported", () => reported.length === 17);
});

await t.test("silent connections do not keep a call back out", async (t) => {
  const listen = { port: await freePort() };
  const { destination } = await peer(
    t,
    { callBack: () => listen.port },
    { prove: "c-move", listen },
  );
  const [first, second] = slicesToSend(2);
  await sentTo(destination, [first!, second!]);
  t.match(await provedBy(destination, first!), { state: "proven" }, "the port is open from now on");
  const silent: Socket[] = [];
  t.teardown(() => silent.forEach((one) => one.destroy()));
  const open = () => {
    const one = connect(listen.port, "127.0.0.1").on("error", () => undefined);
    silent.push(one);
    return once(one, "connect");
  };
  await Promise.all(Array.from({ length: 40 }, open));
  t.match(await provedBy(destination, second!), { state: "proven" });
});

await t.test(
  "who calls back from outside the networks is closed before a byte is read",
  async (t) => {
    const listen = { port: await freePort(), networks: ["127.0.0.1"] };
    const { destination } = await peer(
      t,
      { callBack: () => listen.port },
      { prove: "c-move", listen },
    );
    const [object] = slicesToSend(1);
    await sentTo(destination, [object!]);
    t.match(await provedBy(destination, object!), { state: "proven" });
    const stranger = connect({ port: listen.port, host: "127.0.0.1", localAddress: "127.0.0.2" });
    stranger.on("error", () => undefined);
    await once(stranger, "close");
    t.equal(stranger.bytesRead, 0);
  },
);

await t.test("a report that nobody awaits is not read, and none unfolds", async (t) => {
  const listen = { port: await freePort() };
  const { destination } = await peer(
    t,
    { callBack: () => listen.port },
    { prove: "c-move", listen },
  );
  const [object] = slicesToSend(1);
  await sentTo(destination, [object!]);
  await provedBy(destination, object!);
  const calling = (transferSyntaxes: string[]) =>
    call(
      { host: "127.0.0.1", port: listen.port },
      {
        mostData: 16_384,
        pduTimeout: 20_000,
        idleTimeout: 20_000,
        callingAe: "PACS",
        calledAe: "RADSERVE",
        contexts: [{ abstractSyntax: COMMITMENT, transferSyntaxes }],
        roles: [{ sopClass: COMMITMENT, scu: false, scp: true }],
      },
    );
  const deflated = await calling([DEFLATED]);
  t.equal(deflated.contextOf(COMMITMENT), undefined, "no deflated reports");
  await deflated.release();
  const plain = await calling([DEFLATED, EXPLICIT]);
  t.match(plain.contextOf(COMMITMENT), { transferSyntax: EXPLICIT });
  await plain.release();
  let given = 0;
  async function* endless() {
    for (;;) {
      given += 1024;
      yield await Promise.resolve(Buffer.alloc(1024));
    }
  }
  const report = { eventTypeId: 1, transferSyntax: EXPLICIT, dataSet: endless() };
  await t.rejects(readReport(report), "an awaited one is not read without end");
  t.equal(given, 65 * 1024);
});

await t.test("the port for calls back takes only what was asked for, of the peer", async (t) => {
  const listen = { port: await freePort() };
  const { pacs, destination } = await peer(
    t,
    { callBack: () => listen.port },
    { prove: "c-move", listen },
  );
  const [one, two] = slicesToSend(2);
  await sentTo(destination, [one!, two!]);
  t.match(await provedBy(destination, one!), { state: "proven" });
  // The peer's own title, and another's, with an object that nobody waits for
  const back = (calling_ae: string) =>
    destinationOf(t, {
      type: "dicom",
      host: "127.0.0.1",
      port: listen.port,
      called_ae: "RADSERVE",
      calling_ae,
    });
  t.match(states(await sentTo(back("PACS"), [two!])), [
    { state: "refused", reason: /0x0124.*Nobody asked/ },
  ]);
  t.match(states(await sentTo(back("OTHER"), [two!])), [
    { state: "away", reason: /calling AE title/ },
  ]);
  t.equal(pacs.objects.size, 2);
});

await t.test("TLS: the peer's certificate counts, and ours is shown", async (t) => {
  const ca = new TestCa();
  t.teardown(() => rmSync(ca.folder, { recursive: true }));
  const [server, client] = [ca.issue(), ca.issue("radserve")];
  const pacs = await dicomPeer(
    t,
    {},
    { ...server.pem, ca: ca.pem, requestCert: true, rejectUnauthorized: true },
  );
  const to = { type: "dicom", host: "localhost", port: pacs.port, called_ae: "PACS" };
  const [object] = slicesToSend(1);
  const files = { cert: client.cert, key: client.key };
  const send = async (tls: object) =>
    states(await sentTo(destinationOf(t, { ...to, tls }), [object!]));
  t.match(await send({ ca: ca.file, client: files }), [{ state: "stored" }]);
  t.match(await send({ ca: ca.file }), [{ state: "away" }]);
  t.match(await send({ client: files }), [{ state: "away" }]);
  t.match(
    states(await sentTo(destinationOf(t, to, 1), [object!])),
    [{ state: "away" }],
    "without TLS",
  );
});

await t.test("no bytes of a peer throw or hang", async (t) => {
  const next = random(11);
  const answers: Buffer[] = [];
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.on("data", () => {
      const bytes = Buffer.from(answers[Math.floor(next() * answers.length)]!);
      for (let i = 0; i < 3; i++)
        bytes[Math.floor(next() * bytes.length)] = Math.floor(next() * 256);
      socket.end(bytes.subarray(0, Math.ceil(next() * bytes.length)));
    });
  }).listen(0, "127.0.0.1");
  t.teardown(() => server.close());
  await once(server, "listening");
  // An acceptance of one context, and an answer of a C-STORE behind it
  const uid = (type: number, text: string) =>
    Buffer.concat([Buffer.from([type, 0, 0, text.length]), Buffer.from(text)]);
  const context = Buffer.concat([Buffer.from([1, 0, 0, 0]), uid(0x40, EXPLICIT)]);
  const items = Buffer.concat([
    uid(0x10, "1.2.840.10008.3.1.1.1"),
    Buffer.from([0x21, 0, 0, context.length]),
    context,
    Buffer.from([0x50, 0, 0, 8, 0x51, 0, 0, 4, 0, 0, 64, 0]),
  ]);
  const body = Buffer.concat([Buffer.from([0, 1, 0, 0]), Buffer.alloc(64, 0x20), items]);
  const accept = Buffer.concat([Buffer.from([2, 0, 0, 0, 0, body.length]), body]);
  answers.push(
    accept,
    Buffer.concat([accept, Buffer.from([4, 0, 0, 0, 0, 8, 0, 0, 0, 4, 1, 3, 0, 0])]),
  );
  const { port } = server.address() as AddressInfo;
  const destination = destinationOf(
    t,
    { type: "dicom", host: "127.0.0.1", port, called_ae: "PACS" },
    5,
  );
  const [object] = slicesToSend(1);
  for (let i = 0; i < 150; i++) {
    t.match(states(await sentTo(destination, [object!])), [{ state: /^(away|refused)$/ }]);
    t.match(await provedBy(destination, object!), { state: /^(away|not_provable)$/ });
  }
});

await t.test("settings by which anybody could call back are refused", (t) => {
  const base = { type: "dicom", host: "pacs", port: 104, called_ae: "PACS" };
  const refused: [object, RegExp][] = [
    [{ prove: "c-move" }, /port to which the peer moves/],
    [{ listen: { port: 11113, host: "0.0.0.0" } }, /networks from which/],
    [{ listen: { port: 11113 }, tls: {} }, /none beside tls/],
    [{ called_ae: "a\\b" }, /AE title/],
  ];
  for (const [settings, reason] of refused)
    t.match(destinationSchema.safeParse({ ...base, ...settings }).error?.message, reason);
  t.ok(
    destinationSchema.safeParse({
      ...base,
      listen: { port: 1, host: "0.0.0.0", networks: ["10.0.0.5"] },
    }).success,
  );
  t.end();
});
