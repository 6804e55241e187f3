/**
 * However a process or a thread ends while the engine works: the right exit code, no signal, no
 * abort.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import t from "tap";
import { identity, neverEnds, writeModel } from "../support/tiny-models.js";

const child = fileURLToPath(new URL("child.js", import.meta.url));
const folder = t.testdir();
const models = [writeModel(folder, identity), writeModel(folder, neverEnds)];

async function run(mode: string) {
  const process_ = spawn(process.execPath, [child, mode, ...models], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const text = { stdout: "", stderr: "" };
  process_.stdout.on("data", (chunk: Buffer) => (text.stdout += chunk.toString()));
  process_.stderr.on("data", (chunk: Buffer) => (text.stderr += chunk.toString()));
  const [code, signal] = (await once(process_, "close")) as [number | null, string | null];
  return { code, signal, ...text };
}

const answered = { code: 0, signal: null, stdout: "answered\n", stderr: "" };
const endings: Record<string, object> = {
  natural: answered,
  closed: answered,
  exit: { code: 7, signal: null, stdout: "", stderr: "" },
  throw: { code: 1, signal: null, stdout: "", stderr: /on purpose/ },
  "worker-terminate": answered,
  "worker-short": answered,
  "worker-exit": answered,
  "worker-throw": { ...answered, stderr: "" },
  workers: answered,
  "workers-exit": { code: 7, signal: null, stdout: "", stderr: "" },
};

for (const [mode, ending] of Object.entries(endings))
  t.test(mode, async (t) => {
    t.match(await run(mode), ending);
  });
