/** Associations as peers see them: real connections, with good bytes and with bad ones. */
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import t from "tap";
import {
  serveAssociation,
  VERIFICATION,
  type AcceptorHandlers,
  type Incoming,
} from "../../../../src/features/gateway/dimse/acceptor.js";
import { STATUS } from "../../../../src/features/gateway/dimse/command.js";
import {
  dataHeader,
  encodeAssociateRequest,
  readAssociateAccept,
  type AssociateRequest,
} from "../../../../src/features/gateway/dimse/pdu.js";
import type { PduLimits } from "../../../../src/features/gateway/dimse/pdu-socket.js";
import {
  AssociationRejected,
  call,
  type CallingAssociation,
} from "../../../../src/features/gateway/dimse/requestor.js";

const CT = "1.2.840.10008.5.1.4.1.1.2";
const IMPLICIT = "1.2.840.10008.1.2";
const EXPLICIT = "1.2.840.10008.1.2.1";
const LIMITS: PduLimits = { mostData: 16_384, pduTimeout: 20_000, idleTimeout: 20_000 };
const OPTIONS = { ...LIMITS, callingAe: "MODALITY", calledAe: "RADSERVE" };
const CONTEXTS = [
  { abstractSyntax: VERIFICATION, transferSyntaxes: [IMPLICIT] },
  { abstractSyntax: CT, transferSyntaxes: [EXPLICIT, IMPLICIT] },
];

interface Kept {
  object: Incoming;
  sha256: string;
}

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

async function hashOf(pieces: AsyncIterable<Uint8Array>): Promise<string> {
  const hash = createHash("sha256");
  for await (const piece of pieces) hash.update(piece);
  return hash.digest("hex");
}

/** A server that keeps the hashes of what comes, and why each connection ended. */
async function served(
  test: { teardown(end: () => unknown): void },
  handlers: Partial<AcceptorHandlers> = {},
  limits: PduLimits = LIMITS,
): Promise<{ port: number; kept: Kept[]; ends: Promise<Error | undefined>[] }> {
  const kept: Kept[] = [];
  const ends: Promise<Error | undefined>[] = [];
  const whole: AcceptorHandlers = {
    rejection: () => undefined,
    taken: (uid, proposed) => (uid === CT || uid === VERIFICATION ? proposed : undefined),
    async store(object) {
      kept.push({ object, sha256: await hashOf(object.dataSet) });
      return { status: STATUS.success };
    },
    ...handlers,
  };
  const server: Server = createServer((connection) => {
    ends.push(serveAssociation(connection, whole, limits));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  test.teardown(() => server.close());
  return { port: (server.address() as AddressInfo).port, kept, ends };
}

const called = (
  port: number,
  more: Partial<Parameters<typeof call>[1]> = {},
): Promise<CallingAssociation> =>
  call({ host: "127.0.0.1", port }, { ...OPTIONS, contexts: CONTEXTS, ...more });

await t.test("an echo and objects of every size arrive as they were sent", async (t) => {
  const { port, kept, ends } = await served(t);
  const caller = await called(port);
  const verification = caller.contextOf(VERIFICATION);
  if (verification === undefined) throw new Error("no context of verification");
  t.same(await caller.echo(verification), { status: STATUS.success, comment: undefined });
  // Around the sizes of one fragment, and of many
  const sizes = [0, 2, 16_376, 16_378, 16_380, 32_756, 32_758, 1_000_000];
  const sent: string[] = [];
  for (const [i, size] of sizes.entries()) {
    const bytes = randomBytes(size);
    sent.push(sha256(bytes));
    const dataSet = [bytes.subarray(0, 7), bytes.subarray(7)];
    const names = { sopClassUid: CT, sopInstanceUid: `1.2.${i}` };
    t.equal(
      (await caller.store({ ...names, transferSyntax: EXPLICIT, dataSet })).status,
      STATUS.success,
    );
  }
  await caller.release();
  t.same(
    kept.map((one) => one.sha256),
    sent,
  );
  t.match(kept[3]?.object, {
    callingAe: "MODALITY",
    calledAe: "RADSERVE",
    transferSyntax: EXPLICIT,
    sopClassUid: CT,
    sopInstanceUid: "1.2.3",
  });
  t.equal(await ends[0], undefined, "a release is no fault");
});

await t.test("peers that take little, or any length, get fragments that fit", async (t) => {
  for (const mostData of [512, 4_096, 1_000_000]) {
    const { port, kept } = await served(t, {}, { ...LIMITS, mostData });
    const caller = await called(port);
    const bytes = randomBytes(100_001);
    await caller.store({
      sopClassUid: CT,
      sopInstanceUid: "1.2.3",
      transferSyntax: EXPLICIT,
      dataSet: [bytes],
    });
    await caller.release();
    t.equal(kept[0]?.sha256, sha256(bytes), `${mostData} bytes`);
  }
});

await t.test("contexts are refused one by one, and rejections are told in words", async (t) => {
  const { port } = await served(t, {
    taken: (uid, proposed) => (uid === CT ? proposed.filter((one) => one === IMPLICIT) : undefined),
  });
  const caller = await called(port);
  t.equal(caller.contextOf(VERIFICATION), undefined);
  t.equal(caller.contextOf(CT)?.transferSyntax, IMPLICIT);
  await caller.release();
  const busy = await served(t, { rejection: () => ({ result: 2, source: 3, reason: 2 }) });
  const error = await called(busy.port).catch((thrown: unknown) => thrown);
  t.ok(error instanceof AssociationRejected && error.transient);
  t.match(error, { message: "The association was rejected for now: local limit exceeded." });
});

await t.test(
  "what the handler says of an object is the answer, and the rest of the object is skipped",
  async (t) => {
    const { port } = await served(t, {
      store: ({ sopInstanceUid }) =>
        sopInstanceUid === "1.2"
          ? Promise.resolve({ status: STATUS.outOfResources, comment: "The disk is full." })
          : Promise.resolve({ status: STATUS.success }),
    });
    const caller = await called(port);
    const bytes = randomBytes(200_000);
    const names = { sopClassUid: CT, transferSyntax: EXPLICIT, dataSet: [bytes] };
    t.same(await caller.store({ ...names, sopInstanceUid: "1.2" }), {
      status: STATUS.outOfResources,
      comment: "The disk is full.",
    });
    t.equal((await caller.store({ ...names, sopInstanceUid: "1.3" })).status, STATUS.success);
    await caller.release();
  },
);

await t.test("a peer that sends faster than its data are used waits", async (t) => {
  const gate: { open?: () => void } = {};
  const opened = new Promise<void>((resolve) => (gate.open = resolve));
  const { port, ends } = await served(t, {
    async store({ dataSet }) {
      await opened;
      await hashOf(dataSet);
      return { status: STATUS.success };
    },
  });
  const caller = await called(port);
  let given = 0;
  const piece = Buffer.alloc(65_536);
  function* pieces() {
    for (; given < 400; given++) yield piece;
  }
  const answered = caller.store({
    sopClassUid: CT,
    sopInstanceUid: "1.2",
    transferSyntax: EXPLICIT,
    dataSet: pieces(),
  });
  // TCP takes what its buffers hold, and then no more
  let before = -1;
  while (before !== given) {
    before = given;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  t.ok(given < 400, `${given} of 400 pieces had been taken`);
  gate.open?.();
  t.equal((await answered).status, STATUS.success);
  await caller.release();
  t.equal(await ends[0], undefined);
});

const REQUEST: AssociateRequest = {
  calledAe: "RADSERVE",
  callingAe: "MODALITY",
  maximumLength: 16_384,
  roles: [],
  implementationClassUid: "1.2.3",
  implementationVersion: "TEST",
  contexts: [{ id: 1, abstractSyntax: CT, transferSyntaxes: [EXPLICIT] }],
};

/** Sends the bytes and gives what came until the connection ended. */
async function answerTo(port: number, ...parts: readonly Uint8Array[]): Promise<Buffer> {
  const socket: Socket = connect({ port, host: "127.0.0.1" });
  const pieces: Buffer[] = [];
  socket.on("data", (piece: Buffer) => pieces.push(piece));
  socket.on("error", () => undefined);
  for (const part of parts) socket.write(part);
  // The server may reset it, which is no end less
  await new Promise((resolve) => socket.once("close", resolve));
  return Buffer.concat(pieces);
}

const value = (contextId: number, command: boolean, last: boolean, data: Buffer) =>
  Buffer.concat([dataHeader({ contextId, command, last, data }), data]);

/**
 * A C-STORE as DCMTK writes it: group length, class, field, message, priority, type of data set,
 * instance.
 */
function storeCommand(): Buffer {
  const element = (number: number, bytes: Buffer) => {
    const header = Buffer.alloc(8);
    header.writeUInt16LE(number, 2);
    header.writeUInt32LE(bytes.length, 4);
    return Buffer.concat([header, bytes]);
  };
  const us = (number: number, at: number) => element(number, Buffer.from([at & 0xff, at >>> 8]));
  const elements = [
    element(0x0002, Buffer.from(`${CT}\0`, "latin1")),
    us(0x0100, 1),
    us(0x0110, 7),
    us(0x0700, 0),
    us(0x0800, 0),
    element(0x1000, Buffer.from("1.2.3\0", "latin1")),
  ];
  return Buffer.concat(elements);
}

await t.test(
  "a peer that breaks the protocol is aborted with the reason, and others are served",
  async (t) => {
    const { port, ends, kept } = await served(t);
    const associate = encodeAssociateRequest(REQUEST);
    const cut = (bytes: Buffer, at: number, to: number) => {
      const changed = Buffer.from(bytes);
      changed.writeUInt8(to, at);
      return changed;
    };
    const command = value(1, true, true, storeCommand());
    const ABORTED = 7;
    const cases: { name: string; parts: Buffer[]; reason: number }[] = [
      { name: "a PDU of an unknown type", parts: [cut(associate, 0, 9)], reason: 1 },
      { name: "an association of 4 GiB", parts: [cut(associate, 2, 0xff)], reason: 6 },
      { name: "data before an association", parts: [command], reason: 2 },
      { name: "a second association", parts: [associate, associate], reason: 2 },
      { name: "an item that is longer than its PDU", parts: [cut(associate, 76, 0xff)], reason: 6 },
      {
        name: "two contexts of one id",
        parts: [
          encodeAssociateRequest({
            ...REQUEST,
            contexts: [...REQUEST.contexts, ...REQUEST.contexts],
          }),
        ],
        reason: 6,
      },
      {
        name: "a context that was not accepted",
        parts: [associate, value(3, true, true, storeCommand())],
        reason: 6,
      },
      {
        name: "data where a command should be",
        parts: [associate, value(1, false, true, Buffer.alloc(8))],
        reason: 2,
      },
      { name: "a command in a data set", parts: [associate, command, command], reason: 2 },
      {
        name: "a command that ends in an element",
        parts: [associate, value(1, true, true, Buffer.alloc(5))],
        reason: 6,
      },
      { name: "a value longer than its PDU", parts: [associate, cut(command, 9, 0xff)], reason: 6 },
      {
        name: "a PDU above what was agreed",
        parts: [associate, value(1, true, true, Buffer.alloc(20_000))],
        reason: 6,
      },
      {
        name: "a command without an end",
        parts: [
          associate,
          ...Array.from({ length: 9 }, () => value(1, true, false, Buffer.alloc(16_000))),
        ],
        reason: 6,
      },
    ];
    for (const { name, parts, reason } of cases) {
      const bytes = await answerTo(port, ...parts);
      const abort = bytes.subarray(-10);
      t.same([abort[0], abort[8], abort[9]], [ABORTED, 2, reason], name);
      t.ok((await ends.at(-1)) instanceof Error, `${name}: told to the server`);
    }
    t.equal(kept.length, 0);
    const caller = await called(port);
    await caller.release();
  },
);

const RELEASE = Buffer.from([5, 0, 0, 0, 0, 4, 0, 0, 0, 0]);
/** With a context that any peer may propose, and one that is taken. */
const withContext = (change: Partial<AssociateRequest["contexts"][number]>) =>
  encodeAssociateRequest({
    ...REQUEST,
    contexts: [
      { id: 3, abstractSyntax: CT, transferSyntaxes: [EXPLICIT], ...change },
      ...REQUEST.contexts,
    ],
  });
/** The request with other bytes for some of its own. */
function replaced(bytes: Buffer, from: string, to: string): Buffer {
  const text = bytes.toString("latin1");
  if (!text.includes(from) || from.length !== to.length) throw new Error(`no ${from}`);
  return Buffer.from(text.replace(from, to), "latin1");
}

await t.test("an odd context is refused alone, and the others are served", async (t) => {
  const { port, ends } = await served(t);
  const cases: [string, Buffer, number, number][] = [
    ["a UID of letters", withContext({ abstractSyntax: "1.2.abc" }), 3, 3],
    ["an empty UID", withContext({ abstractSyntax: "" }), 3, 3],
    ["a UID that ends in a dot", withContext({ abstractSyntax: `${CT}.` }), 3, 3],
    ["a UID of 65 digits", withContext({ abstractSyntax: `1.${"2".repeat(63)}` }), 3, 3],
    ["no transfer syntax", withContext({ transferSyntaxes: [] }), 3, 4],
    ["a transfer syntax of letters", withContext({ transferSyntaxes: ["x"] }), 3, 4],
    ["an even id", withContext({ id: 2 }), 2, 3],
    ["no id but 0", withContext({ id: 0 }), 0, 3],
  ];
  for (const [name, request, id, result] of cases) {
    const bytes = await answerTo(port, request, RELEASE);
    t.equal(bytes[0], 2, name);
    // Even ids of an answer are none that this reader knows
    const found = new Map<number, number>();
    for (let at = 74; bytes[at] !== 0x50; at += 4 + bytes.readUInt16BE(at + 2))
      if (bytes[at] === 0x21) found.set(bytes.readUInt8(at + 4), bytes.readUInt8(at + 6));
    t.equal(found.get(id), result, name);
    t.equal(found.get(1), 0, `${name}: the good one`);
    t.equal(await ends.at(-1), undefined, name);
  }
  const beside = withContext({ transferSyntaxes: ["1.2.x", EXPLICIT] });
  const accept = readAssociateAccept(
    (await answerTo(port, beside, RELEASE)).subarray(6, -RELEASE.length),
  );
  t.match(accept.contexts[0], { id: 3, result: 0, transferSyntax: EXPLICIT });
});

await t.test("what only names an implementation, or a role, ends nothing", async (t) => {
  const { port, ends } = await served(t, { event: () => Promise.resolve(STATUS.success) });
  const requests = ["", "1.2.abc", "1.2.", "..", "x".repeat(70), "\x1b[31m"].map((text) =>
    encodeAssociateRequest({ ...REQUEST, implementationClassUid: text, roles: [] }),
  );
  const role = { sopClass: CT, scu: false, scp: true };
  const odd = encodeAssociateRequest({ ...REQUEST, roles: [{ ...role, sopClass: "1.2.x" }] });
  // Its inner length leads out of the item
  const length = Buffer.from(encodeAssociateRequest({ ...REQUEST, roles: [role] }));
  const at = length.indexOf(Buffer.of(0x54, 0));
  length.writeUInt16BE(0xffff, at + 4);
  for (const request of [...requests, odd, length]) {
    t.equal((await answerTo(port, request, RELEASE))[0], 2);
    t.equal(await ends.at(-1), undefined);
  }
});

await t.test("another protocol or context is rejected as the standard says", async (t) => {
  const { port, ends } = await served(t);
  const request = encodeAssociateRequest(REQUEST);
  const version = (bits: number) => {
    const changed = Buffer.from(request);
    changed.writeUInt16BE(bits, 6);
    return changed;
  };
  const context = "1.2.840.10008.3.1.1.1";
  const none = Buffer.from(request);
  none.writeUInt8(0x99, 74);
  const cases: [string, Buffer, number[]][] = [
    ["version 2 alone", version(2), [1, 2, 2]],
    ["no version", version(0), [1, 2, 2]],
    ["another context", replaced(request, context, "1.2.840.10008.3.1.1.2"), [1, 1, 2]],
    ["a context of letters", replaced(request, context, "1.2.840.10008.3.1.1.x"), [1, 1, 2]],
    ["no context", none, [1, 1, 2]],
  ];
  for (const [name, bytes, rejection] of cases) {
    t.same([...(await answerTo(port, bytes))], [3, 0, 0, 0, 0, 4, 0, ...rejection], name);
    t.ok((await ends.at(-1)) instanceof Error, `${name}: told to the server`);
  }
  for (const bits of [1, 3, 0xffff])
    t.equal((await answerTo(port, version(bits), RELEASE))[0], 2, `versions ${bits}`);
});

await t.test("a C-CANCEL of nothing is not answered, and what follows is", async (t) => {
  const { port, ends, kept } = await served(t);
  const element = (number: number, at: number) => {
    const bytes = Buffer.alloc(10);
    bytes.writeUInt16LE(number, 2);
    bytes.writeUInt32LE(2, 4);
    bytes.writeUInt16LE(at, 8);
    return bytes;
  };
  const cancel = Buffer.concat([
    element(0x0100, 0x0fff),
    element(0x0120, 1),
    element(0x0800, 0x0101),
  ]);
  const bytes = await answerTo(
    port,
    encodeAssociateRequest(REQUEST),
    value(1, true, true, cancel),
    value(1, true, true, storeCommand()),
    value(1, false, true, Buffer.alloc(8)),
    RELEASE,
  );
  t.equal(await ends[0], undefined);
  t.equal(kept.length, 1);
  const rest = bytes.subarray(6 + bytes.readUInt32BE(2), -RELEASE.length);
  t.equal(rest.length, 6 + rest.readUInt32BE(2), "one response");
});

await t.test("of a title only spaces and NUL padding do not count", async (t) => {
  const seen: string[] = [];
  const { port } = await served(t, {
    rejection({ callingAe }) {
      seen.push(callingAe);
      return callingAe === "CT1" ? undefined : { result: 1, source: 1, reason: 3 };
    },
  });
  const calling = (title: string) =>
    answerTo(port, encodeAssociateRequest({ ...REQUEST, callingAe: title }), RELEASE);
  for (const title of ["CT1", "  CT1", "CT1\0\0", "CT1".padEnd(16, "\0"), " CT1 \0 \0"])
    t.equal((await calling(title))[0], 2, JSON.stringify(title));
  for (const title of [
    "\tCT1",
    "CT1\t",
    "CT1\n",
    "CT1\xa0",
    "\xa0CT1",
    "CT1\r",
    "\0CT1",
    "CT1\0X",
    "ct1",
  ])
    t.same([...(await calling(title))].slice(-3), [1, 1, 3], JSON.stringify(title));
  t.equal(seen.length, 14);
});

await t.test(
  "roles are answered for the SOP classes that were proposed, however many are asked for",
  async (t) => {
    const { port, ends } = await served(t, { event: () => Promise.resolve(STATUS.success) });
    const role = (sopClass: string) => ({ sopClass, scu: false, scp: true });
    const others = Array.from({ length: 7_270 }, () => role("1"));
    const associate = encodeAssociateRequest({ ...REQUEST, roles: [...others, role(CT)] });
    const accept = await answerTo(port, associate, Buffer.from([5, 0, 0, 0, 0, 4, 0, 0, 0, 0]));
    t.equal(await ends[0], undefined);
    t.same(readAssociateAccept(accept.subarray(6, -10)).roles, [role(CT)]);
  },
);

await t.test(
  "fragments of a byte or of none are put together before anybody is given them",
  async (t) => {
    const data = randomBytes(1_500);
    const pieces: Buffer[] = [];
    const { port, ends } = await served(t, {
      async store({ dataSet }) {
        for await (const piece of dataSet) pieces.push(Buffer.from(piece));
        return { status: STATUS.success };
      },
    });
    /** One PDU with a value for each byte, and an empty one behind each. */
    const inBytes = (command: boolean, bytes: Buffer, ends = true) => {
      const values = [...bytes].flatMap((byte, i) =>
        [Buffer.of(byte), Buffer.alloc(0)].map((data, n) => {
          const last = ends && n === 1 && i === bytes.length - 1;
          return Buffer.concat([
            dataHeader({ contextId: 1, command, last, data }).subarray(6),
            data,
          ]);
        }),
      );
      const pdu = Buffer.concat([Buffer.of(4, 0, 0, 0, 0, 0), ...values]);
      pdu.writeUInt32BE(pdu.length - 6, 2);
      return pdu;
    };
    const empty = value(1, false, false, Buffer.alloc(0));
    const [associate, release] = [encodeAssociateRequest(REQUEST), RELEASE];
    await answerTo(
      port,
      associate,
      inBytes(true, storeCommand()),
      inBytes(false, data.subarray(0, 900), false),
      empty,
      empty,
      inBytes(false, data.subarray(900)),
      release,
    );
    t.equal(await ends[0], undefined);
    t.same(Buffer.concat(pieces), data);
    t.equal(pieces.length, 2, "one for each PDU with bytes");
  },
);

await t.test("a peer that goes away or is too slow ends its own connection alone", async (t) => {
  const limits = { ...LIMITS, pduTimeout: 300 };
  const { port, ends } = await served(t, {}, limits);
  const associate = encodeAssociateRequest(REQUEST);
  for (const parts of [[], [associate.subarray(0, 3)], [associate.subarray(0, 40)], [associate]]) {
    // What comes whole has time, and then nothing comes
    if (parts[0] === associate) Object.assign(limits, { ...LIMITS, idleTimeout: 300 });
    const bytes = await answerTo(port, ...parts);
    t.equal(bytes.length > 0, parts[0] === associate, `${parts[0]?.length ?? 0} bytes`);
    t.match(await ends.at(-1), { message: "The peer took too long." });
  }
  const patient = await served(t, {}, { ...LIMITS, pduTimeout: 300, idleTimeout: 600_000 });
  await answerTo(patient.port);
  t.match(
    await patient.ends[0],
    { message: "The peer took too long." },
    "an association begins sooner",
  );
  Object.assign(limits, LIMITS);
  const socket = connect({ port, host: "127.0.0.1" });
  await once(socket, "connect");
  socket.write(associate);
  await once(socket, "data");
  socket.destroy();
  t.ok((await ends.at(-1)) instanceof Error, "a connection that ends without a release is told");
});

await t.test("random damage of good bytes never does more than end its connection", async (t) => {
  const limits = { ...LIMITS, pduTimeout: 200, idleTimeout: 200 };
  const { port, ends } = await served(t, {}, limits);
  const good = Buffer.concat([
    encodeAssociateRequest(REQUEST),
    value(1, true, true, storeCommand()),
    value(1, false, true, randomBytes(1_000)),
    Buffer.from([5, 0, 0, 0, 0, 4, 0, 0, 0, 0]),
  ]);
  let seed = 1;
  const random = (below: number) => (seed = (seed * 48_271) % 2_147_483_647) % below;
  await Promise.all(
    Array.from({ length: 300 }, () => {
      const bad = Buffer.from(good);
      for (let i = 0; i <= random(4); i++)
        bad.writeUInt8(random(256), random(i < 2 ? 400 : bad.length));
      return answerTo(port, random(5) === 0 ? bad.subarray(0, random(bad.length)) : bad);
    }),
  );
  const found = await Promise.all(ends);
  t.equal(found.length, 300);
  Object.assign(limits, LIMITS);
  const caller = await called(port);
  await caller.release();
});
