/**
 * Work that waits for room, each step by step: what has begun is asked for after every promise has
 * had its turn.
 */
import { setImmediate as turn } from "node:timers/promises";
import t from "tap";
import { MemoryBudget } from "../../src/base/memory-budget.js";

interface Work {
  end: () => void;
  fail: (error: Error) => void;
  ended: Promise<unknown>;
}

function bench(most: number) {
  const budget = new MemoryBudget(most);
  const begun: string[] = [];
  const hold = (name: string, bytes: number): Work => {
    let end: () => void = () => undefined;
    let fail: (error: Error) => void = () => undefined;
    const work = new Promise<void>((resolve, reject) => ([end, fail] = [resolve, reject]));
    const ended = budget.within(bytes, () => {
      begun.push(name);
      return work;
    });
    return { end: () => end(), fail: (error) => fail(error), ended };
  };
  return { begun, hold };
}

t.test("what has room begins at once, the rest in its order", async (t) => {
  const { begun, hold } = bench(10);
  const a = hold("a", 4);
  const b = hold("b", 6);
  const c = hold("c", 5);
  hold("d", 1);
  await turn();
  t.same(begun, ["a", "b"]);
  a.end();
  await a.ended;
  await turn();
  t.same(begun, ["a", "b"], "nobody overtakes who needs more");
  b.end();
  await b.ended;
  await turn();
  t.same(begun, ["a", "b", "c", "d"]);
  c.end();
  await c.ended;
});

t.test("alone even the largest begins, and everybody after it", async (t) => {
  const { begun, hold } = bench(10);
  const large = hold("large", 99);
  hold("small", 1);
  await turn();
  t.same(begun, ["large"]);
  large.fail(new Error("broken"));
  await t.rejects(large.ended, { message: "broken" });
  await turn();
  t.same(begun, ["large", "small"], "also after a failure");
});
