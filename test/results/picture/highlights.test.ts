import t from "tap";
import { Highlights } from "../../../src/results/picture/highlights.js";

/** The frames that are chosen out of frames of these weights. */
function chosen(weights: readonly number[]): number[] {
  const highlights = new Highlights<number>();
  for (const [frame, weight] of weights.entries())
    highlights.offer({ frame, weight, value: frame });
  const all = highlights.chosen();
  t.ok(all.every(({ frame, value, weight }) => frame === value && weight === weights[frame]));
  return all.map(({ frame }) => frame);
}

t.test("all that have something marked, where twelve or fewer have", (t) => {
  t.same(chosen([0, 0, 3, 0, 1, 0]), [2, 4]);
  t.same(chosen([5]), [0]);
  t.same(
    chosen(Array.from({ length: 300 }, (_, i) => (i % 25 === 7 ? 1 : 0))),
    [7, 32, 57, 82, 107, 132, 157, 182, 207, 232, 257, 282],
  );
  t.same(chosen([]), []);
  t.end();
});

t.test("of more, the heaviest of each twelfth", (t) => {
  for (const count of [13, 24, 25, 37, 100, 1000, 4097]) {
    const weights = Array.from({ length: count }, (_, i) => 1 + ((i * 7919) % 101));
    weights[Math.floor(count / 3)] = 500;
    const frames = chosen(weights);
    t.equal(frames.length, 12, `${count} frames`);
    t.ok(frames.includes(Math.floor(count / 3)), "the heaviest of all is there");
    t.same(
      frames,
      [...frames].sort((a, b) => a - b),
    );
    const steps = frames.slice(1).map((frame, i) => frame - frames[i]!);
    t.ok(
      Math.max(frames[0]!, ...steps, count - frames[11]!) <= Math.ceil((4 * count) / 12),
      "no large gap",
    );
    const known = weights.reduce((sum, weight) => sum + weight, 0) / count;
    const shown = frames.reduce((sum, frame) => sum + weights[frame]!, 0) / 12;
    if (count > 24) t.ok(shown > 1.3 * known, "heavier than most");
  }
  t.end();
});

t.test("only those that have something, however many have nothing", (t) => {
  const weights = Array.from({ length: 500 }, (_, i) => (i >= 300 && i < 350 ? 10 : 0));
  const frames = chosen(weights);
  t.equal(frames.length, 12);
  t.ok(frames.every((frame) => frame >= 300 && frame < 350));
  t.end();
});

t.test("where nothing is marked, frames spread over all", (t) => {
  t.same(chosen(Array<number>(24).fill(0)), [0, 2, 4, 6, 8, 10, 13, 15, 17, 19, 21, 23]);
  for (const count of [13, 25, 30, 47, 1000]) {
    const frames = chosen(Array<number>(count).fill(0));
    t.equal(frames.length, 12);
    const ends = Math.ceil(count / 12);
    t.ok(
      frames[0] === 0 && count - frames[11]! <= ends,
      `the first and the last of ${count}: ${frames.join()}`,
    );
    const steps = frames.slice(1).map((frame, i) => frame - frames[i]!);
    t.ok(Math.max(...steps) <= 2 * ends, `no large gap among ${count}: ${frames.join()}`);
  }
  t.same(chosen([0, 0, 0]), [0, 1, 2]);
  t.end();
});
