/** A model that looks in windows is warmed with a batch of them, not with a volume of many. */
import { join } from "node:path";
import t from "tap";
import { createEngine } from "../../src/engine/engine.js";
import { modelsImport } from "../../src/features/import/import.js";
import { loadSession } from "../../src/models/load.js";
import { readModelFolder } from "../../src/models/read.js";
import { ADDON, needs } from "../support/needs.js";
import { VOLUMES } from "../support/reference-volumes.js";

t.test("windows that warm a model", { skip: needs(ADDON) }, async (t) => {
  const engine = createEngine({ provider: "cpu" });
  t.teardown(() => engine.close());
  const folder = t.testdir();
  const run = engine.runTensors.bind(engine);
  const shapes: (readonly number[])[] = [];
  engine.runTensors = (id, tensors, options) => {
    shapes.push(...tensors.map(({ shape }) => shape));
    return run(id, tensors, options);
  };
  for (const [network, choices, expected] of [
    // Two windows of 8 voxels, of which the second begins in the middle of the first
    ["nnunet-3d", { mirror: "0,2", modality: "CT" }, [1, 1, 12, 12, 12]],
    // Two slices
    ["nnunet-2d", { mirror: "none", modality: "MR" }, [1, 1, 2, 12, 12]],
  ] as const) {
    const to = join(folder, network);
    await modelsImport(join(VOLUMES, network), engine, { orientation: "SPL", ...choices, to });
    const { model, problems } = await readModelFolder(to);
    t.strictSame(problems, []);
    shapes.length = 0;
    await engine.unload((await loadSession(to, model!, engine, ["cpu"])).id);
    t.strictSame(shapes, [expected, expected, expected], network);
  }
});
