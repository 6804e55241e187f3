/** How long is waited between tries. */
import t from "tap";
import { backOff, spread } from "../../src/base/back-off.js";

t.test("each wait is twice the one before, up to the longest", (t) => {
  const waits = [1, 2, 3, 4, 5_000].map((failures) => backOff(failures, { first: 100, most: 500 }));
  t.same(waits, [100, 200, 400, 500, 500]);
  t.end();
});

t.test("waits that are spread lie between half and all", (t) => {
  const waits = Array.from({ length: 100 }, () => spread(80));
  t.ok(waits.every((wait) => wait >= 40 && wait <= 80));
  t.ok(new Set(waits).size > 1);
  t.end();
});
