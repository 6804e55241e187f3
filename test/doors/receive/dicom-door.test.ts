/** The door for DICOM as peers see it: who comes in, what is kept, and what each is told. */
import { once } from "node:events";
import { execFileSync } from "node:child_process";
import { appendFileSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { connect, type AddressInfo } from "node:net";
import { Writable } from "node:stream";
import { pino } from "pino";
import t from "tap";
import { VERIFICATION } from "../../../src/features/gateway/dimse/acceptor.js";
import { STATUS } from "../../../src/features/gateway/dimse/command.js";
import {
  call,
  type Caller,
  type CallOptions,
} from "../../../src/features/gateway/dimse/requestor.js";
import {
  DicomDoor,
  type DicomDoorOptions,
} from "../../../src/features/gateway/receive/dicom-door.js";
import { readCertificates, tlsOptions } from "../../../src/files/certificates.js";
import { mounts } from "../../support/audit.js";
import { TestCa } from "../../support/certificates.js";
import { Spool } from "../../../src/features/gateway/receive/spool.js";
import {
  CT,
  CT_SLICE,
  DEFLATED,
  dicomFile,
  EXPLICIT,
  imageAttributes,
  IMPLICIT,
} from "../../support/dicom.js";

const SR = "1.2.840.10008.5.1.4.1.1.88.33";
const LIMITS = { mostData: 16_384, pduTimeout: 20_000, idleTimeout: 20_000 };

type Line = Record<string, unknown>;

/** A door, the lines of its log, and the folder of its spool. */
async function opened(
  test: { testdir(): string; teardown(end: () => unknown): void },
  more: Partial<DicomDoorOptions> = {},
  mostBytes = 10_000_000,
) {
  const folder = test.testdir();
  const lines: Line[] = [];
  const kept: string[] = [];
  const refused: string[] = [];
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(JSON.parse(chunk.toString()) as Line);
      sink.emit("line");
      done();
    },
  });
  const door = new DicomDoor({
    ...LIMITS,
    aeTitle: "RADSERVE",
    mostAssociations: 4,
    log: pino(sink),
    peers: [{ name: "ct1", aeTitle: "CT ONE", networks: ["127.0.0.0/8"] }],
    spool: new Spool(folder, { mostBytes, minimumFreeBytes: 0 }),
    refused: (reason) => refused.push(reason),
    ended: () => undefined,
    kept: ({ seriesInstanceUid }, peer) => kept.push(`${peer} ${seriesInstanceUid}`),
    ...more,
  });
  door.server.listen(0, "127.0.0.1");
  await once(door.server, "listening");
  test.teardown(() => door.close());
  const { port } = door.server.address() as AddressInfo;
  return { door, folder, lines, kept, refused, sink, port };
}

const OPTIONS: CallOptions = {
  ...LIMITS,
  callingAe: "CT ONE",
  calledAe: "RADSERVE",
  contexts: [
    { abstractSyntax: VERIFICATION, transferSyntaxes: [IMPLICIT] },
    { abstractSyntax: CT, transferSyntaxes: [EXPLICIT] },
    { abstractSyntax: CT, transferSyntaxes: [DEFLATED] },
    { abstractSyntax: SR, transferSyntaxes: [EXPLICIT] },
  ],
};
const called = (port: number, more: Partial<CallOptions> = {}): Promise<Caller> =>
  call({ host: "127.0.0.1", port }, { ...OPTIONS, ...more });

/** A slice, and the status of storing it. */
async function stored(
  caller: Caller,
  n: number,
  change: Record<string, string> = {},
): Promise<number> {
  const sopInstanceUid = `1.2.3.4.${n}`;
  const bytes = dicomFile({
    preamble: false,
    meta: false,
    pixels: Buffer.alloc(32, n),
    attributes: imageAttributes({
      ...CT_SLICE,
      SOPInstanceUID: sopInstanceUid,
      BitsAllocated: 16,
      BitsStored: 16,
      HighBit: 15,
      ...change,
    }),
  });
  const object = { sopClassUid: CT, sopInstanceUid, transferSyntax: EXPLICIT, dataSet: [bytes] };
  return (await caller.store(object)).status;
}

await t.test(
  "a known peer's objects are kept, and the log has a line without a word of the patient",
  async (t) => {
    const { port, folder, kept, lines, sink } = await opened(t);
    const caller = await called(port);
    const verification = caller.contextOf(VERIFICATION);
    t.ok(verification !== undefined && (await caller.echo(verification)).status === STATUS.success);
    t.equal(caller.contextOf(CT, DEFLATED), undefined, "no deflated data sets");
    t.equal(caller.contextOf(SR), undefined, "no reports");
    for (const n of [1, 2, 3]) t.equal(await stored(caller, n), STATUS.success);
    const ended = once(sink, "line");
    await caller.release();
    await ended;
    t.same(kept, ["ct1 1.2.3.4", "ct1 1.2.3.4", "ct1 1.2.3.4"]);
    t.same(readdirSync(`${folder}/series/ct1/1.2.3/1.2.3.4`).length, 3);
    t.match(lines, [{ msg: "association ended", peer: "ct1", objects: 3, refused: {} }]);
    t.notMatch(JSON.stringify(lines), /Nobody|1\.2\.3\.4/);
  },
);

await t.test("each refusal has its status, and the association goes on", async (t) => {
  const { port, lines, sink } = await opened(t, {}, 20_000);
  const caller = await called(port);
  t.equal(await stored(caller, 1), STATUS.success);
  t.equal(await stored(caller, 1), STATUS.success, "the same again");
  t.equal(await stored(caller, 1, { PatientID: "other" }), STATUS.duplicateInstance);
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
  const ended = once(sink, "line");
  await caller.release();
  await ended;
  t.match(lines, [{ objects: 3, refused: { file_exists: 1, bad_request: 2, body_too_large: 1 } }]);
});

await t.test("strangers are rejected by name", async (t) => {
  const { port } = await opened(t, {
    peers: [
      { name: "ct1", aeTitle: "CT ONE", networks: ["127.0.0.1"] },
      { name: "far", aeTitle: "FAR", networks: ["10.1.0.0/16"] },
    ],
  });
  const cases: [Partial<CallOptions>, RegExp][] = [
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
    const { door, port } = await opened(t, { mostAssociations: 2 });
    const [first, second] = [await called(port), await called(port)];
    await t.rejects(called(port), { transient: true, message: /local limit/ });
    await first.release();
    while (door.associations > 1) await new Promise((resolve) => setImmediate(resolve));
    await (await called(port)).release();
    await second.release();
  },
);

await t.test("connections that ask for no association keep no peer out", async (t) => {
  const { door, port } = await opened(t, { mostAssociations: 2 });
  const silent = Array.from({ length: 100 }, () =>
    connect(port, "127.0.0.1").on("error", () => undefined),
  );
  await Promise.all(silent.map((one) => once(one, "connect")));
  const callers = [await called(port), await called(port)];
  t.equal(door.associations, 2, "those of peers alone are counted");
  for (const caller of callers) {
    t.equal(await stored(caller, 1), STATUS.success);
    await caller.release();
  }
});

await t.test("a door that closes ends what is open, and keeps what it answered", async (t) => {
  const { door, port, kept } = await opened(t);
  const caller = await called(port);
  t.equal(await stored(caller, 1), STATUS.success);
  door.close();
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
  const { door, port } = await opened(t, { pduTimeout: 300, mostAssociations: 2 });
  const slow = connect(port, "127.0.0.1");
  await once(slow, "connect");
  slow.write(Buffer.from([1, 0, 0, 0, 1, 0, 0]));
  const closed = once(slow, "close");
  const caller = await called(port);
  t.equal(await stored(caller, 1), STATUS.success);
  await closed;
  while (door.associations > 1) await new Promise((resolve) => setImmediate(resolve));
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
      spool: new Spool(disk, { mostBytes: 10_000_000, minimumFreeBytes: 0 }),
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
