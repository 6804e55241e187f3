/**
 * A network of nnU-Net with several channels as a model that serves: study folders, receipts, parts
 * of a study, memory.
 */
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { onnxModel, ints } from "../../scripts/lib/onnx-model.js";
import { createEngine } from "../../src/engine/engine.js";
import { sha256 } from "../../src/files/durable-files.js";
import { openInput } from "../../src/files/guarded-paths.js";
import { infer } from "../../src/inference/infer-image.js";
import { readInput } from "../../src/inference/read-input.js";
import { volumeOf } from "../../src/images/dicom/volume.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { modelsCheck } from "../../src/commands/models/check.js";
import { modelsImport } from "../../src/features/import/import.js";
import { folderReading } from "../../src/commands/models/canary.js";
import { loadSession } from "../../src/models/load.js";
import { readModelFolder } from "../../src/models/read.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { bulkOf } from "../support/bulk.js";
import {
  activeBrain,
  channelFolder,
  rolesFile,
  type ChannelsOf,
} from "../support/channel-models.js";
import { ADDON, needs } from "../support/needs.js";
import { BRIGHT_PART, plainInput, reachManifest, SOFT_PART } from "../support/reach-models.js";
import { modelsOf } from "../support/real-engine.js";
import { numbersOf, seriesFiles, VOLUMES, writeFolder } from "../support/reference-volumes.js";
import { makePlace, radserve, startServer } from "../support/server.js";

t.setTimeout(900_000);

const NETWORK = "nnunet-brain";
/** mm3 of a voxel: 1.8 x 0.9 x 1.1. */
const VOXEL = 1.782;

t.test("a network of three channels serves", { skip: needs(ADDON) }, async (t) => {
  const place = makePlace();
  const engine = createEngine({ provider: "cpu" });
  const study = channelFolder(join(place.input, "study"), NETWORK);
  // What else a study has: another series of the same patient, which no role takes
  writeFolder(
    join(study, "more"),
    seriesFiles(NETWORK, { modality: "MR", number: 40, attributes: { SeriesDescription: "DWI" } }),
  );
  await activeBrain(place.environment["RADSERVE_MODELS_DIR"]!, study, engine);
  await engine.close();
  const server = await startServer(place);
  t.teardown(async () => {
    await server.stop();
    place.remove();
  });
  const labels = numbersOf(NETWORK, "labels");
  const volumes = [1, 2].map(
    (label) => (labels.filter((one) => one === label).length * VOXEL) / 1000,
  );

  await t.test(
    "one request, and its receipt, by a folder with more series than roles",
    async (t) => {
      const output = join(place.output, "single");
      mkdirSync(output);
      const answer = await fetch(`${server.url}/single_inference`, {
        method: "POST",
        headers: { Authorization: server.token, "Content-Type": "application/json" },
        body: JSON.stringify({ input_image_path: study, output_folder_path: output }),
      });
      const text = await answer.text();
      t.equal(answer.status, 200, text);
      const path = (JSON.parse(text) as { receipt_path: string }).receipt_path;
      const receipt = receiptSchema.parse(JSON.parse(readFileSync(path, "utf8")));
      const model = receipt.models.find(({ name }) => name === "brain")!;
      t.equal(model.status, "succeeded", JSON.stringify(model.error));
      t.strictSame(
        model.roles?.map(({ role, series_instance_uid }) => [role, series_instance_uid]),
        [
          ["flair", "1.2.3.20"],
          ["t1", "1.2.3.21"],
          ["t2", "1.2.3.22"],
        ],
      );
      t.strictSame(
        model.findings.map(({ volume }) => volume?.ml.toFixed(4)),
        volumes.map((ml) => ml.toFixed(4)),
      );
      t.match(
        model.transforms.filter(({ step }) => /role|z_score|tiling/.test(step)),
        [
          { step: "role", role: "flair" },
          { step: "normalise_z_score", of: "nonzero", found_mean: Number },
          { step: "role", role: "t1" },
          { step: "normalise_z_score", of: "nonzero" },
          { step: "role", role: "t2" },
          { step: "normalise_z_score" },
          { step: "tiling", window: [8, 8, 12] },
        ],
      );
      t.ok(model.outputs.some(({ path: file }) => file.endsWith(".seg.dcm")));
      t.ok(model.outputs.some(({ path: file }) => file.endsWith(".sr.dcm")));
      const verified = await radserve(place, "verify", path, "--input", study);
      t.equal(verified.status, 0, verified.stdout + verified.stderr);
    },
  );

  await t.test("a bulk job of studies: each folder is one item", async (t) => {
    const root = join(place.input, "job");
    cpSync(study, join(root, "p1"), { recursive: true });
    channelFolder(join(root, "p2"), NETWORK);
    const output = join(place.output, "job");
    mkdirSync(output);
    const bulk = bulkOf(server);
    const id = await bulk.submit({ input_folder_path: root, output_folder_path: output });
    await bulk.ended(id);
    const items = await bulk.items(id);
    const done = items.filter(({ state }) => state === "succeeded");
    t.strictSame(
      done.map((item) => [item.input_image_path, item.receipt_path]),
      [
        [join(root, "p1"), join(output, "p1.case.json")],
        [join(root, "p2"), join(output, "p2.case.json")],
      ],
      JSON.stringify(items),
    );
    t.notOk(items.some(({ state }) => state === "failed"));
  });
});

/**
 * A convolution over two labels, or one that marks what is bright in the first channel, of three
 * channels.
 */
const graph = (finds: boolean) =>
  onnxModel({
    name: "stack",
    inputs: [{ name: "x", dtype: "float32", shape: ["n", 3, "d", "h", "w"] }],
    outputs: [{ name: "mask", dtype: "float32", shape: ["n", finds ? 1 : 2, "d", "h", "w"] }],
    initializers: [
      {
        name: "filter",
        dtype: "float32",
        shape: finds ? [1, 3, 1, 1, 1] : [2, 3, 3, 3, 3],
        data: finds ? [1, 0, 0] : Array.from({ length: 162 }, (_, i) => (((i * 7) % 11) - 5) / 20),
      },
      {
        name: "bias",
        dtype: "float32",
        shape: [finds ? 1 : 2],
        data: finds ? [-150.5] : [0.1, -0.2],
      },
    ],
    nodes: [
      {
        op: "Conv",
        inputs: ["x", "filter", "bias"],
        outputs: ["mask"],
        attributes: finds ? {} : { pads: ints([1, 1, 1, 1, 1, 1]) },
      },
    ],
  });

const described = (role: string) => ({
  role,
  rules: [{ tag: "SeriesDescription", contains: [role] }],
});

function stack(name: string, finds: boolean, region?: Manifest["region"]): Manifest {
  return reachManifest({
    name,
    accepts: { formats: ["dicom"], modality: ["CT", "PT"], dimensions: "series" },
    roles: [described("native"), described("late"), described("pet")],
    inputs: [
      {
        ...plainInput,
        layout: "NCDHW",
        size: { kind: "source" },
        interpolation: "linear",
        background: 0,
        normalisation: finds ? { kind: "none" } : { kind: "z_score", over: "volume" },
        roles: [{ role: "native" }, { role: "late" }, { role: "pet", values: { kind: "suv_bw" } }],
      },
    ],
    outputs: [
      {
        kind: "segmentation",
        tensor: "mask",
        activation: "sigmoid",
        postprocess: [],
        measurements: [],
        labels: finds ? [BRIGHT_PART] : [BRIGHT_PART, SOFT_PART],
      },
    ],
    ...(region === undefined ? {} : { region }),
    stage: "draft",
    release: "active",
    results: { outputs: ["json"] },
  });
}

t.test(
  "a region beside roles is the same as a study that was cut before",
  { skip: needs(ADDON) },
  async (t) => {
    const place = makePlace();
    const models = place.environment["RADSERVE_MODELS_DIR"]!;
    const engine = createEngine({ provider: "cpu" });
    t.teardown(async () => {
      await engine.close();
      place.remove();
    });
    const write = (manifest: Manifest, finds: boolean) => {
      const folder = join(models, manifest.name);
      mkdirSync(folder, { recursive: true });
      const bytes = graph(finds);
      writeFileSync(join(folder, "model.onnx"), bytes);
      const files = [{ path: "model.onnx", sha256: sha256(bytes) }];
      writeFileSync(join(folder, "model.json"), JSON.stringify({ ...manifest, files }));
      return folder;
    };
    write(stack("finder", true), true);
    const region = {
      model: "finder",
      label: "bright",
      margin_mm: 0,
      when_empty: "refuse",
    } as const;
    const looker = write(stack("looker", false, region), false);
    t.match((await modelsCheck(looker, { engine, providers: ["cpu"] })).text, /in order/);
    const sides = [11, 22, 20] as const;
    const bright = numbersOf("nnunet-petct", "voxels").flatMap((value, i) =>
      value > 150 ? [[Math.floor(i / 440), Math.floor(i / 20) % 22, i % 20]] : [],
    );
    const ends = ([0, 1, 2] as const).map((axis) => {
      const along = bright.map((at) => at[axis]!);
      return [Math.min(...along), Math.max(...along) + 1] as const;
    });
    const part = {
      first: ends.map(([from]) => from) as [number, number, number],
      count: ends.map(([from, to]) => to - from) as [number, number, number],
    };
    t.ok(part.count.every((count, axis) => count > 0 && count < sides[axis]!));
    const written = (folder: string, cut?: typeof part) => {
      const ct = { modality: "CT", ...(cut === undefined ? {} : { part: cut }) };
      const late = { SeriesDescription: "late", RescaleSlope: "-1", RescaleIntercept: "40" };
      const pet = {
        SeriesDescription: "pet",
        RescaleSlope: "2.5",
        Units: "BQML",
        CorrectedImage: "ATTN\\DECY",
        DecayCorrection: "ADMIN",
        PatientWeight: "70",
        RadiopharmaceuticalInformationSequence: [{ RadionuclideTotalDose: "350000000" }],
      };
      return writeFolder(
        join(place.input, folder),
        seriesFiles("nnunet-petct", {
          ...ct,
          number: 50,
          attributes: { SeriesDescription: "native" },
        }),
        seriesFiles("nnunet-petct", { ...ct, number: 51, attributes: late }),
        seriesFiles("nnunet-petct", {
          modality: "PT",
          array: "other",
          spacing: "other-spacing",
          origin: "other-origin",
          number: 52,
          attributes: pet,
        }),
      );
    };
    const answered = async (inputPath: string, name: string) => {
      const set = await modelsOf(models, engine);
      const roots = { input: undefined, output: undefined };
      const outputFolder = join(place.output, name);
      mkdirSync(outputFolder);
      const task = { requestId: "test", priority: "routine" as const, cancelId: 1, roots };
      const answer = await infer(
        { ...task, inputPath, outputFolder, models: [name] },
        { engine, models: set.entries },
      );
      await set.close();
      const model = answer.models.find((one) => one.name === name)!;
      t.equal(model.status, "succeeded", JSON.stringify(model));
      const receipt = receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
      return { ...receipt.models.find((one) => one.name === name)!, receipt: answer.receipt_path };
    };
    const looked = await answered(written("whole"), "looker");
    t.match(looked.region, { model: "finder", label: "bright" });
    const verified = await radserve(
      place,
      "verify",
      looked.receipt,
      "--input",
      join(place.input, "whole"),
    );
    t.equal(verified.status, 0, verified.stdout + verified.stderr);
    rmSync(looker, { recursive: true });
    write(stack("plain", false), false);
    const cut = await answered(written("cut", part), "plain");
    t.equal(looked.raw_sha256, cut.raw_sha256, "the network saw the same numbers");
    t.strictSame(
      looked.findings.map(({ score, present, volume }) => [score, present, volume]),
      cut.findings.map(({ score, present, volume }) => [score, present, volume]),
    );
    const whole = await answered(join(place.input, "whole"), "plain").catch(() => undefined);
    t.not(whole?.raw_sha256, looked.raw_sha256, "the region is a part");

    await t.test("a model that looks at other series first is refused", async (t) => {
      const other = stack("other", false, { ...region, model: "finder" });
      other.roles![1] = {
        role: "late",
        rules: [
          { tag: "SeriesDescription", contains: ["late"] },
          { tag: "KVP", min: 1 },
        ],
      };
      const { text } = await modelsCheck(write(other, false), { engine, providers: ["cpu"] });
      t.match(
        text,
        /region.*expected the folder of a model "finder" beside this one that looks at the same series/,
      );
    });
  },
);

t.test(
  "the plan of a volume counts each channel, and the mask",
  { skip: needs(ADDON) },
  async (t) => {
    const engine = createEngine({ provider: "cpu" });
    t.teardown(() => engine.close());
    const folder = t.testdir();
    const planned = async (network: "cascade-lowres" | ChannelsOf, several: boolean) => {
      const to = join(folder, network);
      const roles = several ? { roles: rolesFile(folder, network as ChannelsOf) } : {};
      const choices = { orientation: "SPL", mirror: "none", modality: "MR" };
      await modelsImport(join(VOLUMES, network), engine, { ...choices, ...roles, to });
      const { model } = await readModelFolder(to);
      const { id } = await loadSession(to, model!, engine, ["cpu"]);
      const source = several
        ? channelFolder(join(folder, "study"), "channels-lowres")
        : writeFolder(join(folder, "series"), seriesFiles(network, { modality: "MR" }));
      const opened = await openInput(source, undefined);
      const { caseOf } = await folderReading(to);
      const image = await readInput(opened, undefined, caseOf === undefined ? {} : { caseOf });
      const { frames, geometry } = volumeOf(image);
      const { rows, columns } = image.format;
      // What the network takes on its way through a window is in both
      const of = (slices: number) => engine.plan(id, { slices, rows, columns, geometry });
      const bytes = of(2 * frames.length) - of(frames.length);
      opened.close();
      await engine.unload(id);
      return bytes;
    };
    // Alike but for the channels: twice the slices, 13 more, give a grid of 15 x 11 x 12 voxels and
    // not 7.
    const more =
      (await planned("channels-lowres", true)) - (await planned("cascade-lowres", false));
    t.equal(more, 8 * 11 * 12 * 4 + 13 * 24 * 22);
  },
);
