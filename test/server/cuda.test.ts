/**
 * A server that was told to use the GPU, with the real provider and the stand-in for the CUDA libraries that
 * `npm run test:cuda` builds (native/test/cuda). Kernels do nothing there, so that no number is looked at.
 */
import { existsSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync, cpSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { samples } from "../../scripts/demo/samples.js";
import { copyModel } from "../support/manifests.js";
import { ADDON, needs } from "../support/needs.js";
import { makePlace, radserve, root, startServer, type Place } from "../support/server.js";

const built = join(root, "build-cuda-test");
const standIn = join(built, "stand-in");
const wanted = process.env["RADSERVE_TEST_CUDA"] !== undefined || existsSync(join(standIn, "libcudnn.so.9"));
const skip = needs(ADDON) || (wanted ? false : "npm run test:cuda builds what this needs");

/** The addon beside the core and the provider for CUDA, in a copy of the project, so that the one under test keeps its own. */
function copyOfProject(place: Place): string {
  const copy = join(place.directory, "project");
  mkdirSync(join(copy, "build/Release"), { recursive: true });
  for (const name of ["package.json", "dist/src", "dist/scripts", "models"])
    cpSync(join(root, name), join(copy, name), { recursive: true });
  cpSync(join(root, "build/Release/addon.node"), join(copy, "build/Release/addon.node"));
  symlinkSync(join(root, "node_modules"), join(copy, "node_modules"));
  for (const name of readdirSync(built).filter((file) => file.startsWith("libonnxruntime")))
    symlinkSync(join(built, name), join(copy, "build/Release", name));
  return copy;
}

/** A place whose models may run on CUDA alone, without canaries, and the libraries that are there. */
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
  t.strictSame(listed.models.map(({ gpu }) => gpu).sort(), [0, 1], "each GPU has one of two equal models");
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
    const answer = await fetch(`${server.url}/models`, { headers: { Authorization: server.token } });
    const { models } = (await answer.json()) as { models: { health: string; error: { message: string } }[] };
    t.strictSame(
      models.map(({ health }) => health),
      ["failed", "failed"],
    );
    for (const { error } of models) t.match(error.message, /process ended while it loaded this model/);
    t.equal(server.log.filter(({ msg }) => /ended while it loaded this model/.test(msg)).length, 2);
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

t.test("a server whose machine lacks cuDNN refuses by name, and doctor says so", { skip }, async (t) => {
  const place = placeWith(
    t,
    readdirSync(standIn).filter((name) => name !== "libcudnn.so.9"),
  );
  const missing = /CUDA cannot be used: the library libcudnn\.so\.9 is missing/;
  const refused = await radserve(place, "serve");
  t.match(refused, { status: 2, stderr: missing });
  const doctor = await radserve(place, "doctor");
  t.match(doctor.stdout, /problem {2}GPU: CUDA cannot be used: the library libcudnn\.so\.9 is missing/);
  rmSync(join(place.directory, "libraries"), { recursive: true });
  const none = await radserve(place, "doctor");
  t.match(none.stdout, /problem {2}GPU: CUDA cannot be used: the library libcublasLt\.so\.13 is missing/);
});
