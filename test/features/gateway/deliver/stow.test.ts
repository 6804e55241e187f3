/**
 * STOW-RS out: what an answer says of each object, what a PACS may do wrong, and reading back by
 * WADO-RS.
 */
import { chmodSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import {
  destinationSchema,
  readCredentials,
} from "../../../../src/features/gateway/deliver/destination-settings.js";
import { openFile } from "../../../../src/images/dicom/dicom-file.js";
import { readImage } from "../../../../src/images/read-image.js";
import { httpPeer } from "../../../support/http-peer.js";
import { dicomObject } from "../../../../src/results/dicom/elements.js";
import { TestCa } from "../../../support/certificates.js";
import { EXPLICIT, IMPLICIT, random, RLE } from "../../../support/dicom.js";
import {
  destinationOf,
  objectOf,
  pictureToSend,
  provedBy,
  sentTo,
  slicesToSend,
} from "../../../support/pacs.js";
import { named, webPeer, type HttpFaults } from "../../../support/store-peer.js";

const failed = (uid: string, reason: number) =>
  named(uid, { "00081197": { vr: "US", Value: [reason] } });
const sequence = (tag: string, ...items: object[]) => ({ [tag]: { vr: "SQ", Value: items } });
const [FAILED, STORED] = ["00081198", "00081199"];

async function peer(t: Test, faults: HttpFaults = {}, timeout?: number) {
  const pacs = await webPeer(t, faults);
  const url = `http://127.0.0.1:${pacs.port}/dicom-web`;
  return { pacs, destination: destinationOf(t, { type: "stow", url }, timeout) };
}

await t.test("objects are stored, read back and proven; again is no harm", async (t) => {
  const { pacs, destination } = await peer(t);
  const objects = slicesToSend(3);
  for (let again = 0; again < 2; again++) {
    const told = await sentTo(destination, objects);
    t.same(
      [...told.values()],
      objects.map(() => ({ state: "stored" })),
    );
  }
  t.equal(pacs.visits(), 2, "one request for all");
  for (const object of objects)
    t.match(await provedBy(destination, object), { state: "proven", how: "wado-rs", at: /Z$/ });
  pacs.close();
  t.match(await provedBy(destination, objects[0]!), { state: "away" });
  t.match(
    [...(await sentTo(destination, objects)).values()],
    objects.map(() => ({ state: "away" })),
  );
});

await t.test("text of a file that is no UID is in no path of the peer", async (t) => {
  const { pacs, destination } = await peer(t);
  const [object] = slicesToSend(1);
  const steering = "x/../../../../../admin/reset?all=1#";
  for (const bad of [steering, "", ".", "..", "1.2%2f..", "1.2\r\nX: y", "1".repeat(65)])
    for (const field of ["study_instance_uid", "series_instance_uid", "sop_instance_uid"] as const)
      t.match(await provedBy(destination, { ...object!, [field]: bad }), {
        state: "not_provable",
        reason: /9\.1/,
      });
  t.equal(pacs.visits(), 0, "the peer was asked nothing");
});

await t.test("each object has what the answer says of it", async (t) => {
  const objects = slicesToSend(6);
  const uids = objects.map(({ sop_instance_uid: uid }) => uid);
  const { destination } = await peer(t, {
    post: () => ({
      status: 202,
      body: {
        ...sequence(
          STORED,
          named(uids[0]!),
          named(uids[1]!, { "00081196": { vr: "US", Value: [0xb000] } }),
          named(uids[4]!),
        ),
        ...sequence(
          FAILED,
          failed(uids[2]!, 0x0122),
          failed(uids[3]!, 0xa700),
          failed(uids[4]!, 0x0110),
        ),
      },
    }),
  });
  const told = await sentTo(destination, objects);
  t.same(
    uids.map((uid) => told.get(uid)),
    [
      { state: "stored" },
      { state: "stored", warning: "0xB000, elements were coerced" },
      { state: "refused", reason: "0x0122, SOP class not supported" },
      { state: "away", reason: "0xA700, out of resources", full: true, answered: true },
      { state: "away", reason: "0x0110, processing failure", answered: true },
      { state: "away", reason: "The answer (202) does not name the object.", answered: true },
    ],
  );
});

await t.test("an answer without names stores nothing", async (t) => {
  const answers = [
    undefined,
    "",
    "<NativeDicomModel/>",
    "[]",
    "{}",
    "null",
    '{"00081199":{"Value":[1,null,{}]}}',
  ];
  for (const body of answers) {
    const { destination } = await peer(t, { post: () => ({ status: 200, body: body ?? "OK" }) });
    const [sent] = (await sentTo(destination, slicesToSend(1))).values();
    t.match(sent, { state: "away", answered: true, reason: /does not name/ }, String(body));
  }
});

await t.test("an answer in another format than was asked for is told by it", async (t) => {
  const answers: [Record<string, string>, RegExp][] = [
    [{ "Content-Encoding": "gzip" }, /name the object: it is packed \(gzip\), .* identity/],
    [
      { "Content-Type": "application/dicom+xml; charset=utf-8" },
      /: it is application\/dicom\+xml,/,
    ],
    [{ "Content-Type": "Mr. Nobody" }, /: it is of another type, where application\/dicom\+json/],
    [{ "Content-Type": "application/json" }, /does not name the object\.$/],
  ];
  for (const [headers, reason] of answers) {
    const { destination } = await peer(t, { post: () => ({ status: 200, body: "?", headers }) });
    const [sent] = (await sentTo(destination, slicesToSend(1))).values();
    t.match(sent, { state: "away", answered: true, reason }, JSON.stringify(headers));
    t.notMatch(JSON.stringify(sent), /Nobody/);
  }
});

await t.test("what a peer fails with in reading back is of the object", async (t) => {
  const [object] = slicesToSend(1);
  const answers = [
    { status: 500 },
    { status: 200, type: "text/html", body: Buffer.from("Mr. Nobody") },
    { status: 200, type: 'multipart/related; type="application/dicom"; boundary=b1' },
  ];
  for (const answer of answers) {
    const { destination } = await peer(t, { get: () => answer });
    t.match(await provedBy(destination, object!), { state: "away", answered: true });
  }
  const { destination } = await peer(t, { get: () => ({ status: 503 }) });
  t.notMatch(await provedBy(destination, object!), { answered: true }, "of the peer");
});

await t.test("a status of HTTP is about the object, or about the peer", async (t) => {
  const expected: Record<number, object> = {
    400: { state: "refused", reason: "HTTP 400" },
    401: { state: "away", reason: /credentials/ },
    404: { state: "away", reason: "HTTP 404" },
    409: { state: "refused" },
    413: { state: "refused" },
    415: { state: "refused" },
    429: { state: "away" },
    500: { state: "away", answered: true },
    503: { state: "away", reason: "HTTP 503" },
  };
  for (const [status, sent] of Object.entries(expected)) {
    const { destination } = await peer(t, {
      post: () => ({ status: Number(status), body: "Mr. Nobody" }),
    });
    const [found] = (await sentTo(destination, slicesToSend(1))).values();
    t.match(found, sent, status);
    t.notMatch(JSON.stringify(found), /Nobody/, "words of the peer's page stay away");
  }
});

await t.test("a picture goes uncompressed where the peer takes no RLE", async (t) => {
  const { object, raw } = await pictureToSend();
  const [slice] = slicesToSend(1);
  for (const refusal of [
    { status: 415 },
    { status: 409, body: sequence(FAILED, failed(object.sop_instance_uid, 0xc122)) },
  ]) {
    const { pacs, destination } = await peer(t, {
      post: (_, __, syntaxes) => (syntaxes.includes(RLE) ? refusal : undefined),
    });
    t.same([...(await sentTo(destination, [object])).values()], [{ state: "stored" }]);
    const stored = pacs.objects.get(object.sop_instance_uid)!;
    t.equal(openFile(stored).transferSyntax.uid, EXPLICIT);
    t.strictSame(Buffer.from(await (await readImage(stored)).frame(0)), Buffer.from(raw.data));
    t.match(await provedBy(destination, object), { state: "proven" });
    const refused = await peer(t, { post: () => refusal });
    t.match(
      [...(await sentTo(refused.destination, [slice!])).values()],
      [{ state: /refused|away/ }],
    );
    t.equal(refused.pacs.visits(), 1, "there is no other way to write it");
  }
});

await t.test("what is in Implicit VR goes in Explicit VR, long values as UN", async (t) => {
  const { pacs, destination } = await peer(t);
  const contour = (points: number) => ({
    ContourGeometricType: "CLOSED_PLANAR",
    NumberOfContourPoints: points,
    ContourData: Array.from({ length: 3 * points }, (_, i) => i % 100),
  });
  const written = dicomObject(
    {
      SOPClassUID: "1.2.840.10008.5.1.4.1.1.481.3",
      StudyInstanceUID: "1.2.3",
      SeriesInstanceUID: "1.2.3.4",
      PatientName: "Nobody",
      ROIContourSequence: [
        { ReferencedROINumber: 1, ContourSequence: [contour(4), contour(20_000)] },
      ],
    },
    [],
    IMPLICIT,
  );
  const file = path.join(t.testdir(), "rtstruct.dcm");
  writeFileSync(file, written.bytes);
  const object = objectOf(file);
  t.equal(object.transfer_syntax_uid, IMPLICIT);
  t.same([...(await sentTo(destination, [object])).values()], [{ state: "stored" }]);
  const stored = pacs.objects.get(object.sop_instance_uid)!;
  t.equal(openFile(stored).transferSyntax.uid, EXPLICIT);
  const [roi] = openFile(stored).attributes.sequence("ROIContourSequence") ?? [];
  t.strictSame(
    roi?.sequence("ContourSequence")?.map((one) => one.strings("ContourData")?.length),
    [12, 60_000],
  );
  const headers = ["DS", "UN"].map((vr) => Buffer.from(`\x06\x30\x50\x00${vr}`, "latin1"));
  for (const header of headers) t.ok(stored.includes(header), "ContourData, short and long");
  t.match(await provedBy(destination, object), { state: "proven" });
});

await t.test("one bad object of a request does not refuse the others", async (t) => {
  const objects = slicesToSend(3);
  const bad = objects[1]!.sop_instance_uid;
  const { destination } = await peer(t, {
    post: (uids) => (uids.includes(bad) ? { status: 400 } : undefined),
  });
  const told = await sentTo(destination, objects);
  t.same(
    objects.map(({ sop_instance_uid: uid }) => told.get(uid)?.state),
    ["stored", "refused", "stored"],
  );
});

await t.test("a redirect is not followed: the settings name who is called", async (t) => {
  let called = 0;
  const other = await httpPeer(t, (_, response) => {
    called += 1;
    response.end();
  });
  const location = `${other.url}/`;
  const { destination } = await peer(t, {
    post: () => ({ status: 307, headers: { Location: location } }),
    get: () => ({ status: 307, type: "text/plain" }),
  });
  const [object] = slicesToSend(1);
  t.match(
    [...(await sentTo(destination, [object!])).values()],
    [{ state: "away", reason: /redirects are not followed/ }],
  );
  t.match(await provedBy(destination, object!), { state: "away" });
  t.equal(called, 0);
});

await t.test("a PACS that hangs, or breaks off before its answer, is away", async (t) => {
  for (const fault of ["hang", "break"] as const) {
    const { destination } = await peer(t, { post: () => fault, get: () => "hang" }, 0.3);
    const [object] = slicesToSend(1);
    t.match([...(await sentTo(destination, [object!])).values()], [{ state: "away" }], fault);
    t.match(await provedBy(destination, object!), {
      state: "away",
      reason: "The peer took too long.",
    });
  }
  const { destination } = await peer(t, { post: () => "hang" });
  const signal = AbortSignal.timeout(100);
  t.match(
    [...(await sentTo(destination, slicesToSend(2), signal)).values()],
    [{ state: "away" }, { state: "away" }],
  );
});

await t.test("a liar is caught, and one that changes what it stores", async (t) => {
  const [object] = slicesToSend(1);
  const liar = await peer(t, { lies: true });
  t.match([...(await sentTo(liar.destination, [object!])).values()], [{ state: "stored" }]);
  t.match(await provedBy(liar.destination, object!), { state: "missing" });
  const spoiler = await peer(t, { spoil: (file) => Buffer.from(file.fill(0xff, file.length - 2)) });
  await sentTo(spoiler.destination, [object!]);
  t.match(await provedBy(spoiler.destination, object!), {
    state: "differs",
    reason: "Other pixels.",
  });
});

await t.test("what is read back by an odd way is no proof", async (t) => {
  const type = 'multipart/related; type="application/dicom"; boundary=b';
  const dicom = "application/dicom";
  const [object] = slicesToSend(1);
  const part = (body: string) => `--b\r\nContent-Type: application/dicom\r\n\r\n${body}\r\n`;
  const answers: [object, { status: number; type?: string; body?: Buffer }][] = [
    [{ state: "missing" }, { status: 410 }],
    [{ state: "not_provable" }, { status: 406 }],
    [{ state: "away" }, { status: 503 }],
    [
      { state: "away", reason: /not multipart/ },
      { status: 200, type: "text/html", body: Buffer.from("x") },
    ],
    [
      { state: "away", reason: /not multipart/ },
      { status: 200, type: "multipart/related" },
    ],
    [
      { state: "away", reason: /no object/ },
      { status: 200, type, body: Buffer.from("--b--") },
    ],
    [
      { state: "away", reason: /not a whole/ },
      { status: 200, type, body: Buffer.from(part("x")) },
    ],
    [
      { state: "away", reason: /more than one/ },
      { status: 200, type, body: Buffer.from(`${part("x")}${part("y")}--b--`) },
    ],
    [{ state: "differs" }, { status: 200, type, body: Buffer.from(`${part("x")}--b--`) }],
    [{ state: "differs" }, { status: 200, type: dicom, body: Buffer.from("x") }],
    [{ state: "proven" }, { status: 200, type: dicom, body: readFileSync(object!.path) }],
  ];
  for (const [expected, answer] of answers) {
    const { destination } = await peer(t, { get: () => answer });
    t.match(await provedBy(destination, object!), expected, JSON.stringify(answer.status));
  }
});

await t.test("answers are asked for as they are, not packed", async (t) => {
  const asked: unknown[] = [];
  const { destination } = await peer(t, {
    post: (_uids, { headers }) => {
      asked.push(headers["accept-encoding"]);
      return undefined;
    },
  });
  await sentTo(destination, slicesToSend(1));
  t.same(asked, ["identity"]);
});

await t.test("what is read back between any boundary is a proof", async (t) => {
  const [object] = slicesToSend(1);
  const whole = readFileSync(object!.path);
  // 73 characters, as Orthanc has them; and those that have to be quoted
  for (const boundary of [`${"0123456789ab".repeat(6)}c`, '"a b, c"', '"a;b=c"']) {
    const line = `--${boundary.replaceAll('"', "")}`;
    const answer = {
      status: 200,
      type: `multipart/related; type="application/dicom"; boundary=${boundary}`,
      body: Buffer.concat([
        Buffer.from(`${line}\r\nContent-Type: application/dicom\r\n\r\n`),
        whole,
        Buffer.from(`\r\n${line}--`),
      ]),
    };
    const { destination } = await peer(t, { get: () => answer });
    t.match(await provedBy(destination, object!), { state: "proven" }, boundary);
  }
});

await t.test("no bytes of an answer throw or hang", async (t) => {
  const [object] = slicesToSend(1);
  const next = random(7);
  const good = Buffer.from(JSON.stringify(sequence(STORED, named(object!.sop_instance_uid))));
  const whole = readFileSync(object!.path);
  const multipart = Buffer.concat([
    Buffer.from("--b\r\nContent-Type: application/dicom\r\n\r\n"),
    whole,
    Buffer.from("\r\n--b--"),
  ]);
  const mutant = (bytes: Buffer) => {
    const copy = Buffer.from(bytes.subarray(0, Math.ceil(next() * bytes.length)));
    for (let i = 0; i < 4; i++) copy[Math.floor(next() * copy.length)] = Math.floor(next() * 256);
    return copy;
  };
  const { destination } = await peer(t, {
    post: () => ({ status: 200, body: mutant(good).toString("latin1") }),
    get: () => ({ status: 200, type: "multipart/related; boundary=b", body: mutant(multipart) }),
  });
  for (let i = 0; i < 100; i++) {
    const [sent] = (await sentTo(destination, [object!])).values();
    t.ok(sent);
    t.ok((await provedBy(destination, object!)).state);
  }
});

await t.test("a file that is gone is away; one with other bytes is never sent", async (t) => {
  const { pacs, destination } = await peer(t);
  const [one, two] = slicesToSend(2);
  const told = await sentTo(destination, [
    { ...one!, path: `${one!.path}.gone` },
    { ...two!, sha256: one!.sha256 },
  ]);
  t.match(
    [...told.values()],
    [
      { state: "away", reason: /not there/ },
      { state: "refused", reason: /other bytes/ },
    ],
  );
  t.equal(pacs.visits(), 0);
});

await t.test(
  "credentials: a token, a password, a certificate, each from its file at each use",
  async (t) => {
    const folder = t.testdir();
    const ca = new TestCa();
    t.teardown(() => rmSync(ca.folder, { recursive: true }));
    const [server, client] = [ca.issue(), ca.issue("radserve")];
    const seen: (string | undefined)[] = [];
    const pacs = await webPeer(
      t,
      { post: (_, request) => void seen.push(request.headers.authorization) },
      { ...server.pem, ca: ca.pem, requestCert: true, rejectUnauthorized: true },
    );
    const url = `https://localhost:${pacs.port}`;
    let secrets = 0;
    const secret = (text: string, mode = 0o600) => {
      const file = path.join(folder, String((secrets += 1)));
      writeFileSync(file, text);
      chmodSync(file, mode);
      return file;
    };
    const tls = { ca: ca.file, client: { cert: client.cert, key: client.key } };
    const [object] = slicesToSend(1);
    const send = async (more: object) => {
      const destination = destinationOf(t, { type: "stow", url, ...tls, ...more });
      return [...(await sentTo(destination, [object!])).values()];
    };
    const tokenFile = secret("one\n");
    t.match(await send({ token_file: tokenFile }), [{ state: "stored" }]);
    writeFileSync(tokenFile, "two");
    t.match(await send({ token_file: tokenFile }), [{ state: "stored" }]);
    t.match(await send({ basic_file: secret("user:word") }), [{ state: "stored" }]);
    t.same(seen, [
      "Bearer one",
      "Bearer two",
      `Basic ${Buffer.from("user:word").toString("base64")}`,
    ]);
    t.match(await send({ client: undefined }), [{ state: "away" }], "without its certificate");
    t.match(await send({ ca: undefined }), [{ state: "away" }], "a peer of another CA");
    t.equal(seen.length, 3);
    for (const [file, reason] of [
      [secret("three", 0o644), /mode 644/],
      [secret("two\nlines"), /one line/],
      [path.join(folder, "none"), /ENOENT/],
    ] as const) {
      const settings = destinationSchema.parse({ type: "stow", url, token_file: file });
      await t.rejects(readCredentials("pacs", settings), { message: reason });
    }
  },
);

await t.test("settings that would give a secret away are refused", (t) => {
  const refused: [object, RegExp][] = [
    [{ url: "https://user:word@pacs/dicom-web" }, /without a user/],
    [{ url: "https://pacs/?token=1" }, /without a user/],
    [{ url: "ftp://pacs" }, /URL/],
    [{ url: "http://pacs", token_file: "/t" }, /https beside token_file/],
    [{ url: "https://pacs", token_file: "/t", basic_file: "/b" }, /one of/],
    [{ url: "https://pacs", follow: true }, /follow/],
  ];
  for (const [settings, reason] of refused) {
    const parsed = destinationSchema.safeParse({ type: "stow", ...settings });
    t.match(parsed.error?.message, reason, JSON.stringify(settings));
  }
  t.ok(
    destinationSchema.safeParse({
      type: "stow",
      url: "http://localhost:8042/dicom-web",
      token_file: "/t",
    }).success,
  );
  t.end();
});
