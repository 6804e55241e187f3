/**
 * A server that was told to use the GPU, with the real provider and the stand-in for the CUDA
 * libraries that `npm run trial -- cuda` builds (native/test/cuda). Kernels do nothing there, so
 * that no number is looked at.
 */
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { samples } from "../../scripts/demo/samples.js";
import { onnxModel, type ModelDescription } from "../../scripts/lib/onnx-model.js";
import { sha256 } from "../../src/files/durable-files.js";
import type { ImageInput, Manifest, ModelInput } from "../../src/manifest/manifest.js";
import type { ModelOutput } from "../../src/manifest/outputs/outputs.js";
import type { ModelList } from "../../src/server/model-list.js";
import { writeSlice } from "../support/bulk.js";
import { copyModel } from "../support/manifests.js";
import { ADDON, needs } from "../support/needs.js";
import {
  makePlace,
  radserve,
  root,
  startServer,
  type Place,
  type TestServer,
} from "../support/server.js";
import { until } from "../support/until.js";

const built = join(root, "build-cuda-test");
const standIn = join(built, "stand-in");
const wanted =
  process.env["RADSERVE_TEST_CUDA"] !== undefined || existsSync(join(standIn, "libcudnn.so.9"));
const skip = needs(ADDON) || (wanted ? false : "npm run trial -- cuda builds what this needs");

/**
 * The addon beside the core and the provider for CUDA, in a copy of the project, so that the one
 * under test keeps its own.
 */
function copyOfProject(place: Place): string {
  const copy = join(place.directory, "project");
  mkdirSync(join(copy, "build/Release"), { recursive: true });
  for (const name of ["package.json", "dist/src", "dist/scripts", "models"])
    cpSync(join(root, name), join(copy, name), { recursive: true });
  for (const name of ["addon.node", "confine.node"])
    cpSync(join(root, "build/Release", name), join(copy, "build/Release", name));
  symlinkSync(join(root, "node_modules"), join(copy, "node_modules"));
  for (const name of readdirSync(built).filter((file) => file.startsWith("libonnxruntime")))
    symlinkSync(join(built, name), join(copy, "build/Release", name));
  return copy;
}

/** The folder of a draft that runs on CUDA alone. */
function writeDraft(
  models: string,
  graph: ModelDescription,
  parts: Pick<Manifest, "inputs" | "outputs" | "batching">,
): void {
  const folder = join(models, graph.name);
  mkdirSync(folder);
  const bytes = onnxModel(graph);
  writeFileSync(join(folder, "model.onnx"), bytes);
  const manifest: Manifest = {
    name: graph.name,
    version: "1.0.0",
    manufacturer: "Tests",
    description: "A model for tests.",
    intended_use: "None.",
    regulatory: "Not for diagnostic use.",
    stage: "draft",
    release: "active",
    required: false,
    files: [{ path: "model.onnx", sha256: sha256(bytes) }],
    accepts: { formats: ["dicom"], modality: ["CT"], dimensions: "2d" },
    ...parts,
    execution: { providers: ["cuda"], precision: "float32" },
    results: { outputs: ["json"] },
  };
  writeFileSync(join(folder, "model.json"), JSON.stringify(manifest));
}

const pixels = (size: ImageInput["size"]): ImageInput => ({
  tensor: "x",
  dtype: "float32",
  layout: "NCHW",
  size,
  fit: "stretch",
  interpolation: "linear",
  values: { kind: "modality" },
  monochrome1: "invert",
  channels: "grayscale",
  colour_source: "refuse",
  normalisation: { kind: "none" },
  background: 0,
});

const numbers = (tensor: string, names: readonly string[]): ModelOutput => ({
  kind: "regression",
  tensor,
  values: names.map((name) => ({
    name,
    multiply: 1,
    add: 0,
    unit: { value: "1", scheme: "UCUM", meaning: "no units" },
  })),
});

/** Answers of the server that are not images'. */
async function get(server: TestServer, page: string): Promise<string> {
  return (await fetch(`${server.url}${page}`, { headers: { Authorization: server.token } })).text();
}

const listed = async (server: TestServer) => JSON.parse(await get(server, "/models")) as ModelList;

/** One image through all models; the receipt. */
async function infer(server: TestServer, place: Place, image: string, name: string) {
  const output_folder_path = join(place.output, name);
  const answer = await server.post("/single_inference", {
    input_image_path: image,
    output_folder_path,
  });
  const body = (await answer.json()) as { receipt_path: string; message?: string };
  if (answer.status !== 200) throw new Error(`${answer.status} ${body.message}`);
  return JSON.parse(readFileSync(body.receipt_path, "utf8")) as {
    models: { name: string; status: string; measurements: { name: string; value: number }[] }[];
  };
}

const AGE: Extract<ModelInput, { kind: "attributes" }>["values"][number] = {
  tag: "PatientAge",
  encoding: "age",
  unit: "years",
  multiply: 1,
  add: 0,
  if_absent: { kind: "refuse" },
};

/**
 * A place whose models may run on CUDA alone, without canaries, and the libraries that are there.
 */
function placeWith(t: Test, libraries: string[]): Place {
  const place = makePlace({ RADSERVE_PROVIDERS: "cuda", RADSERVE_GPUS: "0,1" });
  t.teardown(() => place.remove());
  const folder = join(place.directory, "libraries");
  mkdirSync(folder);
  for (const name of libraries) symlinkSync(join(standIn, name), join(folder, name));
  place.environment["LD_LIBRARY_PATH"] = folder;
  for (const name of ["one", "two"])
    copyModel(place.environment["RADSERVE_MODELS_DIR"]!, "ct-tissue", name, (manifest) => {
      manifest.execution.providers = ["cuda"];
      manifest.stage = "draft";
      delete manifest.canary;
      manifest.results.outputs = ["json", "png"];
    });
  return { ...place, main: join(copyOfProject(place), "dist/src/main.js") };
}

t.test("a server answers from two GPUs, and says where its models are", { skip }, async (t) => {
  const place = placeWith(t, readdirSync(standIn));
  const server = await startServer(place);
  writeFileSync(join(place.input, "slice.dcm"), (await samples()).ct);
  const answer = await server.post("/single_inference", {
    input_image_path: join(place.input, "slice.dcm"),
    output_folder_path: place.output,
  });
  const text = await answer.text();
  t.equal(answer.status, 200, text);
  t.match(JSON.parse(text), { models: [{ provider: "cuda" }, { provider: "cuda" }] });
  const listed = (await (
    await fetch(`${server.url}/models`, { headers: { Authorization: server.token } })
  ).json()) as { models: { name: string; gpu: number }[]; gpus: object[] };
  t.strictSame(
    listed.models.map(({ gpu }) => gpu).sort(),
    [0, 1],
    "each GPU has one of two equal models",
  );
  t.match(listed.gpus, [
    { number: 0, lost: false, total_bytes: 8 * 2 ** 30 },
    { number: 1, lost: false },
  ]);
  const metrics = await (
    await fetch(`${server.url}/metrics`, { headers: { Authorization: server.token } })
  ).text();
  t.match(metrics, /radserve_gpu_taken_bytes\{gpu="1"\} [1-9]/);
  t.equal(await server.stop(), 0);
});

t.test(
  "a model that breaks the GPU while it is loaded is left out, and the server serves",
  { skip },
  async (t) => {
    const place = placeWith(t, readdirSync(standIn));
    place.environment["RADSERVE_GPUS"] = "0";
    // Every kernel breaks the context of the first GPU, in each process anew.
    place.environment["STAND_IN_BREAK"] = "0,1,700";
    const server = await startServer(place);
    await server.logged(({ msg }) => msg === "models loaded");
    const answer = await fetch(`${server.url}/models`, {
      headers: { Authorization: server.token },
    });
    const { models } = (await answer.json()) as {
      models: { health: string; error: { message: string } }[];
    };
    t.strictSame(
      models.map(({ health }) => health),
      ["failed", "failed"],
    );
    for (const { error } of models)
      t.match(error.message, /process ended while it loaded this model/);
    const told = await server.told(({ msg }) => /ended while it loaded this model/.test(msg), 2);
    t.equal(told.length, 2);
    t.equal(await server.stop(), 0);
  },
);

t.test("a model that does not fit is refused before it is loaded", { skip }, async (t) => {
  const place = placeWith(t, readdirSync(standIn));
  place.environment["RADSERVE_GPU_MEMORY"] = "1";
  const checked = await radserve(
    place,
    "models",
    "check",
    join(place.environment["RADSERVE_MODELS_DIR"]!, "one"),
  );
  t.not(checked.status, 0);
  t.match(
    checked.stdout + checked.stderr,
    /Expected room for \d+ bytes of weights on a GPU; GPU 0 has 1, GPU 1 has 1\./,
  );
});

t.test(
  "a server whose machine lacks cuDNN refuses by name, and doctor says so",
  { skip },
  async (t) => {
    const place = placeWith(
      t,
      readdirSync(standIn).filter((name) => name !== "libcudnn.so.9"),
    );
    const missing = /CUDA cannot be used: the library libcudnn\.so\.9 is missing/;
    const refused = await radserve(place, "serve");
    t.match(refused, { status: 1, stderr: missing }, "a driver may come up later");
    const doctor = await radserve(place, "doctor");
    t.match(
      doctor.stdout,
      /problem {2}GPU: CUDA cannot be used: the library libcudnn\.so\.9 is missing/,
    );
    rmSync(join(place.directory, "libraries"), { recursive: true });
    const none = await radserve(place, "doctor");
    t.match(
      none.stdout,
      /problem {2}GPU: CUDA cannot be used: the library libcublasLt\.so\.13 is missing/,
    );
  },
);

t.test(
  "a model of an image and a number runs in batches, and each image keeps its number",
  { skip },
  async (t) => {
    const place = placeWith(t, readdirSync(standIn));
    const models = place.environment["RADSERVE_MODELS_DIR"]!;
    for (const name of readdirSync(models)) rmSync(join(models, name), { recursive: true });
    // The provider copies for Flatten, so that the numbers are right with the stand-in too.
    writeDraft(
      models,
      {
        name: "both",
        // Not in the order of the manifest.
        inputs: [
          { name: "age", dtype: "float32", shape: ["n", 1] },
          { name: "x", dtype: "float32", shape: ["n", 1, 2, 2] },
        ],
        outputs: [
          { name: "years", dtype: "float32", shape: ["n", 1] },
          { name: "seen", dtype: "float32", shape: ["n", 4] },
        ],
        nodes: [
          { op: "Flatten", inputs: ["age"], outputs: ["years"] },
          { op: "Flatten", inputs: ["x"], outputs: ["seen"] },
        ],
      },
      {
        inputs: [
          pixels({ kind: "fixed", height: 2, width: 2 }),
          {
            kind: "attributes",
            tensor: "age",
            dtype: "float32",
            layout: "NC",
            values: [AGE],
          },
        ],
        outputs: [
          numbers("years", ["Years"]),
          numbers("seen", ["First", "Second", "Third", "Fourth"]),
        ],
        batching: { max: 8 },
      },
    );
    const hold = join(place.directory, "hold");
    Object.assign(place.environment, {
      STAND_IN_HOLD: hold,
      RADSERVE_GPUS: "0",
      RADSERVE_THREADS: "2",
    });
    const server = await startServer(place);
    t.teardown(() => server.stop());
    await server.logged(({ msg }) => msg === "models loaded");
    const ages = Array.from({ length: 8 }, (_, i) => 20 + i);
    const images = ages.map((age) => {
      const file = join(place.input, `${age}.dcm`);
      writeSlice(file, 1, { PatientAge: `0${age}Y` });
      return file;
    });
    const values = async (i: number, name: string) => {
      const { models } = await infer(server, place, images[i]!, name);
      return models[0]!.measurements.map(({ value }) => value);
    };
    const alone = await values(0, "alone");
    t.equal(alone[0], ages[0]);
    const batchesBefore = (await listed(server)).models[0]!.work!.batch_sizes;

    writeFileSync(hold, "");
    const answers = ages.map((_, i) => values(i, `together-${i}`));
    const waiting = async () => (await listed(server)).gpus[0]!.waiting;
    await until("all wait", async () => (await waiting()) >= ages.length);
    rmSync(hold);
    const found = await Promise.all(answers);
    t.strictSame(
      found,
      ages.map((age) => [age, ...alone.slice(1)]),
    );
    const { work } = (await listed(server)).models[0]!;
    t.equal(work!.batched, true);
    const larger = ({ ends, counts }: typeof batchesBefore) =>
      counts.reduce((sum, count, i) => ((ends[i] ?? Infinity) > 1 ? sum + count : sum), 0);
    t.ok(larger(work!.batch_sizes) > larger(batchesBefore), "some ran together");
    t.equal(await server.stop(), 0);
  },
);

t.test(
  "models that do not fit together take turns, and no request fails because one left",
  { skip },
  async (t) => {
    const place = placeWith(t, readdirSync(standIn));
    const models = place.environment["RADSERVE_MODELS_DIR"]!;
    for (const name of readdirSync(models)) rmSync(join(models, name), { recursive: true });
    const side = 1024;
    for (const name of ["first", "second"])
      writeDraft(
        models,
        {
          name,
          inputs: [{ name: "x", dtype: "float32", shape: ["n", 1, 1, side] }],
          outputs: [
            { name: "y", dtype: "float32", shape: ["n", 1, 1, side] },
            { name: "seen", dtype: "float32", shape: ["n", side] },
          ],
          initializers: [
            {
              name: "w",
              dtype: "float32",
              shape: [side, side],
              data: new Uint8Array(4 * side * side),
            },
          ],
          nodes: [
            { op: "MatMul", inputs: ["x", "w"], outputs: ["y"] },
            { op: "Flatten", inputs: ["x"], outputs: ["seen"] },
          ],
        },
        {
          inputs: [pixels({ kind: "fixed", height: 1, width: side })],
          outputs: [
            { kind: "heatmap", tensor: "y", activation: "none", label: { label: "Nothing" } },
            numbers(
              "seen",
              Array.from({ length: side }, (_, i) => `Number ${i}`),
            ),
          ],
          batching: { max: 2 },
        },
      );
    // The weights of one take 4 MiB.
    Object.assign(place.environment, {
      RADSERVE_GPUS: "0",
      RADSERVE_GPU_MEMORY: "6MiB",
      RADSERVE_MODEL_IDLE: "1h",
    });
    const server = await startServer(place);
    t.teardown(() => server.stop());
    await server.logged(({ msg }) => msg === "models loaded");
    t.match(
      (await listed(server)).models.map(({ name, health, residence }) => ({
        name,
        health,
        residence,
      })),
      [
        { name: "first", health: "ready", residence: { state: "idle", loads: 1 } },
        { name: "second", health: "ready", residence: { state: "loaded", loads: 1 } },
      ],
      "the first made room for the second",
    );
    const image = join(place.input, "slice.dcm");
    writeSlice(image);
    const alone = await infer(server, place, image, "alone");
    t.match(alone.models, [{ status: "succeeded" }, { status: "succeeded" }]);
    const answers = await Promise.all(
      Array.from({ length: 16 }, (_, i) => infer(server, place, image, `turn-${i}`)),
    );
    for (const { models } of answers)
      t.strictSame(
        models.map(({ status, measurements }) => ({ status, measurements })),
        alone.models.map(({ status, measurements }) => ({ status, measurements })),
      );
    const { models: after, gpus } = await listed(server);
    t.ok(
      after.every(({ residence, health }) => health === "ready" && residence!.loads > 1),
      JSON.stringify(after.map(({ residence }) => residence)),
    );
    t.ok(gpus[0]!.taken_bytes <= 6 * 2 ** 20);
    t.match(await get(server, "/metrics"), /radserve_model_load_seconds\{model="first"\} \d/);
    t.equal(await server.stop(), 0);
  },
);
