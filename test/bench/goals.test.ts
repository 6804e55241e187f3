/**
 * What a bench says of its goals: the ratio within each round, and which side of it is the good
 * one.
 */
import t from "tap";
import { engineGoals } from "../../bench/lib/engine-goals.js";
import { goalsOf, goalTable, ratio } from "../../bench/peers/goals.js";
import type { Turn } from "../../bench/peers/turns.js";

const turn = (peer: string, round: number, rate: number, more: Partial<Turn> = {}): Turn => ({
  work: "ct",
  outputs: "json",
  peer,
  concurrency: 4,
  round,
  images_per_second: rate,
  cpu_ms: 2,
  peak_mib: 100,
  p50_ms: 1,
  p99_ms: 1,
  ...more,
});

const turns = [
  turn("radserve", 0, 30),
  turn("script", 0, 20),
  turn("same", 0, 20),
  // A round in which the machine was slow for all
  turn("radserve", 1, 3),
  turn("script", 1, 2),
  turn("same", 1, 3),
  turn("radserve", 2, 10),
  turn("script", 2, 10),
  turn("same", 2, 10),
];

t.test("a ratio is one of turns of the same round", (t) => {
  t.equal(ratio(turns, "script", 4, "images_per_second"), 1.5);
  t.equal(ratio(turns, "same", 4, "images_per_second"), 1);
  t.ok(Number.isNaN(ratio(turns, "koa", 4, "images_per_second")));
  t.end();
});

t.test("rates have to be at least, costs at most", (t) => {
  const found = goalsOf([...turns, turn("radserve", 0, 9, { work: "dx" })]);
  t.match(found, [
    {
      goal: "json: images/s, of those of the script",
      at: 4,
      wanted: "at least 1",
      found: 1.5,
      met: true,
    },
    { goal: /same promises/, wanted: "at least 1.25", found: 1, met: false },
    { goal: "json: CPU ms an image", wanted: "at most 4", found: 2, met: true },
    { goal: /peak memory/, wanted: "at most 1", found: 1, met: true },
  ]);
  t.equal(found.length, 4);
  t.same(goalTable(found).rows[1]?.at(-1), "**1.00**");
  t.end();
});

t.test("all objects have goals of their own, one at once another than four", (t) => {
  const of = (concurrency: number) => [
    turn("radserve", 0, 27, { outputs: "all", concurrency, cpu_ms: 26, peak_mib: 60 }),
    turn("script", 0, 10, { outputs: "all", concurrency }),
  ];
  t.same(
    goalsOf([...of(1), ...of(4)]).map(({ at, wanted, met }) => [at, wanted, met]),
    [
      [1, "at least 2.5", true],
      [1, "at most 25", false],
      [1, "at most 0.5", false],
      [4, "at least 3", false],
      [4, "at most 25", false],
      [4, "at most 0.5", false],
    ],
  );
  t.end();
});

t.test("the engine against the plain loop and onnxruntime-node", (t) => {
  const raw = {
    tensors: { throughput: 0.98, lone_call_more_ms: 0.2 },
    images: { throughput: 0.9 },
  };
  t.same(
    engineGoals({ densenet121: raw }, { densenet121: 0.97 }).map(({ wanted, met }) => [
      wanted,
      met,
    ]),
    [
      ["at least 0.97", true],
      ["at least 0.93", false],
      ["at most 0.15", false],
      ["at least 0.97", true],
    ],
  );
  t.end();
});
