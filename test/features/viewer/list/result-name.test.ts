/** Opaque names of results: the same wherever a share is mounted, and nothing to read in them. */
import { cpSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import {
  ResultNames,
  sealed,
  sealingKeys,
  unsealed,
  type SealingKeys,
} from "../../../../src/features/viewer/list/result-name.js";

const root = t.testdir({ one: { patient: { "a.json": "{}" } }, empty: {} });
const [one, other, empty] = ["one", "other", "empty"].map((name) => path.join(root, name)) as [
  string,
  string,
  string,
];
const RECEIPT = "patient/a.json";

t.test("a result has one name on every node, which leads back to it", async (t) => {
  const names = new ResultNames([one]);
  const found = await names.of(path.join(one, RECEIPT), "/images/a.dcm");
  t.ok(found);
  const { id = "", input_id: input = "" } = found ?? {};
  t.notMatch(Buffer.from(id, "base64url").toString("latin1"), /patient/);
  cpSync(one, other, { recursive: true });
  const elsewhere = new ResultNames([empty, other]);
  t.same(
    await elsewhere.of(path.join(other, RECEIPT), "/images/a.dcm"),
    found,
    "mounted elsewhere",
  );
  t.equal(await elsewhere.find("receipt", id), path.join(other, RECEIPT));
  t.equal(await elsewhere.find("input", input), "/images/a.dcm");
  t.equal(await elsewhere.find("input", id), undefined, "a name of one is none of the other");
  t.equal(
    (await Promise.all([1, 2, 3].map(() => names.of(path.join(one, RECEIPT), undefined))))[2]?.id,
    id,
  );
});

t.test("a name that nobody gave fits no key", (t) => {
  const [keys, others] = ["ab", "cd"].map((byte) =>
    sealingKeys(Buffer.from(byte.repeat(32), "hex"), "receipt"),
  ) as [SealingKeys, SealingKeys];
  const name = sealed(keys, RECEIPT);
  t.equal(unsealed(keys, name), RECEIPT);
  t.equal(unsealed(others, name), undefined);
  const bytes = Buffer.from(name, "base64url");
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const changed = Buffer.from(bytes);
    changed[bit >> 3]! ^= 1 << (bit & 7);
    t.equal(unsealed(keys, changed.toString("base64url")), undefined, `bit ${bit}`);
  }
  for (const made of ["", "a", "aaaaaaaaaaaaaaaaaaaaaaaa", `${name}=`, `${name}A`])
    t.equal(unsealed(keys, made), undefined, made);
  t.end();
});

t.test(
  "an empty root, which may be a mount point, gets no key; nor is a strange one used",
  async (t) => {
    const names = new ResultNames([empty]);
    t.equal(await names.of(path.join(empty, RECEIPT), undefined), undefined);
    t.notOk(existsSync(path.join(empty, ".radserve-results")));
    const strange = t.testdir({ ".radserve-results": {} });
    mkdirSync(path.join(strange, "x"));
    for (const text of ["", "zz", "a".repeat(1_000_000)]) {
      writeFileSync(path.join(strange, ".radserve-results/names.key"), text);
      t.equal(
        await new ResultNames([strange]).of(path.join(strange, "x/a.json"), undefined),
        undefined,
      );
    }
  },
);
