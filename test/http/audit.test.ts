/**
 * What a running server writes into its audit, and that nothing happens which it cannot write down.
 */
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import type { AuditEntry } from "../../src/audit/entry.js";
import { filesOf, linesOf, onSmallDisk, pathsOf, textOf, verified } from "../support/audit.js";
import { withDurations } from "../support/durations.js";
import { CT, dicomFile, imageAttributes } from "../support/dicom.js";
import { ADDON, needs } from "../support/needs.js";
import { databaseUrl } from "../support/postgres.js";
import {
  issueToken,
  makePlace,
  radserve,
  root,
  startServer,
  type Place,
  type TestServer,
} from "../support/server.js";
import { until } from "../support/until.js";

const skip = needs(ADDON);

const PLANTED = "Planted";
const STUDY = "1.2.840.99999.77";

function writeCt(place: Place, name: string, attributes: object = {}): string {
  const folder = path.join(place.input, `${PLANTED}Folder`);
  mkdirSync(folder, { recursive: true });
  const file = path.join(folder, `${PLANTED}^${name}.dcm`);
  const described = imageAttributes({
    SOPClassUID: CT,
    Modality: "CT",
    RescaleSlope: "1",
    RescaleIntercept: "0",
    PatientName: `${PLANTED}^Name`,
    PatientID: `${PLANTED}Id`,
    StudyInstanceUID: STUDY,
    StudyDescription: `${PLANTED} study`,
    ReferringPhysicianName: `${PLANTED}^Doctor`,
    AccessionNumber: `${PLANTED}1`,
    InstitutionName: `${PLANTED} hospital`,
    SeriesDescription: `${PLANTED} series`,
    PatientComments: `${PLANTED} note`,
    ...attributes,
  });
  writeFileSync(file, dicomFile({ attributes: described, pixels: new Uint8Array(16).fill(9) }));
  return file;
}

const withModels = (extra: Record<string, string> = {}) =>
  makePlace({
    ...extra,
    ...withDurations({ auditRetry: 200, keysFresh: 50 }),
    RADSERVE_MODELS_DIR: path.join(root, "models"),
    RADSERVE_MINIMUM_FREE_DISK: "0",
  });

async function started(t: Test, place = withModels()): Promise<TestServer> {
  const server = await startServer(place);
  t.teardown(() => server.stop());
  return server;
}

/** The one answer of a single request, and the lines of the audit about it. */
async function infer(
  server: TestServer,
  id: string,
  body: object,
  headers: Record<string, string> = {},
) {
  const response = await server.post("/single_inference", body, { "X-Request-Id": id, ...headers });
  const answer = (await response.json()) as { error?: string; details?: unknown };
  return {
    status: response.status,
    answer,
    lines: linesOf(server.place).filter((line) => line.request_id === id),
  };
}

const hashed = async (place: Place, ...what: string[]) =>
  (await radserve(place, "audit", "hash", ...what)).stdout.trim();

t.test("who did what", { skip }, async (t) => {
  const server = await started(t, withModels({ DATABASE_URL: databaseUrl(t) }));
  const { place } = server;
  const input = writeCt(place, "slice");
  const body = { input_image_path: input, output_folder_path: place.output, outputs: ["json"] };
  const [patient, study, inputHash, outputHash] = [
    await hashed(place, "--patient", `${PLANTED}Id`),
    await hashed(place, "--study", STUDY),
    await hashed(place, "--path", input),
    await hashed(place, "--path", place.output),
  ];
  t.match(patient, /^[0-9a-f]{32}$/);
  t.equal(new Set([patient, study, inputHash, outputHash]).size, 4);

  const first = await infer(server, "first", body);
  t.equal(first.status, 200);
  t.equal(first.lines.length, 1, "one line, which was there before the receipt");
  t.match(first.lines[0], {
    kind: "inference",
    outcome: "completed",
    endpoint: "POST /single_inference",
    subject: "tester",
    jti: /^[0-9a-f]{24}$/,
    address: "127.0.0.1",
    patient,
    study,
    input: inputHash,
    output: outputHash,
    models: [
      {
        name: "burned-in-text",
        version: "1.0.0",
        sha256: /^[0-9a-f]{64}$/,
        status: "not_accepted",
      },
      { name: "ct-tissue", version: "1.0.0", sha256: /^[0-9a-f]{64}$/, status: "succeeded" },
    ],
    ms: Number,
  });
  t.match((await infer(server, "again", body)).lines, [
    { outcome: "reused", patient, models: [{}, {}] },
  ]);

  const refused = await infer(server, "refused", {
    ...body,
    input_image_path: writeCt(place, "no-hu", {
      RescaleSlope: undefined,
      RescaleIntercept: undefined,
    }),
  });
  t.match(refused, { status: 422, lines: [{ outcome: "no_model_accepts", patient, study }] });
  const away = { ...body, input_image_path: path.join(place.input, `${PLANTED}-away`) };
  t.match(await infer(server, "away", away), {
    status: 404,
    lines: [{ outcome: "input_not_found", input: String }],
  });
  t.match(await infer(server, "bad", { nothing: 1 }), {
    status: 400,
    lines: [{ outcome: "bad_request" }],
  });

  const page = async (method: string, target: string, id: string) => {
    const headers = { Authorization: server.token, "X-Request-Id": id };
    const { status } = await fetch(server.url + target, { method, headers });
    return { status, lines: linesOf(place).filter((line) => line.request_id === id) };
  };
  t.match(await page("GET", "/models", "models"), {
    status: 200,
    lines: [{ kind: "page", outcome: "done", subject: "tester" }],
  });
  const odd = await page(
    "POST",
    `/bulk_inference/${PLANTED}^Name/cancel?state=${PLANTED}^Name`,
    "odd",
  );
  t.strictSame(odd, { status: 404, lines: [] });
  // On a busy machine the queue takes longer to open than a page waits
  await until(
    "the queue is open",
    async () => (await page("GET", "/bulk_inference", "opening")).status !== 503,
  );
  const job = await page("GET", `/bulk_inference/${PLANTED}^Name`, "named");
  t.match(job.lines, [{ endpoint: "GET /bulk_inference/:id", outcome: "job_not_found" }]);
  t.notOk(job.lines[0]!.job_id, "what is no number of a job is left out");

  const kinds = linesOf(place).map(({ kind, command }) => command ?? kind);
  t.strictSame(kinds.slice(0, 2), ["day", "start"]);
  t.ok(["models", "token issue"].every((kind) => kinds.includes(kind)));
  const models = path.join(place.directory, "none");
  mkdirSync(models);
  t.match(await radserve(place, "models", "reload"), { status: 0 });
  const loadings = () => linesOf(place).filter(({ kind }) => kind === "models").length;
  // The command hears of the reload from elsewhere
  await until("the reload is written down", () => loadings() >= 2);
  t.equal(loadings(), 2);

  t.notMatch(textOf(place), new RegExp(PLANTED), "no name of a patient or a file");
  t.notMatch(JSON.stringify(server.log), new RegExp(PLANTED));
  t.notMatch(textOf(place), /1\.2\.840\.99999/);
  const { folder, chainKey, namesKey } = pathsOf(place);
  t.equal(statSync(folder).mode & 0o777, 0o700);
  for (const file of [...filesOf(place), chainKey, namesKey])
    t.equal(statSync(file).mode & 0o777, 0o600);
  t.match(await verified(place), { ok: true, notes: { length: 0 } });

  server.process.kill("SIGTERM");
  await once(server.process, "close");
  t.match(linesOf(place).at(-1), { kind: "stop" });
  const heads = server.log
    .filter(({ msg }) => msg === "audit head")
    .map(({ head }) => String(head));
  t.ok(heads.length >= 2, "a head at the start, and one at the end");
  t.match(await verified(place, ...heads.flatMap((head) => ["--head", head])), {
    ok: true,
    head: heads.at(-1),
  });
  const [last] = filesOf(place);
  writeFileSync(last!, readFileSync(last!, "utf8").split("\n").slice(0, -2).join("\n") + "\n");
  t.match(
    await verified(place),
    { status: 1, faults: [{ message: /The end is cut off/ }] },
    "the head that the server said last is kept",
  );
  const again = await startServer(place);
  t.teardown(() => again.stop());
  t.match(await again.logged(({ msg }) => msg.startsWith("the end of the audit is gone")), {
    level: "error",
  });
  t.match(
    await verified(place),
    { status: 1, faults: [{ message: /is missing before/ }] },
    "and stays visible",
  );
});

t.test("refused tokens, and a flood of them", { skip }, async (t) => {
  // The minute within which refusals of one kind are summed up is longer than a flood takes
  const place = withModels();
  Object.assign(place.environment, withDurations({ keysFresh: 50, auditWindow: 3_600_000 }));
  const server = await started(t, place);
  const ask = (token: string | undefined) =>
    fetch(`${server.url}/models`, { headers: token === undefined ? {} : { Authorization: token } });
  const short = await issueToken(place, "--expires", "1s");
  const revoked = await issueToken(place);
  const jti = linesOf(place)
    .filter(({ kind }) => kind === "command")
    .at(-1)!.token!.jti;
  t.match(await radserve(place, "token", "revoke", jti), { status: 0 });
  await until(
    "both tokens are refused",
    async () => (await ask(revoked)).status === 401 && (await ask(short)).status === 401,
  );
  const forged = server.token.replace(
    /\.(.)([^.]*)$/,
    (_, first, rest) => `.${first === "A" ? "B" : "A"}${rest}`,
  );
  for (const token of [
    undefined,
    `Bearer ${server.token}`,
    forged,
    "no.token",
    server.token.replace(/^[^.]+/, "e30"),
  ])
    t.equal((await ask(token)).status, 401);
  const lines = () => linesOf(place).filter(({ kind }) => kind === "refused");
  const has = (fits: Partial<AuditEntry>) =>
    t.ok(
      lines().some((line) =>
        Object.entries(fits).every(([key, value]) => line[key as keyof AuditEntry] === value),
      ),
      JSON.stringify(fits),
    );
  await until("six lines", () => lines().length >= 6);
  for (const reason of ["missing", "bearer", "signature_or_issuer", "malformed"])
    has({ reason, address: "127.0.0.1" });
  has({ reason: "revoked", jti, subject: "tester" });
  has({ reason: "expired", subject: "tester" });

  const before = lines().length;
  const flood = 600;
  for (let i = 0; i < flood; i += 50)
    await Promise.all(Array.from({ length: 50 }, () => ask(`${i}.x.y`)));
  t.ok(lines().length - before <= 6, "one line for all of them until they are counted");
  server.process.kill("SIGTERM");
  await once(server.process, "exit");
  const told = lines().slice(before);
  t.ok(told.length <= 12, "two lines a minute");
  const number = told
    .filter(({ reason }) => reason === "malformed")
    .reduce((sum, { count = 1 }) => sum + count, 0);
  t.ok(
    number >= flood && number <= flood + 2,
    "none is left out, those before the flood are counted with it",
  );
});

t.test("a full disk of the audit", { skip }, async (t) => {
  const place = withModels();
  const disk = onSmallDisk(place);
  if (disk === undefined) {
    t.comment("this user may not mount");
    return;
  }
  const server = await started(t, place);
  const ready = async () => (await fetch(`${server.url}/health/ready`)).status;
  const outputs = [["json"], ["json", "png", "sr", "seg", "sc"]];
  const ask = (n: number, id: string) =>
    infer(server, id, {
      input_image_path: writeCt(place, String(n)),
      output_folder_path: path.join(place.output, `of-${n}`),
      outputs: outputs[n],
    });
  await until("it is ready", async () => (await ready()) === 200);
  disk.fill();
  for (const n of [0, 1]) {
    // What is left of the last page takes a few lines more
    let found = await ask(n, `full-${n}`);
    for (let more = 0; found.status === 200; more++) {
      rmSync(path.join(place.output, `of-${n}`), { recursive: true });
      found = await ask(n, `full-${n}-${more}`);
    }
    t.match(found, {
      status: 507,
      answer: { error: "audit_failed", details: { errno: "ENOSPC" } },
    });
    const folder = path.join(place.output, `of-${n}`);
    t.strictSame(
      existsSync(folder) ? readdirSync(folder) : [],
      [],
      "nothing appears, and nothing is left behind",
    );
  }
  const models = await fetch(`${server.url}/models`, { headers: { Authorization: server.token } });
  t.match(await models.json(), { error: "audit_failed" }, "nothing is told either");
  t.equal(await ready(), 507, "the node says that it cannot work");
  t.match(await server.logged(({ msg }) => msg.startsWith("the audit cannot be written")), {
    level: "error",
  });

  disk.free();
  await until("it is ready", async () => (await ready()) === 200);
  for (const n of [0, 1])
    t.match(await ask(n, `room-${n}`), { status: 200, lines: [{ outcome: "completed" }] });
  const { ok, faults, notes } = await verified(place);
  t.strictSame({ ok, faults }, { ok: true, faults: [] });
  t.ok(
    notes.some(({ message }) =>
      /No line could be written since .*; [1-9]\d* actions were refused/.test(message),
    ),
  );
});

t.test("a server that is killed again and again", { skip }, async (t) => {
  const server = await started(t);
  const { place } = server;
  const rounds = 4;
  const killed = new Set<unknown>();
  for (let round = 0; round < rounds; round++) {
    const folder = path.join(place.output, `round-${round}`);
    const inputs = Array.from({ length: 30 }, (_, i) => writeCt(place, `${round}-${i}`));
    const asked = inputs.map((input, i) =>
      server
        .post(
          "/single_inference",
          {
            input_image_path: input,
            output_folder_path: folder,
            outputs: i % 2 === 0 ? ["json"] : ["json", "png"],
          },
          { "X-Request-Id": `${round}-${i}` },
        )
        .then((response) => response.status)
        .catch(() => undefined),
    );
    await Promise.race(asked);
    const pid = server.servingPid();
    killed.add(pid);
    process.kill(pid, "SIGKILL");
    await Promise.all(asked);
    const lines = linesOf(place);
    const told = new Set(
      lines.filter(({ outcome }) => outcome === "completed").map((line) => line.request_id),
    );
    for (const name of existsSync(folder) ? readdirSync(folder) : []) {
      if (!name.endsWith(".json") || name.startsWith(".")) continue;
      const receipt = JSON.parse(readFileSync(path.join(folder, name), "utf8")) as {
        timings: { request_id: string };
      };
      t.ok(told.has(receipt.timings.request_id), "no receipt without its line");
    }
    await server.logged((line) => line.msg === "audit head" && !killed.has(line["pid"]));
    await until(
      "it is ready again",
      async () =>
        (await fetch(`${server.url}/health/ready`).catch(() => undefined))?.status === 200,
    );
  }
  const starts = linesOf(place).filter(({ kind }) => kind === "start");
  t.equal(starts.length, rounds + 1);
  t.strictSame((await verified(place)).faults, [], "the chain goes on over every kill");
});

t.test("an audit that cannot be opened", { skip }, async (t) => {
  const place = withModels();
  t.teardown(() => place.remove());
  const { folder } = pathsOf(place);
  mkdirSync(path.dirname(folder), { recursive: true });
  writeFileSync(folder, "");
  const { status, stderr } = await radserve(place, "serve");
  t.equal(status, 2);
  t.match(
    JSON.parse(stderr),
    { level: "info", msg: /expected to write the audit .*EEXIST/ },
    "no terminal: JSON",
  );
});
