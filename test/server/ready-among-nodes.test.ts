/** A node is ready when it can answer what the other nodes of its database answer. */
import { once } from "node:events";
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { bulkPlace, placeBeside, writeSlice } from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { copyModel } from "../support/manifests.js";
import { ADDON, needs } from "../support/needs.js";
import { sharedDatabase } from "../support/postgres.js";
import { startServer, type Place, type TestServer } from "../support/server.js";
import { until } from "../support/until.js";

const SHORT = { nodeBeat: 300, bulkFigures: 200, conditionsLook: 200 };
const MARK = ".radserve-root";

interface Ready {
  status: number;
  body: { error?: string; message?: string };
}

async function readyOf(server: TestServer): Promise<Ready> {
  const answer = await fetch(`${server.url}/health/ready`);
  return { status: answer.status, body: (await answer.json()) as Ready["body"] };
}

interface Node {
  alive: boolean;
  roots: { side: string; mark: string | null }[];
}

async function nodesSeenBy(server: TestServer): Promise<Node[]> {
  const headers = { Authorization: server.token };
  const answer = await fetch(`${server.url}/overview`, { headers });
  return ((await answer.json()) as { nodes: Node[] }).nodes;
}

/** Until then it says something else, or that it is ready. */
const says = (server: TestServer, error: string, message: RegExp) =>
  until(`it says ${error}: ${String(message)}`, async () => {
    const { status, body } = await readyOf(server);
    return status === 503 && body.error === error && message.test(body.message ?? "");
  });

/** A single request and a job are told that another node may have what they name. */
async function refuses(
  t: Test,
  { url, token }: TestServer,
  side: "input" | "output",
  input: string,
  output: string,
): Promise<void> {
  const bodies = {
    single_inference: { input_image_path: input, output_folder_path: output },
    bulk_inference: { input_folder_path: path.dirname(input), output_folder_path: output },
  };
  for (const [name, body] of Object.entries(bodies)) {
    const headers = { Authorization: token, "Content-Type": "application/json" };
    const sent = { method: "POST", headers, body: JSON.stringify(body) };
    const answer = await fetch(`${url}/${name}`, sent);
    t.match(
      [answer.status, await answer.json()],
      [503, { error: "share_unavailable", details: { side, reason: "not_mounted" } }],
    );
    t.ok(answer.headers.get("Retry-After"));
  }
}

/** Before that, a node that starts could take its folder for the first root. */
const tellsItsMark = (server: TestServer) =>
  until("it has told the others the mark of its output root", async () => {
    const roots = (await nodesSeenBy(server)).flatMap((node) => node.roots);
    return roots.some(({ side, mark }) => side === "output" && mark !== null);
  });

const isReady = (server: TestServer) =>
  until("it is ready", async () => (await readyOf(server)).status === 200);

t.test("beside a node that is well", { skip: needs(ADDON) }, async (t) => {
  const { url } = await sharedDatabase(t);
  const place = bulkPlace(t, { ...withDurations(SHORT), DATABASE_URL: url });
  writeSlice(path.join(place.input, "image.dcm"));
  const well = await startServer(place);
  t.teardown(() => well.stop());
  await isReady(well);
  const mark = path.join(place.output, MARK);
  await until("its output root has a mark", () => existsSync(mark));
  await tellsItsMark(well);
  const keys = path.join(place.environment["RADSERVE_STATE_DIR"]!, "keys");
  const beside = (extra: Record<string, string>) =>
    placeBeside(t, place, { ...withDurations(SHORT), ...extra });

  await t.test("its output share is not mounted", async (t) => {
    const away = path.join(place.directory, "bare-output");
    mkdirSync(away);
    const server = await startOne(t, beside({ RADSERVE_OUTPUT_ROOTS: away }));
    await says(
      server,
      "share_unavailable",
      /the output root is not: it has no mark \.radserve-root, and node .* sees/,
    );
    const image = path.join(place.input, "image.dcm");
    await refuses(t, server, "output", image, path.join(away, "results"));
    t.strictSame(readdirSync(away), [], "nothing is written to the bare folder, its mark neither");
    cpSync(mark, path.join(away, MARK));
    await isReady(server);
    t.match(JSON.parse(readFileSync(path.join(stateOf(server.place), "roots-seen.json"), "utf8")), {
      [away]: { mark: readFileSync(mark, "utf8").trim() },
    });
    renameSync(path.join(away, MARK), path.join(away, "kept"));
    const lost = /its mark \.radserve-root, which was seen there before, is missing/;
    await says(server, "share_unavailable", lost);
    writeFileSync(path.join(away, MARK), "another\n");
    const other = /its mark \.radserve-root is another than before/;
    await says(server, "share_unavailable", other);
  });

  await t.test("its input share is not mounted", async (t) => {
    const away = path.join(place.directory, "bare-input");
    mkdirSync(away);
    const server = await startOne(t, beside({ RADSERVE_INPUT_ROOTS: away }));
    await says(server, "share_unavailable", /the input root is not: it is empty, and node/);
    const image = path.join(away, "image.dcm");
    await refuses(t, server, "input", image, place.output);
    writeSlice(path.join(away, "image.dcm"));
    await isReady(server);
    renameSync(away, `${away}-gone`);
    await says(server, "share_unavailable", /the folder does not exist/);
    await refuses(t, server, "input", image, place.output);
    renameSync(`${away}-gone`, away);
    await isReady(server);
  });

  await t.test("its keys folder is empty", async (t) => {
    const empty = path.join(place.directory, "bare-keys");
    mkdirSync(empty, { mode: 0o700 });
    const server = await startOne(t, beside({ RADSERVE_KEYS_DIR: empty }), place);
    await says(server, "keys_missing", /the keys folder of this node is empty/);
    t.strictSame(readdirSync(empty), [], "no key is made");
    const models = () => fetch(`${server.url}/models`, { headers: { Authorization: well.token } });
    const refused = await models();
    t.match([refused.status, await refused.json()], [503, { error: "keys_missing" }]);
    cpSync(keys, empty, { recursive: true });
    await isReady(server);
    t.equal((await models()).status, 200);
  });

  await t.test("its models are not there", async (t) => {
    const bare = beside({});
    const models = bare.environment["RADSERVE_MODELS_DIR"]!;
    rmSync(path.join(models, "ct-tissue"), { recursive: true });
    const server = await startOne(t, bare);
    await says(server, "model_unavailable", /this one lacks the model ct-tissue\./);
    copyModel(models, "ct-tissue", "ct-tissue");
    server.process.kill("SIGHUP");
    await isReady(server);
  });
  await isReady(well);
});

t.test("beside a node that has fallen silent", { skip: needs(ADDON) }, async (t) => {
  const { url } = await sharedDatabase(t);
  const place = bulkPlace(t, { ...withDurations(SHORT), DATABASE_URL: url });
  const image = path.join(place.input, "image.dcm");
  writeSlice(image);
  const well = await startServer(place);
  t.teardown(() => well.stop());
  await tellsItsMark(well);
  const away = path.join(place.directory, "bare-output");
  mkdirSync(away);
  const extra = { ...withDurations(SHORT), RADSERVE_OUTPUT_ROOTS: away };
  const server = await startOne(t, placeBeside(t, place, extra));
  await says(server, "share_unavailable", /it has no mark \.radserve-root/);
  const ended = once(well.process, "exit");
  well.process.kill("SIGTERM");
  await ended;
  await until("it is alone", async () => {
    const nodes = await nodesSeenBy(server);
    return nodes.filter(({ alive }) => alive).length === 1;
  });
  await refuses(t, server, "output", image, path.join(away, "results"));
  t.strictSame(readdirSync(away), [], "nothing is written to the folder without its share");
  writeFileSync(path.join(away, MARK), "on-purpose\n");
  await isReady(server);
});

const stateOf = ({ environment }: Place) => environment["RADSERVE_STATE_DIR"]!;

async function startOne(t: Test, place: Place, keys?: Place): Promise<TestServer> {
  const server = await startServer(place, keys);
  t.teardown(() => server.stop());
  return server;
}
