/** GET /models: what it says of each model before and after work. */
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import type { Manifest } from "../../src/manifest/manifest.js";
import { modelListSchema } from "../../src/server/model-list.js";
import { hashFile } from "../../src/files/durable-files.js";
import { copyModel } from "../support/manifests.js";
import { ADDON, needs } from "../support/needs.js";
import { bulkPlace, writeSlice } from "../support/bulk.js";
import { endless, foldsForLong } from "../support/endless.js";
import { heatmap, heavy, HEAVY_SIDE, input, writeModel } from "../support/tiny-models.js";
import { radserve, startServer, type TestServer } from "../support/server.js";
import { until } from "../support/until.js";

/** A model of which batches pay on a quiet machine, as a draft: no canary, no codes. */
async function writeHeavy(models: string): Promise<void> {
  const folder = path.join(models, "heavy");
  mkdirSync(folder);
  const file = writeModel(folder, heavy);
  const manifest: Manifest = {
    name: "heavy",
    version: "1.0.0",
    manufacturer: "Tests",
    description: "One large product.",
    intended_use: "None.",
    regulatory: "Not for diagnostic use.",
    stage: "draft",
    release: "active",
    required: false,
    files: [{ path: path.basename(file), sha256: (await hashFile(file))! }],
    accepts: { formats: ["dicom"], modality: ["CT"], dimensions: "2d" },
    inputs: [{ ...input, size: { kind: "fixed", height: 1, width: HEAVY_SIDE } }],
    outputs: [heatmap],
    batching: { max: 8 },
    execution: { providers: ["cpu"], precision: "float32" },
    results: { outputs: ["json"] },
  };
  writeFileSync(path.join(folder, "model.json"), JSON.stringify(manifest));
}

t.test(
  "a model whose folder cannot be read is failed wherever models are told",
  { skip: needs(ADDON) },
  async (t) => {
    const place = bulkPlace(t);
    const models = place.environment["RADSERVE_MODELS_DIR"]!;
    copyModel(models, "ct-tissue", "off", (manifest) => (manifest.release = "off"));
    symlinkSync("lost", path.join(models, "lost"));
    const server = await startServer(place);
    t.teardown(() => server.stop());
    await server.logged(({ msg }) => msg === "models loaded");
    const why = "model.json: Cannot be read: ELOOP";
    t.match((await server.told(({ msg }) => msg === "Model lost does not serve"))[0], {
      required: true,
      error: { message: new RegExp(why) },
    });
    const get = async (page: string) => {
      const answer = await fetch(`${server.url}${page}`, {
        headers: { Authorization: server.token },
      });
      return { status: answer.status, text: await answer.text() };
    };
    const readiness = await get("/health/ready");
    t.equal(readiness.status, 503);
    t.match(JSON.parse(readiness.text), {
      details: {
        models: [
          { name: "ct-tissue", health: "ready" },
          { name: "lost", required: true, health: "failed", error: "model_unavailable" },
        ],
      },
    });
    t.match(modelListSchema.parse(JSON.parse((await get("/models")).text)).problems, [
      { name: "lost", required: true, error: { message: new RegExp(why) } },
    ]);
    const figures = (await get("/metrics")).text;
    t.strictSame(
      figures.match(/^radserve_model_ready.*$/gm),
      [
        'radserve_model_ready{model="ct-tissue",version="1.0.0",state="ready"} 1',
        'radserve_model_ready{model="lost",version="",state="failed"} 0',
      ],
      "the model that is off wakes nobody",
    );
    const asked = await server.post("/single_inference", {
      input_image_path: path.join(place.input, "image.png"),
      output_folder_path: place.output,
      models: ["lost"],
    });
    t.equal(asked.status, 503, "asked for by name, it is known and unavailable");
    t.match(await asked.json(), { error: "model_unavailable", message: new RegExp(why) });
    place.environment["RADSERVE_URL"] = server.url;
    place.environment["RADSERVE_TOKEN"] = server.token;
    for (const [command, line] of [
      [["status"], `problem\tlost (required)\tModel lost: ${why}`],
      [["models", "list"], why],
      [["doctor"], `problem  model: lost: ${why}`],
    ] as const) {
      const { status, stdout } = await radserve(place, ...command);
      t.equal(status, 1, command.join(" "));
      t.ok(stdout.includes(line), stdout);
    }
  },
);

const readiness = async ({ url }: TestServer) => {
  const answer = await fetch(`${url}/health/ready`);
  return { status: answer.status, body: (await answer.json()) as { message: string } };
};

t.test("ready names what it waits for", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t);
  // Its first run goes on until somebody stops it
  endless(place.environment["RADSERVE_MODELS_DIR"]!);
  const server = await startServer(place);
  let first = await readiness(server);
  // The page is served a moment before the first folder is opened.
  await until("the endless model is being loaded", async () => {
    first = await readiness(server);
    return first.body.message.includes("now endless");
  });
  t.match(first, {
    status: 503,
    body: {
      error: "model_unavailable",
      message: /^The models are still being loaded: now endless\. Ask again/,
      details: { waits_for: ["endless"] },
    },
  });
  t.equal(await server.stop(), 0, "a load that goes on holds up no stop");
});

t.test(
  "a session that takes long to be made holds up no stop",
  { skip: needs(ADDON) },
  async (t) => {
    const place = bulkPlace(t);
    foldsForLong(place.environment["RADSERVE_MODELS_DIR"]!);
    const server = await startServer(place);
    await server.logged(({ msg }) => msg === "Model ct-tissue is ready");
    await until("its session is being made", async () =>
      (await readiness(server)).body.message.includes("now folds-for-long"),
    );
    t.equal(await server.stop(), 0);
  },
);

t.test("ready and status say why a model failed", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t);
  const models = place.environment["RADSERVE_MODELS_DIR"]!;
  cpSync(path.join(models, "ct-tissue"), path.join(models, "other"), { recursive: true });
  const manifest = path.join(models, "other", "model.json");
  writeFileSync(
    manifest,
    readFileSync(manifest, "utf8")
      .replace('"ct-tissue"', '"other"')
      .replace(/"sha256": "\w{4}/, '"sha256": "0123'),
  );
  const server = await startServer(place);
  t.teardown(() => server.stop());
  await server.logged(({ msg }) => msg === "models loaded");
  t.match(await readiness(server), {
    status: 503,
    body: {
      message: /these are not: other\. radserve status says why/,
      details: { waits_for: ["other"] },
    },
  });
  place.environment["RADSERVE_URL"] = server.url;
  const anybody = await radserve(place, "status");
  t.match(anybody, {
    status: 1,
    stdout:
      /^.*not ready: .*other.*\n(wrong\t.*other.*\n){2}ct-tissue\tready \(required\)\nother\tfailed/,
  });
  place.environment["RADSERVE_TOKEN"] = server.token;
  const told = await radserve(place, "status");
  t.match(told, { status: 1, stdout: /problem\tother \(required\)\t.*Expected sha256 0123/ });
});

const total = ({ counts }: { counts: number[] }) => counts.reduce((sum, n) => sum + n, 0);

t.test("the work of each model", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t);
  const models = place.environment["RADSERVE_MODELS_DIR"]!;
  await writeHeavy(models);
  mkdirSync(path.join(models, "unsound"));
  writeFileSync(path.join(models, "unsound", "model.json"), "{}");
  const server = await startServer(place);
  t.teardown(() => server.stop());
  await server.logged(({ msg }) => msg === "models loaded");
  const list = async () => {
    const answer = await fetch(`${server.url}/models`, {
      headers: { Authorization: server.token },
    });
    return modelListSchema.parse(await answer.json());
  };
  const before = await list();
  t.match(before, {
    models: [
      { name: "ct-tissue", health: "ready", provider: "cpu", work: { failed: 0 } },
      {
        name: "heavy",
        stage: "draft",
        health: "ready",
        work: { queued: { stat: 0, routine: 0, bulk: 0 } },
      },
    ],
    problems: [{ name: "unsound", error: { error: "model_unavailable" } }],
  });
  const requests = Array.from({ length: 6 }, (_, i) => {
    const file = path.join(place.input, `${i}.dcm`);
    writeSlice(file, i);
    return {
      input_image_path: file,
      output_folder_path: place.output,
      priority: i < 2 ? "stat" : "routine",
    };
  });
  for (const answer of await Promise.all(
    requests.map((body) => server.post("/single_inference", body)),
  ))
    t.match(await answer.json(), { status: "completed" });
  const after = await list();
  for (const [i, { name, work }] of after.models.entries()) {
    // Its warm-up is counted, too
    const earlier = before.models[i]!.work!;
    const waits = ({ stat, routine, bulk }: (typeof earlier)["wait_seconds"]) =>
      [stat, routine, bulk].map(total);
    const more = (now: number[], then: number[]) => now.map((n, c) => n - then[c]!);
    t.equal(work!.completed - earlier.completed, 6, name);
    t.equal(work!.failed, 0);
    t.strictSame(more(Object.values(work!.started), Object.values(earlier.started)), [2, 4, 0]);
    t.strictSame(more(waits(work!.wait_seconds), waits(earlier.wait_seconds)), [2, 4, 0]);
    t.strictSame(work!.refused, { deadline: 0 });
    t.strictSame(work!.queued, { stat: 0, routine: 0, bulk: 0 });
    const runs = total(work!.run_seconds) - total(earlier.run_seconds);
    t.equal(runs, total(work!.batch_sizes) - total(earlier.batch_sizes), "as many runs as batches");
    t.ok(runs >= 1 && runs <= 6);
    t.equal(work!.batch_sizes.sum - earlier.batch_sizes.sum, 6, "every image in one of them");
    t.ok(work!.run_seconds.sum > earlier.run_seconds.sum);
    t.ok(work!.sessions.length > 0 && work!.sessions.every(({ bytes }) => bytes > 0));
  }
});

t.test(
  "an idle model leaves, is told so, and comes back for who asks",
  { skip: needs(ADDON) },
  async (t) => {
    const place = bulkPlace(t);
    place.environment["RADSERVE_MODEL_IDLE"] = "1s";
    const server = await startServer(place);
    t.teardown(() => server.stop());
    await server.logged(({ msg }) => msg === "models loaded");
    const slice = path.join(place.input, "slice.dcm");
    writeSlice(slice);
    const get = async (page: string) => {
      const answer = await fetch(`${server.url}${page}`, {
        headers: { Authorization: server.token },
      });
      return { status: answer.status, text: await answer.text() };
    };
    let asked = 0;
    const ask = async () => {
      const output_folder_path = path.join(place.output, String(asked++));
      const answer = await server.post("/single_inference", {
        input_image_path: slice,
        output_folder_path,
      });
      const body = (await answer.json()) as { receipt_path: string; message: string };
      const receipt = answer.ok
        ? (JSON.parse(readFileSync(body.receipt_path, "utf8")) as {
            models: { raw_sha256: string }[];
          })
        : undefined;
      return { status: answer.status, body, raw: receipt?.models[0]!.raw_sha256 };
    };
    const listed = async () =>
      modelListSchema.parse(JSON.parse((await get("/models")).text)).models[0]!;
    const untilIdle = () =>
      until("the model is idle", async () => (await listed()).residence?.state === "idle");

    const { raw } = await ask();
    t.match(raw, /^[0-9a-f]{64}$/);
    await untilIdle();
    const idle = await listed();
    t.match(idle, { health: "ready", residence: { state: "idle" } });
    t.strictSame(idle.work?.sessions, []);
    t.match((await get("/metrics")).text, 'radserve_model_loaded{model="ct-tissue"} 0');
    // The database of a server that has just begun may take longer
    await until("the server is ready", async () => (await get("/health/ready")).status === 200);
    t.match(
      await listed(),
      { residence: { state: "idle" } },
      "a model that can come back is ready",
    );
    place.environment["RADSERVE_URL"] = server.url;
    place.environment["RADSERVE_TOKEN"] = server.token;
    t.match(
      (await radserve(place, "status")).stdout,
      /ct-tissue .*\tready\tcpu\tidle, its last load took \d/,
    );

    const answers = await Promise.all(Array.from({ length: 16 }, ask));
    t.ok(answers.every((answer) => answer.status === 200 && answer.raw === raw));
    t.ok((await listed()).residence!.loads > idle.residence!.loads);
    t.match((await get("/metrics")).text, /radserve_model_loads_total\{model="ct-tissue"\} [2-9]/);

    const graph = path.join(place.environment["RADSERVE_MODELS_DIR"]!, "ct-tissue", "model.onnx");
    const bytes = readFileSync(graph);
    await untilIdle();
    writeFileSync(graph, Buffer.concat([bytes, Buffer.from([0x7a, 0])]));
    const refused = await ask();
    t.equal(refused.status, 503);
    t.match(refused.body.message, /expected model\.onnx with the sha256 [0-9a-f]{64}/);
    t.match(await listed(), { health: "failed", error: { message: /model\.onnx/ } });
    t.match(
      (await get("/metrics")).text,
      'radserve_model_ready{model="ct-tissue",version="1.0.0",state="failed"} 0',
    );
    const ready = await get("/health/ready");
    t.equal(ready.status, 503);
    t.match(JSON.parse(ready.text), {
      details: { models: [{ name: "ct-tissue", health: "failed", error: "model_unavailable" }] },
    });
    writeFileSync(graph, bytes);
    // Nobody asks for it, because the server is not ready: it is tried again all the same.
    await until("it is ready", async () => (await get("/health/ready")).status === 200);
    t.equal((await ask()).raw, raw);
  },
);
