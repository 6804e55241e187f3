/** Resampling with ends aligned, held against the scipy of this machine over random volumes. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import t from "tap";
import { comparedWithScipy } from "../support/ends.js";
import { ADDON, needs, PYTHON, pythonHas } from "../support/needs.js";
import { reference } from "../support/reach-models.js";
import { engineWithFolder } from "../support/real-engine.js";

const skip = needs(ADDON) || pythonHas("scipy");

t.test("forty random volumes are scipy's to the bit", { skip }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "ends");
  const { status, stderr } = spawnSync(
    PYTHON,
    [join(reference("ends"), "reference.py"), folder, "17"],
    { encoding: "utf8" },
  );
  t.equal(status, 0, stderr);
  let cases = 0;
  for await (const { name, tensor, labels } of comparedWithScipy(engine, folder, folder)) {
    cases++;
    t.strictSame(tensor.found.shape, tensor.expected.shape, name);
    t.ok(Buffer.from(tensor.found.data).equals(tensor.expected.data), `values: ${name}`);
    t.ok(Buffer.from(labels.found).equals(labels.expected), `labels: ${name}`);
  }
  t.equal(cases, 40);
});
