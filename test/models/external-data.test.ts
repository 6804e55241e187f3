/**
 * Weights in files beside the graph (external data of ONNX): what is opened is what the manifest
 * pins.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  closeSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { dirname, join } from "node:path";
import t from "tap";
import { onnxModel } from "../../scripts/lib/onnx-model.js";
import type { Engine } from "../../src/engine/engine.js";
import type { Tensor } from "../../src/base/tensor.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { modelsCheck } from "../../src/commands/models/check.js";
import { modelsInit } from "../../src/commands/models/init.js";
import { modelsList } from "../../src/commands/models/list.js";
import { failure } from "../support/expect.js";
import { ADDON, needs } from "../support/needs.js";
import { copyModel } from "../support/manifests.js";
import { engine, modelsOf } from "../support/real-engine.js";

const DATA = "model.onnx.data";
const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
const weights = (value: number) => new Uint8Array(new Float32Array(256 * 256).fill(value).buffer);

/** y = hu + w, with w in a file of its own. */
const graphWith = (location: string) =>
  onnxModel({
    name: "outside",
    inputs: [{ name: "hu", dtype: "float32", shape: ["batch", 1, 256, 256] }],
    outputs: [{ name: "y", dtype: "float32", shape: ["batch", 1, 256, 256] }],
    initializers: [{ name: "w", dtype: "float32", shape: [256, 256], data: weights(1), location }],
    nodes: [{ op: "Add", inputs: ["hu", "w"], outputs: ["y"] }],
  });

/** A model folder whose manifest pins the graph, and the files given. */
function outsideModel(directory: string, location = DATA, pinned: readonly string[] = []): string {
  const graph = graphWith(location);
  const folder = copyModel(directory, "ct-tissue", "outside", (m: Manifest) => {
    m.stage = "draft";
    delete m.canary;
    m.results.outputs = ["json"];
    m.files = [
      { path: "model.onnx", sha256: sha256(graph) },
      ...pinned.map((path) => ({ path, sha256: sha256(weights(1)) })),
    ];
    Object.assign(m.inputs[0]!, {
      size: { kind: "fixed", height: 256, width: 256 },
      fit: "stretch",
    });
    m.outputs = [{ kind: "heatmap", tensor: "y", activation: "none", label: { label: "value" } }];
  });
  writeFileSync(join(folder, "model.onnx"), graph);
  return folder;
}

function writeWeights(folder: string, path: string, value: number): void {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), weights(value));
}

t.test("external data", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());
  const options = { engine: engine(), providers: ["cpu"] as const };

  await t.test(
    "what files does not name refuses the model, with what is to be added",
    async (t) => {
      const directory = t.testdir();
      const folder = outsideModel(directory);
      writeWeights(folder, DATA, 1);
      const { exitCode, text } = await modelsCheck(folder, options);
      t.equal(exitCode, 1);
      const fix = `add { "path": "${DATA}", "sha256": "${sha256(weights(1))}" } to files`;
      t.ok(
        text.includes(`${DATA}: The graph opens this file, and files does not name it. If it`),
        text,
      );
      t.ok(text.includes(fix), text);
      const set = await modelsOf(directory);
      t.match(set.entries, [{ name: "outside", state: "failed" }]);
      t.match(set.problems, [{ error: { message: /files does not name it/ } }]);
      t.equal((await modelsList(directory)).exitCode, 1);
      rmSync(join(folder, DATA));
      t.match(
        (await modelsCheck(folder, options)).text,
        /data: The graph opens this file, .*the file does not exist/,
      );
      await set.close();
    },
  );

  await t.test("a named pipe in place of weights is told at once", async (t) => {
    const folder = outsideModel(t.testdir());
    execFileSync("mkfifo", [join(folder, DATA)]);
    const { exitCode, text } = await modelsCheck(folder, options);
    t.equal(exitCode, 1);
    t.match(text, /outside: 1 mistake\n.*data: The graph opens this file, .*found a named pipe/);
    t.match(await failure(engine().inspectGraph(join(folder, "model.onnx"))), {
      code: "bad_request",
      message: /found a named pipe/,
    });
  });

  await t.test("other weights are another model, or none", async (t) => {
    const directory = t.testdir();
    const folder = outsideModel(directory, `./${DATA}`, [DATA]);
    writeWeights(folder, DATA, 1);
    t.match(await modelsCheck(folder, options), { exitCode: 0 });
    const set = await modelsOf(directory);
    const [before] = set.entries;
    t.match(before, { state: "ready" });

    writeWeights(folder, DATA, 2);
    t.match(
      (await modelsCheck(folder, options)).text,
      /outside: 1 mistake\n.*data: Expected sha256/,
    );
    t.match((await set.reload()).failed, [{ name: "outside", kept: true }]);
    t.equal(set.entries[0], before);

    const file = join(folder, "model.json");
    const manifest = readFileSync(file, "utf8");
    writeFileSync(file, manifest.replaceAll(sha256(weights(1)), sha256(weights(2))));
    t.strictSame((await set.reload()).replaced, ["outside"]);
    t.not(set.entries[0]?.sha256, before?.sha256);
    await set.close();
  });

  await t.test("weights that are exchanged between their hash and their loading", async (t) => {
    const directory = t.testdir();
    const folder = outsideModel(directory, DATA, [DATA]);
    writeWeights(folder, DATA, 1);
    const loaded: number[] = [];
    const racing = Object.create(engine(), {
      load: {
        value: async (given: Parameters<Engine["load"]>[0]) => {
          writeWeights(folder, DATA, 2);
          const model = await engine().load(given);
          loaded.push(model.id);
          return model;
        },
      },
      inspectGraph: { value: (path: string) => engine().inspectGraph(path) },
      missing: { value: () => engine().missing() },
      runTensors: {
        value: (...given: Parameters<Engine["runTensors"]>) => engine().runTensors(...given),
      },
      unload: { value: (id: number) => engine().unload(id) },
    }) as Engine;
    const set = await modelsOf(directory, racing);
    t.match(set.entries, [{ state: "failed" }]);
    t.match(set.problems, [
      { error: { message: /model\.onnx\.data changed while the model was loaded/ } },
    ]);
    await t.rejects(
      engine().runTensors(loaded[0]!, []),
      { code: "model_unavailable" },
      "nothing stays loaded",
    );
    await set.close();
  });

  await t.test(
    "who writes into weights, or cuts them short, changes nothing of a model that serves",
    async (t) => {
      const directory = t.testdir();
      const folder = outsideModel(directory, DATA, [DATA]);
      writeWeights(folder, DATA, 1);
      const set = await modelsOf(directory);
      const id = set.entries[0]!.nativeId!;
      const image: Tensor = {
        name: "hu",
        dtype: "float32",
        shape: [1, 1, 256, 256],
        data: new Uint8Array(4 * 256 * 256),
      };
      const answer = async () => {
        const [y] = await engine().runTensors(id, [image]);
        return new Float32Array(y!.data.buffer, y!.data.byteOffset, 256 * 256).every(
          (value) => value === 1,
        );
      };
      t.ok(await answer());
      const file = openSync(join(folder, DATA), "r+");
      writeSync(file, weights(2));
      t.ok(await answer(), "after a write into the file");
      ftruncateSync(file);
      t.ok(await answer(), "after it was cut");
      closeSync(file);
      await set.close();
    },
  );

  await t.test("what a graph takes and gives is read without its weights", async (t) => {
    const folder = t.testdir();
    const data = new Uint8Array(1 << 20);
    const names = Array.from({ length: 256 }, (_, i) => `w${i}`);
    const graph = onnxModel({
      name: "large",
      inputs: [{ name: "x", dtype: "float32", shape: ["n", 512, 512] }],
      outputs: [{ name: "y", dtype: "float32", shape: ["n", 512, 512] }],
      initializers: names.map((name) => ({
        name,
        dtype: "float32",
        shape: [512, 512],
        data,
        location: DATA,
      })),
      nodes: names.map((name, i) => ({
        op: "Add",
        inputs: [i === 0 ? "x" : `x${i}`, name],
        outputs: [i === names.length - 1 ? "y" : `x${i + 1}`],
      })),
    });
    const file = join(folder, "large.onnx");
    writeFileSync(file, graph);
    writeFileSync(join(folder, DATA), data);
    const most = () =>
      Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync("/proc/self/status", "utf8"))![1]) / 1024;
    const before = most();
    const { inputs, outputs } = await engine().inspectGraph(file);
    t.strictSame(
      [...inputs, ...outputs].map(({ name, shape }) => [name, shape]),
      ["x", "y"].map((name) => [name, [-1, 512, 512]]),
    );
    t.ok(most() - before < 100, `256 MiB of weights took ${(most() - before).toFixed(0)} MiB`);
    writeFileSync(join(folder, DATA), data.subarray(1));
    await t.rejects(engine().inspectGraph(file), { message: /data ends before its last tensor/ });
  });

  await t.test("a file outside of the folder is refused, whatever files says", async (t) => {
    for (const location of ["../weights.data", "/etc/hostname", "a/../../weights.data", ""]) {
      const folder = outsideModel(t.testdir(), location);
      writeWeights(dirname(folder), "weights.data", 1);
      t.match(
        await modelsCheck(folder, options),
        {
          exitCode: 1,
          text: /model\.onnx: The graph keeps weights in ".*"\. Expected a path below/,
        },
        location,
      );
      rmSync(join(folder, "model.json"));
      await t.rejects(modelsInit(join(folder, "model.onnx"), engine()), {
        code: "bad_request",
        message: /Expected weights below the graph's folder/,
      });
    }
  });

  await t.test("init pins what the graph opens", async (t) => {
    const folder = join(t.testdir({ new: {} }), "new");
    writeFileSync(join(folder, "graph.onnx"), graphWith("weights/w.data"));
    await t.rejects(modelsInit(join(folder, "graph.onnx"), engine()), {
      code: "bad_request",
      message: /Expected the graph's weights in weights\/w\.data, beside it/,
    });
    writeWeights(folder, "weights/w.data", 1);
    await modelsInit(join(folder, "graph.onnx"), engine());
    t.match(JSON.parse(readFileSync(join(folder, "model.json"), "utf8")), {
      files: [
        { path: "graph.onnx", sha256: sha256(graphWith("weights/w.data")) },
        { path: "weights/w.data", sha256: sha256(weights(1)) },
      ],
    });
    t.notMatch((await modelsCheck(folder, options)).text, /w\.data/);
  });
});
