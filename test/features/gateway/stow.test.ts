/**
 * STOW-RS: objects by HTTP into the spool, what is refused of them, and what a body that breaks off
 * leaves.
 */
import { once } from "node:events";
import { statfsSync, symlinkSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import t from "tap";
import {
  gatewayPlace,
  filesBelow,
  jobsOnce,
  object,
  startGateway,
  STUDY,
} from "../../support/gateway.js";
import { Multipart } from "../../../src/features/gateway/receive/multipart.js";
import { stowPeer } from "../../../src/features/gateway/settings.js";
import { SPOOL_MARK } from "../../../src/files/folder-mark.js";
import { withDurations } from "../../support/durations.js";
import { issueToken, makePlace, startServer } from "../../support/server.js";
import {
  bodyOf,
  failures,
  STOW_TYPE as TYPE,
  stored,
  type StowAnswer as Answer,
} from "../../support/stow.js";
import { until } from "../../support/until.js";

await t.test("objects are kept, and each that is not is named with its reason", async (t) => {
  const { place, spool } = gatewayPlace(
    t,
    { dicom: undefined },
    { RADSERVE_UPLOAD_LIMIT: "20000" },
  );
  const gateway = await startGateway(t, place, false);
  const token = await issueToken(place, "--subject", "viewer");
  const post = async (body: Uint8Array, headers: Record<string, string> = {}) => {
    const answer = await fetch(`${gateway.server.url}/dicomweb/studies`, {
      method: "POST",
      headers: { Authorization: token, "Content-Type": TYPE, ...headers },
      body,
    });
    return {
      status: answer.status,
      type: answer.headers.get("Content-Type"),
      body: (await answer.json()) as Answer & { error?: string },
    };
  };
  const [one, two, three] = [object(1), object(2), object(3)];
  const all = await post(bodyOf([one.file, two.file]));
  t.match(all, { status: 200, type: "application/dicom+json" });
  t.same(stored(all.body), [one.sopInstanceUid, two.sopInstanceUid]);
  t.same(failures(all.body), []);
  // Orthanc's client writes one that is longer than RFC 2046 allows
  const long = "b".repeat(73);
  const renamed = bodyOf([two.file]).toString("latin1").replaceAll("--next", `--${long}`);
  t.match(
    await post(Buffer.from(renamed, "latin1"), { "Content-Type": TYPE.replace("next", long) }),
    {
      status: 200,
    },
  );
  const other = object(1, { Manufacturer: "other" });
  const query = object(8, {
    SOPClassUID: "1.2.840.10008.5.1.4.1.2.2.1",
    SOPInstanceUID: "1.2.88",
  });
  const large = object(9, {
    ImageComments: "x".repeat(9_000),
    PatientComments: "y".repeat(9_000),
    AdditionalPatientHistory: "z".repeat(9_000),
  });
  const some = await post(
    bodyOf([one.file, other.file, three.file, query.file, large.file, Buffer.from("no DICOM")]),
  );
  t.equal(some.status, 202);
  t.same(
    stored(some.body),
    [one.sopInstanceUid, three.sopInstanceUid],
    "the same again is no fault",
  );
  t.same(failures(some.body), [
    [other.sopInstanceUid, "111"],
    ["1.2.88", "122"],
    [large.sopInstanceUid, "a700"],
  ]);
  t.same(failures(some.body, "0008119A"), [[undefined, "c000"]]);
  const none = await post(bodyOf([other.file]));
  t.equal(none.status, 409);
  const folder = path.join(spool, "series", "stow-viewer", STUDY, "1.2.3.4");
  const objects = () => filesBelow(folder).filter((name) => name.endsWith(".dcm")).length;
  t.same(objects(), 3);
  const [job] = await jobsOnce(gateway, 1);
  t.match((await gateway.ended(job!.job_id)).counts, { succeeded: 1 });

  // A parameter before them has what they are found by
  const start = 'start="<a; type=b; boundary=c>"; type=';
  t.match(
    await post(bodyOf([one.file]), { "Content-Type": TYPE.replace("type=", start) }),
    { status: 200 },
    "parameters are told apart",
  );
  t.match(
    await post(bodyOf([Buffer.from("no DICOM")])),
    {
      status: 409,
      body: { "0008119A": { Value: [{ "00000902": { Value: [/^Part: no DICOM/] } }] } },
    },
    "the comment says what was found",
  );

  const wrong: [string, Uint8Array, Record<string, string>, number, string][] = [
    ["no multipart", one.file, { "Content-Type": "application/dicom" }, 415, "unsupported_format"],
    [
      "JSON",
      bodyOf([]),
      { "Content-Type": TYPE.replace("dicom", "dicom+json") },
      415,
      "unsupported_format",
    ],
    [
      "no boundary",
      bodyOf([]),
      { "Content-Type": 'multipart/related; type="application/dicom"' },
      400,
      "bad_request",
    ],
    ["packed", bodyOf([one.file]), { "Content-Encoding": "gzip" }, 400, "bad_request"],
    ["no part", bodyOf([]), {}, 400, "bad_request"],
    ["no end", bodyOf([one.file]).subarray(0, -12), {}, 400, "bad_request"],
    [
      "another boundary",
      bodyOf([one.file]),
      { "Content-Type": TYPE.replace("next", "other") },
      400,
      "bad_request",
    ],
  ];
  for (const [name, body, headers, status, error] of wrong)
    t.match(await post(body, headers), { status, body: { error } }, name);
  const elsewhere = await issueToken(place, "--input-root", path.join(place.input, "elsewhere"));
  t.match(await post(bodyOf([one.file]), { Authorization: elsewhere }), {
    status: 403,
    body: { error: "path_not_allowed" },
  });
  t.match(await post(bodyOf([one.file]), { Authorization: "x" }), { status: 401 });

  // What was whole before the connection broke is kept, and nothing of the rest
  const [whole, half] = [object(20), object(21)];
  const body = bodyOf([whole.file, Buffer.alloc(4_000_000), half.file]);
  const socket = connect(gateway.server.port, "127.0.0.1");
  socket.write(
    `POST /dicomweb/studies HTTP/1.1\r\nHost: x\r\nAuthorization: ${token}\r\nContent-Type: ${TYPE}\r\nContent-Length: ${body.length}\r\n\r\n`,
  );
  socket.write(body.subarray(0, body.length - 200));
  await until("two whole objects lie in the spool", () => objects() === 4);
  socket.destroy();
  await once(socket, "close");
  await gateway.server.logged(
    ({ status, route }) => status === 499 && route === "POST /dicomweb/studies",
  );
  t.same(objects(), 4);
  t.match(await post(bodyOf([half.file])), { status: 200 }, "it goes on");
});

await t.test("a subject that has its share is refused, and another is not", async (t) => {
  const probe = gatewayPlace(t).spool;
  const { bavail, bsize } = statfsSync(probe);
  const share = (1.5 * 180_000) / (bavail * bsize);
  // What came while it was counted may be counted twice, until the next count
  const counted = withDurations({ gatewayFigures: 50, shareCount: 0 });
  const { place } = gatewayPlace(t, { dicom: undefined, peer_share: share }, counted);
  const gateway = await startGateway(t, place, false);
  const post = async (subject: string, ...objects: { file: Buffer }[]) => {
    const answer = await fetch(`${gateway.server.url}/dicomweb/studies`, {
      method: "POST",
      headers: {
        Authorization: await issueToken(place, "--subject", subject),
        "Content-Type": TYPE,
      },
      body: bodyOf(objects.map(({ file }) => file)),
    });
    return { status: answer.status, body: (await answer.json()) as Answer };
  };
  const long = "x".repeat(60_000);
  const text = (z: number) =>
    object(z, { ImageComments: long, PatientComments: long, AdditionalPatientHistory: long });
  t.match(await post("alice", text(1)), { status: 200 });
  const part = await post("alice", object(3), text(2));
  t.equal(part.status, 202);
  t.same(failures(part.body), [[text(2).sopInstanceUid, "a700"]]);
  t.match(await post("alice", text(2)), {
    status: 507,
    body: { error: "spool_share_full", details: { peer: "stow-alice" } },
  });
  t.match(await post("bob", text(2)), { status: 200 });
  await until("the condition names the sender", async () => {
    const { body } = await gateway.send("GET", "/health/ready");
    return JSON.stringify(body).includes("stow-alice has used up its share");
  });
});

await t.test("a store to one study is told where objects are taken", async (t) => {
  const server = await startServer(makePlace());
  t.teardown(() => server.stop());
  const post = async (page: string) => {
    const headers = { Authorization: server.token, "Content-Type": TYPE };
    const body = bodyOf([object(1).file]);
    const answer = await fetch(server.url + page, { method: "POST", headers, body });
    return { status: answer.status, body: await answer.json() };
  };
  const message = /^There is no such endpoint; the nearest is POST \/dicomweb\/studies\. /;
  t.match(await post(`/dicomweb/studies/${STUDY}`), { status: 404, body: { message } });
  t.match(await post("/dicomweb/studies/1.2.3/series/1.2"), { status: 404, body: { message } });
  t.match(await post("/nothing/at/all"), {
    status: 404,
    body: { message: /^There is no such endpoint; GET \/openapi\.json lists all\.$/ },
  });
});

await t.test("without a gateway there is no such endpoint", async (t) => {
  const { place } = gatewayPlace(t);
  delete place.environment["RADSERVE_GATEWAY"];
  const gateway = await startGateway(t, place, false);
  for (const page of ["/dicomweb/studies", "/gateway/received/1.2.3/complete"])
    t.match(await gateway.send("POST", page), { status: 404, body: { error: "not_found" } });
});

await t.test("a body that never has a part is not read without end", async (t) => {
  let pieces = 0;
  async function* endless() {
    for (; pieces < 1_000; pieces += 1) yield await Promise.resolve(Buffer.alloc(10_000));
  }
  const first = () => new Multipart(endless(), "next").parts().next();
  await t.rejects(first(), { code: "bad_request", message: /before the first boundary/ });
  t.ok(pieces < 10, `${pieces} of 1,000 pieces`);
});

await t.test("a body is the same however it is cut", async (t) => {
  // Data with what looks like a boundary, and nearly is one
  const bodies = [
    Buffer.from("\r\n--nex"),
    Buffer.from("\r\n--ne\r\n-\r\n\r\n--"),
    Buffer.alloc(0),
    Buffer.alloc(300, 7),
  ];
  const whole = Buffer.concat([Buffer.from("a preamble\r\n"), bodyOf(bodies, "a/b")]);
  for (let each = 1; each <= whole.length; each += each < 40 ? 1 : 97) {
    async function* pieces() {
      for (let at = 0; at < whole.length; at += each)
        yield await Promise.resolve(whole.subarray(at, at + each));
    }
    const found: Buffer[] = [];
    for await (const { headers, body } of new Multipart(pieces(), "next").parts()) {
      if (headers.get("content-type") !== "a/b") t.fail("a header");
      const read: Buffer[] = [];
      // Of every second part nothing, or the beginning alone
      if (found.length % 2 === 0) for await (const piece of body) read.push(piece);
      else await body.next();
      found.push(found.length % 2 === 0 ? Buffer.concat(read) : Buffer.from("skipped"));
    }
    if (found.length !== 4 || !found[0]!.equals(bodies[0]!) || !found[2]!.equals(bodies[2]!))
      t.fail(`cut to ${each}`);
  }
  t.notSame(stowPeer("A"), stowPeer("a"));
  for (const subject of ["../x", "A b", "x".repeat(200), "=0"])
    t.match(stowPeer(subject), /^stow-=[0-9a-f]{32}$/);
});

await t.test(
  "an upload does not come into the spool, where its folder would name another peer",
  async (t) => {
    const { place, spool } = gatewayPlace(
      t,
      { dicom: undefined },
      { RADSERVE_FILES_BY_HTTP: "upload" },
    );
    const { server } = await startGateway(t, place, false);
    symlinkSync(spool, path.join(place.input, "link"));
    const { file, sopInstanceUid } = object(1);
    for (const folder of [
      `spool/series/ct1/${STUDY}/1.2.3.4`,
      `link/series/ct1/${STUDY}/1.2.3.4`,
      "spool",
    ]) {
      const name = path.join(place.input, folder, `${sopInstanceUid}.dcm`);
      const answer = await fetch(
        `${server.url}/files?path=${encodeURIComponent(name)}&overwrite=true`,
        {
          method: "PUT",
          headers: { Authorization: server.token },
          body: file,
        },
      );
      t.match(
        [answer.status, await answer.json()],
        [403, { details: { side: "input", reason: "spool" } }],
        folder,
      );
    }
    t.same(filesBelow(spool), [SPOOL_MARK]);
  },
);

await t.test("nor through a node that shares the folder and has no gateway", async (t) => {
  const { place, spool } = gatewayPlace(t, { dicom: undefined });
  await startGateway(t, place, false);
  const other = makePlace({
    RADSERVE_INPUT_ROOTS: place.input,
    RADSERVE_FILES_BY_HTTP: "upload",
  });
  const node = await startServer(other);
  t.teardown(() => node.stop());
  const { file, sopInstanceUid } = object(1);
  const put = async (folder: string) => {
    const name = path.join(place.input, folder, `${sopInstanceUid}.dcm`);
    const answer = await fetch(`${node.url}/files?path=${encodeURIComponent(name)}`, {
      method: "PUT",
      headers: { Authorization: node.token },
      body: file,
    });
    return [answer.status, await answer.json()];
  };
  for (const folder of [`spool/series/ct1/${STUDY}/1.2.3.4`, "spool"])
    t.match(await put(folder), [403, { details: { side: "input", reason: "spool" } }], folder);
  t.same(filesBelow(spool), [SPOOL_MARK]);
  t.match(await put("beside"), [201]);
});
