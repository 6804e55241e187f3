/** The listener for DICOM as peers see it: who comes in, what is kept, and what each is told. */
import { once } from "node:events";
import { execFileSync } from "node:child_process";
import { appendFileSync, existsSync, mkdtempSync, readdirSync, rmSync, statfsSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { connect, type AddressInfo } from "node:net";
import { Writable } from "node:stream";
import { pino } from "pino";
import t from "tap";
import { durations, setDurations, type Durations } from "../../../../src/base/durations.js";
import { VERIFICATION } from "../../../../src/features/gateway/dimse/acceptor.js";
import { STATUS } from "../../../../src/features/gateway/dimse/command.js";
import { dataHeader, encodeAssociateRequest } from "../../../../src/features/gateway/dimse/pdu.js";
import {
  call,
  type CallingAssociation,
  type AssociationOptions,
} from "../../../../src/features/gateway/dimse/requestor.js";
import {
  DicomListener,
  type DicomListenerOptions,
} from "../../../../src/features/gateway/receive/dicom-listener.js";
import { readCertificates, tlsOptions } from "../../../../src/files/certificates.js";
import { mounts } from "../../../support/audit.js";
import { TestCa } from "../../../support/certificates.js";
import { RefusedSenders } from "../../../../src/features/gateway/receive/refused-senders.js";
import { Spool } from "../../../../src/features/gateway/receive/spool.js";
import {
  CT,
  CT_SLICE,
  DEFLATED,
  dicomFile,
  EXPLICIT,
  imageAttributes,
  IMPLICIT,
} from "../../../support/dicom.js";
import { receptionIn } from "../../../support/arriving.js";
import { HOUR_MS } from "../../../support/held.js";
import { until } from "../../../support/until.js";

const SR = "1.2.840.10008.5.1.4.1.1.88.33";
/** Of a print server: nothing to be stored. */
const FILM_BOX = "1.2.840.10008.5.1.1.2";
const LIMITS = { mostData: 16_384, pduTimeout: 20_000, idleTimeout: 20_000 };

/** Other lengths of time in this process, as long as a test runs. */
function withLengths(test: { teardown(end: () => unknown): void }, others: Partial<Durations>) {
  const before = { ...durations };
  setDurations(others);
  test.teardown(() => setDurations(before));
}

type Line = Record<string, unknown>;

/** A listener, the lines of its log, and the folder of its spool. */
async function opened(
  test: { testdir(): string; teardown(end: () => unknown): void },
  more: Partial<DicomListenerOptions> = {},
  mostBytes = 10_000_000,
) {
  const folder = test.testdir();
  const lines: Line[] = [];
  const kept: string[] = [];
  const refused: string[] = [];
  const names: unknown[] = [];
  const spool = new Spool(folder, { mostBytes, minimumFreeBytes: 0, peerShare: 1 });
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(JSON.parse(chunk.toString()) as Line);
      sink.emit("line");
      done();
    },
  });
  const options: DicomListenerOptions = {
    ...LIMITS,
    aeTitles: ["RADSERVE"],
    mostAssociations: 4,
    log: pino(sink),
    peers: [{ name: "ct1", aeTitle: "CT ONE", networks: ["127.0.0.0/8"] }],
    spool,
    reception: receptionIn(folder, spool),
    notesTitle: () => false,
    refused: (reason) => refused.push(reason),
    contextRefused: (...of) => names.push(of),
    callerRefused: (caller) => names.push(caller),
    senders: new RefusedSenders(pino(sink)),
    ended: () => undefined,
    coming: () => Promise.resolve(),
    kept: ({ seriesInstanceUid }, peer) => kept.push(`${peer} ${seriesInstanceUid}`),
    ...more,
  };
  const listener = new DicomListener(options);
  listener.server.listen(0, "127.0.0.1");
  await once(listener.server, "listening");
  test.teardown(() => listener.close());
  const { port } = listener.server.address() as AddressInfo;
  return { listener, options, folder, lines, kept, refused, names, sink, port };
}

const OPTIONS: AssociationOptions = {
  ...LIMITS,
  callingAe: "CT ONE",
  calledAe: "RADSERVE",
  contexts: [
    { abstractSyntax: VERIFICATION, transferSyntaxes: [IMPLICIT] },
    { abstractSyntax: CT, transferSyntaxes: [EXPLICIT] },
    { abstractSyntax: CT, transferSyntaxes: [DEFLATED] },
    { abstractSyntax: SR, transferSyntaxes: [EXPLICIT] },
    { abstractSyntax: FILM_BOX, transferSyntaxes: [EXPLICIT] },
  ],
};
const called = (
  port: number,
  more: Partial<AssociationOptions> = {},
): Promise<CallingAssociation> => call({ host: "127.0.0.1", port }, { ...OPTIONS, ...more });

/** The data set of a slice. */
const ctSlice = (n: number, change: Record<string, string> = {}): Buffer =>
  dicomFile({
    preamble: false,
    meta: false,
    pixels: Buffer.alloc(32, n),
    attributes: imageAttributes({
      ...CT_SLICE,
      SOPInstanceUID: `1.2.3.4.${n}`,
      BitsAllocated: 16,
      BitsStored: 16,
      HighBit: 15,
      ...change,
    }),
  });

/** Bytes of the pixels of a slice that comes in many pieces. */
const LARGE_BYTES = 1_048_576;

/** The status of storing such a slice. */
async function storedLarge(caller: CallingAssociation, n: number): Promise<number> {
  const dataSet = dicomFile({
    preamble: false,
    meta: false,
    pixels: Buffer.alloc(LARGE_BYTES, n),
    attributes: imageAttributes({
      ...CT_SLICE,
      SOPInstanceUID: `1.2.3.4.${n}`,
      Rows: 512,
      Columns: 1024,
      BitsAllocated: 16,
      BitsStored: 16,
      HighBit: 15,
    }),
  });
  const names = { sopClassUid: CT, sopInstanceUid: `1.2.3.4.${n}`, transferSyntax: EXPLICIT };
  return (await caller.store({ ...names, dataSet: [dataSet] })).status;
}

/** The status of storing a slice. */
async function stored(
  caller: CallingAssociation,
  n: number,
  change: Record<string, string> = {},
): Promise<number> {
  const names = { sopClassUid: CT, sopInstanceUid: `1.2.3.4.${n}`, transferSyntax: EXPLICIT };
  return (await caller.store({ ...names, dataSet: [ctSlice(n, change)] })).status;
}

await t.test(
  "a known peer's objects are kept, and the log has a line without a word of the patient",
  async (t) => {
    const { port, folder, kept, lines, names, sink } = await opened(t);
    const caller = await called(port);
    const verification = caller.contextOf(VERIFICATION);
    t.ok(verification !== undefined && (await caller.echo(verification)).status === STATUS.success);
    t.equal(caller.contextOf(CT, DEFLATED), undefined, "no deflated data sets");
    t.ok(caller.contextOf(SR), "a sender stops at what is refused");
    t.equal(caller.contextOf(FILM_BOX), undefined);
    t.same(names, [
      ["ct1", CT, "transfer_syntax"],
      ["ct1", FILM_BOX, "sop_class"],
    ]);
    for (const n of [1, 2, 3]) t.equal(await stored(caller, n), STATUS.success);
    const ended = once(sink, "line");
    await caller.release();
    await ended;
    t.same(kept, ["ct1 1.2.3.4", "ct1 1.2.3.4", "ct1 1.2.3.4"]);
    t.same(readdirSync(`${folder}/series/ct1/1.2.3/1.2.3.4`).length, 3);
    const contexts = {
      transfer_syntax: ["CT Image Storage"],
      sop_class: [`SOP class ${FILM_BOX}`],
    };
    t.match(lines, [{ msg: "association ended", peer: "ct1", objects: 3, contexts }]);
    t.strictSame(lines[0]!["refused"], {});
    t.notMatch(JSON.stringify(lines), /Nobody|1\.2\.3\.4/);
  },
);

await t.test("each refusal has its status, and the association goes on", async (t) => {
  const { port, lines, sink } = await opened(t, {}, 20_000);
  const caller = await called(port);
  t.equal(await stored(caller, 1), STATUS.success);
  t.equal(await stored(caller, 1), STATUS.success, "the same again");
  t.equal(await stored(caller, 1, { Manufacturer: "other" }), STATUS.duplicateInstance);
  t.equal(await stored(caller, 2, { SOPInstanceUID: "1.2.9" }), STATUS.dataSetDoesNotMatch);
  t.equal(await stored(caller, 3, { StudyInstanceUID: "" }), STATUS.dataSetDoesNotMatch);
  t.equal(
    await stored(caller, 4, {
      ImageComments: "x".repeat(9_000),
      PatientComments: "y".repeat(9_000),
      AdditionalPatientHistory: "z".repeat(9_000),
    }),
    STATUS.outOfResources,
  );
  t.equal(await stored(caller, 5), STATUS.success);
  await caller.release();
  while (lines.at(-1)?.["msg"] !== "association ended") await once(sink, "line");
  t.match(lines.slice(-1), [
    { objects: 3, refused: { file_exists: 1, bad_request: 2, body_too_large: 1 } },
  ]);
  const told = lines
    .slice(0, -1)
    .map(({ error, attribute }) => `${String(error)} ${String(attribute)}`);
  t.same(told, [
    "file_exists SOPInstanceUID",
    "bad_request SOPInstanceUID",
    "bad_request StudyInstanceUID",
  ]);
});

await t.test("what has no pixels is kept, and private classes of whoever may", async (t) => {
  const PRIVATE = "1.2.826.0.1.3680043.10.1.1";
  const DOSE = "1.2.840.10008.5.1.4.1.1.481.2";
  const contexts = [SR, DOSE, PRIVATE].map((abstractSyntax) => ({
    abstractSyntax,
    transferSyntaxes: [EXPLICIT],
  }));
  const peer = { name: "ct1", aeTitle: "CT ONE", networks: ["127.0.0.0/8"] };
  for (const privateClasses of [false, true]) {
    const { port, folder, lines, sink } = await opened(t, { peers: [{ ...peer, privateClasses }] });
    const caller = await called(port, { contexts });
    t.equal(caller.contextOf(PRIVATE) !== undefined, privateClasses);
    const taken = privateClasses ? [SR, DOSE, PRIVATE] : [SR, DOSE];
    for (const [i, sopClassUid] of taken.entries()) {
      const names = { SOPClassUID: sopClassUid, SOPInstanceUID: `1.2.9.${i}` };
      const dataSet = dicomFile({
        preamble: false,
        meta: false,
        attributes: { ...names, StudyInstanceUID: "1.2.3", SeriesInstanceUID: `1.2.9${i}` },
      });
      const object = { sopClassUid, sopInstanceUid: `1.2.9.${i}`, transferSyntax: EXPLICIT };
      t.match(await caller.store({ ...object, dataSet: [dataSet] }), { status: STATUS.success });
      const cut = { ...object, dataSet: [dataSet.subarray(0, -3)] };
      t.not((await caller.store(cut)).status, STATUS.success, "not whole");
    }
    await caller.release();
    t.equal(readdirSync(`${folder}/series/ct1/1.2.3`).length, taken.length);
    while (lines.at(-1)?.["msg"] !== "association ended") await once(sink, "line");
  }
});

await t.test("nothing is kept that comes over the context of C-ECHO", async (t) => {
  const { port, folder, lines, sink } = await opened(t);
  const contexts = [{ abstractSyntax: VERIFICATION, transferSyntaxes: [EXPLICIT] }];
  const caller = await called(port, { contexts });
  const names = { SOPClassUID: VERIFICATION, SOPInstanceUID: "1.2.9.1" };
  const attributes = { ...names, StudyInstanceUID: "1.2.3", SeriesInstanceUID: "1.2.9" };
  const object = { sopClassUid: VERIFICATION, sopInstanceUid: "1.2.9.1", transferSyntax: EXPLICIT };
  const dataSet = [dicomFile({ preamble: false, meta: false, attributes })];
  t.match(await caller.store({ ...object, dataSet }), {
    status: STATUS.sopClassNotSupported,
    comment: "The SOP class is not one for storage.",
  });
  t.match(await caller.echo(caller.contextOf(VERIFICATION)!), { status: STATUS.success });
  await caller.release();
  t.notOk(existsSync(`${folder}/series`));
  while (lines.at(-1)?.["msg"] !== "association ended") await once(sink, "line");
  t.match(lines.at(-1), { objects: 0, refused: { unsupported_format: 1 } });
});

await t.test("a refusal names the attribute, and what was found of it", async (t) => {
  const { port, folder } = await opened(t);
  const caller = await called(port);
  const answered = async (dataSet: Buffer, sopInstanceUid = "1.2.3.4.1") => {
    const names = { sopClassUid: CT, sopInstanceUid, transferSyntax: EXPLICIT };
    return caller.store({ ...names, dataSet: [dataSet] });
  };
  const whole = ctSlice(1);
  // Where its pixels begin: 32 bytes behind a header of 12
  const cut = whole.subarray(0, -10);
  t.same(await answered(cut), {
    status: STATUS.cannotUnderstand,
    comment: "PixelData (7fe0,0010): 22 of 32 bytes",
  });
  t.same(
    readdirSync(folder, { recursive: true }).filter((name) => String(name).endsWith(".dcm")),
    [],
  );
  t.match(await answered(whole.subarray(0, -44)), {
    status: STATUS.cannotUnderstand,
    comment: /^PixelData: missing/,
  });
  t.same(await answered(whole), { status: STATUS.success, comment: undefined });
  const letters = await answered(whole, "1.2.x");
  t.match(letters, { status: STATUS.dataSetDoesNotMatch, comment: /^SOPInstanceUID: other char/ });
  const long = await answered(whole, `1.${"2".repeat(63)}`);
  t.same(long, {
    status: STATUS.dataSetDoesNotMatch,
    comment: "SOPInstanceUID: 65 characters",
  });
  await caller.release();
});

await t.test("strangers are rejected by name", async (t) => {
  const { port } = await opened(t, {
    peers: [
      { name: "ct1", aeTitle: "CT ONE", networks: ["127.0.0.1"] },
      { name: "far", aeTitle: "FAR", networks: ["10.1.0.0/16"] },
    ],
  });
  const cases: [Partial<AssociationOptions>, RegExp][] = [
    [{ callingAe: "CT TWO" }, /permanently: calling AE title/],
    [{ callingAe: "FAR" }, /permanently: calling AE title/],
    [{ calledAe: "OTHER" }, /permanently: called AE title/],
  ];
  for (const [more, message] of cases) await t.rejects(called(port, more), { message });
  await (await called(port)).release();
});

await t.test(
  "one association more than may be is rejected for now, and may come when another has ended",
  async (t) => {
    const { listener, port } = await opened(t, { mostAssociations: 2 });
    const [first, second] = [await called(port), await called(port)];
    await t.rejects(called(port), { transient: true, message: /local limit/ });
    await first.release();
    await until("the first has ended", () => listener.associations === 1, setImmediate);
    await (await called(port)).release();
    await second.release();
  },
);

await t.test("connections that ask for no association keep no peer out", async (t) => {
  const { listener, port } = await opened(t, { mostAssociations: 2 });
  const silent = Array.from({ length: 100 }, () =>
    connect(port, "127.0.0.1").on("error", () => undefined),
  );
  await Promise.all(silent.map((one) => once(one, "connect")));
  const callers = [await called(port), await called(port)];
  t.equal(listener.associations, 2, "those of peers alone are counted");
  for (const caller of callers) {
    t.equal(await stored(caller, 1), STATUS.success);
    await caller.release();
  }
});

await t.test("a listener that closes ends what is open, and keeps what it answered", async (t) => {
  const { listener, port, kept } = await opened(t);
  const caller = await called(port);
  t.equal(await stored(caller, 1), STATUS.success);
  listener.close();
  await t.rejects(stored(caller, 2));
  t.same(kept.length, 1);
});

await t.test("with a CA of clients, only who has a certificate of it is heard", async (t) => {
  const [ca, other] = [new TestCa(), new TestCa("Another CA")];
  t.teardown(() => [ca, other].forEach(({ folder }) => rmSync(folder, { recursive: true })));
  const { cert, key } = ca.issue();
  const certificates = await readCertificates({
    tls_cert: cert,
    tls_key: key,
    tls_client_ca: ca.file,
  });
  const { port, kept } = await opened(t, { tls: tlsOptions(certificates!) });
  const by = (pair?: { pem: { cert: Buffer; key: Buffer } }) =>
    call({ host: "127.0.0.1", port, tls: { ca: ca.pem, ...pair?.pem } }, OPTIONS);
  const caller = await by(ca.issue("ct one"));
  t.equal(await stored(caller, 1), STATUS.success);
  await caller.release();
  await t.rejects(by(), "no certificate");
  await t.rejects(by(other.issue("ct one")), "one of another CA");
  await t.rejects(called(port), "no TLS");
  t.equal(kept.length, 1);
});

await t.test("a peer that stops within a PDU is ended, and holds up nobody", async (t) => {
  const { listener, options, port } = await opened(t, { mostAssociations: 2 });
  // It is asked for a visit, for the beginning of its first PDU, and for the rest of that. The rest
  // of the slow peer's alone has little time: how long all else takes depends on the machine
  let asked = 0;
  Object.defineProperty(options, "pduTimeout", {
    get: () => ((asked += 1) === 3 ? 300 : LIMITS.pduTimeout),
  });
  const slow = connect(port, "127.0.0.1");
  await once(slow, "connect");
  slow.write(Buffer.from([1, 0, 0, 0, 1, 0, 0]));
  const closed = once(slow, "close");
  await until("the listener waits for the rest", () => asked === 3);
  const caller = await called(port);
  t.equal(await stored(caller, 1), STATUS.success);
  await closed;
  await until("the slow one has ended", () => listener.associations === 1, setImmediate);
  t.equal(await stored(caller, 2), STATUS.success);
  await caller.release();
});

await t.test(
  "a full disk refuses what comes and keeps what is there, until there is room",
  async (t) => {
    const disk = mkdtempSync(path.join(os.tmpdir(), "radserve-test-"));
    t.teardown(() => rmSync(disk, { recursive: true }));
    if (!mounts(disk, "512k")) {
      t.pass("skipped: mounting a tmpfs needs root");
      return;
    }
    t.teardown(() => execFileSync("umount", ["-l", disk]));
    const { port, refused } = await opened(t, {
      spool: new Spool(disk, { mostBytes: 10_000_000, minimumFreeBytes: 0, peerShare: 1 }),
    });
    const caller = await called(port);
    t.equal(await stored(caller, 1), STATUS.success);
    const filler = `${disk}/filler`;
    try {
      for (;;) appendFileSync(filler, Buffer.alloc(4096));
    } catch {
      // Full
    }
    t.equal(await stored(caller, 2), STATUS.outOfResources);
    t.equal(
      await stored(caller, 3, { StudyInstanceUID: "1.2.9" }),
      STATUS.outOfResources,
      "no room for a folder",
    );
    t.same(refused, ["disk_full", "disk_full"]);
    t.same(readdirSync(`${disk}/series/ct1/1.2.3/1.2.3.4`), ["1.2.3.4.1.dcm"]);
    rmSync(filler);
    t.equal(await stored(caller, 2), STATUS.success);
    await caller.release();
  },
);

await t.test("what a share has no room for is refused, and the association goes on", async (t) => {
  const folder = t.testdir();
  const { bavail, bsize } = statfsSync(folder);
  // What came while it was counted may be counted twice, until the next count
  withLengths(t, { shareCount: 0 });
  const peerShare = (1.5 * LARGE_BYTES) / (bavail * bsize);
  const { port, refused } = await opened(t, {
    spool: new Spool(folder, { mostBytes: 10_000_000, minimumFreeBytes: 0, peerShare }),
  });
  const caller = await called(port);
  t.equal(await storedLarge(caller, 1), STATUS.success);
  t.equal(await storedLarge(caller, 2), STATUS.outOfResources, "in the middle of it");
  t.equal(await stored(caller, 3), STATUS.success, "smaller ones have room");
  t.same(refused, ["spool_share_full"]);
  await caller.release();
});

/** Resolves with whether the connection was closed without a word; silent ones stay open. */
const strange = (port: number, localAddress: string) =>
  connect({ port, host: "127.0.0.1", localAddress });

await t.test("who calls from outside every network is closed before a byte is read", async (t) => {
  // The sum comes after the test
  withLengths(t, { refusedConnections: HOUR_MS, refusalsApart: HOUR_MS });
  const { port, refused, lines } = await opened(t, {
    peers: [{ name: "ct1", aeTitle: "CT ONE", networks: ["127.0.0.1"] }],
  });
  // A peer that needs its time before it asks
  const slow = connect(port, "127.0.0.1");
  await once(slow, "connect");
  let isClosed = false;
  slow.on("close", () => (isClosed = true)).on("error", () => undefined);
  const strangers = Array.from({ length: 300 }, () => {
    const one = strange(port, "127.0.0.2").on("error", () => undefined);
    return once(one, "close");
  });
  await Promise.all(strangers);
  t.notOk(isClosed, "the peer's connection is still open");
  t.equal(refused.length, 300);
  t.equal(lines.length, 1, "one line, and a sum later");
  t.match(lines, [{ refused: { network: 1 }, address: "127.0.0.2" }]);
  const caller = await called(port);
  t.equal(await stored(caller, 1), STATUS.success);
  await caller.release();
  slow.destroy();
});

await t.test("known peers never give way to strangers that may call from anywhere", async (t) => {
  const { port } = await opened(t, {
    peers: [
      { name: "ct1", aeTitle: "CT ONE", networks: ["127.0.0.1"] },
      { name: "roaming", aeTitle: "ROAMING", networks: undefined },
    ],
  });
  const slow = connect(port, "127.0.0.1");
  await once(slow, "connect");
  let isClosed = false;
  slow.on("close", () => (isClosed = true)).on("error", () => undefined);
  const strangers = Array.from({ length: 200 }, (_, i) =>
    strange(port, `127.0.1.${1 + (i % 50)}`).on("error", () => undefined),
  );
  const closed = strangers.map((one) => once(one, "close"));
  await Promise.all(strangers.map((one) => once(one, "connect")));
  await Promise.race(closed);
  await (await called(port)).release();
  t.notOk(isClosed);
  for (const one of [slow, ...strangers]) one.destroy();
});

await t.test("one peer cannot hold all associations", async (t) => {
  const { listener, port } = await opened(t, {
    mostAssociations: 4,
    peers: [
      { name: "ct1", aeTitle: "CT ONE", networks: ["127.0.0.1"] },
      { name: "mr1", aeTitle: "MR ONE", networks: ["127.0.0.1"] },
    ],
  });
  const held = [await called(port), await called(port), await called(port)];
  await t.rejects(called(port), { transient: true, message: /local limit/ });
  const other = await called(port, { callingAe: "MR ONE" });
  t.equal(listener.associations, 4);
  for (const caller of [...held, other]) await caller.release();
});

await t.test("fragments without bytes keep no association alive", async (t) => {
  const { listener, port } = await opened(t, { idleTimeout: 400 });
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => undefined);
  // Its next fragment may find the connection reset
  const closed = new Promise((resolve) => socket.once("close", resolve));
  await once(socket, "connect");
  socket.write(
    encodeAssociateRequest({
      callingAe: "CT ONE",
      calledAe: "RADSERVE",
      maximumLength: 16_384,
      roles: [],
      implementationClassUid: "1.2.3",
      implementationVersion: "TEST",
      contexts: [{ id: 1, abstractSyntax: CT, transferSyntaxes: [EXPLICIT] }],
    }),
  );
  const [answer] = (await once(socket, "data")) as [Buffer];
  t.equal(answer[0], 2, "the association is accepted");
  const empty = (command: boolean) =>
    dataHeader({ contextId: 1, command, last: false, data: Buffer.alloc(0) });
  const drip = setInterval(() => socket.write(empty(true)), 20);
  await closed;
  clearInterval(drip);
  await until("it was ended", () => listener.associations === 0);
});

await t.test("an association without a release makes up for none that broke off", async (t) => {
  const { port, folder, options } = await opened(t, { idleTimeout: 1_000 });
  let [interrupted, closed] = [0, 0];
  options.reception = receptionIn(
    folder,
    new Spool(folder, { mostBytes: 10_000_000, minimumFreeBytes: 0, peerShare: 1 }),
    () => (interrupted += 1),
    () => (closed += 1),
  );
  const broken = await called(port);
  t.equal(await stored(broken, 1), STATUS.success);
  broken.abort();
  await until("it has broken off", () => interrupted === 1);
  const idle = await called(port);
  t.equal(await stored(idle, 1), STATUS.success);
  await until("it was ended", () => closed === 1);
  t.match(readdirSync(`${folder}/reception/ct1/1.2.3`), [/\+broken\+/]);
  const whole = await called(port);
  t.equal(await stored(whole, 1), STATUS.success);
  await whole.release();
  await until("it was released", () => closed === 2);
  t.same(readdirSync(`${folder}/reception/ct1`), []);
});

await t.test("a stop of this side is no end of a peer that aborts", async (t) => {
  const peers = [{ name: "ct1", aeTitle: "CT ONE", networks: ["127.0.0.0/8"], aborts: true }];
  const { listener, port, folder, options } = await opened(t, { peers });
  const ends: string[] = [];
  options.reception = receptionIn(
    folder,
    new Spool(folder, { mostBytes: 10_000_000, minimumFreeBytes: 0, peerShare: 1 }),
    () => ends.push("broken"),
    () => ends.push("whole"),
  );
  const done = await called(port);
  t.equal(await stored(done, 1), STATUS.success);
  done.abort();
  await until("the first has ended", () => ends.length === 1);
  const stopped = await called(port);
  t.equal(await stored(stopped, 2), STATUS.success);
  listener.close();
  await until("the second has ended", () => ends.length === 2);
  t.same(ends, ["whole", "broken"]);
  t.match(readdirSync(`${folder}/reception/ct1/1.2.3`), [/\+broken\+/]);
});

await t.test("what is refused for another class than its context's is counted", async (t) => {
  const { port, folder, lines, refused, sink } = await opened(t);
  const caller = await called(port);
  t.equal(await stored(caller, 1), STATUS.success);
  const context = caller.contextOf(SR)!;
  const contextOf = t.capture(caller, "contextOf", () => context);
  t.equal(await stored(caller, 2), STATUS.sopClassNotSupported);
  contextOf.restore();
  t.equal(await stored(caller, 3), STATUS.success, "the association goes on");
  await caller.release();
  while (lines.at(-1)?.["msg"] !== "association ended") await once(sink, "line");
  t.match(lines, [
    { error: "unsupported_format", attribute: "SOPClassUID (0008,0016)", peer: "ct1" },
    { objects: 2, refused: { unsupported_format: 1 } },
  ]);
  t.same(refused, ["unsupported_format"]);
  const notes = readdirSync(`${folder}/reception/ct1/1.2.3`);
  const lost = notes.filter((name) => name.startsWith("1.2.3.4+lost+"));
  t.equal(lost.length, 1, "it is missing of the series that came last");
});
