import { generateKeyPairSync, randomBytes } from "node:crypto";
import { chmodSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import t from "tap";
import { durations, setDurations } from "../../src/base/durations.js";
import { ConfigError } from "../../src/base/errors.js";
import { createKey, readKeyFile, readKeys } from "../../src/files/key-file.js";
import { WatchedKeys } from "../../src/server/keys.js";
import { listTokens, recordToken, revokeToken } from "../../src/server/token-records.js";
import { LONGEST_WAIT_MS, until } from "../support/until.js";

function folder(t: { teardown(done: () => void): void }): string {
  const made = mkdtempSync(path.join(os.tmpdir(), "radserve-keys-"));
  t.teardown(() => rmSync(made, { recursive: true }));
  return made;
}

function write(directory: string, name: string, value: object, mode = 0o600): string {
  const file = path.join(directory, `${name}.json`);
  writeFileSync(file, JSON.stringify(value), { mode });
  return file;
}

const created = "2026-01-01T00:00:00.000Z";
const secret = (bytes: number) => randomBytes(bytes).toString("base64url");
const pem = (bits: number) => {
  const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: bits });
  return {
    public_key: publicKey.export({ type: "spki", format: "pem" }),
    private_key: privateKey.export({ type: "pkcs8", format: "pem" }),
  };
};

t.test("a created key is private, and read back", async (t) => {
  const keys = path.join(folder(t), "keys");
  const key = await createKey(keys);
  t.equal(statSync(keys).mode & 0o777, 0o700);
  t.strictSame(readdirSync(keys), [`${key.kid}.json`], "nothing temporary stays");
  t.equal(statSync(path.join(keys, `${key.kid}.json`)).mode & 0o777, 0o600);
  t.ok(readKeys(keys).keys[0]?.sign?.equals(key.sign!));
  t.strictSame(readKeys(path.join(keys, "none")), { keys: [], problems: [] });
});

t.test("weak, open and contradicting key files are refused, naming the file", (t) => {
  const at = folder(t);
  const { publicKey: p384 } = generateKeyPairSync("ec", { namedCurve: "P-384" });
  const strong = pem(2048);
  const refused: [string, object, RegExp, number?][] = [
    [
      "short",
      { kid: "a", algorithm: "HS256", created, secret: secret(31) },
      /at least 32 bytes.*found 31/,
    ],
    [
      "weak",
      { kid: "a", algorithm: "RS256", created, public_key: pem(1024).public_key },
      /at least 2048 bits.*1024/,
    ],
    [
      "curve",
      {
        kid: "a",
        algorithm: "ES256",
        created,
        public_key: p384.export({ type: "spki", format: "pem" }),
      },
      /P-256/,
    ],
    [
      "public",
      {
        kid: "a",
        algorithm: "HS256",
        created,
        secret: Buffer.from(strong.public_key).toString("base64url"),
      },
      /found a PEM key/,
    ],
    [
      "pair",
      { kid: "a", algorithm: "RS256", created, ...strong, private_key: pem(2048).private_key },
      /pair of public_key/,
    ],
    [
      "private",
      { kid: "a", algorithm: "RS256", created, public_key: strong.private_key },
      /public_key: expected a public key .*; found a private one/,
    ],
    [
      "garbage",
      { kid: "a", algorithm: "RS256", created, public_key: "x" },
      /public_key: expected a key in PEM, without a passphrase; it cannot be read\.$/,
    ],
    [
      "none",
      { kid: "a", algorithm: "none", created },
      /algorithm: Expected HS256, RS256 or ES256$/,
    ],
    [
      "line end",
      { kid: "a", algorithm: "HS256", created, secret: `${secret(32)}\n` },
      /secret: Expected base64url: .* without = and line ends$/,
    ],
    [
      "day",
      { kid: "a", algorithm: "HS256", created: "2026-11-21", secret: secret(32) },
      /created: Expected a time in UTC, for example/,
    ],
    ["field", { kid: "a", algorithm: "HS256", created, secret: secret(32), extra: 1 }, /extra/],
    [
      "open",
      { kid: "a", algorithm: "HS256", created, secret: secret(32) },
      /mode 600.*found 644.*chmod 600/,
      0o644,
    ],
  ];
  for (const [name, value, message, mode] of refused) {
    const file = write(at, name, value, mode);
    t.throws(() => readKeyFile(file), message, name);
    t.throws(() => readKeyFile(file), new RegExp(file), `${name} names its file`);
    rmSync(file);
  }
  chmodSync(
    write(at, "one", { kid: "a", algorithm: "RS256", created, public_key: strong.public_key }),
    0o644,
  );
  t.equal(
    readKeys(at).keys[0]?.sign,
    undefined,
    "a public key alone may be readable, and does not sign",
  );
  write(at, "two", { kid: "a", algorithm: "HS256", created, secret: secret(32) });
  const { keys, problems } = readKeys(at);
  t.strictSame(
    keys.map(({ algorithm }) => algorithm),
    ["RS256"],
    "of one kid twice the first counts",
  );
  t.match(problems, [/two\.json: another file before it has the kid a/]);
  t.end();
});

t.test("what is said about a bad key file never quotes it", (t) => {
  const at = folder(t);
  writeFileSync(path.join(at, "a.json"), "hunter2-no-json", { mode: 0o600 });
  write(at, "b", { kid: "a", algorithm: "HS256", created, secret: "hunter2.no.base64" });
  write(at, "c", { kid: "hunter2.no.kid", algorithm: "HS256", created, secret: secret(32) });
  const { keys, problems } = readKeys(at);
  t.strictSame(keys, []);
  t.match(problems, [/a\.json: expected JSON/, /b\.json: secret/, /c\.json: kid/]);
  t.notMatch(problems.join("\n"), /hunter2/);
  t.end();
});

t.test(
  "at the start bad key files are reported and left out; bad ones alone are refused",
  async (t) => {
    const at = folder(t);
    write(at, "bad", { kid: "b" });
    const reports: string[] = [];
    const report = (message: string) => reports.push(message);
    t.throws(() => new WatchedKeys(at, report), ConfigError);
    const key = await createKey(at);
    reports.length = 0;
    const watched = new WatchedKeys(at, report);
    t.teardown(() => watched.close());
    t.strictSame(
      watched.keys().map(({ kid }) => kid),
      [key.kid],
    );
    t.match(reports, [/bad\.json/]);
  },
);

t.test("a running server sees new keys, lost keys and revocations", async (t) => {
  const at = folder(t);
  const first = await createKey(at);
  const reports: string[] = [];
  const watched = new WatchedKeys(at, (message) => reports.push(message));
  t.teardown(() => watched.close());
  t.equal(watched.keys().length, 1);

  const second = await createKey(at);
  await until("both keys are seen", () => watched.keys().length === 2);
  rmSync(path.join(at, `${first.kid}.json`));
  await until("one key is seen", () => watched.keys().length === 1);
  t.equal(watched.keys()[0]?.kid, second.kid);

  t.notOk(watched.isRevoked("j1"));
  await revokeToken(at, "j1");
  const { keysFresh, keysAnswer } = durations;
  t.teardown(() => setDurations({ keysFresh, keysAnswer }));
  // What was seen last is old at once, and however slow the disk is, its answer is waited for
  setDurations({ keysFresh: 0, keysAnswer: LONGEST_WAIT_MS });
  // A look that the timer has begun before the revocation ends first
  await watched.fresh();
  await watched.fresh();
  t.ok(
    watched.isRevoked("j1"),
    "who asks sees what happened before, though nobody asked meanwhile",
  );

  write(at, "broken", { kid: "b" });
  await until("the broken file is told", () => reports.length > 0);
  t.match(reports[0], /broken\.json/);
  t.equal(watched.keys()[0]?.kid, second.kid, "a broken file takes nothing away");
  t.match(watched.trouble(), /^A file of the keys folder cannot be used/);
  t.notMatch(watched.trouble(), at, "anybody may read it: no path");
});

t.test("records of tokens", async (t) => {
  const at = folder(t);
  const record = {
    jti: "../odd",
    sub: "anna",
    kid: "k",
    issued: created,
    expires: "2027-01-01T00:00:00.000Z",
    admin: false,
  };
  await recordToken(at, record);
  t.strictSame(await listTokens(at), [{ ...record, revoked: false }]);
  t.strictSame(await revokeToken(at, "../odd"), { known: true, already: false });
  t.strictSame(await revokeToken(at, "../odd"), { known: true, already: true });
  t.strictSame(await revokeToken(at, "elsewhere"), { known: false, already: false });
  t.equal((await listTokens(at))[0]?.revoked, true);
});
