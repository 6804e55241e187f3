/** Ready, overview, status, doctor and the log say the same of what is wrong. */
import { mkdirSync, rmdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { Conditions, folderCondition, neededFolders } from "../../src/server/conditions.js";
import { type Condition } from "../../src/server/condition.js";
import { RunningFeatures } from "../../src/server/running-features.js";
import { createLog } from "../../src/base/log.js";
import { loadConfig } from "../../src/config.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { freePort, makePlace, radserve, startServer } from "../support/server.js";
import { LONGEST_WAIT_MS, until } from "../support/until.js";

t.test(
  "a root that is away, a disk without room, and what all four say",
  { skip: needs(ADDON) },
  async (t) => {
    const port = await freePort();
    const place = makePlace({
      ...withDurations({ conditionsLook: 20, folderLook: LONGEST_WAIT_MS }),
      RADSERVE_PORT: String(port),
      RADSERVE_MINIMUM_FREE_DISK: "900000GiB",
    });
    const share = path.join(place.directory, "share");
    mkdirSync(share);
    place.environment["RADSERVE_INPUT_ROOTS"] = `${place.input}:${share}`;
    const server = await startServer(place);
    t.teardown(() => server.stop());
    await server.logged(
      ({ condition, where }) => condition === "disk_full" && where === "output root",
    );
    rmdirSync(share);
    const said = await server.logged(({ condition }) => condition === "share_unavailable");
    t.match(said, { level: "warn", where: "input root 2", msg: /the folder does not exist/ });
    t.notMatch(JSON.stringify(server.log), /\/share/, "the log has no path");

    // The folder of models is empty
    const words = ["disk_full", "disk_full", "no_models", "share_unavailable"];
    const wordsOf = (all: Condition[]) => all.map(({ condition }) => condition).sort();
    const asked = async () => {
      const answer = await fetch(`${server.url}/health/ready`);
      return (await answer.json()) as { status?: string; conditions: Condition[] };
    };
    // Before it has looked for models it is not ready, and says nothing of them
    await until("it is ready", async () => (await asked()).status === "ready");
    const ready = await asked();
    t.equal(ready.status, "ready");
    t.strictSame(wordsOf(ready.conditions), words);
    t.notMatch(JSON.stringify(ready), place.directory, "anybody may ask: no path");
    const headers = { Authorization: server.token };
    const overview = await (await fetch(`${server.url}/overview`, { headers })).json();
    const about = (all: Condition[]) =>
      all.map(({ condition, where, remedy }) => ({ condition, where, remedy }));
    t.strictSame(
      about((overview as { conditions: Condition[] }).conditions),
      about(ready.conditions),
    );
    place.environment["RADSERVE_URL"] = server.url;
    const status = await radserve(place, "status");
    t.equal(status.status, 0, "it is ready");
    t.strictSame(
      [...status.stdout.matchAll(/^wrong\t(\w+)\t.+\. .+\.$/gm)].map(([, word]) => word).sort(),
      words,
    );
    const doctor = await radserve(place, "doctor", "--json");
    t.equal(doctor.status, 1);
    const findings = JSON.parse(doctor.stdout) as { name: string; ok: boolean; found: string }[];
    t.strictSame(
      findings.flatMap(({ name, found }) => (name === "server" ? found.split(":")[0] : [])).sort(),
      words,
      "doctor asks the server that runs",
    );
    t.match(
      findings.filter(({ name, ok }) => name === "input root" && !ok),
      [{ found: /share: the folder does not exist/ }],
    );

    mkdirSync(share);
    await server.logged(
      ({ condition, msg }) => condition === "share_unavailable" && msg === "resolved",
    );
  },
);

t.test("everything else that may be wrong", async (t) => {
  const place = makePlace();
  t.teardown(() => place.remove());
  const config = loadConfig({ environment: place.environment, directory: place.directory });
  t.match((await neededFolders(config)).flatMap(folderCondition), [
    { condition: "share_unavailable", where: "state directory" },
  ]);
  const node = {
    name: "b",
    id: "1",
    instance: "1",
    address: "",
    release: "1",
    entered_at: "2026-01-01T00:00:00.000Z",
    clock_offset_ms: null,
    models: {},
    keys: [],
    result_keys: [],
    roots: [],
    settings: {},
    works: true,
    ready: true,
    seen_at: "2026-01-01T00:00:00.000Z",
  };
  const conditions = new Conditions({
    folders: {
      look: () => Promise.resolve(),
      conditions: () => [],
      known: () => true,
    },
    features: new RunningFeatures(),
    fault: () => undefined,
    keys: () => "A file cannot be used.",
    models: () => [
      { name: "m", health: "failed", error: "model_invalid" },
      { name: "n", health: "ready" },
    ],
    loading: () => false,
    lacksGpu: true,
    engine: () => ({
      gpus: [{ number: 1, lost: true } as never],
      models: [{ name: "m", late: 2 } as never, { name: "n", late: 0 } as never],
    }),
    certificates: () => ({
      expiries: [
        { certificate: "server", name: "RADSERVE_TLS_CERT", at: new Date(Date.now() + 86_400_000) },
      ],
      refused: "RADSERVE_TLS_KEY: expected another key.",
    }),
    bulk: () => ({
      open: 2,
      queued: 1,
      running: 0,
      paused: 2,
      ended: {},
      trouble: "database_full",
      paused_for: { share_unavailable: 2 },
      left_alone: { output_replaced: 1 },
      lost: ["a", "b"],
      nodes: [
        { ...node, alive: false },
        { ...node, name: "c", id: "2", alive: true },
      ],
      self: null,
    }),
    log: createLog("silent"),
  });
  t.match(conditions.list(), [
    { condition: "key_refused", where: "keys folder" },
    { condition: "gpu_not_used", where: "GPU" },
    { condition: "model_failed", message: "m failed: model_invalid." },
    { condition: "runs_late", where: "model m", message: /^2 runs of m go on/ },
    { condition: "gpu_lost", where: "GPU 1" },
    { condition: "certificate_expires" },
    { condition: "certificate_refused", message: /^RADSERVE_TLS_KEY/ },
    { condition: "bulk_unavailable", message: /database_full/ },
    { condition: "job_paused", message: "2 jobs paused: share_unavailable." },
    { condition: "job_left_alone", message: "This node leaves 1 job to others: output_replaced." },
    { condition: "jobs_lost", message: "The database lacks 2 jobs: a, b." },
    { condition: "node_silent", message: /^Node b / },
  ]);
});
