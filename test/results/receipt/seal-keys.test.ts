/** The keys of results: they rotate, and boxes with one folder trust each other. */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { setDurations } from "../../../src/base/durations.js";
import { createKey } from "../../../src/files/key-file.js";
import {
  checkSeal,
  resultKeysIn,
  resultKeysTrouble,
  seal,
  signingKeyId,
  useResultKeys,
} from "../../../src/results/receipt/seal.js";

setDurations({ keysFresh: 0, keysUnknown: 0 });

const TEXT = '{\n  "a": 1\n}\n';
const check = (text: string) => checkSeal("receipt", "n", Buffer.from(text));

t.test("without keys nothing is signed, and nothing is trusted", async (t) => {
  useResultKeys(t.testdir());
  t.equal(await seal("receipt", "n", TEXT), TEXT);
  t.same(await check(TEXT), { trusted: false, why: "no_mac" });
  t.match(await resultKeysTrouble(), /no key of results/);
});

t.test("the newest key signs, all of them check, and one that is gone is unknown", async (t) => {
  const dir = t.testdir();
  const folder = resultKeysIn(dir);
  const first = await createKey(folder);
  useResultKeys(dir);
  const old = await seal("receipt", "n", TEXT);
  t.same(JSON.parse(old), { a: 1, mac: (JSON.parse(old) as { mac: unknown }).mac });
  t.same(await check(old), { trusted: true, key_id: first.kid });
  const second = await createKey(folder, first.created);
  t.equal(await signingKeyId(), second.kid);
  t.same(await check(await seal("receipt", "n", TEXT)), { trusted: true, key_id: second.kid });
  t.same(await check(old), { trusted: true, key_id: first.kid });
  rmSync(path.join(folder, `${first.kid}.json`));
  t.same(await check(old), { trusted: false, why: "unknown_key" });
  t.equal(await resultKeysTrouble(), undefined);
});

t.test("a MAC is for one purpose and one NAME", async (t) => {
  const dir = t.testdir();
  await createKey(resultKeysIn(dir));
  useResultKeys(dir);
  const text = Buffer.from(await seal("receipt", "n", TEXT));
  t.match(await checkSeal("receipt", "n", text), { trusted: true });
  t.match(await checkSeal("delivery", "n", text), { trusted: false, why: "wrong_mac" });
  t.match(await checkSeal("receipt", "m", text), { trusted: false, why: "wrong_mac" });
});

t.test("keys of tokens sign no results, and other files are told", async (t) => {
  const dir = t.testdir();
  const ofTokens = await createKey(dir);
  const ours = await createKey(resultKeysIn(dir));
  useResultKeys(dir);
  t.not(await signingKeyId(), ofTokens.kid);
  writeFileSync(path.join(resultKeysIn(dir), "bad.json"), "{}", { mode: 0o600 });
  t.match(await resultKeysTrouble(), /cannot be used as a key/);
  t.equal(await signingKeyId(), ours.kid);
});

t.test("while the folder cannot be read, the keys known before stay in force", async (t) => {
  const dir = t.testdir();
  const folder = resultKeysIn(dir);
  const { kid } = await createKey(folder);
  useResultKeys(dir);
  const text = await seal("receipt", "n", TEXT);
  rmSync(folder, { recursive: true });
  writeFileSync(folder, "not a folder");
  t.match(await check(text), { trusted: true, key_id: kid });
  t.match(await resultKeysTrouble(), /cannot be read/);
  rmSync(folder);
  mkdirSync(folder);
  t.same(await check(text), { trusted: false, why: "unknown_key" });
});
