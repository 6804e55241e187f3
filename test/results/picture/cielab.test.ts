/** The colours of segments: what is written is what is read back. */
import t from "tap";
import { cieLab, fromCieLab } from "../../../src/results/colour.js";

t.test("a colour comes back as it was", (t) => {
  const steps = [0, 1, 17, 86, 128, 200, 254, 255];
  for (const r of steps)
    for (const g of steps) for (const b of steps) t.same(fromCieLab(cieLab([r, g, b])), [r, g, b]);
  t.end();
});
