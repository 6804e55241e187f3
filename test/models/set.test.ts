import { createHash } from "node:crypto";
import { chmodSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { onnxModel } from "../../scripts/lib/onnx-model.js";
import { isLit, type TextPlace } from "../../scripts/lib/text-canary.js";
import { imageInputs, type Manifest } from "../../src/manifest/manifest.js";
import { modelsList } from "../../src/commands/models/list.js";
import { type ModelSet, withoutEntry } from "../../src/models/set.js";
import { decodeNpy, encodeNpy } from "../../src/engine/npy.js";
import { ADDON, needs } from "../support/needs.js";
import { engine, modelsOf } from "../support/real-engine.js";
import { imageOf } from "../support/images.js";
import { copyModel, shippedModels } from "../support/manifests.js";

const entry = (set: ModelSet, name: string) => set.entries.find((e) => e.name === name)!;

/** ct-tissue with a canary that expects something else, every file pinned. */
function wrongCanary(directory: string, name: string): void {
  const expected = encodeNpy({ dtype: "uint8", shape: [1, 1, 16, 16], data: new Uint8Array(256) });
  const folder = copyModel(directory, "ct-tissue", name, (m) => {
    m.required = false;
    m.canary!.expected[0]!.file.sha256 = createHash("sha256").update(expected).digest("hex");
  });
  writeFileSync(join(folder, "canary", "tissue.npy"), expected);
}

/** Where the tests run as root, whom no permission stops, as another user meanwhile. */
async function withoutPrivileges(work: () => Promise<void>): Promise<void> {
  const user = process.geteuid!();
  if (user === 0) process.seteuid!("nobody");
  try {
    await work();
  } finally {
    process.seteuid!(user);
  }
}

t.test("models", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());

  await t.test("the shipped models load, and their canaries pass", async (t) => {
    const set = await modelsOf(shippedModels);
    t.strictSame(
      set.entries.map((e) => [e.name, e.state, e.provider, e.error]),
      [
        ["burned-in-text", "ready", "cpu", undefined],
        ["ct-tissue", "ready", "cpu", undefined],
      ],
      "and examples are skipped",
    );
    t.strictSame(set.problems, []);
    t.equal(set.ready(), true);
    t.doesNotThrow(() => structuredClone(set.entries), "entries cross threads");
    await set.close();
    await set.close();
  });

  await t.test("one that fails is only itself unavailable", async (t) => {
    const directory = t.testdir({
      broken: { "model.json": '{"required": false}' },
      examples: { other: { "model.json": "{}" } },
      ".git": {},
      "lost+found": {},
      "a.txt": "",
    });
    copyModel(directory, "ct-tissue", "good");
    copyModel(directory, "ct-tissue", "off", (m) => (m.release = "off"));
    const other = copyModel(directory, "ct-tissue", "other-weights", (m) => (m.required = false));
    writeFileSync(join(other, "model.onnx"), "other weights");
    wrongCanary(directory, "other-canary");
    copyModel(directory, "ct-tissue", "no-tolerance", (m) => {
      m.required = false;
      m.canary!.tolerance = m.canary!.tolerance.filter((x) => x.provider === "cuda");
    });
    copyModel(directory, "ct-tissue", "cuda-only", (m) => {
      m.required = false;
      m.execution.providers = ["cuda"];
    });
    copyModel(directory, "ct-tissue", "other-graph", (m) => {
      m.required = false;
      m.inputs[0]!.tensor = "hu_";
      m.inputs[0]!.dtype = "float16";
    });
    copyModel(directory, "ct-tissue", "volume", (m) => {
      m.required = false;
      m.accepts.dimensions = "series";
      imageInputs(m)[0]!.layout = "NCDHW";
      imageInputs(m)[0]!.size = { kind: "source" };
    });
    const set = await modelsOf(directory);
    const said = (name: string) => set.problems.find((p) => p.name === name)?.error.message;
    t.strictSame(
      set.entries.map((e) => [e.name, e.state]),
      [
        ["cuda-only", "failed"],
        ["good", "ready"],
        ["no-tolerance", "failed"],
        ["off", "off"],
        ["other-canary", "failed"],
        ["other-graph", "failed"],
        ["other-weights", "failed"],
        ["volume", "failed"],
      ],
    );
    t.match(
      said("broken"),
      /^Model broken: .* found nothing: the field is missing.* more\. `radserve models check`/,
    );
    t.match(said("cuda-only"), /allows cuda, and this server has cpu/);
    t.match(said("no-tolerance"), /no entry for provider cpu and precision float32/);
    t.match(
      said("other-canary"),
      /the canary's output "tissue" is wrong here: largest difference 4/,
    );
    t.match(said("other-graph"), /no numeric tensor "hu_"; did you mean "hu"/);
    t.match(said("other-weights"), /model\.onnx: Expected sha256 [0-9a-f]{64}, found/);
    t.match(
      said("volume"),
      /inputs\[0\]\.layout: NCDHW has 5 dimensions; the graph.s "hu" is float32/,
      "the graph takes images",
    );
    t.ok(set.problems.every((p) => p.error.error === "model_unavailable"));
    t.equal(set.ready(), true, "none of them is required");
    await set.close();
  });

  await t.test("a required model that fails keeps the node unready", async (t) => {
    const directory = t.testdir();
    copyModel(directory, "ct-tissue", "good");
    const other = copyModel(directory, "ct-tissue", "needed");
    writeFileSync(join(other, "model.onnx"), "other weights");
    const set = await modelsOf(directory);
    t.equal(set.ready(), false);
    copyModel(directory, "ct-tissue", "needed");
    t.strictSame((await set.reload()).replaced, ["needed"]);
    t.equal(set.ready(), true);
    await set.close();
    const unreadable = t.testdir({ x: { "model.json": "{" } });
    const second = await modelsOf(unreadable);
    t.equal(second.ready(), false, "nobody can know whether an unreadable one was required");
    t.match(second.problems, [{ name: "x", required: true }]);
    await second.close();
  });

  await t.test(
    "a model whose folder cannot be read, or has lost its manifest, does not vanish",
    async (t) => {
      const directory = t.testdir();
      const names = ["away", "dangling", "locked", "lost"];
      for (const name of names) copyModel(directory, "ct-tissue", name);
      const set = await modelsOf(directory);
      t.strictSame(set.problems, []);
      const before = [...set.entries];

      // A link to itself can be looked at by nobody, not even by root.
      rmSync(join(directory, "dangling"), { recursive: true });
      symlinkSync("dangling", join(directory, "dangling"));
      rmSync(join(directory, "away"), { recursive: true });
      mkdirSync(join(directory, "away"));
      rmSync(join(directory, "lost", "model.json"));
      chmodSync(join(directory, "locked"), 0);
      const reasons = [
        {
          name: "away",
          required: true,
          error: { message: /^Model away: model\.json: The file does not exist/ },
        },
        {
          name: "dangling",
          required: true,
          error: { message: /model\.json: Cannot be read: ELOOP/ },
        },
        {
          name: "locked",
          required: true,
          error: { message: /model\.json: Cannot be read: EACCES/ },
        },
        { name: "lost", required: true, error: { message: /move the folder away\. `radserve/ } },
      ];
      await withoutPrivileges(async () => {
        const report = await set.reload();
        t.strictSame(
          report.failed.map(({ name, kept }) => [name, kept]),
          names.map((name) => [name, true]),
        );
        t.strictSame(set.entries, before, "the versions before go on");
        t.match(set.problems, reasons);
        t.equal(set.ready(), true);

        const fresh = await modelsOf(directory);
        t.equal(fresh.entries.length, 0);
        t.match(fresh.problems, reasons, "and a server that starts knows of them");
        t.equal(fresh.ready(), false, "each of them may have been required");
        t.match(withoutEntry(fresh), reasons);
        await fresh.close();

        const listed = await modelsList(directory);
        t.equal(listed.exitCode, 1);
        t.match(listed.text, /locked .* model\.json: Cannot be read: EACCES$/m);
      });
      chmodSync(join(directory, "locked"), 0o755);
      await set.close();
    },
  );

  await t.test("no directory", async (t) => {
    await t.rejects(modelsOf(join(t.testdir(), "nowhere")), {
      code: "model_unavailable",
      message: /RADSERVE_MODELS_DIR/,
    });
  });

  await t.test("reload swaps what has changed, and keeps what fails", async (t) => {
    const directory = t.testdir();
    for (const name of ["changed", "fails", "same", "gone", "site"])
      copyModel(directory, name === "site" ? "burned-in-text" : "ct-tissue", name);
    const set = await modelsOf(directory);
    const before = new Map(set.entries.map((e) => [e.name, e]));
    copyModel(directory, "ct-tissue", "added");
    copyModel(directory, "ct-tissue", "changed", (m) => (m.version = "2.0.0"));
    wrongCanary(directory, "fails");
    rmSync(join(directory, "gone"), { recursive: true });
    writeFileSync(join(directory, "site", "site.json"), '{"thresholds": {"text": 0.9}}');

    const feed = {
      name: "hu",
      ...decodeNpy(encodeNpy({ dtype: "float32", shape: [1, 1, 1, 1], data: new Uint8Array(4) })),
    };
    const old = before.get("changed")!.nativeId!;
    let seen: readonly { name: string; version: string }[] = [];
    const report = await set.reload({
      swapped: async (entries) => {
        seen = entries;
        await t.resolves(
          engine().runTensors(old, [feed]),
          "the old session runs until everyone has the new entries",
        );
      },
    });
    await t.rejects(engine().runTensors(old, [feed]), "and is gone afterwards");
    t.equal(seen, set.entries);
    t.strictSame(
      { ...report, failed: report.failed.map((f) => [f.name, f.kept]) },
      {
        added: ["added"],
        replaced: ["changed", "site"],
        removed: ["gone"],
        unchanged: ["same"],
        failed: [["fails", true]],
      },
    );
    t.equal(entry(set, "changed").version, "2.0.0");
    t.equal(entry(set, "fails"), before.get("fails"), "the old version serves");
    t.equal(entry(set, "same"), before.get("same"));
    t.strictSame(entry(set, "site").thresholds, [[0.9]]);
    t.match(set.problems, [{ name: "fails", error: { message: /canary/ } }]);
    t.equal(set.ready(), true);

    copyModel(directory, "ct-tissue", "fails");
    await Promise.all([set.reload(), set.reload()]);
    t.strictSame(set.problems, [], "a good reload clears it");
    await set.close();
  });

  await t.test(
    "off, shadow and active, required and optional, from one reload to the next",
    async (t) => {
      const directory = t.testdir();
      const is = (release: Manifest["release"], required: boolean) =>
        copyModel(directory, "ct-tissue", "model", (m) => Object.assign(m, { release, required }));
      copyModel(directory, "ct-tissue", "other", (m) => (m.required = false));
      is("off", true);
      const set = await modelsOf(directory);
      t.match(entry(set, "model"), { state: "off", nativeId: undefined });
      t.equal(set.ready(), true, "one that is off is not waited for");

      is("shadow", true);
      t.strictSame((await set.reload()).replaced, ["model"]);
      t.match(entry(set, "model"), { state: "ready", manifest: { release: "shadow" } });
      const shadow = entry(set, "model").nativeId!;
      is("active", true);
      t.strictSame((await set.reload()).replaced, ["model"]);
      t.match(entry(set, "model"), { state: "ready", manifest: { release: "active" } });
      await t.rejects(
        engine().runTensors(shadow, []),
        { code: "model_unavailable" },
        "the old session is gone",
      );

      const folder = is("active", false);
      writeFileSync(join(folder, "model.onnx"), "other weights");
      t.match((await set.reload()).failed, [{ name: "model", kept: true }]);
      t.match(entry(set, "model"), { state: "ready", manifest: { required: true } });
      t.equal(set.ready(), true, "the old one serves");
      t.match(set.problems, [{ name: "model", required: true }]);
      const active = entry(set, "model").nativeId!;
      is("off", true);
      t.strictSame((await set.reload()).replaced, ["model"]);
      t.strictSame(set.problems, []);
      await t.rejects(
        engine().runTensors(active, []),
        { code: "model_unavailable" },
        "off gives memory back",
      );
      await set.close();
    },
  );

  await t.test("off ends a model, whatever lies in its folder", async (t) => {
    const directory = t.testdir();
    copyModel(directory, "ct-tissue", "model");
    const set = await modelsOf(directory);
    const active = entry(set, "model").nativeId!;
    const folder = copyModel(directory, "ct-tissue", "model", (m) => (m.release = "off"));
    rmSync(join(folder, "model.onnx"));
    t.match((await set.reload()).failed, [{ name: "model", kept: false }]);
    t.match(entry(set, "model"), { state: "off", nativeId: undefined });
    await t.rejects(engine().runTensors(active, []), { code: "model_unavailable" });
    await set.close();
  });

  await t.test("a model never serves beside a first model that it does not fit", async (t) => {
    const directory = t.testdir();
    const first = (version: string, label: string, more: (m: Manifest) => void = () => undefined) =>
      copyModel(directory, "ct-tissue", "first", (m) => {
        m.version = version;
        const [output] = m.outputs;
        if (output?.kind === "segmentation") output.labels[1]!.label = label;
        more(m);
      });
    const second = (version: string, label: string) =>
      copyModel(directory, "ct-tissue", "second", (m) => {
        m.version = version;
        m.region = { model: "first", label, margin_mm: 0, when_empty: "negative" };
      });
    first("1.0.0", "lung");
    second("1.0.0", "lung");
    const set = await modelsOf(directory);
    t.strictSame(set.problems, []);
    const serving = () => set.entries.map(({ state, version }) => [state, version]);

    await t.test("the first renames the label", async (t) => {
      first("2.0.0", "lungs");
      const { failed, replaced } = await set.reload();
      t.match(
        failed.map(({ name, kept, error }) => [name, kept, error.message]),
        [
          ["first", true, /the model second, which serves, needs its version of before/],
          ["second", true, /region\.label: expected a label/],
        ],
      );
      t.strictSame(replaced, []);
      t.strictSame(serving(), [
        ["ready", "1.0.0"],
        ["ready", "1.0.0"],
      ]);
    });

    await t.test("both change, and the first fails", async (t) => {
      const folder = first("2.0.0", "lungs");
      writeFileSync(join(folder, "model.onnx"), "other weights");
      second("2.0.0", "lungs");
      const { failed } = await set.reload();
      t.match(
        failed.map(({ name, kept }) => [name, kept]),
        [
          ["first", true],
          ["second", true],
        ],
      );
      t.strictSame(serving(), [
        ["ready", "1.0.0"],
        ["ready", "1.0.0"],
      ]);
    });

    await t.test("both change and serve", async (t) => {
      first("2.0.0", "lungs");
      t.strictSame((await set.reload()).replaced, ["first", "second"]);
      t.strictSame(set.problems, []);
    });

    await t.test("the first is switched off", async (t) => {
      const { nativeId } = entry(set, "second");
      first("2.0.0", "lungs", (m) => (m.release = "off"));
      t.match((await set.reload()).failed, [{ name: "second", kept: false }]);
      t.match(entry(set, "second"), { state: "failed", nativeId: undefined });
      await t.rejects(engine().runTensors(nativeId!, []), { code: "model_unavailable" });
    });
    await set.close();
  });

  await t.test("a swap that nobody confirms still gives the old sessions back", async (t) => {
    const directory = t.testdir();
    copyModel(directory, "ct-tissue", "model");
    const set = await modelsOf(directory);
    const old = entry(set, "model").nativeId!;
    copyModel(directory, "ct-tissue", "model", (m) => (m.version = "2.0.0"));
    const lost = new Error("the workers are gone");
    await t.rejects(set.reload({ swapped: () => Promise.reject(lost) }), lost);
    t.equal(entry(set, "model").version, "2.0.0");
    await t.rejects(engine().runTensors(old, []), { code: "model_unavailable" });
    await set.close();
  });

  await t.test(
    "burned-in-text boxes text where it is, in small images and in shrunken ones",
    async (t) => {
      const set = await modelsOf(shippedModels);
      const { nativeId, thresholds } = entry(set, "burned-in-text");
      const find = async (rows: number, columns: number, place: TextPlace | undefined) => {
        const pixels = Uint8Array.from({ length: rows * columns }, (_, i) =>
          place !== undefined && isLit(Math.floor(i / columns), i % columns, place) ? 230 : 20,
        );
        const image = imageOf({
          source: { format: "png" },
          format: { rows, columns, bitsAllocated: 8, bitsStored: 8, highBit: 7, signed: false },
          pixels,
        });
        const plane = {
          format: image.format,
          data: pixels,
          interpretation: image.interpretation(0),
          pixelAspect: 1,
        };
        const [output] = (await engine().infer(nativeId!, [plane], { thresholds })).outputs;
        return output?.kind === "boxes" ? output.boxes : [];
      };
      for (const [rows, columns, place] of [
        [200, 301, { top: 150, left: 20, dot: 3 }],
        [300, 2400, { top: 40, left: 2000, dot: 6 }],
      ] as const) {
        const boxes = await find(rows, columns, place);
        const x0 = Math.min(...boxes.map((b) => b.x0));
        const x1 = Math.max(...boxes.map((b) => b.x1));
        const y0 = Math.min(...boxes.map((b) => b.y0));
        const y1 = Math.max(...boxes.map((b) => b.y1));
        const { top, left, dot } = place;
        const covers = x0 <= left && x1 >= left + 34 * dot && y0 <= top && y1 >= top + 7 * dot;
        const tight =
          x0 > left - 8 * dot && x1 < left + 42 * dot && y0 > top - 8 * dot && y1 < top + 15 * dot;
        t.ok(covers && tight, `${rows} x ${columns}`, { boxes, place });
      }
      t.strictSame(await find(96, 96, undefined), [], "and none where there is none");
      await set.close();
    },
  );

  await t.test("a graph of its own, without a canary", async (t) => {
    const graph = onnxModel({
      name: "mean",
      inputs: [{ name: "image", dtype: "float32", shape: ["n", 1, 8, 8] }],
      outputs: [{ name: "scores", dtype: "float32", shape: ["n", 1] }],
      nodes: [
        { op: "GlobalAveragePool", inputs: ["image"], outputs: ["pooled"] },
        { op: "Flatten", inputs: ["pooled"], outputs: ["scores"] },
      ],
    });
    const directory = t.testdir();
    const folder = copyModel(directory, "ct-tissue", "mean", (m: Manifest) => {
      delete m.canary;
      Object.assign(m, {
        stage: "draft",
        results: { outputs: ["json", "png"] },
        files: [{ path: "mean.onnx", sha256: createHash("sha256").update(graph).digest("hex") }],
      });
      Object.assign(m.inputs[0]!, {
        tensor: "image",
        size: { kind: "fixed", height: 8, width: 8 },
        fit: "stretch",
      });
      m.outputs = [
        {
          kind: "classification",
          tensor: "scores",
          activation: "none",
          calibration: { kind: "none" },
          labels: [{ label: "bright", threshold: 0.5 }],
        },
      ];
    });
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "mean.onnx"), graph);
    const set = await modelsOf(directory);
    t.strictSame(set.problems, []);
    t.strictSame(entry(set, "mean").thresholds, [[0.5]]);
    const image = imageOf({
      pixels: new Uint8Array(Int16Array.from({ length: 256 }, () => 7).buffer),
    });
    const plane = {
      format: image.format,
      data: await image.frame(0),
      interpretation: image.interpretation(0),
      pixelAspect: 1,
    };
    const result = await engine().infer(entry(set, "mean").nativeId!, [plane], {});
    t.match(result.outputs, [{ kind: "classification", scores: Float32Array.of(7) }]);
    await set.close();
  });
});
