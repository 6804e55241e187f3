/**
 * Drift: the tests against known values, a planted shift that is found, and how often chance alone
 * is marked.
 */
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import t from "tap";
import { driftOf } from "../../../src/features/drift/compare.js";
import {
  benjaminiHochberg,
  fisher,
  mannWhitney,
  mcNemar,
} from "../../../src/features/drift/statistics.js";
import { mondayOf, Weeks } from "../../../src/features/drift/weeks.js";
import { receiptSchema } from "../../../src/results/receipt/receipt.js";
import { receiptOf, writeReceipt } from "../../support/receipts.js";
import { keysFolder } from "../../support/result-keys.js";
import { root } from "../../support/server.js";

const near = (found: number, expected: number, within = 1e-4) =>
  Math.abs(found - expected) <= within;

/** Numbers from 0 to 1 that look like chance and are the same in each run (mulberry32). */
function chance(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), 1 | state);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Eight weeks of two scanners; in the last one scores of the second are shifted. */
function weeksOf(seed: number, shift: number): Weeks {
  const weeks = new Weeks();
  const next = chance(seed);
  for (let week = 0; week < 8; week++)
    for (let study = 0; study < 50; study++)
      for (const scanner of ["One", "Two"]) {
        const moved = week === 7 && scanner === "Two" ? shift : 0;
        const score = Math.min(1, next() ** 2 + moved);
        weeks.add(receiptOf({ week, study, scanner, score, refused: next() < 0.05 }), "", {
          trusted: true,
        });
      }
  return weeks;
}

t.setTimeout(600_000);

t.test("the tests give the values of the literature", (t) => {
  // R: wilcox.test(c(1.1,2.2,3.3,4.4,5.5), c(3.1,4.2,5.3,6.4,7.5,8.6), exact = FALSE)
  const { p, above } = mannWhitney([1.1, 2.2, 3.3, 4.4, 5.5], [3.1, 4.2, 5.3, 6.4, 7.5, 8.6]);
  t.equal(above, 24 / 30);
  // z = (24 - 15 - 0.5) / sqrt(30 * 12 / 12)
  t.ok(near(p, 0.12069), String(p));
  t.same(mannWhitney([1, 1], [1, 1]), { p: 1, above: 0.5 }, "nothing but ties");
  // Fisher's tea: 3 of 4 against 1 of 4
  t.ok(near(fisher(3, 4, 1, 4), 0.485714));
  // Agresti: 10 discordant pairs, 1 against 9
  t.ok(near(mcNemar(1, 9), 0.021484));
  t.same(
    benjaminiHochberg([0.01, 0.04, 0.03, 0.5]).map((q) => Number(q.toFixed(4))),
    [0.04, 0.0533, 0.0533, 0.5],
  );
  t.equal(mondayOf("2026-11-22T23:59:59.000Z"), "2026-11-16");
  t.equal(mondayOf("2026-11-23T00:00:00.000Z"), "2026-11-23");
  t.end();
});

t.test("a planted shift is marked, on its scanner alone", (t) => {
  const { changes, receipts } = driftOf(weeksOf(1, 0.25));
  t.equal(receipts, 800);
  const marked = changes.filter((one) => one.marked);
  t.match(marked[0], {
    model: "cxr",
    scanner: "Two",
    measure: "score",
    label: "mass",
    test: "Mann-Whitney",
  });
  t.ok((marked[0]?.above ?? 0) > 0.6);
  t.same(
    marked.filter(({ scanner }) => scanner !== "Two"),
    [],
  );
  t.equal(
    driftOf(weeksOf(1, 0.25), "2026-10-19").changes.filter((one) => one.marked).length,
    0,
    "before it",
  );
  t.end();
});

t.test("without a shift, one run in twenty at most has a mark", (t) => {
  const runs = 400;
  let marked = 0;
  for (let seed = 0; seed < runs; seed++)
    if (driftOf(weeksOf(1000 + seed, 0)).changes.some((one) => one.marked)) marked += 1;
  t.comment(`${marked} of ${runs} runs have a mark`);
  // The seeds are fixed, so that the number is always the same
  t.ok(marked <= runs * 0.05, `${marked} of ${runs}`);
  t.end();
});

t.test("images of one study count once", (t) => {
  const weeks = new Weeks();
  for (let image = 0; image < 300; image++)
    weeks.add(receiptOf({ week: image % 2, study: 1, score: image % 2 }), "", { trusted: true });
  const { tested, lines } = driftOf(weeks);
  t.equal(tested, 0);
  t.match(lines, [{ weeks: [{ studies: 1 }, { studies: 1 }] }]);
  t.end();
});

t.test("shadow against active", (t) => {
  const weeks = new Weeks();
  for (let study = 0; study < 40; study++)
    weeks.add(receiptOf({ week: 0, study, score: study / 40, shadow: true }), "", {
      trusted: true,
    });
  t.match(driftOf(weeks).shadow, [
    {
      shadow: "cxr-next 1.0.0",
      active: "cxr 1.0.0",
      both: 20,
      neither: 12,
      onlyShadow: 8,
      onlyActive: 0,
      marked: true,
    },
  ]);
  t.end();
});

t.test("the command reads receipts and nothing else", async (t) => {
  const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-drift-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const next = chance(3);
  for (let week = 0; week < 3; week++)
    for (let study = 0; study < 30; study++) {
      const weekly = path.join(folder, String(week));
      mkdirSync(weekly, { recursive: true });
      const score = Math.min(1, next() / 2 + (week === 2 ? 0.5 : 0));
      const receipt = receiptSchema.parse(receiptOf({ week, study, score }));
      await writeReceipt(weekly, String(study), receipt);
    }
  writeFileSync(path.join(folder, "notes.json"), "{}");
  const run = async (...args: string[]) =>
    promisify(execFile)(process.execPath, [path.join(root, "dist/src/main.js"), "drift", ...args], {
      env: { ...process.env, RADSERVE_KEYS_DIR: keysFolder },
    }).then(
      ({ stdout }) => ({ code: 0, stdout }),
      (error: unknown) => error as { code: number; stdout: string },
    );
  const found = await run(folder);
  t.equal(found.code, 1, "something changed");
  t.match(found.stdout, /^90 receipts; \d+ comparisons/);
  t.match(found.stdout, /\* score of mass\s+cxr 1\.0\.0\s+One/);
  t.match(found.stdout, /2026-09-21\s+30/);
  const link = path.join(folder, "2-linked");
  symlinkSync(path.join(folder, "2"), link);
  const nested = await run(path.join(folder, "1"), folder, `${folder}/`, link);
  t.match(nested.stdout, /^90 receipts/, "a folder within another one counts once");
  const before = await run(folder, "--week", "2026-09-15", "--json");
  t.equal(before.code, 0);
  t.match(JSON.parse(before.stdout), { receipts: 90, changes: [{ marked: false }] });
  t.equal((await run(folder, "--week", "Tuesday")).code, 2);
});
