/** Sign-in of people: what a proxy's token is believed, and what is not. */
import { createHmac } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import { text } from "node:stream/consumers";
import t from "tap";
import { schemaPath, signInSchemaText } from "../../../scripts/build-sign-in-schema.js";
import { durations, setDurations, type Durations } from "../../../src/base/durations.js";
import { doctor } from "../../../src/features/sign-in/doctor.js";
import { linesOf } from "../../support/audit.js";
import { withDurations } from "../../support/durations.js";
import {
  HEADER,
  issuerKey,
  ORIGIN,
  PATIENT,
  signInPlace,
  startIssuer,
  writeSignIn,
} from "../../support/issuer.js";
import {
  configOf,
  expiredToken,
  issueToken,
  makePlace,
  refusedStart,
  startServer,
} from "../../support/server.js";
import { until } from "../../support/until.js";

type Headers = Record<string, string | string[]>;
interface Answer {
  status: number;
  body: Record<string, unknown>;
}

/** What comes to a request from an address of this machine; usually that of the proxy. */
async function ask(
  { port }: { port: number },
  page: string,
  headers: Headers,
  { method = "GET", from = "127.0.0.2", body = "" } = {},
): Promise<Answer> {
  const options = { host: "127.0.0.1", port, path: page, method, localAddress: from, agent: false };
  const response = await new Promise<http.IncomingMessage>((resolve, reject) => {
    http
      .request({ ...options, headers }, resolve)
      .once("error", reject)
      .end(body);
  });
  return {
    status: response.statusCode ?? 0,
    body: JSON.parse(await text(response)) as Answer["body"],
  };
}

const refused = (message: string) => ({ status: 401, body: { error: "unauthorized", message } });
const OWN = { "Sec-Fetch-Site": "same-origin" };
const now = () => Math.floor(Date.now() / 1000);
const base64 = (value: object | string | Buffer) =>
  Buffer.from(
    typeof value === "object" && !Buffer.isBuffer(value) ? JSON.stringify(value) : value,
  ).toString("base64url");

t.test("who is signed in", async (t) => {
  const [key, second] = [issuerKey("one"), issuerKey("two", "ES256")];
  const issuer = await startIssuer(t, key, second);
  const roots = (place: { input: string; output: string }) => ({
    roles: [
      { role: "readers", input_roots: [place.input], output_roots: [place.output] },
      { role: "others", input_roots: ["/elsewhere"], destinations: [] },
      { role: "administrators", admin: true },
    ],
  });
  const place = signInPlace(issuer, {}, { RADSERVE_FAILED_TOKENS: "0" });
  writeSignIn(place, issuer, roots(place));
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const signed = (token: string, more: Headers = OWN) => ({ [HEADER]: token, ...more });
  /** Its line in the audit, which comes after the answer. */
  const refusalOf = (why: string, whose: string) =>
    until(`the audit has the refusal ${why}`, () =>
      linesOf(place).find(({ reason, subject }) => reason === why && subject === whose),
    );

  await t.test("a person needs no token, and the audit says how they signed in", async (t) => {
    for (const one of [key, second]) {
      t.match(await ask(server, "/models", signed(issuer.token(one))), { status: 200 });
      t.strictSame(await ask(server, "/sign-in", signed(issuer.token(one))), {
        status: 200,
        body: { enabled: true, subject: "oidc:alice", sign_out: "/oauth2/sign_out" },
      });
    }
    t.match(
      linesOf(place).filter(({ endpoint }) => endpoint === "GET /models"),
      [
        { kind: "page", subject: "oidc:alice", signed_in: "oidc", address: "127.0.0.2" },
        { subject: "oidc:alice" },
      ],
    );
    t.strictSame(await ask(server, "/sign-in", {}), {
      status: 200,
      body: { enabled: true, subject: null, sign_out: "/oauth2/sign_out" },
    });
  });

  await t.test("a token decides, also one that is no good", async (t) => {
    const person = signed(issuer.token(key));
    t.match(
      await ask(server, "/models", { ...person, Authorization: "x.y.z" }),
      refused("Invalid token"),
    );
    const old = await expiredToken(place);
    t.match(
      await ask(server, "/models", { ...person, Authorization: old }),
      refused("Token expired"),
    );
    const other = await issueToken(place, "--subject", "program");
    t.match(await ask(server, "/models", { ...person, Authorization: other }), { status: 200 });
    const line = linesOf(place).find(({ subject }) => subject === "program");
    t.match(line, { endpoint: "GET /models" });
    t.notOk(line?.signed_in);
    t.match(await ask(server, "/models", { ...person, Authorization: " " }), { status: 200 });
  });

  await t.test("programs see no change", async (t) => {
    t.match(await ask(server, "/models", {}), refused("Token missing"));
    t.match(await ask(server, "/models", { [HEADER]: " " }), refused("Token missing"));
    t.match(await ask(server, "/models", {}, { from: "127.0.0.1" }), refused("Token missing"));
  });

  await t.test("the header is believed from the proxy alone", async (t) => {
    const person = signed(issuer.token(key), { ...OWN, "X-Forwarded-For": "127.0.0.2" });
    const stranger = { from: "127.0.0.1" };
    t.match(await ask(server, "/models", person, stranger), refused("Token missing"));
    t.match(await ask(server, "/sign-in", person, stranger), { body: { subject: null } });
  });

  await t.test("tokens that are not the issuer's, or not for this server", async (t) => {
    const good = issuer.token(key);
    const [head = "", claims = "", signature = ""] = good.split(".");
    const stranger = issuerKey("one");
    const hmac = (secret: string, kid = "one") => {
      const text = `${base64({ alg: "HS256", kid })}.${claims}`;
      return `${text}.${base64(createHmac("sha256", secret).update(text).digest())}`;
    };
    const invalid: Record<string, string> = {
      "alg none": `${base64({ alg: "none", kid: "one" })}.${claims}.`,
      "alg none with a signature": `${base64({ alg: "none" })}.${claims}.${signature}`,
      "HS256 with the public key in PEM": hmac(key.shown),
      "HS256 with the public key as JWK": hmac(JSON.stringify(key.jwk)),
      "another algorithm of the same key": issuer.token(key, {}, { alg: "RS512" }),
      "an unknown kid": issuer.token(key, {}, { kid: "three" }),
      "the kid of the other key": issuer.token(key, {}, { kid: "two" }),
      "a stranger's key under a known kid": issuer.token(stranger),
      "a key in the token": issuer.token(stranger, {}, { jwk: stranger.jwk }),
      "keys elsewhere": issuer.token(stranger, {}, { jku: "http://127.0.0.1/" }),
      crit: issuer.token(key, {}, { crit: ["exp"] }),
      tampered: `${head}.${base64({ ...(JSON.parse(Buffer.from(claims, "base64url").toString()) as object), sub: "root" })}.${signature}`,
      "another audience": issuer.token(key, { aud: "other" }),
      "no audience": issuer.token(key, { aud: undefined }),
      "another issuer": issuer.token(key, { iss: "https://other.example" }),
      "no issuer": issuer.token(key, { iss: undefined }),
      "not yet valid": issuer.token(key, { nbf: now() + 3600 }),
      "without an end": issuer.token(key, { exp: undefined }),
      "an end that is a text": `${good}x`,
      "no subject": issuer.token(key, { sub: undefined }),
      "an empty subject": issuer.token(key, { sub: "" }),
      "a subject that the database would change": issuer.token(key, { sub: "a\u0000b" }),
      "roles that are an object": issuer.token(key, { groups: { readers: true } }),
      "roles with numbers": issuer.token(key, { groups: ["readers", 1] }),
      "the word Bearer": `Bearer ${good}`,
      "too long": issuer.token(key, { more: "x".repeat(8192) }),
      "no token at all": "alice",
    };
    for (const [what, token] of Object.entries(invalid))
      t.match(await ask(server, "/models", signed(token)), refused("Invalid token"), what);
    t.match(
      await ask(server, "/models", { [HEADER]: [good, good], ...OWN }),
      refused("Invalid token"),
      "twice",
    );
    t.match(
      await ask(server, "/models", { [HEADER]: ["", good], ...OWN }),
      refused("Invalid token"),
      "twice, once empty",
    );
    t.match(
      await ask(server, "/models", signed("x".repeat(17 * 1024))),
      { status: 431 },
      "beyond what a head may have",
    );
    const old = issuer.token(key, { exp: now() - 1 });
    t.match(await ask(server, "/models", signed(old)), refused("Token expired"));
    t.match(await ask(server, "/sign-in", signed(old)), refused("Token expired"));
    t.match(await refusalOf("expired", "oidc:alice"), { kind: "refused", address: "127.0.0.2" });
    t.match(await ask(server, "/models", signed(issuer.token(key, { nbf: now() + 20 }))), {
      status: 200,
    });
    t.match(
      await ask(server, "/models", signed(issuer.token(key, { aud: ["x", "radserve-page"] }))),
      { status: 200 },
    );
    t.match(
      await ask(server, "/models", signed(issuer.token(second, {}, { kid: undefined }))),
      { status: 200 },
      "the only key of its algorithm needs no name",
    );
  });

  await t.test("roles", async (t) => {
    const as = (groups: unknown, sub = "alice") =>
      signed(issuer.token(key, { groups, sub }), { ...OWN, "Content-Type": "application/json" });
    for (const groups of [
      undefined,
      [],
      "",
      "nobody",
      ["READERS"],
      ["constructor", "__proto__", "toString", "hasOwnProperty"],
      "__proto__",
    ])
      t.match(
        await ask(server, "/models", as(groups)),
        { status: 403, body: { error: "role_missing", message: /in the claim groups/ } },
        JSON.stringify(groups),
      );
    t.match(await refusalOf("role_missing", "oidc:alice"), { kind: "refused" });
    t.match(await ask(server, "/models", as("readers")), { status: 200 }, "one as a text");
    const image = (groups: unknown) =>
      ask(server, "/single_inference", as(groups), {
        method: "POST",
        body: JSON.stringify({
          input_image_path: `${place.input}/image.png`,
          output_folder_path: place.output,
        }),
      });
    t.match(await image(["others"]), { body: { error: "path_not_allowed" } });
    t.match(await image(["readers"]), { body: { error: "corrupt_image" } });
    t.match(
      await image(["others", "readers", "nobody"]),
      { body: { error: "corrupt_image" } },
      "what any of them may do",
    );
    const failures = async (who: Headers) =>
      (await ask(server, "/failed_requests", who)).body["failed"] as unknown[];
    const mine = (await failures(as(["readers"]))).length;
    t.ok(mine > 0);
    t.equal((await failures(as(["readers"], "bob"))).length, 0);
    t.equal((await failures(as(["administrators"], "bob"))).length, mine);
    t.match(
      await ask(server, "/sign-in", as(["readers"], "gateway")),
      { body: { subject: "oidc:gateway" } },
      "a name that the issuer gives is no subject of ours",
    );
  });

  await t.test("requests that other sites forge", async (t) => {
    const token = issuer.token(key);
    const id = "00000000-0000-4000-8000-000000000000";
    const cases: [headers: Headers, loads: boolean, changes: boolean][] = [
      [{ "Sec-Fetch-Site": "same-origin" }, true, true],
      [{ "Sec-Fetch-Site": "same-origin", Origin: ORIGIN }, true, true],
      [{ Origin: ORIGIN }, true, true],
      [{}, true, false],
      [{ "Sec-Fetch-Site": "none" }, true, false],
      [{ "Sec-Fetch-Site": "cross-site" }, false, false],
      [{ "Sec-Fetch-Site": "same-site" }, false, false],
      [{ "Sec-Fetch-Site": "SAME-ORIGIN" }, false, false],
      [{ "Sec-Fetch-Site": ["same-origin", "cross-site"] }, false, false],
      [{ "Sec-Fetch-Site": "same-origin", Origin: "https://evil.example" }, false, false],
      [{ "Sec-Fetch-Site": "cross-site", Origin: ORIGIN }, false, false],
      [{ Origin: "null" }, false, false],
      [{ Origin: "https://evil.example" }, false, false],
      [{ Origin: `${ORIGIN}.evil.example` }, false, false],
      [{ Origin: ORIGIN.replace("https", "http") }, false, false],
      [{ Origin: `${ORIGIN}:8443` }, false, false],
    ];
    for (const [headers, loads, changes] of cases) {
      const sent = { [HEADER]: token, ...headers };
      const what = JSON.stringify(headers);
      const forged = { status: 403, body: { error: "other_site" } };
      const seen = async (method: string, page: string) => {
        const { body } = await ask(server, page, sent, { method });
        return body["error"] !== "other_site";
      };
      t.equal(await seen("GET", "/models"), loads, `GET, ${what}`);
      t.equal(await seen("GET", "/sign-in"), loads, `who is signed in, ${what}`);
      t.equal(await seen("POST", "/single_inference"), changes, `POST, ${what}`);
      t.equal(await seen("PUT", "/files"), changes, `PUT, ${what}`);
      t.equal(await seen("DELETE", `/bulk_inference/${id}`), changes, `DELETE, ${what}`);
      if (!loads) t.match(await ask(server, "/models", sent), forged, what);
    }
    t.match(await refusalOf("other_site", "oidc:alice"), { kind: "refused" });
    const program = { Authorization: server.token, "Sec-Fetch-Site": "cross-site" };
    t.match(await ask(server, "/models", program), { status: 200 }, "no site can send a token");
  });
});

t.test("keys change, and are away", async (t) => {
  const [first, next] = [issuerKey("first"), issuerKey("next")];
  const issuer = await startIssuer(t, first);
  const started = async (lengths: Partial<Durations>) => {
    const more = { ...PATIENT, signInAgain: 0, conditionsLook: 50, ...lengths };
    const server = await startServer(signInPlace(issuer, {}, withDurations(more)));
    t.teardown(() => server.stop());
    const asked = async (key: typeof first) =>
      (await ask(server, "/models", { [HEADER]: issuer.token(key), ...OWN })).status;
    const ready = async () =>
      JSON.stringify((await ask(server, "/health/ready", {})).body["conditions"] ?? []);
    return { asked, ready };
  };
  // Here keys are looked for by nobody but who has a token
  const { asked: askedOnce } = await started({ signInKeys: 3_600_000 });
  t.equal(await askedOnce(first), 200);
  t.equal(await askedOnce(next), 401);
  issuer.shows = [first, next];
  t.equal(await askedOnce(next), 200, "a new key is looked for when a token names it");

  const { asked, ready } = await started({ signInKeys: 50 });
  t.equal(await asked(first), 200);
  issuer.shows = [next];
  await until("the old key holds no more", async () => (await asked(first)) === 401);
  issuer.shows = 500;
  await until("ready says so", async () => (await ready()).includes("sign_in_unavailable"));
  t.equal(await asked(next), 200, "known keys hold meanwhile");
  issuer.shows = [next];
  await until("it is over", async () => !(await ready()).includes("sign_in_"));
});

t.test("keys that nobody has seen", async (t) => {
  const key = issuerKey("one");
  const issuer = await startIssuer(t, key);
  issuer.shows = "silence";
  const short = { signInAgain: 1, signInAnswer: 200 };
  const place = signInPlace(issuer, {}, withDurations(short));
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const asked = () => ask(server, "/models", { [HEADER]: issuer.token(key), ...OWN });
  const unknown = { status: 503, body: { error: "sign_in_unavailable" } };
  for (const shows of ["silence", 404, 302, []] as const) {
    issuer.shows = shows === "silence" || typeof shows === "number" ? shows : [];
    t.match(await asked(), unknown, `its answer is ${String(shows)}`);
  }
  t.match(await ask(server, "/models", { Authorization: server.token }), { status: 200 });
  issuer.shows = [key];
  await until("it is known", async () => (await asked()).status === 200);
});

t.test("one that is asked for too often is not asked again", async (t) => {
  const key = issuerKey("one");
  const issuer = await startIssuer(t, key);
  const place = signInPlace(issuer, {}, withDurations({ ...PATIENT, signInAgain: 3_600_000 }));
  const server = await startServer(place);
  t.teardown(() => server.stop());
  for (const kid of ["a", "b", "c", "d", "e"]) {
    const headers = { [HEADER]: issuer.token(key, {}, { kid }), ...OWN };
    t.match(await ask(server, "/models", headers), refused("Invalid token"));
  }
  t.equal(issuer.asked, 1);
});

t.test("the file is read again, and a wrong one changes nothing", async (t) => {
  const key = issuerKey("one");
  const issuer = await startIssuer(t, key);
  const place = signInPlace(issuer);
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const asked = async () =>
    (await ask(server, "/models", { [HEADER]: issuer.token(key), ...OWN })).status;
  t.equal(await asked(), 200);
  writeSignIn(place, issuer, { roles: [] });
  server.process.kill("SIGHUP");
  await server.logged(({ msg }) => /the one of before stays/.test(msg));
  t.equal(await asked(), 200);
  writeSignIn(place, issuer, { roles: [{ role: "others" }] });
  server.process.kill("SIGHUP");
  await server.logged(({ msg }) => /file of sign-in was read again/.test(msg));
  t.equal(await asked(), 403);
});

t.test("without the setting nothing is believed", async (t) => {
  const key = issuerKey("one");
  const issuer = await startIssuer(t, key);
  const server = await startServer(makePlace({ RADSERVE_TRUSTED_PROXIES: "127.0.0.2" }));
  t.teardown(() => server.stop());
  const person = { [HEADER]: issuer.token(key), ...OWN };
  t.match(await ask(server, "/models", person), refused("Token missing"));
  t.strictSame(await ask(server, "/sign-in", person), {
    status: 200,
    body: { enabled: false, subject: null, sign_out: null },
  });
});

t.test("doctor looks at the file and at the keys, of an address or of a file", async (t) => {
  const before = { ...durations };
  t.teardown(() => setDurations(before));
  setDurations(PATIENT);
  const key = issuerKey("one");
  const issuer = await startIssuer(t, key);
  const place = signInPlace(issuer);
  const says = async (finding: object) =>
    t.match(await doctor(configOf(place)), [{ name: "sign-in", ...finding }]);
  await says({ ok: true, found: /: 1; roles: readers$/ });
  const jwks = `${place.directory}/jwks.json`;
  writeSignIn(place, issuer, { jwks });
  await says({ ok: false, found: /keys cannot be read from .*ENOENT/ });
  writeFileSync(jwks, JSON.stringify({ keys: [key.jwk] }));
  await says({ ok: true });
  writeSignIn(place, issuer, { roles: [] });
  await says({ ok: false, found: /roles: Expected at least 1 entry/ });
  t.same(await doctor(configOf(makePlace())), []);
});

t.test("the published schema is the one in force", async (t) => {
  t.equal(
    readFileSync(schemaPath, "utf8"),
    await signInSchemaText(),
    "run dist/scripts/build-sign-in-schema.js",
  );
});

t.test("what is wrong with the file is refused at the start", async (t) => {
  const issuer = await startIssuer(t, issuerKey("one"));
  const wrong: [more: object, message: RegExp][] = [
    [{ header: "Authorization" }, /^RADSERVE_SIGN_IN: header: Expected a header of its own/],
    [{ header: "X-Forwarded-For" }, /header: Expected a header of its own/],
    [{ header: "a b" }, /header: /],
    [{ jwks: "http://issuer.example/jwks" }, /jwks: Expected an https address/],
    [{ jwks: "file:///etc/jwks" }, /jwks: Expected an https address/],
    [{ origin: "https://radserve.example/page" }, /origin: Expected scheme, host and port alone/],
    [{ sign_out: "javascript:alert(1)" }, /sign_out: Expected a path/],
    [{ roles: [] }, /roles: Expected at least 1 entry/],
    [{ roles: [{ role: "a" }, { role: "a" }] }, /roles\[1\]\.role: Expected each role once/],
    [{ roles: [{ role: "a", admn: true }] }, /admn/],
    [
      { roles: [{ role: "a", input_roots: ["relative"] }] },
      /input_roots\[0\]: Expected an absolute/,
    ],
    [{ issuer: undefined }, /issuer: Expected a string; found nothing/],
  ];
  for (const [more, message] of wrong)
    t.match(await refusedStart(signInPlace(issuer, more)), message, JSON.stringify(more));
  const place = signInPlace(issuer);
  place.environment["RADSERVE_TRUSTED_PROXIES"] = "";
  t.match(
    await refusedStart(place),
    /^RADSERVE_SIGN_IN: expected RADSERVE_TRUSTED_PROXIES beside it/,
  );
  const none = signInPlace(issuer, {}, { RADSERVE_SIGN_IN: "" });
  none.environment["RADSERVE_SIGN_IN"] = "/nothing/here.json";
  t.match(await refusedStart(none), /expected a file at \/nothing\/here\.json.*ENOENT/);
});
