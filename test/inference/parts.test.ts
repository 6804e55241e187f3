/**
 * A model of parts: several graphs over one volume as one label map, the labels that a request
 * names, and what the receipt says of both.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { modelsCanary } from "../../src/commands/models/canary.js";
import { modelsCheck } from "../../src/commands/models/check.js";
import { modelsInit } from "../../src/commands/models/init.js";
import { monotonic } from "../../src/base/monotonic.js";
import { openInput } from "../../src/files/guarded-paths.js";
import { openFile } from "../../src/images/dicom/dicom-file.js";
import { infer } from "../../src/inference/infer-image.js";
import { inferOnce } from "../../src/inference/infer-once.js";
import { readInput } from "../../src/inference/read-input.js";
import { replay } from "../../src/inference/replay.js";
import type { InferTask } from "../../src/inference/task.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { unitsOf } from "../../src/manifest/model-parts.js";
import { manifestSchema } from "../../src/manifest/rules.js";
import { readModelFolder } from "../../src/models/read.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { modelList } from "../../src/server/model-list.js";
import { failure } from "../support/expect.js";
import { ADDON, needs } from "../support/needs.js";
import { endlessOver, partsManifest, writePartsModel } from "../support/parts-model.js";
import { reference } from "../support/reach-models.js";
import { engine, modelsOf } from "../support/real-engine.js";
import { makePlace } from "../support/server.js";
import { until } from "../support/until.js";
import { writeVolumeModel } from "../support/volume-model.js";

const SERIES = join(reference("inputs"), "series");
const task = (more: Partial<InferTask>): InferTask => ({
  requestId: "test",
  priority: "routine",
  cancelId: 1,
  roots: { input: undefined, output: undefined },
  inputPath: SERIES,
  outputFolder: "",
  startedAt: "2026-11-28T10:00:00.000Z",
  ...more,
});
const receiptAt = (path: string) => receiptSchema.parse(JSON.parse(readFileSync(path, "utf8")));

/** The label map of a model alone. */
async function mapOf(folder: string, manifest?: Manifest): Promise<Uint8Array> {
  const opened = await openInput(SERIES, undefined);
  const image = await readInput(opened);
  const { model } = await readModelFolder(folder);
  const sound = manifest === undefined ? model! : { ...model!, manifest };
  const { result } = await inferOnce(folder, sound, image, {
    engine: engine(),
    providers: ["cpu"],
  });
  opened.close();
  const [output] = result.outputs;
  if (output?.kind !== "segmentation") throw new Error("Expected a segmentation");
  output.counts.forEach((count, i) =>
    t.equal(count, output.mask.filter((value) => value === i + 1).length, "counts are the mask's"),
  );
  return output.mask;
}

t.test("models of parts", { skip: needs(ADDON) }, async (t) => {
  t.teardown(() => engine().close());
  const options = { engine: engine(), providers: ["cpu"] as const };

  await t.test("a later part lies over an earlier one, as each marks by itself", async (t) => {
    const folder = writePartsModel(t.testdir(), "body");
    t.match((await modelsCheck(folder, options)).text, /in order\n {2}It loads and runs/);
    const opened = await openInput(SERIES, undefined);
    await modelsCanary(folder, await readInput(opened), options);
    opened.close();
    t.match((await modelsCheck(folder, options)).text, /It loads and its canary passes/);
    const { model } = await readModelFolder(folder);
    t.strictSame(
      model!.manifest.parts!.map(({ canary }) => canary?.input?.path),
      ["tissue", "bright", "dense"].map((part) => `canary/${part}/input.npy`),
    );
    const whole = await mapOf(folder);
    const expected = new Uint8Array(whole.length);
    for (const { manifest, numbers } of unitsOf(model!.manifest)) {
      const alone = await mapOf(folder, manifest);
      t.ok(
        alone.some((value) => value !== 0),
        "each part marks something",
      );
      alone.forEach((value, i) => {
        if (value !== 0) expected[i] = numbers[value] ?? 0;
      });
    }
    t.ok(Buffer.from(whole).equals(expected));
    t.strictSame([...new Set(whole)].sort(), [0, 1, 2, 3, 4]);
  });

  await t.test("no draft of a single graph is like a model of parts", async (t) => {
    const models = t.testdir();
    const folder = writePartsModel(models, "body");
    const like = { like: "body", models };
    const { message } = await failure(
      modelsInit(join(folder, "tissue", "model.onnx"), engine(), like),
    );
    t.match(message, /Expected a model of one graph to be like; "body" has 3 parts/);
  });

  await t.test("one result, and only parts run that hold a wanted label", async (t) => {
    const place = makePlace();
    t.teardown(() => {
      place.remove();
    });
    const models = place.environment["RADSERVE_MODELS_DIR"]!;
    writePartsModel(models, "body", (m) => (m.release = "active"));
    writeVolumeModel(models, "other", (m) => {
      m.outputs.forEach((output) => {
        if (output.kind === "segmentation") output.labels = [{ label: "elsewhere" }];
      });
    });
    const { entries } = await modelsOf(models);
    const context = { engine: engine(), models: entries };
    const runs = () =>
      engine()
        .stats()
        .models.reduce((sum, { completed }) => sum + completed, 0);
    const run = async (more: Partial<InferTask>) => {
      const before = runs();
      const answer = await infer(task({ outputFolder: place.output, ...more }), context);
      const receipt = receiptAt(answer.receipt_path);
      const model = (name: string) => receipt.models.find((one) => one.name === name)!;
      return { answer, receipt, model, ran: runs() - before };
    };
    const names = (findings: { label: string }[]) => findings.map(({ label }) => label);
    const all = await run({});
    t.equal(all.ran, 4, "three parts and the other model");
    const body = all.model("body");
    t.strictSame(names(body.findings), ["soft", "bone", "bright", "dense"]);
    t.strictSame(
      body.parts?.map(({ name, ran }) => [name, ran]),
      [
        ["tissue", true],
        ["bright", true],
        ["dense", true],
      ],
    );
    t.equal(body.labels, undefined);
    t.strictSame(
      body.transforms.filter(({ step }) => step === "part").map(({ name }) => name),
      ["tissue", "bright", "dense"],
    );
    t.strictSame(
      body.transforms.filter(({ step }) => step === "normalise_mean_std").map(({ std }) => std),
      [[100], [10]],
    );
    const some = await run({ labels: ["dense", "bone"] });
    t.equal(some.answer.reused, false);
    t.equal(some.ran, 2);
    const wanted = some.model("body");
    t.strictSame(wanted.labels, ["bone", "dense"]);
    t.strictSame(names(wanted.findings), ["bone", "dense"]);
    t.strictSame(
      wanted.parts?.map(({ name, ran }) => [name, ran]),
      [
        ["tissue", true],
        ["bright", false],
        ["dense", true],
      ],
    );
    t.match(some.model("other"), {
      status: "not_accepted",
      reasons: [{ code: "labels_not_held" }],
      labels: { length: 0 },
    });
    const found = (of: typeof body, label: string) =>
      of.findings.find((one) => one.label === label)?.volume?.voxels;
    t.equal(found(wanted, "dense"), found(body, "dense"), "the last part covers all others");
    t.ok((found(wanted, "bone") ?? 0) > (found(body, "bone") ?? 0), "what lay over it did not run");
    t.equal((await run({ labels: ["bone", "dense"] })).answer.reused, true);
    t.equal((await run({ labels: ["dense"] })).answer.reused, false);
    t.equal((await run({})).answer.reused, false);

    const opened = await openInput(SERIES, undefined);
    const image = await readInput(opened);
    for (const { receipt } of [all, some])
      t.strictSame(
        (await replay({ receipt, image, models: entries, engine: engine() })).map(
          ({ verdict }) => verdict,
        ),
        ["ok", "ok", "ok"],
      );
    opened.close();

    const { code, message } = await failure(run({ labels: ["bone", "densse"] }));
    t.equal(code, "bad_request");
    t.match(message, /labels: expected labels .*found "densse"; the nearest is "dense"/);
  });

  await t.test("UIDs depend on the labels, and SR and SEG say the parts", async (t) => {
    const place = makePlace();
    t.teardown(() => {
      place.remove();
    });
    const models = place.environment["RADSERVE_MODELS_DIR"]!;
    const folder = writePartsModel(models, "body", (m) => (m.release = "active"));
    const [{ model }] = [await readModelFolder(folder)];
    const entries = (await modelsOf(models)).entries.map((entry) => ({
      ...entry,
      manifest: { ...entry.manifest, stage: "final" as const },
    }));
    const uids: (string | undefined)[] = [];
    const colours: unknown[] = [];
    for (const labels of [undefined, ["bone"]]) {
      const answer = await infer(
        task({ outputFolder: place.output, outputs: ["json", "seg", "sr"], labels }),
        { engine: engine(), models: entries },
      );
      const { outputs } = receiptAt(answer.receipt_path).models[0]!;
      uids.push(...outputs.map(({ series_instance_uid: uid }) => uid));
      const seg = outputs.find(({ path }) => path.endsWith(".seg.dcm"))!;
      const { attributes } = openFile(readFileSync(join(place.output, seg.path)));
      const segments = attributes.sequence("SegmentSequence") ?? [];
      t.strictSame(
        segments.map((segment) => segment.string("SegmentLabel")),
        labels ?? ["soft", "bone", "bright", "dense"],
      );
      const bone = segments.find((segment) => segment.string("SegmentLabel") === "bone");
      colours.push(bone?.numbers("RecommendedDisplayCIELabValue"));
      const [algorithm] = segments[0]!.sequence("SegmentationAlgorithmIdentificationSequence")!;
      const said = algorithm!.string("AlgorithmParameters") ?? "";
      t.match(
        said,
        new RegExp(`tissue \\(SHA-256 ${model!.manifest.files[0]!.sha256.slice(0, 12)}`),
      );
      t.equal(said.includes("dense"), labels === undefined);
      t.equal(said.includes("Asked for bone alone"), labels !== undefined);
    }
    t.equal(new Set(uids).size, 4);
    t.ok(colours[0] !== undefined);
    t.strictSame(colours[1], colours[0], "a label has its colour without the others, too");
  });

  await t.test("parts make room for each other where memory does not hold all", async (t) => {
    const place = makePlace();
    t.teardown(() => {
      engine().limitWeights(Number.MAX_SAFE_INTEGER);
      place.remove();
    });
    const models = place.environment["RADSERVE_MODELS_DIR"]!;
    writePartsModel(models, "small", (m) => (m.release = "active"));
    const context = async () => ({ engine: engine(), models: (await modelsOf(models)).entries });
    const run = async (name: string, where: Awaited<ReturnType<typeof context>>) => {
      const place = task({ outputFolder: join(models, "..", name) });
      const { receipt_path } = await infer(place, where);
      return receiptAt(receipt_path).models[0]!;
    };
    const whole = await context();
    const listed = (entries: typeof whole.models) =>
      modelList(entries, [], engine().stats()).models[0]!;
    const stateOf = (entries: typeof whole.models) =>
      listed(entries).parts?.map(({ name, residence }) => [name, residence.state]);
    t.strictSame(stateOf(whole.models), [
      ["tissue", "loaded"],
      ["bright", "loaded"],
      ["dense", "loaded"],
    ]);
    const expected = await run("whole", whole);

    engine().limitWeights(1);
    const byTurns = await context();
    const last = [
      ["tissue", "idle"],
      ["bright", "idle"],
      ["dense", "loaded"],
    ];
    t.strictSame(stateOf(byTurns.models), last, "at the start, too, one is there at a time");
    const before = listed(byTurns.models);
    const found = await run("turns", byTurns);
    t.strictSame(stateOf(byTurns.models), last);
    t.equal(found.raw_sha256, expected.raw_sha256);
    t.strictSame(found.findings, expected.findings);
    const after = listed(byTurns.models);
    t.equal(after.residence!.state, "loaded", "the model has something in memory");
    t.equal(after.residence!.loads - before.residence!.loads, 3);
    t.equal(after.work!.completed - before.work!.completed, 3, "the work is that of all parts");
    t.equal(after.work!.started.routine - before.work!.started.routine, 3);
    t.equal(
      after.parts?.reduce((sum, { work }) => sum + work.run_seconds.sum, 0),
      after.work!.run_seconds.sum,
    );
    t.strictSame(
      after.parts?.map(({ work }, i) => work.completed - before.parts![i]!.work.completed),
      [1, 1, 1],
    );
  });

  await t.test("a deadline or a cancel in the last part ends the whole", async (t) => {
    const place = makePlace();
    t.teardown(() => {
      place.remove();
    });
    const models = place.environment["RADSERVE_MODELS_DIR"]!;
    writePartsModel(models, "held", (m) => (m.release = "active"), endlessOver(500));
    const { entries } = await modelsOf(models);
    const started = () => {
      const dense = engine()
        .stats()
        .models.find(({ name }) => name === "held:dense");
      return dense?.started.routine ?? 0;
    };
    const before = started();
    const context = { engine: engine(), models: entries };
    const cancelled = failure(infer(task({ outputFolder: place.output, cancelId: 77 }), context));
    await until("the last part runs", () => started() > before, setImmediate);
    engine().cancel(77);
    t.equal((await cancelled).code, "cancelled");
    const deadline = monotonic() + 1_000;
    const late = await failure(infer(task({ outputFolder: place.output, deadline }), context));
    t.equal(late.code, "deadline_exceeded");
    t.strictSame(readdirSync(place.output), []);
  });
});

t.test("what parts cannot be is a mistake", (t) => {
  const mistakes = (change: (manifest: Manifest) => unknown) => {
    const manifest = partsManifest("body");
    manifest.files.forEach((file, i) => (file.sha256 = String(i).repeat(64)));
    change(manifest);
    return (manifestSchema.safeParse(manifest).error?.issues ?? [])
      .map(({ path, message }) => `${path.join(".")}: ${message}`)
      .join("\n");
  };
  t.equal(
    mistakes(() => 0),
    "",
  );
  const first = (m: Manifest) =>
    m.outputs[0] as Extract<Manifest["outputs"][number], { labels: unknown }>;
  for (const [change, expected] of [
    [(m) => (m.parts![1]!.labels = ["bone"]), /parts.1.labels.0: The label "bone" is also one/],
    [(m) => (m.parts![1]!.labels = ["bright", "skin"]), /parts.1.labels.1: Expected a label of/],
    [(m) => (m.parts![0]!.labels = ["soft"]), /parts: .*bone is in none/],
    [(m) => (m.parts![1]!.name = "tissue"), /parts.1.name: The part "tissue" is there twice/],
    [(m) => (m.parts![1]!.graphs = ["tissue/model.onnx"]), /parts.1.graphs.0: The graph .* twice/],
    [(m) => (m.parts![1]!.graphs = ["none.onnx"]), /parts.1.graphs.0: Expected a path of files/],
    [(m) => m.files.reverse(), /parts.0.graphs.0: Expected the first of files/],
    [(m) => Object.assign(first(m), { activation: "sigmoid" }), /parts: Expected the activation/],
    [
      (m) =>
        Object.assign(first(m), {
          postprocess: [{ step: "largest_component", labels: ["bone"] }],
        }),
      /parts: Expected no postprocess/,
    ],
    [(m) => Object.assign(first(m), { segment_grid: "model" }), /parts: Expected binary segments/],
    [
      (m) => (m.ensemble = { graphs: ["a", "b"], average: "before_activation" }),
      /parts: Expected no ensemble/,
    ],
    [
      (m) => (m.parts![0]!.tiling = { ...m.tiling!, mirror: ["depth", "depth"] }),
      /parts.0.tiling.mirror/,
    ],
    [(m) => (m.stage = "final"), /parts.0.canary: Required in stage final/],
  ] as [(manifest: Manifest) => unknown, RegExp][])
    t.match(mistakes(change), expected);
  t.end();
});
