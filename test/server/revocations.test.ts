/**
 * The copies of the revocations that a node keeps, damaged in every byte, with and without the
 * marks of the keys folder.
 */
import { execFileSync } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import t from "tap";
import { ConfigError } from "../../src/base/errors.js";
import { Revocations } from "../../src/server/revocations.js";
import { nameOf } from "../../src/server/token-records.js";

const JTIS = ["one", "two", "three"];

/** A folder of marks and its two copies, as a server leaves them. */
async function kept(t: { teardown(done: () => void): void }) {
  const folder = mkdtempSync(path.join(os.tmpdir(), "radserve-revocations-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const marks = path.join(folder, "revoked");
  mkdirSync(marks);
  for (const jti of JTIS) writeFileSync(path.join(marks, nameOf(jti)), "");
  const copies = [path.join(folder, "revoked-tokens"), path.join(folder, "revoked-tokens.2")];
  const told: string[] = [];
  const begin = () => new Revocations(marks, copies[0], (message) => told.push(message));
  await begin().look();
  return { marks, copies: copies as [string, string], told, begin };
}

/** Every revoked token is refused: by its name, or because none is trusted. */
const refusesAll = (revocations: Revocations) =>
  !revocations.listed || JTIS.every((jti) => revocations.has(jti));

t.test("one damaged copy, without the marks", async (t) => {
  const { marks, copies, told, begin } = await kept(t);
  rmSync(marks, { recursive: true });
  mkdirSync(marks);
  for (const copy of copies) {
    const whole = readFileSync(copy);
    for (const damage of [
      Buffer.alloc(0),
      whole.subarray(0, whole.length / 2),
      Buffer.from(whole.map((byte, i) => (i === 70 ? byte ^ 1 : byte))),
    ]) {
      writeFileSync(copy, damage);
      const again = begin();
      t.ok(again.listed && refusesAll(again), "the other copy counts");
      await again.look();
      t.strictSame(readFileSync(copy), whole, "and the damaged one is made again");
    }
  }
  t.notOk(told.some((message) => /other bytes/.test(message)));
});

t.test("both damaged: one flipped bit, anywhere", async (t) => {
  const { marks, copies, told, begin } = await kept(t);
  rmSync(marks, { recursive: true });
  mkdirSync(marks);
  const whole = readFileSync(copies[0]);
  let refused = 0;
  for (let bit = 0; bit < whole.length * 8; bit++) {
    const damaged = Buffer.from(whole);
    damaged[bit >> 3]! ^= 1 << (bit & 7);
    for (const copy of copies) writeFileSync(copy, damaged);
    if (refusesAll(begin())) refused++;
  }
  t.equal(refused, whole.length * 8);
  t.match(told.at(-1), /revoked-tokens: expected the revocations.*found other bytes.*remove /s);
  const again = begin();
  await again.look();
  t.notOk(again.listed);
  t.notSame(readFileSync(copies[0]), whole, "what is damaged stays for whoever looks");
});

t.test("a copy of version 0.5 has no checksum, and 0.5 reads ours", async (t) => {
  const { marks, copies, begin } = await kept(t);
  const names = JTIS.map(nameOf).sort();
  t.strictSame(
    readFileSync(copies[0], "utf8")
      .split("\n")
      .filter((line) => /^[0-9a-f]{64}$/.test(line)),
    names,
  );
  rmSync(marks, { recursive: true });
  mkdirSync(marks);
  rmSync(copies[1]);
  writeFileSync(copies[0], names.join("\n"));
  const again = begin();
  t.ok(again.listed && refusesAll(again));
});

t.test("what lies there is no copy, and no folder of marks", async (t) => {
  const { marks, copies, begin } = await kept(t);
  const whole = readFileSync(copies[0]);
  const put: Record<string, (file: string) => void> = {
    folder: (file) => mkdirSync(file),
    binary: (file) => writeFileSync(file, Buffer.from(Array.from({ length: 4096 }, (_, i) => i))),
    "longer than any text": (file) => {
      writeFileSync(file, "");
      truncateSync(file, 2 ** 30);
    },
    pipe: (file) => execFileSync("mkfifo", [file]),
    device: (file) => symlinkSync("/dev/zero", file),
    "link to itself": (file) => symlinkSync(file, file),
  };
  const isRefused = () => {
    try {
      return refusesAll(begin());
    } catch (error) {
      return error instanceof ConfigError;
    }
  };
  for (const [what, make] of Object.entries(put)) {
    for (const which of [copies, copies.slice(0, 1), copies.slice(1)]) {
      for (const copy of copies) writeFileSync(copy, whole);
      for (const copy of which) {
        rmSync(copy);
        make(copy);
      }
      t.ok(isRefused(), `${which.length} copies: ${what}`);
      for (const copy of which) rmSync(copy, { recursive: true });
    }
    for (const copy of copies) writeFileSync(copy, whole);
    const running = begin();
    rmSync(marks, { recursive: true });
    make(marks);
    await running.look();
    t.ok(refusesAll(running), `in place of the marks: ${what}`);
    t.ok(isRefused(), `at a start: ${what}`);
    rmSync(marks, { recursive: true });
    mkdirSync(marks);
    for (const jti of JTIS) writeFileSync(path.join(marks, nameOf(jti)), "");
    await running.look();
    t.ok(running.listed && refusesAll(running), "whole again");
  }
});
