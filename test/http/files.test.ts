/**
 * Images in and results out over HTTP: inside the roots, whole or not at all, and nothing that a
 * browser would run.
 */
import { execFile, execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import http from "node:http";
import path from "node:path";
import { promisify } from "node:util";
import t, { type Test } from "tap";
import type { z } from "zod";
import { samples } from "../../scripts/demo/samples.js";
import type { uploadedSchema } from "../../src/server/file-transfer.js";
import { linesOf, mounts, textOf } from "../support/audit.js";
import { connected } from "../support/client.js";
import { ADDON, commandsAre, needs } from "../support/needs.js";
import { commandsOf, unlike } from "../support/pages.js";
import {
  issueToken,
  openBelow,
  makePlace,
  PNG,
  root,
  startServer,
  type Place,
  type TestServer,
} from "../support/server.js";
import { until } from "../support/until.js";

const skip = needs(ADDON);
const BOTH = { RADSERVE_FILES_BY_HTTP: "upload,download", RADSERVE_MINIMUM_FREE_DISK: "0" };
type Uploaded = z.infer<typeof uploadedSchema>;

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

async function started(t: Test, place: Place): Promise<TestServer> {
  const server = await startServer(place);
  t.teardown(() => server.stop());
  return server;
}

let shared: Promise<TestServer> | undefined;
t.teardown(async () => (await shared)?.stop());

/** The server of most tests here. Each finds its folders as new. */
async function fresh(): Promise<TestServer> {
  shared ??= startServer(makePlace({ ...BOTH, RADSERVE_UPLOAD_LIMIT: "1MiB" }));
  const server = await shared;
  const { directory, input, output } = server.place;
  rmSync(path.join(directory, "outside"), { recursive: true, force: true });
  for (const folder of [input, output])
    for (const name of readdirSync(folder))
      rmSync(path.join(folder, name), { recursive: true, force: true });
  writeFileSync(path.join(input, "image.png"), PNG);
  return server;
}

/** What begins as an image does. */
const image = (rest: Uint8Array | string) => Buffer.concat([PNG.subarray(0, 8), Buffer.from(rest)]);

interface Told {
  status: number;
  headers: Headers;
  body: Uploaded & { error?: string; message?: string; details?: Record<string, unknown> };
}

async function put(
  { url, token }: TestServer,
  file: string,
  body: Uint8Array<ArrayBuffer> | string,
  query: Record<string, string> = {},
  headers: Record<string, string> = {},
): Promise<Told> {
  const page = `${url}/files?${new URLSearchParams({ path: file, ...query }).toString()}`;
  const answer = await fetch(page, {
    method: "PUT",
    body,
    headers: { Authorization: token, ...headers },
  });
  return {
    status: answer.status,
    headers: answer.headers,
    body: (await answer.json()) as Told["body"],
  };
}

const get = (
  { url, token }: TestServer,
  file: string,
  headers: Record<string, string> = {},
  method = "GET",
) =>
  fetch(`${url}/files?${new URLSearchParams({ path: file }).toString()}`, {
    method,
    headers: { Authorization: token, ...headers },
  });

/** The code of a refusal. */
const codeOf = async (answer: Response) => ((await answer.json()) as { error: string }).error;

t.setTimeout(900_000);

t.test(
  "nothing is taken or given unless the settings say so, and then that alone",
  { skip },
  async (t) => {
    const off = await started(t, makePlace());
    const result = path.join(off.place.output, "a.json");
    writeFileSync(result, "{}");
    const refused = await put(off, path.join(off.place.input, "a.png"), PNG);
    t.match(refused, {
      status: 404,
      body: { error: "not_found", message: /RADSERVE_FILES_BY_HTTP=upload/ },
    });
    t.equal((await get(off, result)).status, 404);
    t.same(readdirSync(off.place.input), ["image.png"]);

    const down = await started(t, makePlace({ RADSERVE_FILES_BY_HTTP: "download" }));
    t.equal((await put(down, path.join(down.place.input, "a.png"), PNG)).status, 404);
    writeFileSync(path.join(down.place.output, "a.json"), "{}");
    t.equal((await get(down, path.join(down.place.output, "a.json"))).status, 200);
    t.equal((await fetch(`${down.url}/files?path=/x`)).status, 401);
    t.equal((await fetch(`${down.url}/files?path=/x`, { method: "PUT", body: "x" })).status, 401);
  },
);

t.test(
  "an image goes in and its result comes out, and the audit has both without their names",
  { skip },
  async (t) => {
    const place = makePlace(BOTH);
    const server = await started(t, place);
    const file = path.join(place.input, "Doe^Jane", "new folder", "übung +1.png");
    const made = await put(server, file, PNG);
    t.match(made, {
      status: 201,
      body: { path: file, bytes: PNG.length, sha256: sha256(PNG), outcome: "created" },
    });
    t.same(readFileSync(file), PNG);
    t.same(readdirSync(path.dirname(file)), ["übung +1.png"], "nothing else is left");
    t.match(await put(server, file, PNG), { status: 200, body: { outcome: "same" } });

    const receipt = path.join(place.output, "r.json");
    writeFileSync(receipt, '{"a":1}');
    const answer = await get(server, receipt);
    t.equal(await answer.text(), '{"a":1}');
    const done = linesOf(place).filter(({ endpoint = "" }) => endpoint.endsWith(" /files"));
    t.match(done, [
      { endpoint: "PUT /files", outcome: "asked" },
      {
        endpoint: "PUT /files",
        outcome: "done",
        bytes: PNG.length,
        sha256: sha256(PNG),
        input: /^[0-9a-f]{32}$/,
      },
      { endpoint: "PUT /files", outcome: "asked" },
      { endpoint: "PUT /files", outcome: "done" },
      { endpoint: "GET /files", outcome: "done", output: /^[0-9a-f]{32}$/ },
    ]);
    await put(server, "Doe", PNG);
    t.notMatch(textOf(place), /Doe|bung/, "no line has a part of a name");
    t.notMatch(JSON.stringify(server.log), /Doe|bung/);
  },
);

t.test("a file is not replaced unless the client says so", { skip }, async (t) => {
  const server = await fresh();
  const { place } = server;
  const file = path.join(place.input, "a.dcm");
  await put(server, file, image("one"));
  t.match(await put(server, file, image("two")), { status: 409, body: { error: "file_exists" } });
  t.same(readFileSync(file), image("one"));
  const wrong = await put(server, file, image("two"), {
    overwrite: "true",
    sha256: sha256(Buffer.from("three")),
  });
  t.match(wrong, { status: 400, body: { error: "bad_request", message: /other bytes/ } });
  t.same(readFileSync(file), image("one"));
  const right = await put(server, file, image("two"), {
    overwrite: "true",
    sha256: sha256(image("two")),
  });
  t.match(right, { status: 200, body: { outcome: "replaced" } });
  t.same(readFileSync(file), image("two"));
  mkdirSync(path.join(place.input, "folder"));
  symlinkSync(file, path.join(place.input, "link"));
  for (const name of ["folder", "link"])
    t.match(await put(server, path.join(place.input, name), image("x"), { overwrite: "true" }), {
      status: 409,
      body: { error: "file_exists" },
    });
  t.same(readFileSync(file), image("two"), "nothing is written through a link");
});

t.test("of many who send one name at once, one wins and the file is whole", { skip }, async (t) => {
  const server = await fresh();
  const { place } = server;
  const file = path.join(place.input, "race.dcm");
  const bodies = Array.from({ length: 8 }, (_, i) => image(Buffer.alloc(300_000 + i, i)));
  const answers = await Promise.all(bodies.map((body) => put(server, file, body)));
  t.equal(answers.filter(({ status }) => status === 201).length, 1);
  t.equal(answers.filter(({ status }) => status === 409).length, 7);
  const winner = answers.findIndex(({ status }) => status === 201);
  t.same(readFileSync(file), bodies[winner]);
  t.same(readdirSync(place.input).sort(), ["image.png", "race.dcm"]);
  const again = await Promise.all(
    bodies.map((body) => put(server, file, body, { overwrite: "true" })),
  );
  t.ok(again.every(({ status }) => status === 200));
  t.ok(bodies.some((body) => body.equals(readFileSync(file))));
  t.same(readdirSync(place.input).sort(), ["image.png", "race.dcm"]);
});

t.test(
  "no path leads outside, to what Radserve keeps, or to another's results",
  { skip },
  async (t) => {
    const server = await fresh();
    const { place } = server;
    const outside = path.join(place.directory, "outside");
    mkdirSync(outside);
    writeFileSync(path.join(outside, "secret"), "secret");
    symlinkSync(outside, path.join(place.input, "away"));
    symlinkSync(path.join(outside, "none"), path.join(place.input, "dangling"));
    symlinkSync(path.join(outside, "secret"), path.join(place.output, "secret"));
    mkdirSync(path.join(place.output, ".x.radserve"));
    writeFileSync(path.join(place.output, ".x.radserve", "part.json"), "half");
    execFileSync("mkfifo", [path.join(place.output, "pipe")]);
    const state = place.environment["RADSERVE_STATE_DIR"]!;
    const up: [string, number][] = [
      [`${outside}/x`, 403],
      [`${place.input}/../outside/x`, 403],
      [`${place.input}/away/x`, 403],
      [`${place.input}/dangling/x`, 403],
      [`${place.output}/forged.json`, 403],
      [`${state}/keys/mine.json`, 403],
      [`${place.input}/.x.radserve`, 400],
      [`${place.input}/.x.radserve/y`, 400],
      [`${place.input}/.x.lock`, 400],
      [`${place.input}/.radserve-x/image.png`, 400],
      [`${place.input}/.x.lock/image.png`, 400],
      [`${place.input}/.radserve-job-00000000-0000-0000-0000-000000000000`, 400],
      [`${place.input}/`, 400],
      [`${place.input}/..`, 400],
      [place.input, 403],
      ["relative", 400],
      [`${place.input}/nul\0`, 400],
      [`${place.input}/${"n".repeat(256)}`, 400],
      [`${place.input}/image.png/x`, 400],
    ];
    for (const [file, status] of up)
      t.equal((await put(server, file, image("x"))).status, status, `PUT ${file}`);
    const query = `path=${place.input}/%ff.png`;
    const bytes = await fetch(`${server.url}/files?${query}`, {
      method: "PUT",
      headers: { Authorization: server.token },
      body: "x",
    });
    t.equal(bytes.status, 400, "bytes that are no UTF-8");
    t.same(readdirSync(outside), ["secret"]);
    t.same(readdirSync(place.input).sort(), ["away", "dangling", "image.png"]);
    t.notOk(existsSync(`${place.output}/forged.json`));

    const down: [string, number, string][] = [
      [`${outside}/secret`, 403, "path_not_allowed"],
      [`${outside}/none`, 403, "path_not_allowed"],
      [`${place.output}/secret`, 403, "path_not_allowed"],
      [`${place.output}/../outside/secret`, 403, "path_not_allowed"],
      [`${place.input}/image.png`, 403, "path_not_allowed"],
      [`${state}/keys`, 403, "path_not_allowed"],
      [`${place.output}/none.json`, 404, "file_not_found"],
      [place.output, 404, "file_not_found"],
      [`${place.output}/.x.radserve/part.json`, 404, "file_not_found"],
      [`${place.output}/pipe`, 400, "bad_request"],
    ];
    for (const [file, status, code] of down) {
      const answer = await get(server, file);
      t.same([answer.status, await codeOf(answer)], [status, code], `GET ${file}`);
    }

    const narrow = path.join(place.input, "mine");
    const token = await issueToken(
      place,
      "--input-root",
      narrow,
      "--output-root",
      path.join(place.output, "mine"),
    );
    const narrowed = { ...server, token };
    t.equal((await put(narrowed, path.join(narrow, "x.dcm"), image("x"))).status, 201);
    t.match(await put(narrowed, path.join(place.input, "x.dcm"), "x"), {
      status: 403,
      body: { details: { reason: "token", side: "input" } },
    });
    writeFileSync(path.join(place.output, "r.json"), "{}");
    t.equal((await get(narrowed, path.join(place.output, "r.json"))).status, 403);
  },
);

t.test(
  "a folder that is exchanged for a link while files come never leads outside",
  { skip },
  async (t) => {
    const server = await fresh();
    const { place } = server;
    const outside = path.join(place.directory, "outside");
    mkdirSync(outside);
    const child = path.join(place.input, "x");
    const script = `const fs=require("fs");for(;;){try{fs.mkdirSync(${JSON.stringify(child)})}catch{}
    try{fs.renameSync(${JSON.stringify(child)},${JSON.stringify(`${child}-old`)})}catch{}
    try{fs.symlinkSync(${JSON.stringify(outside)},${JSON.stringify(child)})}catch{}
    try{fs.unlinkSync(${JSON.stringify(child)})}catch{}
    try{fs.rmSync(${JSON.stringify(`${child}-old`)},{recursive:true})}catch{}}`;
    const swapper = spawn(process.execPath, ["-e", script], { stdio: "ignore" });
    await once(swapper, "spawn");
    const statuses = new Set<number>();
    for (let i = 0; i < 300; i += 10) {
      const names = Array.from({ length: 10 }, (_, n) => path.join(child, `${i + n}.dcm`));
      const answers = await Promise.all(names.map((name) => put(server, name, image("x"))));
      for (const { status } of answers) statuses.add(status);
    }
    swapper.kill("SIGKILL");
    await once(swapper, "exit");
    t.same(readdirSync(outside), [], "nothing was written there");
    t.ok(
      [...statuses].every((status) => [201, 400, 403, 404].includes(status)),
      [...statuses].join(" "),
    );
  },
);

t.test("what breaks off, is too large or has no room leaves nothing", { skip }, async (t) => {
  const server = await fresh();
  const { place } = server;
  const file = path.join(place.input, "b.dcm");
  const large = image(Buffer.alloc(2 * 1024 * 1024));
  t.match(await put(server, file, large), {
    status: 413,
    body: { error: "body_too_large", details: { limit: 1024 * 1024 } },
  });
  const chunked = await new Promise<number>((resolve, reject) => {
    const request = http.request(
      `${server.url}/files?${new URLSearchParams({ path: file }).toString()}`,
      { method: "PUT", headers: { Authorization: server.token } },
      (answer) => {
        answer.resume();
        resolve(answer.statusCode ?? 0);
      },
    );
    request.once("error", reject);
    request.write(large);
    request.end();
  });
  t.equal(chunked, 413, "without a length, too");
  for (const header of [{ "Content-Range": "bytes 0-1/4" }, { "Content-Encoding": "gzip" }])
    t.equal((await put(server, file, "x", {}, header)).status, 400);

  const head = `PUT /files?path=${encodeURIComponent(file)} HTTP/1.1\r\nHost: x\r\nAuthorization: ${server.token}\r\n`;
  // Not the folder itself, which the server looks at now and again
  const opened = () => openBelow(server, `${place.input}/`);
  const before = opened();
  const lines = server.log.length;
  const { socket } = await connected(server.port, `${head}Content-Length: 1000\r\n\r\nhalf of it`);
  await until("the upload has a file", () => opened() > before);
  socket.destroy();
  await server.logged((line) => line["status"] === 499 && server.log.indexOf(line) >= lines);
  t.same(readdirSync(place.input), ["image.png"]);
  t.equal((await put(server, file, image("whole"))).status, 201, "the name is free");
});

t.test("what is no image is 415 at once", { skip }, async (t) => {
  const server = await fresh();
  const file = path.join(server.place.input, "a.dcm");
  for (const body of ["", "one", "<html>", Buffer.alloc(500_000), JSON.stringify({ a: 1 })])
    t.match(await put(server, file, body), { status: 415, body: { error: "unsupported_format" } });
  t.match(await put(server, file, Buffer.from((await samples()).ct)), { status: 201 });
  t.same(readdirSync(server.place.input).sort(), ["a.dcm", "image.png"]);
});

t.test("a full disk is 507 and leaves nothing", { skip }, async (t) => {
  const place = makePlace({ ...BOTH, RADSERVE_MINIMUM_FREE_DISK: "100KiB" });
  if (!mounts(place.input, "1m")) {
    place.remove();
    t.pass("this user may not mount");
    return;
  }
  const server = await startServer(place);
  t.teardown(async () => {
    const remove = place.remove.bind(place);
    place.remove = () => {
      execFileSync("umount", ["-l", place.input]);
      remove();
    };
    await server.stop();
  });
  const file = path.join(place.input, "c.dcm");
  const never = await put(server, file, image(Buffer.alloc(2 * 1024 * 1024)));
  t.match(
    never,
    { status: 413, body: { details: { limit: 924 * 1024 } } },
    "what an empty disk has no room for",
  );
  writeFileSync(path.join(place.input, "other"), Buffer.alloc(200 * 1024));
  const told = await put(server, file, image(Buffer.alloc(900 * 1024)));
  t.match(
    told,
    { status: 507, body: { error: "disk_full", message: /disk of the input folder/ } },
    "by its length",
  );
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(PNG);
      // Less than an empty disk has room for, and more than this one
      for (let i = 0; i < 14; i++) controller.enqueue(new Uint8Array(64 * 1024));
      controller.close();
    },
  });
  const page = `${server.url}/files?${new URLSearchParams({ path: file }).toString()}`;
  const init = {
    method: "PUT",
    headers: { Authorization: server.token },
    body: stream,
    duplex: "half",
  };
  const without = await fetch(page, init as RequestInit);
  t.same([without.status, await codeOf(without)], [507, "disk_full"], "while it comes");
  t.same(readdirSync(place.input), ["other"]);
});

t.test("results come whole, in parts, and not again", { skip }, async (t) => {
  const server = await fresh();
  const { place } = server;
  const bytes = Buffer.from(Array.from({ length: 1_000_000 }, (_, i) => i % 251));
  const file = path.join(place.output, "a.seg.dcm");
  writeFileSync(file, bytes);
  const whole = await get(server, file);
  t.same(Buffer.from(await whole.arrayBuffer()), bytes);
  t.match(Object.fromEntries(whole.headers), {
    "content-type": "application/dicom",
    "content-length": "1000000",
    "accept-ranges": "bytes",
    "content-disposition": 'attachment; filename="a.seg.dcm"',
    "cache-control": "no-store",
  });
  const etag = whole.headers.get("ETag")!;
  const head = await get(server, file, {}, "HEAD");
  t.same(
    [head.status, head.headers.get("Content-Length"), head.headers.get("ETag")],
    [200, "1000000", etag],
  );
  const parts: [string, number, number][] = [
    ["bytes=0-0", 0, 1],
    ["bytes=500000-", 500_000, 1_000_000],
    ["bytes=-7", 999_993, 1_000_000],
    ["bytes=999999-2000000", 999_999, 1_000_000],
  ];
  for (const [range, from, to] of parts) {
    const part = await get(server, file, { Range: range });
    t.equal(part.status, 206, range);
    t.equal(part.headers.get("Content-Range"), `bytes ${from}-${to - 1}/1000000`);
    t.same(Buffer.from(await part.arrayBuffer()), bytes.subarray(from, to));
  }
  for (const range of ["bytes=1-0", "bytes=0-1,3-4", "lines=1-2", "bytes=-"])
    t.equal((await get(server, file, { Range: range })).status, 200, `${range} is not taken`);
  const beyond = await get(server, file, { Range: "bytes=1000000-" });
  t.same([beyond.status, beyond.headers.get("Content-Range")], [416, "bytes */1000000"]);
  t.equal(await codeOf(beyond), "range_not_satisfiable");
  t.equal((await get(server, file, { "If-None-Match": etag })).status, 304);
  t.equal((await get(server, file, { Range: "bytes=1-", "If-Range": etag })).status, 206);

  writeFileSync(file, Buffer.alloc(1_000_000, 1));
  utimesSync(file, statSync(file).atime, new Date(0));
  t.equal(
    (await get(server, file, { "If-None-Match": etag })).status,
    200,
    "another file has another ETag",
  );
  t.equal((await get(server, file, { Range: "bytes=1-", "If-Range": etag })).status, 200);
  writeFileSync(path.join(place.output, "empty"), "");
  const empty = await get(server, path.join(place.output, "empty"));
  t.same([empty.status, await empty.text()], [200, ""]);
});

t.test("no browser runs or shows a stranger's file in the page's origin", { skip }, async (t) => {
  const server = await fresh();
  const { place } = server;
  for (const name of ["x.html", "x.svg", "x.js", 'q"\r\n.html']) {
    writeFileSync(path.join(place.output, name), "<script>alert(1)</script>");
    const answer = await get(server, path.join(place.output, name));
    t.equal(answer.headers.get("Content-Type"), "application/octet-stream", name);
    t.match(answer.headers.get("Content-Disposition"), /^attachment;/);
    t.equal(answer.headers.get("X-Content-Type-Options"), "nosniff");
    t.equal(answer.headers.get("Content-Security-Policy"), "default-src 'none'; sandbox");
    t.equal(answer.headers.get("Cross-Origin-Resource-Policy"), "same-origin");
    await answer.body?.cancel();
  }
});

t.test("a download that breaks off leaves no descriptor open", { skip }, async (t) => {
  const server = await fresh();
  const { place } = server;
  const file = path.join(place.output, "long.dcm");
  writeFileSync(file, Buffer.alloc(50_000_000));
  linkSync(file, path.join(place.output, "same.dcm"));
  const held = () => openBelow(server, file);
  const head = `GET /files?path=${encodeURIComponent(file)} HTTP/1.1\r\nHost: x\r\nAuthorization: ${server.token}\r\n`;
  const broken = Array.from({ length: 5 }, (_, i) => `broken-off-${i}`);
  for (const id of broken) {
    const { socket } = await connected(server.port, `${head}X-Request-Id: ${id}\r\n\r\n`);
    socket.destroy();
  }
  await get(server, file, { Range: "bytes=50000000-" });
  await get(server, file, {
    "If-None-Match": (await get(server, file, {}, "HEAD")).headers.get("ETag")!,
  });
  for (const id of broken)
    await server.logged((line) => line["request_id"] === id && line.msg === "request");
  await until("nothing of it is open", () => held() === 0);
  t.equal(held(), 0);
});

t.test(
  "the commands and programs of docs/api.md do what they show",
  { skip: skip || commandsAre("curl", "python3") },
  async (t) => {
    const place = makePlace({ ...BOTH, RADSERVE_MODELS_DIR: path.join(root, "models") });
    const server = await started(t, place);
    const demo = path.join(place.directory, "demo-output/input");
    mkdirSync(demo, { recursive: true });
    writeFileSync(path.join(demo, "ct-phantom.dcm"), (await samples()).ct);
    symlinkSync(path.join(root, "docs"), path.join(place.directory, "docs"));
    const commands = commandsOf("docs/api.md").filter(({ text }) =>
      /\/files|images\/in\/sent/.test(text),
    );
    t.equal(commands.length, 5);
    for (const { text, answer } of commands) {
      const ours = text
        .replaceAll("/srv/images/in", place.input)
        .replaceAll("/srv/images/out", place.output)
        .replaceAll("localhost:8500", `127.0.0.1:${server.port}`);
      const { stdout } = await promisify(execFile)("bash", ["-ec", ours], {
        cwd: place.directory,
        env: { ...process.env, TOKEN: server.token },
      });
      if (answer !== undefined)
        t.equal(
          unlike(answer, JSON.parse(stdout.replaceAll(place.input, "/srv/images/in"))),
          undefined,
          text,
        );
    }
    const results = path.join(place.output, "sent");
    for (const name of readdirSync(results))
      t.same(
        readFileSync(path.join(place.directory, name)),
        readFileSync(path.join(results, name)),
        name,
      );
    t.same(
      readFileSync(path.join(place.directory, "receipt.json")),
      readFileSync(path.join(results, "ct-phantom.dcm.json")),
    );
    t.match(JSON.parse(readFileSync(path.join(place.directory, "answer.json"), "utf8")), {
      status: "completed",
    });
  },
);
