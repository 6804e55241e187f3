import { existsSync } from "node:fs";
import os from "node:os";
import t from "tap";
import { loadConfig } from "../../src/config.js";
import { startEngine } from "../../src/server/start-engine.js";
import { OPENVINO } from "../support/needs.js";

const config = (environment: Record<string, string>) =>
  loadConfig({
    environment: { RADSERVE_STATE_DIR: t.testdir(), ...environment },
    directory: os.tmpdir(),
  });

t.test(
  "the CPU takes the place of a GPU that cannot be used only if the settings say so",
  async (t) => {
    const plain = startEngine(config({}));
    t.match(plain, { options: { provider: "cpu" }, providers: ["cpu"], fault: undefined });
    const hasCuda = plain.engine.info().providers.includes("CUDAExecutionProvider");
    await plain.engine.close();
    if (hasCuda) {
      t.comment("this runtime has CUDA");
      return;
    }
    const cuda = { RADSERVE_PROVIDERS: "cuda,cpu" };
    const missing = {
      code: "model_unavailable",
      message: /CUDA execution provider is not in this/,
    };
    t.throws(() => startEngine(config(cuda)), missing);
    const lenient = startEngine(config({ ...cuda, RADSERVE_GPU_FALLBACK: "cpu" }));
    t.match(lenient, { options: { provider: "cpu" }, providers: ["cpu"], fault: missing });
    await lenient.engine.close();
  },
);

t.test("OpenVINO has to be there where the settings name it", async (t) => {
  const settings = config({ RADSERVE_PROVIDERS: "openvino,cpu" });
  if (existsSync(OPENVINO)) {
    const { engine, providers } = startEngine(settings);
    t.strictSame(providers, ["openvino", "cpu"]);
    t.match(engine.openvinoVersion, /^2026\./);
    await engine.close();
    return;
  }
  t.throws(() => startEngine(settings), {
    code: "model_unavailable",
    message: /OpenVINO cannot be used: .*Run npm run setup:openvino/,
  });
});
