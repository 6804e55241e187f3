import { readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { canaryValues, ctTissueFiles, tissueOf } from "../../scripts/build-ct-tissue.js";
import { shippedModels } from "../support/manifests.js";

t.test("building ct-tissue again gives the same bytes", (t) => {
  for (const [path, bytes] of Object.entries(ctTissueFiles()))
    t.ok(readFileSync(join(shippedModels, "ct-tissue", path)).equals(bytes), path);
  t.end();
});

t.test("labels by the published ranges, half-open", (t) => {
  const cases: [number, number][] = [
    [-1024, 1],
    [-190.01, 1],
    [-190, 2],
    [-30.01, 2],
    [-30, 3],
    [149.99, 3],
    [150, 4],
    [3071, 4],
    [-32768, 0],
    [NaN, 0],
  ];
  for (const [hu, label] of cases) t.equal(tissueOf(hu), label, `${hu} HU`);
  t.strictSame(
    new Set(canaryValues().map(tissueOf)),
    new Set([0, 1, 2, 3, 4]),
    "the canary shows every label",
  );
  t.end();
});
