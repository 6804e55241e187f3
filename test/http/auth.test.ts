/** Every case of authentication, over a real socket, with the exact body. */
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import net from "node:net";
import path from "node:path";
import jwt from "jsonwebtoken";
import t from "tap";
import { servingFeatures } from "../../src/features.js";
import { routesOf } from "../../src/server/routes.js";
import { withDurations } from "../support/durations.js";
import { issueToken, makePlace, radserve, startServer } from "../support/server.js";
import { until } from "../support/until.js";

// Some of these tests ask until a token is refused, again and again
const place = makePlace({ RADSERVE_FAILED_TOKENS: "0" });
const server = await startServer(place);
t.teardown(() => server.stop());

const keys = path.join(place.directory, "state", "keys");
const keyFile = readdirSync(keys).find((name) => name.endsWith(".json"))!;
const { kid, secret } = JSON.parse(readFileSync(path.join(keys, keyFile), "utf8")) as {
  kid: string;
  secret: string;
};
const sign = (claims: object) =>
  jwt.sign(claims, Buffer.from(secret, "base64url"), { algorithm: "HS256", keyid: kid });
const now = Math.floor(Date.now() / 1000);
/** Seconds that no test takes to come to its token. */
const HOUR = 3_600;

/** Every endpoint but those that docs/security.md calls open. */
const PAGES = routesOf(await servingFeatures())
  .filter(({ auth }) => auth === undefined)
  .map(({ method, path }): [string, string] => [method, path.replaceAll(/:\w+/g, "7")]);

async function refused(
  authorization: string | undefined,
  method = "GET",
  page = "/models",
): Promise<unknown> {
  const response = await fetch(server.url + page, {
    method,
    headers: {
      "X-Request-Id": "r1",
      ...(authorization === undefined ? {} : { Authorization: authorization }),
    },
  });
  const body: unknown = await response.json();
  return response.status === 401 ? body : { status: response.status };
}
const body = (message: string) => ({ error: "unauthorized", message, request_id: "r1" });

t.test("no token, on every page that needs one", async (t) => {
  for (const [method, page] of PAGES) {
    t.strictSame(
      await refused(undefined, method, page),
      body("Token missing"),
      `${method} ${page}`,
    );
    t.strictSame(
      await refused("", method, page),
      body("Token missing"),
      `${method} ${page}, empty header`,
    );
    t.strictSame(
      await refused("x.y.z", method, page),
      body("Invalid token"),
      `${method} ${page}, malformed`,
    );
  }
});

t.test("expired, tampered, Bearer", async (t) => {
  const claims = { sub: "a", exp: now + HOUR };
  t.strictSame(await refused(sign(claims)), { status: 200 }, "a good one passes");
  t.strictSame(await refused(sign({ ...claims, exp: now - 1 })), body("Token expired"));
  t.strictSame(
    await refused(`${sign({ ...claims, exp: now - 1 })}x`),
    body("Invalid token"),
    "expired and tampered",
  );
  t.strictSame(
    await refused(sign({ ...claims, nbf: now + HOUR })),
    body("Invalid token"),
    "not yet valid",
  );
  t.strictSame(await refused(sign({ sub: "a" })), body("Invalid token"), "without exp");
  const none = sign(claims).split(".");
  none[0] = Buffer.from('{"alg":"none"}').toString("base64url");
  t.strictSame(await refused(`${none[0]}.${none[1]}.`), body("Invalid token"), "alg none");
  t.strictSame(await refused(`Bearer ${sign(claims)}`), {
    ...body("Invalid token"),
    details: { hint: 'Send the token alone, without "Bearer ", as the value of Authorization.' },
  });
});

t.test("several Authorization headers are no token", async (t) => {
  const send = (...values: string[]) =>
    new Promise<string>((resolve, reject) => {
      const headers = values.map((value) => `Authorization: ${value}\r\n`).join("");
      const socket = net.connect(server.port, "127.0.0.1", () =>
        socket.write(`GET /models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${headers}\r\n`),
      );
      let answer = "";
      socket.setEncoding("utf8").on("data", (part: string) => (answer += part));
      socket.once("close", () => resolve(answer)).once("error", reject);
    });
  t.match(await send(server.token), /^HTTP\/1\.1 200 /);
  for (const values of [
    [server.token, "x.y.z"],
    ["x.y.z", server.token],
    [server.token, server.token],
    ["", server.token],
  ])
    t.match(await send(...values), /^HTTP\/1\.1 401 .*"message":"Invalid token"/s);
});

t.test("issue prints the token alone; revoke works within a second", async (t) => {
  const { stdout, stderr } = await radserve(
    place,
    "token",
    "issue",
    "--subject",
    "bob",
    "--expires",
    "1h",
  );
  t.match(stdout, /^[\w-]+\.[\w-]+\.[\w-]+\n$/);
  t.match(stderr, new RegExp(`${place.directory}/state`));
  t.match(stderr, new RegExp(kid));
  const token = stdout.trim();
  t.strictSame(await refused(token), { status: 200 });
  const { jti } = jwt.decode(token) as { jti: string };
  t.match((await radserve(place, "token", "list")).stdout, new RegExp(`${jti}\tbob\tvalid`));
  t.equal((await radserve(place, "token", "revoke", jti)).status, 0);
  await until("it is refused", async () => !("status" in ((await refused(token)) as object)));
  t.strictSame(await refused(token), body("Invalid token"));
  t.match((await radserve(place, "token", "list")).stdout, new RegExp(`${jti}\tbob\trevoked`));
});

t.test("a token that can reach nothing is told of", async (t) => {
  const issue = (...args: string[]) => radserve(place, "token", "issue", "--subject", "x", ...args);
  const odd = await issue("--input-root", "/srv/imagse", "--output-root", `${place.output}/new`);
  t.match(odd, { status: 0, stdout: /^[\w-]+\.[\w-]+\.[\w-]+\n$/ });
  t.match(
    odd.stderr,
    /^--input-root \/srv\/imagse has nothing in common with RADSERVE_INPUT_ROOTS/,
  );
  t.notMatch(odd.stderr, /--output-root/);
});

t.test("any jti can be revoked, also another issuer's", async (t) => {
  for (const jti of ["own/../x", "a.b.c", "urn:uuid:1 2", "é", ".", "x".repeat(256)]) {
    const token = sign({ sub: "a", exp: now + 3600, jti });
    t.strictSame(await refused(token), { status: 200 }, jti.slice(0, 20));
    t.match(await radserve(place, "token", "revoke", jti), {
      status: 0,
      stderr: /refused all the same/,
    });
    await until("it is refused", async () => !("status" in ((await refused(token)) as object)));
    t.strictSame(await refused(token), body("Invalid token"));
  }
  t.match(await radserve(place, "token", "revoke", server.token), {
    status: 2,
    stderr: /the token itself/,
  });
  t.match(await radserve(place, "token", "revoke", "x".repeat(257)), {
    status: 2,
    stderr: /257 characters/,
  });
});

t.test("keys can be rotated while it runs", async (t) => {
  t.match(
    (await radserve(place, "key", "list")).stdout,
    new RegExp(`^${kid} +HS256 .* issues$`, "m"),
  );
  t.match(await radserve(place, "key", "new"), { status: 0, stdout: /issues tokens from now on/ });
  const listed = await radserve(place, "key", "list", "--json");
  t.notMatch(listed.stdout, /secret/);
  const rows = JSON.parse(listed.stdout) as { kid: string; use: string }[];
  t.match(
    rows.find((row) => row.kid === kid),
    { use: "checks" },
  );
  const added = rows.find(({ use }) => use === "issues")!;
  const token = await issueToken(place);
  t.equal(jwt.decode(token, { complete: true })?.header.kid, added.kid, "the newest key signs");
  await until("it is taken", async () => "status" in ((await refused(token)) as object));
  t.strictSame(await refused(token), { status: 200 });
  t.strictSame(await refused(server.token), { status: 200 }, "tokens of the old key go on");
});

t.test("a token that lives longer than the setting allows is none", async (t) => {
  const strict = makePlace({ RADSERVE_TOKEN_MAX_AGE: "400d" });
  const server = await startServer(strict);
  t.teardown(() => server.stop());
  const folder = path.join(strict.directory, "state", "keys");
  const file = readdirSync(folder).find((name) => name.endsWith(".json"))!;
  const key = JSON.parse(readFileSync(path.join(folder, file), "utf8")) as {
    kid: string;
    secret: string;
  };
  const answer = async (claims: object) => {
    const token = jwt.sign(claims, Buffer.from(key.secret, "base64url"), {
      keyid: key.kid,
      noTimestamp: !("iat" in claims),
    });
    const response = await fetch(`${server.url}/models`, { headers: { Authorization: token } });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };
  const day = 86_400;
  t.match(await answer({ sub: "a", exp: now + 399 * day }), { status: 200 });
  t.match(await answer({ sub: "a", iat: now - 300 * day, exp: now + 90 * day }), { status: 200 });
  for (const claims of [
    { exp: now + 401 * day },
    { exp: 4_102_444_800 },
    { iat: now - 300 * day, exp: now + 110 * day },
  ])
    t.match(
      await answer({ sub: "a", ...claims }),
      {
        status: 401,
        body: {
          message: "Invalid token",
          details: { hint: /at most 400 days.*RADSERVE_TOKEN_MAX_AGE/ },
        },
      },
      JSON.stringify(claims),
    );
  t.match(await answer({ sub: "a", iat: now - 900 * day, exp: now - day }), {
    body: { message: "Token expired" },
  });
  t.match(await radserve(strict, "token", "issue", "--subject", "x", "--expires", "401d"), {
    status: 2,
    stdout: "",
    stderr:
      /^--expires: expected at most 400 days, as RADSERVE_TOKEN_MAX_AGE says; found "401d"\.\n$/,
  });
  t.match(await radserve(strict, "token", "issue", "--subject", "x", "--expires", "400d"), {
    status: 0,
  });
});

t.test(
  "a revocation that vanishes stays in force, and without their folder the door is closed",
  async (t) => {
    const lost = makePlace(withDurations({ keysFresh: 50, keysLook: 200 }));
    const server = await startServer(lost);
    t.teardown(() => server.stop());
    const revoked = path.join(lost.directory, "state", "keys", "revoked");
    const ask = async (token: string) => {
      const response = await fetch(`${server.url}/models`, { headers: { Authorization: token } });
      return {
        status: response.status,
        body: (await response.json()) as { error?: string; message?: string },
      };
    };
    const answered = (token: string, status: number) =>
      until(`its answer is ${status}`, async () => (await ask(token)).status === status);
    const gone = await issueToken(lost);
    await radserve(lost, "token", "revoke", (jwt.decode(gone) as { jti: string }).jti);
    await answered(gone, 401);

    for (const name of readdirSync(revoked)) rmSync(path.join(revoked, name));
    await server.logged(
      ({ level, msg }) => level === "error" && /1 revocation .* stays? in force/.test(msg),
    );
    t.match(await ask(gone), { status: 401, body: { message: "Invalid token" } });
    t.equal((await ask(server.token)).status, 200, "others go on");
    process.kill(server.servingPid(), "SIGKILL");
    await server.logged(({ msg }) => /the serving process ended/.test(msg));
    t.match(
      await ask(gone),
      { status: 401, body: { message: "Invalid token" } },
      "also after a crash",
    );
    t.equal((await ask(server.token)).status, 200);

    renameSync(revoked, `${revoked}.away`);
    await server.logged(
      ({ level, msg }) => level === "error" && /revoked tokens cannot be listed/.test(msg),
    );
    t.match(await ask(server.token), { status: 503, body: { error: "revocations_unavailable" } });
    t.match(await ask("x.y.z"), { status: 401, body: { message: "Invalid token" } });
    t.match(await ask(gone), { status: 401, body: { message: "Invalid token" } });
    process.kill(server.servingPid(), "SIGKILL");
    await server.told(({ msg }) => /the serving process ended/.test(msg), 2);
    t.equal((await ask(gone)).status, 401);
    t.match(await ask(server.token), { status: 503 }, "closed after a crash, too");
    mkdirSync(revoked, { mode: 0o700 });
    await answered(server.token, 200);
    t.match(await ask(gone), { status: 401 });
  },
);

t.test("token commands without a key, or wrongly used", async (t) => {
  const bare = makePlace();
  t.teardown(() => bare.remove());
  const without = await radserve(bare, "token", "issue", "--subject", "x");
  t.match(without, { status: 2, stdout: "", stderr: /Run radserve init first/ });
  t.equal((await radserve(bare, "token", "issue")).status, 2, "no subject");
  t.match(await radserve(bare, "init"), { status: 0, stdout: /First key, created now/ });
  t.match(
    await radserve(bare, "init"),
    { status: 0, stdout: /Keys are there/ },
    "again changes nothing",
  );
  t.match(await radserve(bare, "token", "issue", "--subject", "x", "--expires", "soon"), {
    status: 2,
    stderr: /--expires: expected a number with s, m, h, d, w or y/,
  });
  for (const wrong of [
    ["--subject", "a\nb"],
    ["--subject", "\u001b[2J"],
    ["--subject", "x", "--input-root", "/a\tb"],
    ["--subject", "x", "--output-root", "/\ufffd"],
  ])
    t.match(await radserve(bare, "token", "issue", ...wrong), {
      status: 2,
      stdout: "",
      stderr: /control character/,
    });
  const long = await radserve(bare, "token", "issue", "--subject", "x", "--expires", "99999999y");
  t.match(long, { status: 2, stdout: "", stderr: /^--expires: .*at most 100y; found "99999999y"/ });
});
