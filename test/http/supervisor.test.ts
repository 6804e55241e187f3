/** Crashes, restarts and stops, with real processes and signals. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  symlinkSync,
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import net from "node:net";
import path from "node:path";
import t, { type Test } from "tap";
import { folders, keys } from "../../src/commands/doctor/folders.js";
import { loadConfig } from "../../src/config.js";
import { withDurations } from "../support/durations.js";
import { tryTake } from "../support/commits.js";
import { bulkPlace } from "../support/bulk.js";
import { CT_SLICE } from "../support/dicom.js";
import { heldImage, holdDecoding } from "../support/held.js";
import { lowerLimit } from "../support/limits.js";
import { ADDON, needs } from "../support/needs.js";
import { copyModel } from "../support/manifests.js";
import {
  makePlace,
  radserve,
  refusedStart,
  root,
  startServer,
  type Place,
  type TestServer,
} from "../support/server.js";
import { LONGEST_WAIT_MS, until } from "../support/until.js";

function isAlive(pid: number): boolean {
  try {
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    // It has gone, maybe while it was read
    return false;
  }
}

/** "" of a thread that has ended. */
function nameOfThread(pid: number, thread: string): string {
  try {
    return readFileSync(`/proc/${pid}/task/${thread}/comm`, "utf8").trim();
  } catch {
    return "";
  }
}

t.test("requests made while it is down wait and are answered", async (t) => {
  const server = await startServer();
  const before = server.servingPid();
  process.kill(before, "SIGKILL");
  const answers = await Promise.all(
    Array.from({ length: 20 }, () =>
      fetch(`${server.url}/models`, { headers: { Authorization: server.token } }),
    ),
  );
  t.strictSame([...new Set(answers.map(({ status }) => status))], [200]);
  const serving = server.servingPid();
  t.not(serving, before);
  const names = readdirSync(`/proc/${serving}/task`).map((thread) => nameOfThread(serving, thread));
  t.ok(
    names.filter((name) => name === "libuv-worker").length >= 16,
    "many syncs of a slow disk go on at once",
  );
  t.match(await server.logged((line) => /starting it again/.test(line.msg)), { signal: "SIGKILL" });
  t.equal(await server.stop(), 0);
});

t.test("what is wrong at a restart does not end the service", async (t) => {
  const server = await startServer();
  const models = () => fetch(`${server.url}/models`, { headers: { Authorization: server.token } });
  const bad = path.join(server.place.environment["RADSERVE_STATE_DIR"]!, "keys", "bad.json");
  writeFileSync(bad, "hunter2", { mode: 0o600 });
  process.kill(server.servingPid(), "SIGKILL");
  t.equal((await models()).status, 200, "a bad key file is left out");
  const issued = await radserve(server.place, "token", "issue", "--subject", "x");
  t.match(issued, { status: 0, stdout: /^\S+\n$/, stderr: /bad\.json: expected JSON/ });

  renameSync(server.place.input, `${server.place.input}-away`);
  process.kill(server.servingPid(), "SIGKILL");
  const line = await server.logged(({ msg }) => /cannot start as things are now/.test(msg));
  t.match(line, { reason: /RADSERVE_INPUT_ROOTS: expected a folder/ });
  renameSync(`${server.place.input}-away`, server.place.input);
  t.equal((await models()).status, 200, "it serves when the share is back");
  t.match(
    (await server.told(({ msg }) => msg.includes("bad.json"))).map(({ level }) => level),
    ["error"],
  );
  t.notMatch(JSON.stringify(server.log), /hunter2/);
  t.equal(await server.stop(), 0);
});

t.test("a restart that the system refuses is tried again, and a stop ends it", async (t) => {
  const place = makePlace();
  // A program that can be away, as after an update that goes wrong
  place.node = path.join(place.directory, "node");
  copyFileSync(process.execPath, place.node);
  const server = await startServer(place);
  const moveAway = () => {
    renameSync(place.node!, `${place.node}-away`);
    return () => renameSync(`${place.node}-away`, place.node!);
  };
  const ways = [
    { code: "ENOENT", refuse: moveAway },
    { code: "EMFILE", refuse: () => lowerLimit(server.process.pid!, "nofile", 3) },
  ];
  const isRefusal = ({ msg }: { msg: string }) => /could not be started/.test(msg);
  for (const { code, refuse } of ways) {
    const allow = refuse();
    process.kill(server.servingPid(), "SIGKILL");
    const ofCode = (line: Record<string, unknown> & { msg: string }) =>
      isRefusal(line) && (line["fault"] as { code?: string }).code === code;
    await server.told(ofCode, 2);
    allow();
    const answer = await fetch(`${server.url}/models`, {
      headers: { Authorization: server.token },
    });
    t.equal(answer.status, 200, `it serves again after ${code}`);
  }
  moveAway();
  process.kill(server.servingPid(), "SIGKILL");
  await server.told(({ msg }) => /ended.*; starting it again/.test(msg), 3);
  await until("the last restart is refused", () => isRefusal(server.log.at(-1)!));
  t.equal(await server.stop(), 0);
});

t.test("with bad key files alone it does not start", async (t) => {
  const place = makePlace();
  t.teardown(() => place.remove());
  await radserve(place, "init");
  const keys = path.join(place.directory, "state", "keys");
  const files = readdirSync(keys).filter((name) => name !== "results");
  for (const name of files) writeFileSync(path.join(keys, name), "{}");
  t.match(await radserve(place, "serve"), { status: 2, stderr: /no usable one/ });
  t.same(readdirSync(keys).sort(), [...files, "results"].sort(), "and makes no key beside them");
});

t.test("models reload", { skip: needs(ADDON) }, async (t) => {
  const place = makePlace();
  t.match(await radserve(place, "models", "reload"), {
    status: 2,
    stderr: /RADSERVE_STATE_DIR: .* found none/,
  });
  const server = await startServer(place);
  await t.test("a reload says which models failed", (t) => failedReload(t, server));
  await t.test("by command, with what came of it", (t) => reloadByCommand(t, server));
  t.equal(await server.stop(), 0);
});

async function failedReload(t: Test, server: TestServer): Promise<void> {
  const folder = path.join(server.place.directory, "models", "broken");
  mkdirSync(folder);
  writeFileSync(path.join(folder, "model.json"), "{}");
  server.process.kill("SIGHUP");
  const line = await server.logged(({ msg }) => msg.startsWith("models reloaded"));
  t.match(line, {
    level: "error",
    msg: /0 changed, 1 failed \(broken\)/,
    failed: [{ name: "broken", kept: false }],
  });
  const models = await fetch(`${server.url}/models`, { headers: { Authorization: server.token } });
  t.match(await models.json(), {
    problems: [{ name: "broken", error: { error: "model_unavailable" } }],
  });
  rmSync(folder, { recursive: true });
}

async function reloadByCommand(t: Test, server: TestServer): Promise<void> {
  const { place } = server;
  const models = path.join(place.directory, "models");
  copyModel(models, "ct-tissue", "tissue");
  const first = await radserve(place, "models", "reload");
  t.match(first, { status: 0, stdout: "added\ttissue\n" });
  writeFileSync(path.join(models, "tissue", "model.onnx"), "another graph");
  const broken = await radserve(place, "models", "reload");
  t.equal(broken.status, 1);
  t.match(
    broken.stdout,
    /^failed\ttissue: Model tissue: model\.onnx: .* The previous version stays\.\n$/,
  );
  const again = await radserve(place, "models", "reload", "--json");
  t.match(JSON.parse(again.stdout), {
    added: { length: 0 },
    unchanged: { length: 0 },
    failed: [{ name: "tissue", kept: true }],
  });
  rmSync(path.join(models, "tissue"), { recursive: true });
  t.match(await radserve(place, "models", "reload"), { status: 0, stdout: "removed\ttissue\n" });
  t.equal((await fetch(`${server.url}/health/ready`)).status, 200);
  rmSync(models, { recursive: true });
  t.match(await radserve(place, "models", "reload"), {
    status: 1,
    stderr: /Expected a readable folder of models/,
  });
}

t.test("one at a time holds the state directory; a crash frees it", async (t) => {
  const server = await startServer();
  const second = await radserve(server.place, "serve");
  t.equal(second.status, 2);
  t.match(second.stderr, new RegExp(`process ${server.process.pid} on .* holds it`));
  const serving = server.servingPid();
  server.process.kill("SIGKILL");
  await until("the serving process has gone", () => !isAlive(serving));
  t.pass("the serving process ends with its supervisor");
  const third = await startServer(server.place);
  t.equal((await fetch(`${third.url}/health/live`)).status, 200);
  t.equal(await third.stop(), 0);
});

t.test("whoever is dead and not buried holds no name", async (t) => {
  const place = makePlace();
  t.teardown(() => place.remove());
  const results = place.output;
  const module = new URL("../../src/files/name-lock.js", import.meta.url).href;
  const program = `
    const { NameLock } = await import(${JSON.stringify(module)});
    await NameLock.take(${JSON.stringify(results)}, "image.dcm");
    process.stdout.write(process.pid + "\\n");
    process.kill(process.pid, "SIGKILL");`;
  // A parent that never takes note of its child's end, as a container's first process that is no
  // init
  const script = `"$0" --input-type=module -e "$1" & exec sleep 1000`;
  const parent = spawn("sh", ["-c", script, process.execPath, program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.teardown(() => parent.kill());
  const [line] = (await once(parent.stdout, "data")) as [Buffer];
  const dead = Number(line.toString());
  await until(
    "the process is dead and not buried",
    () => !isAlive(dead) && readdirSync(`/proc/${dead}/task`).length === 1,
  );
  t.ok(existsSync(`/proc/${dead}`), "it is still there to be seen");
  const name = await tryTake(results, "image.dcm");
  t.ok(name, "its name is free at once");
  await name?.release();
});

for (const whom of ["the server", "its whole group"])
  t.test(
    `SIGTERM to ${whom} answers what was admitted, and ends with 0`,
    { skip: needs(ADDON) },
    async (t) => {
      const server = await startServer();
      const body = (n: number) => ({
        input_image_path: path.join(server.place.input, "image.png"),
        output_folder_path: path.join(server.place.output, String(n)),
      });
      const first = server.post("/single_inference", body(0));
      const others = Array.from({ length: 12 }, (_, n) =>
        server.post("/single_inference", body(n + 1)),
      );
      const expected = (await first).status;
      if (whom !== "the server") process.kill(server.servingPid(), "SIGTERM");
      const stopped = server.stop();
      const statuses = await Promise.all(others.map(async (other) => (await other).status));
      for (const status of statuses)
        t.ok(status === expected || status === 503, `answered, ${status}`);
      t.equal(await stopped, 0);
    },
  );

t.test(
  "after the grace time the rest fails with shutting_down",
  { skip: needs(ADDON) },
  async (t) => {
    const place = bulkPlace(t, { RADSERVE_GRACE_SECONDS: "0" });
    const held = holdDecoding(t, place);
    const image = path.join(place.input, "held.dcm");
    writeFileSync(image, await heldImage(CT_SLICE));
    const server = await startServer(place);
    const all = Array.from({ length: 40 }, async (_, n) => {
      const output = path.join(server.place.output, String(n));
      const response = await server.post("/single_inference", {
        input_image_path: image,
        output_folder_path: output,
      });
      return {
        status: response.status,
        retry: response.headers.get("Retry-After"),
        body: await response.json(),
      };
    });
    await held.atWork();
    await until("all are admitted", async () => {
      const text = await (await fetch(`${server.url}/metrics`)).text();
      const counted = [...text.matchAll(/\nradserve_inferences_(?:running|queued) (\d+)/g)];
      return counted.reduce((sum, [, n]) => sum + Number(n), 0) === all.length;
    });
    const stopped = server.stop();
    const late = (await Promise.all(all)).filter(({ status }) => status === 503);
    t.ok(late.length > 0, "some were not done yet");
    for (const answer of late) t.match(answer, { retry: "10", body: { error: "shutting_down" } });
    t.equal(await stopped, 0);
  },
);

t.test("a log that cannot be written ends nothing", async (t) => {
  const place = makePlace();
  t.teardown(() => place.remove());
  const full = openSync("/dev/full", "w");
  const main = path.join(root, "dist/src/main.js");
  const child = spawn(process.execPath, [main, "serve"], {
    env: place.environment,
    stdio: ["ignore", full, "pipe"],
  });
  closeSync(full);
  const ended = once(child, "exit");
  let text = "";
  const url = await new Promise<string>((resolve) => {
    child.stderr!.setEncoding("utf8").on("data", (part: string) => {
      const found = /serves on (http:\S+)/.exec((text += part));
      if (found?.[1] !== undefined) resolve(found[1]);
    });
  });
  for (let n = 0; n < 3; n += 1) {
    const response = await fetch(`${url}/health/live`, {
      signal: AbortSignal.timeout(LONGEST_WAIT_MS),
    }).catch(String);
    t.match(response, { status: 200 });
  }
  child.kill("SIGTERM");
  t.equal((await ended)[0], 0);
});

t.test("npm start hands SIGTERM on, and ends when the server has", async (t) => {
  const place = makePlace({ npm_config_update_notifier: "false" });
  t.teardown(() => place.remove());
  const npm = spawn("npm", ["start"], {
    cwd: root,
    env: place.environment,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise((resolve) => npm.once("exit", resolve));
  let text = "";
  const serving = await new Promise<{ pid: number; port: number }>((resolve) => {
    npm.stdout.setEncoding("utf8").on("data", (part: string) => {
      text += part;
      const line = text.split("\n").find((one) => one.endsWith('"msg":"serving"}'));
      if (line !== undefined) resolve(JSON.parse(line) as { pid: number; port: number });
    });
  });
  npm.kill("SIGTERM");
  await ended;
  const left = isAlive(serving.pid);
  if (left) process.kill(serving.pid, "SIGTERM");
  t.notOk(left);
});

t.test("an idle connection does not hold up the stop, and the port is free after", async (t) => {
  const server = await startServer();
  const socket = net.connect(server.port, "127.0.0.1");
  const answered = new Promise((resolve) => socket.once("data", resolve));
  socket.write("GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n");
  await answered;
  const closed = new Promise((resolve) => socket.once("close", resolve));
  const silent = net.connect(server.port, "127.0.0.1");
  await new Promise((resolve) => silent.once("connect", resolve));
  silent.on("error", () => undefined);
  const serving = server.servingPid();
  t.equal(await server.stop(), 0);
  await closed;
  t.notOk(isAlive(serving));
  silent.destroy();
  await t.rejects(fetch(`${server.url}/health/live`));
});

t.test("what may pass ends with status 1, so that a unit tries again", async (t) => {
  const late: [string, (place: Place) => void][] = [
    ["RADSERVE_OUTPUT_ROOTS", ({ environment }) => (environment["RADSERVE_OUTPUT_ROOTS"] = "/no")],
    ["RADSERVE_MODELS_DIR", ({ environment }) => (environment["RADSERVE_MODELS_DIR"] = "/no")],
    ["RADSERVE_KEYS_DIR", ({ environment }) => (environment["RADSERVE_KEYS_DIR"] = "/no")],
    ["RADSERVE_HOST", ({ environment }) => (environment["RADSERVE_HOST"] = "192.0.2.7")],
  ];
  for (const [setting, spoil] of late) {
    const place = makePlace();
    t.teardown(() => place.remove());
    spoil(place);
    const { status, stderr } = await radserve(place, "serve");
    t.equal(status, 1, setting);
    t.match(stderr, new RegExp(`^${setting}: `));
  }
  const wrong = makePlace({ RADSERVE_INPUT_ROOTS: process.execPath });
  t.teardown(() => wrong.remove());
  t.match(await radserve(wrong, "serve"), { status: 2, stderr: /found a file/ });
});

t.test("a wrong setting is said once, with status 2", async (t) => {
  const cases: [Record<string, string>, RegExp][] = [
    [{ RADSERVE_INPUT_ROOTS: "" }, /^RADSERVE_INPUT_ROOTS: expected at least one folder/],
    [
      { RADSERVE_OUTPUT_ROOTS: "/no/such" },
      /^RADSERVE_OUTPUT_ROOTS: expected a folder at \/no\/such/,
    ],
    [
      { RADSERVE_MODELS_DIR: "/no/such" },
      /^RADSERVE_MODELS_DIR: expected a folder at \/no\/such; found nothing/,
    ],
    [
      { RADSERVE_KEYS_DIR: "/no/such" },
      /^RADSERVE_KEYS_DIR: expected a folder at \/no\/such; found nothing/,
    ],
    [
      { RADSERVE_HOST: "256.1.1.1" },
      /^RADSERVE_HOST: expected an address or a name of this machine; found 256/,
    ],
    [{ RADSERVE_PORT: "x" }, /^RADSERVE_PORT: Expected a number; found "x"/],
  ];
  for (const [environment, message] of cases) {
    const place = makePlace(environment);
    t.teardown(() => place.remove());
    const said = await refusedStart(place);
    t.match(said, message);
    t.equal(said.trim().split("\n").length, 1, "one line");
  }
  const blocked = makePlace();
  t.teardown(() => blocked.remove());
  // In /proc Node's own way to make folders never ends
  for (const at of [path.join(blocked.input, "image.png"), "/proc/state"])
    for (const command of ["serve", "init"]) {
      blocked.environment["RADSERVE_STATE_DIR"] = at;
      const { status, stderr } = await radserve(blocked, command);
      t.equal(status, 2, stderr);
      t.match(
        stderr,
        `RADSERVE_STATE_DIR: expected a folder at ${at} that this user may make and `,
      );
    }
  const exposed = makePlace();
  t.teardown(() => exposed.remove());
  exposed.environment["RADSERVE_STATE_DIR"] = path.join(exposed.output, "state");
  t.match(await refusedStart(exposed), /lies inside one, where clients write/);
  t.match(
    await radserve(exposed, "doctor"),
    { status: 1, stdout: /lies inside/ },
    "doctor says it, too",
  );
  const mixed: [(place: Place) => [string, string], RegExp][] = [
    [
      ({ input }) => ["RADSERVE_STATE_DIR", path.join(input, "state")],
      /^RADSERVE_INPUT_ROOTS: .*state lies inside one, where clients read\. Set RADSERVE_STATE_DIR or/,
    ],
    [
      ({ input }) => ["RADSERVE_KEYS_DIR", input],
      /^RADSERVE_INPUT_ROOTS: .*lies inside one.*Set RADSERVE_KEYS_DIR/,
    ],
    [
      ({ directory }) => ["RADSERVE_INPUT_ROOTS", directory],
      /^RADSERVE_INPUT_ROOTS: .*state lies inside one/,
    ],
    [
      ({ directory }) => ["RADSERVE_STATE_DIR", directory],
      /^RADSERVE_INPUT_ROOTS: .*input lies inside /,
    ],
    [
      ({ directory, output }) => {
        symlinkSync(output, path.join(directory, "link"));
        return ["RADSERVE_STATE_DIR", path.join(directory, "link", "state")];
      },
      /^RADSERVE_OUTPUT_ROOTS: .*link\/state lies inside one, where clients write/,
    ],
  ];
  for (const [set, message] of mixed) {
    const place = makePlace();
    t.teardown(() => place.remove());
    const [name, value] = set(place);
    place.environment[name] = value;
    t.match(await refusedStart(place), message);
    const config = loadConfig({ environment: place.environment, directory: place.directory });
    const findings = [...(await folders(config)), ...(await keys(config)).findings];
    t.ok(
      findings.some(({ ok, found }) => !ok && /lies inside/.test(found)),
      "doctor says it, too",
    );
  }
  const server = await startServer();
  const taken = makePlace({ RADSERVE_PORT: String(server.port) });
  t.teardown(() => taken.remove());
  t.match(await refusedStart(taken), /another program listens there/);
  t.equal(await server.stop(), 0);
});

t.test("a slow request and an orderly stop", async (t) => {
  const server = await startServer(
    makePlace(withDurations({ requestHeaders: 500, requestLook: 100 })),
  );
  await t.test("a slow request is ended, though the server does not listen itself", async (t) => {
    const socket = net.connect(server.port, "127.0.0.1", () => socket.write("GET / HTTP/1.1\r\n"));
    const answer = new Promise<string>((resolve) =>
      socket.setEncoding("utf8").once("data", resolve),
    );
    t.match(await answer, /^HTTP\/1\.1 408 /);
  });
  await t.test("one Ctrl-C that arrives twice is still an orderly stop", async (t) => {
    server.process.kill("SIGINT");
    t.equal(await server.stop(), 0);
  });
});
