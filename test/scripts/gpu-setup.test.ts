/**
 * `npm run setup:gpu` and what the server makes of it on a machine without a GPU, in a copy of the
 * project, so that the one under test keeps its own core. `npm test -- --group gpu-setup` downloads
 * the packages (about 600 MB); without it, what lies in gpu/node_modules is taken, and nothing is
 * downloaded.
 */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import t, { type Test } from "tap";
import { samples } from "../../scripts/demo/samples.js";
import { ADDON, needs } from "../support/needs.js";
import { makePlace, root } from "../support/server.js";

const mayDownload = process.env["RADSERVE_TEST_GPU_SETUP"] !== undefined;
const installed = existsSync(join(root, "gpu/node_modules/onnxruntime-node"));
const MISSING = /libcublasLt\.so\.13/;

/** Everything that serving and setup:gpu need, apart from the packages, which are linked. */
function copyOfProject(t: Test): string {
  const copy = realpathSync(mkdtempSync(join(tmpdir(), "radserve-gpu-")));
  t.teardown(() => rmSync(copy, { recursive: true, force: true }));
  for (const name of [
    "package.json",
    "dist/src",
    "dist/scripts",
    "scripts",
    "models",
    "build/Release",
  ])
    cpSync(join(root, name), join(copy, name), { recursive: true });
  mkdirSync(join(copy, "gpu"));
  for (const name of ["package.json", "package-lock.json", ".npmrc"])
    cpSync(join(root, "gpu", name), join(copy, "gpu", name));
  symlinkSync(realpathSync(join(root, "node_modules")), join(copy, "node_modules"));
  return copy;
}

interface Ended {
  status: number;
  output: string;
}

async function run(
  program: string,
  parameters: string[],
  env: NodeJS.ProcessEnv,
  cwd = root,
): Promise<Ended> {
  try {
    const { stdout, stderr } = await promisify(execFile)(program, parameters, { cwd, env });
    return { status: 0, output: stdout + stderr };
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
    return { status: code, output: stdout + stderr };
  }
}

/**
 * A whole copy with the GPU's core in place, by the command or, without downloads, by its second
 * half.
 */
async function withGpuCore(t: Test): Promise<string> {
  const copy = copyOfProject(t);
  if (mayDownload) {
    const { status, output } = await run("npm", ["run", "setup:gpu"], process.env, copy);
    t.equal(status, 0, "setup:gpu succeeds");
    t.match(output, /ONNX Runtime 1\.29\.0 with the CUDA execution provider is in place\./);
    t.match(output, /CUDA does not work here yet: .*libcublasLt\.so\.13/);
    return copy;
  }
  symlinkSync(join(root, "gpu/node_modules"), join(copy, "gpu/node_modules"));
  const script = pathToFileURL(join(copy, "scripts/setup-gpu.mjs")).href;
  const { placeGpuLibraries } = (await import(script)) as { placeGpuLibraries: () => void };
  placeGpuLibraries();
  return copy;
}

/**
 * Starts the copy's server and stops it once its models are loaded; gives the line that it logs
 * then.
 */
async function untilLoaded(copy: string, env: NodeJS.ProcessEnv): Promise<unknown> {
  const server = spawn(process.execPath, [join(copy, "dist/src/main.js"), "serve"], {
    env,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(server, "exit");
  for await (const line of createInterface({ input: server.stdout })) {
    const { msg, ...fields } = JSON.parse(line) as { msg: string };
    if (msg !== "models loaded") continue;
    server.kill("SIGTERM");
    await ended;
    return fields;
  }
  return undefined;
}

t.test("a core with CUDA, and a machine without", { skip: needs(ADDON) }, async (t) => {
  if (!mayDownload && !installed) {
    t.comment("gpu/node_modules is not there; npm test -- --group gpu-setup downloads it");
    return;
  }
  const copy = await withGpuCore(t);
  const place = makePlace({
    RADSERVE_PROVIDERS: "cuda,cpu",
    RADSERVE_MODELS_DIR: join(copy, "models"),
  });
  t.teardown(() => place.remove());
  const radserve = (parameters: string[], extra: NodeJS.ProcessEnv = {}) =>
    run(process.execPath, [join(copy, "dist/src/main.js"), ...parameters], {
      ...place.environment,
      ...extra,
    });
  const cpu = { RADSERVE_GPU_FALLBACK: "cpu" };

  const doctor = await radserve(["doctor"]);
  if (!MISSING.test(doctor.output)) {
    t.comment("this machine has CUDA 13");
    return;
  }
  t.match(
    doctor.output,
    /problem {2}GPU: CUDA cannot be used: the library libcublasLt\.so\.13 is missing/,
  );

  const refused = await radserve(["serve"]);
  t.equal(refused.status, 1, "a server that was told to use the GPU does not start without");
  t.match(refused.output, MISSING);

  const input = join(place.input, "slice.dcm");
  writeFileSync(input, (await samples()).ct);
  const gpu = await radserve(["infer", input, place.output, "--json"]);
  t.not(gpu.status, 0);
  t.match(gpu.output, MISSING);

  const { status, output } = await radserve(
    ["models", "check", join(copy, "models/ct-tissue")],
    cpu,
  );
  t.equal(status, 0, "with the fallback, the canary passes on the CPU");
  t.notMatch(output, MISSING);
  const served = await radserve(["infer", input, place.output, "--json"], cpu);
  t.equal(served.status, 0);
  t.match(served.output, /"name": "ct-tissue",[^]*"provider": "cpu"/);
  t.match(await untilLoaded(copy, { ...place.environment, ...cpu }), { ready: true });
});

t.test("other libraries than the pinned ones are refused", { skip: needs(ADDON) }, async (t) => {
  const copy = copyOfProject(t);
  // In place of npm, which would fetch the right ones: the file is there already, and is another
  // one.
  const bin = join(copy, "bin");
  mkdirSync(bin);
  writeFileSync(join(bin, "npm"), "#!/bin/sh\nexit 0\n", { mode: 0o755 });
  const folder = join(copy, "gpu/node_modules/onnxruntime-node/bin/napi-v6/linux/x64");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "libonnxruntime.so.1"), "another library");
  const before = readdirSync(join(copy, "build/Release")).sort();
  const env = { ...process.env, PATH: `${bin}:${process.env["PATH"] ?? ""}` };
  const { status, output } = await run(
    process.execPath,
    [join(copy, "scripts/setup-gpu.mjs")],
    env,
    copy,
  );
  t.equal(status, 1);
  t.match(output, /libonnxruntime\.so\.1 has sha256 [0-9a-f]{64}, expected 89688f5c/);
  t.strictSame(
    readdirSync(join(copy, "build/Release")).sort(),
    before,
    "and nothing was put in place",
  );
});
