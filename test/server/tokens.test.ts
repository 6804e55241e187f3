import {
  createHmac,
  createSecretKey,
  generateKeyPairSync,
  randomBytes,
  type KeyObject,
} from "node:crypto";
import jwt from "jsonwebtoken";
import t from "tap";
import { parseDuration } from "../../src/base/duration.js";
import { authenticate, issueToken, type Expectations } from "../../src/server/tokens.js";
import { RadserveError } from "../../src/base/errors.js";
import type { Algorithm, Key } from "../../src/files/key-file.js";

const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 });
const otherRsa = generateKeyPairSync("rsa", { modulusLength: 2048 });
const ec = generateKeyPairSync("ec", { namedCurve: "P-256" });
const secret = createSecretKey(randomBytes(48));

function key(kid: string, algorithm: Algorithm, verify: KeyObject, sign?: KeyObject): Key {
  return { kid, algorithm, created: "2026-01-01T00:00:00.000Z", verify, sign };
}
const hs = key("h1", "HS256", secret, secret);
const rs = key("r1", "RS256", rsa.publicKey, rsa.privateKey);
const es = key("e1", "ES256", ec.publicKey, ec.privateKey);

function ring(keys: Key[], revoked: string[] = []) {
  return {
    keys: () => keys,
    isRevoked: (jti: string) => revoked.includes(jti),
    listsRevoked: () => true,
  };
}

function outcome(
  header: string | undefined,
  keys: Key[],
  expected?: Expectations,
  revoked: string[] = [],
): string {
  try {
    return `ok ${authenticate(header, ring(keys, revoked), expected).subject}`;
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    return `${error.status} ${error.message}`;
  }
}

const now = Math.floor(Date.now() / 1000);
const claims = { sub: "anna", exp: now + 60, jti: "t1" };
const sign = (payload: object, by: KeyObject, algorithm: Algorithm, keyid?: string) =>
  jwt.sign(payload, by, { algorithm, ...(keyid === undefined ? {} : { keyid }) });
const good = sign(claims, secret, "HS256", "h1");

const INVALID = "401 Invalid token";
const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
const hmac = (header: object, payload: object, by: string | Buffer) => {
  const text = `${part(header)}.${part(payload)}`;
  return `${text}.${createHmac("sha256", by).update(text).digest("base64url")}`;
};

t.test("each algorithm, with kid and without", (t) => {
  const keys = [hs, rs, es];
  for (const one of keys) {
    t.equal(
      outcome(sign(claims, one.sign!, one.algorithm, one.kid), keys),
      "ok anna",
      `${one.algorithm} with kid`,
    );
    t.equal(
      outcome(sign(claims, one.sign!, one.algorithm), keys),
      "ok anna",
      `${one.algorithm} without`,
    );
  }
  const second = key("h2", "HS256", createSecretKey(randomBytes(32)));
  t.equal(
    outcome(sign(claims, secret, "HS256"), [hs, second]),
    INVALID,
    "without kid and two keys that could be meant",
  );
  t.equal(outcome(good, [hs, second]), "ok anna", "with kid the other key does not disturb");
  t.end();
});

t.test("missing and expired", (t) => {
  t.equal(outcome(undefined, [hs]), "401 Token missing");
  t.equal(outcome("", [hs]), "401 Token missing");
  t.equal(outcome("  ", [hs]), "401 Token missing");
  const expired = sign({ ...claims, exp: now - 1 }, secret, "HS256", "h1");
  t.equal(outcome(expired, [hs]), "401 Token expired");
  t.equal(
    outcome(expired, [key("h1", "HS256", createSecretKey(randomBytes(32)))]),
    INVALID,
    "expired, and not ours",
  );
  t.equal(outcome(expired, [hs], {}, ["t1"]), INVALID, "expired and revoked");
  t.end();
});

t.test("everything else is invalid", (t) => {
  const [head, payload, signature] = good.split(".") as [string, string, string];
  const flipped = signature.startsWith("A") ? `B${signature.slice(1)}` : `A${signature.slice(1)}`;
  const rsToken = sign(claims, rsa.privateKey, "RS256", "r1");
  const spareBits =
    rsToken.slice(0, -1) + String.fromCharCode(rsToken.charCodeAt(rsToken.length - 1) + 1);
  t.equal(outcome(rsToken, [rs]), "ok anna");
  const pem = rsa.publicKey.export({ type: "spki", format: "pem" });
  const cases: Record<string, string> = {
    "a Bearer prefix": `Bearer ${good}`,
    "bearer alone": "Bearer",
    "no token": "hello",
    "two parts": `${head}.${payload}`,
    "four parts": `${good}.x`,
    "other payload": `${head}.${part({ ...claims, sub: "eve" })}.${signature}`,
    "other signature": `${head}.${payload}.${flipped}`,
    "spare bits of the signature": spareBits,
    "no signature": `${head}.${payload}.`,
    "alg none": `${part({ alg: "none", typ: "JWT" })}.${part(claims)}.`,
    "alg None with signature": hmac({ alg: "None" }, claims, "x"),
    HS512: jwt.sign(claims, secret, { algorithm: "HS512", keyid: "h1" }),
    "HMAC with the public key": hmac({ alg: "HS256", typ: "JWT", kid: "r1" }, claims, pem),
    "HMAC with the public key, no kid": hmac({ alg: "HS256", typ: "JWT" }, claims, pem),
    ...Object.fromEntries(
      ["../../etc/passwd", "/dev/null", "h1\0", "h1/../r1", "", "__proto__", "'; --"].map((kid) => [
        `kid ${JSON.stringify(kid)}`,
        hmac({ alg: "HS256", kid }, claims, ""),
      ]),
    ),
    ...Object.fromEntries(
      Object.entries({
        jwk: otherRsa.publicKey.export({ format: "jwk" }),
        jku: "http://127.0.0.1:1/keys.json",
        x5u: "http://127.0.0.1:1/chain.pem",
        x5c: [otherRsa.publicKey.export({ type: "spki", format: "der" }).toString("base64")],
      }).map(([name, value]) => [
        `a key of its own in ${name}`,
        jwt.sign(claims, otherRsa.privateKey, {
          algorithm: "RS256",
          header: { alg: "RS256", kid: "r1", [name]: value },
        }),
      ]),
    ),
    "another RSA key": sign(claims, otherRsa.privateKey, "RS256", "r1"),
    "unknown kid": sign(claims, secret, "HS256", "zz"),
    "kid of another algorithm": sign(claims, secret, "HS256", "r1"),
    "critical header": hmac({ alg: "HS256", kid: "h1", crit: ["exp"] }, claims, secret.export()),
    "no exp": sign({ sub: "anna" }, secret, "HS256", "h1"),
    "exp as text": hmac(
      { alg: "HS256", kid: "h1" },
      { ...claims, exp: String(now + 60) },
      secret.export(),
    ),
    "no sub": sign({ exp: now + 60 }, secret, "HS256", "h1"),
    "sub with NUL": sign({ ...claims, sub: "a\0b" }, secret, "HS256", "h1"),
    "sub with half a surrogate pair": sign({ ...claims, sub: "a\ud800" }, secret, "HS256", "h1"),
    "jti with NUL": sign({ ...claims, jti: "a\0b" }, secret, "HS256", "h1"),
    "jti with half a surrogate pair": sign({ ...claims, jti: "\udc00" }, secret, "HS256", "h1"),
    "a root with half a surrogate pair": sign(
      { ...claims, input_roots: ["/\ud800"] },
      secret,
      "HS256",
      "h1",
    ),
    "a blank before it that is no space": `\u00a0${good}`,
    "a line feed behind it": `${good}\n`,
    "not yet valid": sign({ ...claims, nbf: now + 100 }, secret, "HS256", "h1"),
    "relative roots": sign({ ...claims, input_roots: ["x"] }, secret, "HS256", "h1"),
    "admin as text": sign({ ...claims, admin: "yes" }, secret, "HS256", "h1"),
    "too long": `${good}${"A".repeat(9000)}`,
  };
  for (const [name, token] of Object.entries(cases))
    t.equal(outcome(token, [hs, rs]), INVALID, name);
  t.equal(outcome(good, [rs]), INVALID, "algorithm of no configured key");
  t.match(outcome(good, []), /^503 Expected keys/, "nobody can say whether it is good");
  t.equal(outcome(good, [hs], {}, ["t1"]), INVALID, "revoked");
  try {
    authenticate(`Bearer ${good}`, ring([hs]));
  } catch (error) {
    t.match((error as RadserveError).details?.["hint"], /without "Bearer "/);
  }
  t.end();
});

t.test("two keys of one id", (t) => {
  const twin = { ...hs, verify: createSecretKey(Buffer.alloc(32, 9)) };
  t.equal(outcome(good, [hs, twin]), INVALID, "nobody can say whose it is");
  t.equal(
    outcome(good, [hs, { ...rs, kid: "h1" }]),
    "ok anna",
    "of another algorithm it is another",
  );
  t.end();
});

t.test("a token that was good before is judged again", (t) => {
  const token = sign({ ...claims, exp: now + 60, nbf: now - 60 }, secret, "HS256", "h1");
  t.equal(outcome(token, [hs]), "ok anna");
  t.equal(outcome(token, [hs], {}, ["t1"]), INVALID, "revoked since");
  t.equal(outcome(token, [hs], { issuer: "hospital" }), INVALID, "another issuer is asked for");
  t.equal(
    outcome(token, [key("h1", "HS256", createSecretKey(randomBytes(32)))]),
    INVALID,
    "the key of its name is another",
  );
  const before = Date.now.bind(Date);
  t.intercept(Date, "now", { value: () => before() + 120_000 });
  t.equal(outcome(token, [hs]), "401 Token expired", "its time has come");
  t.end();
});

t.test("a token that a server knows is judged by what has changed since", (t) => {
  // The same objects at each request, as a server has them
  const [keys, expected, revoked]: [Key[], Expectations, string[]] = [[hs], { issuer: "pacs" }, []];
  const again = (token: string) => outcome(token, keys, expected, revoked);
  const issued = (more: object) => sign({ ...claims, iss: "pacs", ...more }, secret, "HS256", "h1");
  const token = issued({});
  t.strictSame([again(token), again(token)], ["ok anna", "ok anna"]);
  t.equal(outcome(token, keys, { issuer: "other" }), INVALID, "another issuer is expected");
  t.equal(outcome(token, [es], expected), INVALID, "there are other keys");
  const [head, , signature] = token.split(".");
  t.equal(
    again(`${head}.${part({ ...claims, sub: "eve" })}.${signature}`),
    INVALID,
    "another payload",
  );
  const later = issued({ jti: "t2", nbf: now - 5 });
  t.equal(again(later), "ok anna");
  revoked.push("t1");
  t.equal(again(token), INVALID, "revoked");
  const before = Date.now.bind(Date);
  let shift = -3_600_000;
  t.intercept(Date, "now", { value: () => before() + shift });
  t.equal(again(later), INVALID, "the clock was set back to before its nbf");
  shift = 120_000;
  revoked.pop();
  t.equal(again(token), "401 Token expired");
  t.end();
});

t.test("issuer and audience where configured", (t) => {
  const expected = { issuer: "hospital", audience: "radserve" };
  const named = sign({ ...claims, iss: "hospital", aud: "radserve" }, secret, "HS256", "h1");
  t.equal(outcome(named, [hs], expected), "ok anna");
  t.equal(outcome(good, [hs], expected), INVALID);
  t.equal(
    outcome(
      sign({ ...claims, iss: "other", aud: "radserve" }, secret, "HS256", "h1"),
      [hs],
      expected,
    ),
    INVALID,
  );
  const { token } = issueToken(
    { ...hs, sign: secret },
    { subject: "bob", lifetimeSeconds: 60, ...expected },
  );
  t.equal(outcome(token, [hs], expected), "ok bob", "issued ones fit");
  t.end();
});

t.test("where an age is set, iat is a number", (t) => {
  const of = (iat: unknown) =>
    hmac({ alg: "HS256", kid: "h1" }, { ...claims, iat }, secret.export());
  const expected = { token_max_age: 3600 };
  t.equal(outcome(of(now), [hs], expected), "ok anna");
  for (const iat of [String(now), null, [now], true])
    t.equal(outcome(of(iat), [hs], expected), INVALID, JSON.stringify(iat));
  t.equal(
    outcome(` \t${of(now)}\t `, [hs], expected),
    "ok anna",
    "spaces and tabs around it are none of it",
  );
  t.end();
});

t.test("claims reach the caller", (t) => {
  const { token, record } = issueToken(
    { ...es, sign: ec.privateKey },
    { subject: "bob", lifetimeSeconds: 60, admin: true, inputRoots: ["/a"], outputRoots: ["/b"] },
  );
  t.strictSame(authenticate(token, ring([es])), {
    subject: "bob",
    admin: true,
    jti: record.jti,
    inputRoots: ["/a"],
    outputRoots: ["/b"],
  });
  t.end();
});

t.test("durations", (t) => {
  t.equal(parseDuration("365d"), 365 * 86400);
  t.equal(parseDuration("90m"), 5400);
  t.equal(parseDuration("100y"), 100 * 365 * 86400);
  for (const text of ["", "5", "d", "-1d", "0d", "1.5h", "1x", "101y", "99999999y"])
    t.equal(parseDuration(text), undefined, text);
  t.end();
});
