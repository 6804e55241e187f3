/**
 * An administrator at three in the morning: sixteen things are broken one after the other, each on
 * a server of its own, and each place says the same of it: /health/ready, the overview of the page,
 * `radserve status`, `radserve doctor` and the log. The rows of BROKEN are the table of what they
 * say.
 */
import { mkdirSync, readdirSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { once } from "node:events";
import path from "node:path";
import t, { type Test } from "tap";
import { ctPlace } from "../support/bulk.js";
import { deliveringPlace, infer } from "../support/deliveries.js";
import { withDurations } from "../support/durations.js";
import { associate } from "../support/gateway.js";
import { ADDON, needs } from "../support/needs.js";
import { pageText } from "../support/pages.js";
import { freePort, radserve, startServer, type Place, type TestServer } from "../support/server.js";
import { LONGEST_WAIT_MS, until } from "../support/until.js";
import { webPacs } from "../support/web-pacs.js";

const SOON = {
  conditionsLook: 50,
  gatewayFigures: 50,
  refusalsApart: 0,
  // However slow the disk is, what this process itself breaks is all that is wrong
  folderLook: LONGEST_WAIT_MS,
};

/** What the places say: the status of ready, and the words of all. */
interface Said {
  ready: number;
  words: string[];
  /** Words of warnings, which leave all places at "ready". */
  warned?: string[];
}

interface Broken {
  what: string;
  /** What is broken before the start. */
  place?: (t: Test) => Place | Promise<Place>;
  /** What is broken while it serves. */
  harm?: (server: TestServer) => unknown;
  said: Said;
}

const place = (more: Record<string, string> = {}) => ctPlace({ ...withDurations(SOON), ...more });
const stateOf = ({ environment }: Place) => environment["RADSERVE_STATE_DIR"] ?? "";

async function takenPort(t: Test): Promise<number> {
  const port = await freePort();
  const other = createServer().listen(port, "127.0.0.1");
  await once(other, "listening");
  t.teardown(() => other.close());
  return port;
}

/** A gateway that receives on a port. */
function receivingPlace(port: number): Place {
  const one = place();
  const spool = path.join(one.input, "spool");
  mkdirSync(spool);
  const file = path.join(one.directory, "gateway.json");
  one.environment["RADSERVE_GATEWAY"] = file;
  const rule = { name: "all", output_folder: path.join(one.output, "received") };
  writeFileSync(
    file,
    JSON.stringify({
      spool,
      dicom: { port },
      peers: { ct1: { ae_title: "CT1" } },
      rules: [rule],
    }),
  );
  return one;
}

const BROKEN: readonly Broken[] = [
  { what: "nothing", said: { ready: 200, words: [] } },
  {
    what: "the share of the images is gone",
    harm: ({ place: { input } }) => rmSync(input, { recursive: true }),
    said: { ready: 503, words: ["share_unavailable"] },
  },
  {
    what: "the folder of the results is gone",
    harm: ({ place: { output } }) => rmdirSync(output),
    said: { ready: 503, words: ["share_unavailable"] },
  },
  {
    what: "the disks are full",
    place: () => place({ RADSERVE_MINIMUM_FREE_DISK: "900000GiB" }),
    said: { ready: 200, words: ["disk_full", "disk_full"] },
  },
  {
    what: "the share of the models is not mounted",
    place: () => {
      const one = place();
      const models = one.environment["RADSERVE_MODELS_DIR"] ?? "";
      rmSync(path.join(models, "ct-tissue"), { recursive: true });
      return one;
    },
    said: { ready: 200, words: ["no_models"] },
  },
  {
    what: "a model's file is damaged",
    place: () => {
      const one = place();
      const models = one.environment["RADSERVE_MODELS_DIR"] ?? "";
      writeFileSync(path.join(models, "ct-tissue/model.onnx"), "no graph");
      return one;
    },
    said: { ready: 503, words: ["model_failed", "model_unavailable"] },
  },
  {
    what: "the GPU that is asked for cannot be used",
    place: () => place({ RADSERVE_PROVIDERS: "cuda,cpu", RADSERVE_GPU_FALLBACK: "cpu" }),
    said: { ready: 200, words: ["gpu_not_used"] },
  },
  {
    what: "the database of the jobs does not answer",
    place: async () =>
      place({ DATABASE_URL: `postgresql://radserve@127.0.0.1:${await freePort()}/radserve` }),
    said: { ready: 200, words: ["bulk_unavailable"] },
  },
  {
    what: "a key file is damaged",
    harm: (server) =>
      writeFileSync(path.join(stateOf(server.place), "keys/damaged.json"), "no key", {
        mode: 0o600,
      }),
    said: { ready: 200, words: ["key_refused"] },
  },
  {
    what: "the keys folder is empty",
    harm: ({ place: one }) => {
      const keys = path.join(stateOf(one), "keys");
      for (const name of readdirSync(keys).filter((file) => file.endsWith(".json")))
        rmSync(path.join(keys, name));
    },
    said: { ready: 503, words: ["keys_missing"] },
  },
  {
    what: "another program has the port for DICOM",
    place: async (t) => receivingPlace(await takenPort(t)),
    said: { ready: 200, words: ["dicom_port_closed"] },
  },
  {
    what: "the gateway's file is read again and is wrong",
    place: async () => receivingPlace(await freePort()),
    harm: (server) => {
      writeFileSync(server.place.environment["RADSERVE_GATEWAY"] ?? "", "{");
      server.process.kill("SIGHUP");
    },
    said: { ready: 200, words: ["gateway_file_refused"] },
  },
  {
    what: "the PACS is away",
    place: async (t) => {
      const pacs = await webPacs(t);
      await pacs.stop();
      return deliveringPlace({ pacs }, {}, ctPlace({}), SOON);
    },
    harm: (server) => infer(server),
    said: { ready: 200, words: ["destination_away"] },
  },
  {
    what: "the PACS refuses an object",
    place: async (t) => {
      const pacs = await webPacs(t);
      pacs.behave("refuse");
      return deliveringPlace({ pacs }, {}, ctPlace({}), SOON);
    },
    harm: (server) => infer(server),
    said: { ready: 200, words: ["delivery_set_aside"] },
  },
  {
    what: "a sender's settings are wrong",
    place: async () => receivingPlace(await freePort()),
    harm: async (server) => {
      const { port } = await server.logged(({ msg }) => msg === "the port for DICOM is open");
      for (let i = 0; i < 3; i++)
        await associate(Number(port), { callingAe: "DOE" }).catch(() => undefined);
    },
    said: { ready: 200, words: [], warned: ["sender_refused"] },
  },
];

/** What the log says of conditions that have begun and not ended. */
function wordsOfLog({ log }: TestServer): string[] {
  const open = new Map<string, string>();
  for (const { condition, where, msg } of log)
    if (typeof condition === "string") {
      const key = `${condition} ${String(where)}`;
      if (msg === "resolved") open.delete(key);
      else open.set(key, condition);
    }
  return [...open.values()].sort();
}

const wordsOf = (all: readonly { condition: string }[]) =>
  all.map(({ condition }) => condition).sort();

interface Finding {
  name: string;
  ok: boolean;
  found: string;
  fix?: string;
}

interface Health {
  status?: string;
  conditions?: { condition: string }[];
  warnings?: { condition: string }[];
  details?: { conditions?: { condition: string }[] };
}

for (const { what, place: before = () => place(), harm, said: expected } of BROKEN)
  await t.test(what, { skip: needs(ADDON) }, async (t) => {
    const said = { warned: [], ...expected };
    const one = await before(t);
    one.environment["RADSERVE_PORT"] = String(await freePort());
    const server = await startServer(one);
    t.teardown(() => server.stop());
    one.environment["RADSERVE_URL"] = server.url;
    await harm?.(server);
    const health = async () => {
      const answer = await fetch(`${server.url}/health/ready`);
      const body = await answer.text();
      t.notMatch(body, "DOE", "nothing that a stranger says");
      const { conditions, warnings, details } = JSON.parse(body) as Health;
      const words = wordsOf(conditions ?? details?.conditions ?? []);
      return { warned: wordsOf(warnings ?? []), ready: answer.status, words };
    };
    let found: Said = { ready: 0, words: [] };
    await until(`${what}: ready says it`, async () => {
      found = await health();
      return JSON.stringify(found) === JSON.stringify(said);
    }).catch(() => undefined);
    t.same(found, said, "ready");
    const all = [...said.words, ...said.warned];
    await until("the log says it", () => wordsOfLog(server).join() === all.join()).catch(
      () => undefined,
    );
    t.same(wordsOfLog(server), all, "the log");
    const headers = { Authorization: server.token };
    const answer = await fetch(`${server.url}/overview`, { headers });
    if (!said.words.includes("keys_missing")) {
      const page = (await answer.json()) as Required<Health> & { ready: boolean };
      t.same([page.ready, wordsOf(page.conditions)], [said.ready === 200, said.words], "the page");
      t.same(wordsOf(page.warnings), said.warned, "the page's warnings");
    }
    const [status, doctor] = await Promise.all([
      radserve(one, "status"),
      radserve(one, "doctor", "--json"),
    ]);
    t.equal(status.status, said.ready === 200 ? 0 : 1, status.stderr);
    const lines = (kind: string) =>
      [...status.stdout.matchAll(new RegExp(`^${kind}\t(\\w+)\t.+\\.$`, "gm"))]
        .map(([, word = ""]) => word)
        .sort();
    t.same(lines("wrong"), said.words, `status: ${status.stdout}`);
    t.same(lines("warning"), said.warned, `status: ${status.stdout}`);
    const findings = JSON.parse(doctor.stdout) as Finding[];
    const ofServer = findings.filter(({ name, ok }) => name === "server" && !ok);
    t.same(
      ofServer.map(({ found: text }) => text.split(":")[0]).sort(),
      said.words,
      "doctor asks the server",
    );
    const advised = findings.filter(({ name, ok, fix }) => name === "server" && ok && fix);
    t.same(
      advised.map(({ found: text }) => text.split(":")[0]),
      said.warned,
      "doctor's advice",
    );
    if (said.words.length > 0) t.equal(doctor.status, 1, "doctor finds something");
  });

await t.test("the documents have a row for each", (t) => {
  const page = pageText("docs/operations.md");
  for (const word of new Set(BROKEN.flatMap(({ said }) => said.words)))
    t.match(page, new RegExp(`^\\|[^|]*\`${word}\`[^|]*\\|`, "m"), word);
  t.end();
});

await t.test(
  "the serving process stands still, and then is killed",
  { skip: needs(ADDON) },
  async (t) => {
    const one = place();
    one.environment["RADSERVE_PORT"] = String(await freePort());
    const server = await startServer(one);
    t.teardown(() => server.stop());
    one.environment["RADSERVE_URL"] = server.url;
    const stuck = server.servingPid();
    process.kill(stuck, "SIGSTOP");
    const hasty = { ...one.environment, ...withDurations({ ...SOON, commandAnswer: 4_000 }) };
    const [status, doctor] = await Promise.all([
      radserve({ ...one, environment: hasty }, "status"),
      radserve({ ...one, environment: hasty }, "doctor", "--json"),
    ]);
    t.equal(status.status, 1);
    t.match(status.stderr, /Expected an answer .* within 4 s/, "status says that nobody answers");
    const findings = JSON.parse(doctor.stdout) as Finding[];
    t.match(
      findings.filter(({ name }) => name === "server"),
      [{ ok: false, found: /Expected an answer .* within 4 s/ }],
      "doctor says the same",
    );
    process.kill(stuck, "SIGKILL");
    await until("another process serves", async () => {
      const answer = await fetch(`${server.url}/health/ready`).catch(() => undefined);
      return answer?.ok === true && server.servingPid() !== stuck;
    });
    t.equal((await radserve(one, "status")).status, 0, "ready again, by itself");
    t.not((await server.told(({ level }) => level === "error")).length, 0, "the log has an error");
  },
);
