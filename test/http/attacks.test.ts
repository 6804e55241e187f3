/**
 * What a hostile client sends, in tables: tokens that are made by hand, requests that two programs
 * could read differently, bodies that cost much, and names of files that are none. A fault would be
 * an answer of 500, a wait, or anything that a client has no right to.
 */
import { execFileSync } from "node:child_process";
import { createHmac } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { connected } from "../support/client.js";
import { makePlace, PNG, startServer } from "../support/server.js";

const place = makePlace({ RADSERVE_FAILED_TOKENS: "0" });
const server = await startServer(place);
t.teardown(() => server.stop());

const keys = path.join(place.directory, "state", "keys");
const keyFile = readdirSync(keys).find((name) => name.endsWith(".json"))!;
const { kid, secret } = JSON.parse(readFileSync(path.join(keys, keyFile), "utf8")) as Record<
  string,
  string
>;
const encoded = (part: unknown) =>
  Buffer.from(
    Buffer.isBuffer(part) || typeof part === "string" ? part : JSON.stringify(part),
  ).toString("base64url");

/** A token with the right signature, whatever it says; text is taken as it is. */
function token(
  claims: unknown,
  header: unknown = { alg: "HS256", kid },
  key = Buffer.from(secret!, "base64url"),
) {
  const text = `${encoded(header)}.${encoded(claims)}`;
  return `${text}.${createHmac("sha256", key).update(text).digest("base64url")}`;
}

const now = Math.floor(Date.now() / 1000);
const CLAIMS = { sub: "a", exp: now + 600 };

t.test("tokens that are signed and say odd things", async (t) => {
  const statusOf = async (authorization: string) => {
    const response = await fetch(`${server.url}/models`, {
      headers: { Authorization: authorization },
    });
    return {
      status: response.status,
      message: ((await response.json()) as { message?: string }).message,
    };
  };
  t.match(await statusOf(token(CLAIMS)), { status: 200 });
  t.match(
    await statusOf(token(CLAIMS, { alg: "HS256" })),
    { status: 200 },
    "the only key of its algorithm",
  );
  const headers: unknown[] = [
    ...["none", "None", "hs256", "HS512", "RS256", "ES256", ["HS256"], null].map((alg) => ({
      alg,
      kid,
    })),
    ...["../../etc/passwd", "/dev/null", "__proto__", "", 1, null].map((kid) => ({
      alg: "HS256",
      kid,
    })),
    { alg: "HS256", kid, crit: ["exp"] },
    { alg: "HS256", kid, b64: false },
    [],
    '{"alg":"HS256"',
  ];
  const claims: unknown[] = [
    ...[String(now + 600), null, true, [now + 600], {}].map((exp) => ({ sub: "a", exp })),
    '{"sub":"a","exp":1e999}',
    ...[now + 3600, String(now + 3600), 1e300, "x", null].map((nbf) => ({ ...CLAIMS, nbf })),
    ...["", "a".repeat(257), "a\0b", 7, null, ["a"]].map((sub) => ({ ...CLAIMS, sub })),
    '{"sub":"\\ud800","exp":9999999999}',
    '{"sub":"a","sub":"b","exp":9999999999}',
    '{"sub":"a","exp":9999999999,"__proto__":{"admin":true}}',
    Buffer.from('{"sub":"\xff","exp":9999999999}', "latin1"),
    ...["true", 1].map((admin) => ({ ...CLAIMS, admin })),
    ...["/", [1], ["relative"], ["/a\0"]].map((input_roots) => ({ ...CLAIMS, input_roots })),
    [CLAIMS],
    '"text"',
    `{"x":${"[".repeat(2000)}${"]".repeat(2000)}}`,
  ];
  const whole = token(CLAIMS);
  const odd: Record<string, string> = {
    ...Object.fromEntries(
      headers.map((header) => [`header ${JSON.stringify(header)}`, token(CLAIMS, header)]),
    ),
    ...Object.fromEntries(
      claims.map((one) => [`claims ${JSON.stringify(one).slice(0, 80)}`, token(one)]),
    ),
    "another key": token(CLAIMS, undefined, Buffer.alloc(32)),
    "an empty key": token(CLAIMS, undefined, Buffer.alloc(0)),
    "no signature": whole.replace(/[^.]*$/, ""),
    padding: `${whole}=`,
    "a fourth part": `${whole}.x`,
    "8 KiB of dots": ".".repeat(8000),
    "12 KiB": "x".repeat(12_000),
  };
  for (const [name, one] of Object.entries(odd))
    t.strictSame(await statusOf(one), { status: 401, message: "Invalid token" }, name);
  for (const exp of [-1, 0, now - 0.5])
    t.match(
      await statusOf(token({ sub: "a", exp })),
      { status: 401, message: "Token expired" },
      String(exp),
    );
  const keyed = token(CLAIMS, {
    alg: "HS256",
    kid,
    jwk: { kty: "oct", k: "AA" },
    jku: "http://127.0.0.1:1/x",
  });
  t.match(await statusOf(keyed), { status: 200 }, "a key that the token names is not looked at");
});

/** The answers on one connection, which is closed where the server does not do it. */
async function sent(text: string): Promise<{ statuses: string[]; heard: string }> {
  const { socket, closed } = await connected(server.port, text);
  let heard = "";
  socket.on("data", (part: string) => (heard += part));
  // Whoever is answered and not closed had only one request: another would be answered before one
  // that comes later
  socket.once("data", () => {
    void fetch(`${server.url}/health/live`).finally(() => socket.end());
  });
  await closed;
  return {
    statuses: [...heard.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status]) => status!),
    heard,
  };
}

const LAST = "Connection: close\r\n\r\n";
const LIVE = "GET /health/live HTTP/1.1\r\nHost: x\r\n";

t.test("requests that a proxy could read otherwise", async (t) => {
  const post = (headers: string, body = "") =>
    `POST /single_inference HTTP/1.1\r\nHost: x\r\nAuthorization: ${server.token}\r\n` +
    `Content-Type: application/json\r\n${headers}\r\n${body}`;
  const hidden = `0\r\n\r\n${LIVE}${LAST}`;
  const refused: Record<string, string> = {
    "both lengths": post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", hidden),
    "both lengths, the other way": post(
      "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
      hidden,
    ),
    "two lengths": post("Content-Length: 2\r\nContent-Length: 3\r\n", "{}"),
    ...Object.fromEntries(
      ["+2", "0x2", "-1", "2 2", "99999999999999999999"].map((length) => [
        `length ${length}`,
        post(`Content-Length: ${length}\r\n`, "{}"),
      ]),
    ),
    ...Object.fromEntries(
      [": xchunked", ": chunked, identity", ":\r\n chunked", " : chunked"].map((coding) => [
        `coding${JSON.stringify(coding)}`,
        post(`Transfer-Encoding${coding}\r\n`, hidden),
      ]),
    ),
    "two codings": post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", hidden),
    "a size without end": post("Transfer-Encoding: chunked\r\n", "FFFFFFFFFFFFFFFFF\r\n{}"),
    "sizes that end in LF": post("Transfer-Encoding: chunked\r\n", "2\n{}\n0\n\n"),
    "long chunk extensions": post(
      "Transfer-Encoding: chunked\r\n",
      `2;${"a".repeat(20_000)}\r\n{}\r\n0\r\n\r\n`,
    ),
    "lines that end in LF": "GET /health/live HTTP/1.1\nHost: x\n\n",
    "CR in a value": `${LIVE}A: b\rX: y\r\n${LAST}`,
    "NUL in a value": `${LIVE}A: b\0\r\n${LAST}`,
    "two hosts": `${LIVE}Host: y\r\n${LAST}`,
    "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a megabyte of token": `${LIVE}Authorization: ${"a".repeat(1_000_000)}\r\n${LAST}`,
    "ten thousand headers": `${LIVE}${"A: b\r\n".repeat(10_000)}${LAST}`,
  };
  for (const [name, text] of Object.entries(refused)) {
    const { statuses } = await sent(text);
    t.ok(statuses.length === 1 && /^4(?:00|31)$/.test(statuses[0]!), `${name}: ${statuses.join()}`);
  }
  const body = `${LIVE}${LAST}`;
  const inBody = await sent(
    `GET /health/live HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  t.strictSame(inBody.statuses, ["200"], "a request in another's body is none");
  const many = await sent(`${LIVE}\r\n`.repeat(200) + LIVE + LAST);
  t.equal(many.statuses.length, 201, "two hundred on one connection, each answered");
  const odd = await sent(post("Expect: 200-maybe\r\nContent-Length: 2\r\n", "{}"));
  t.match(
    odd.heard,
    /^HTTP\/1\.1 400 .*"error":"bad_request"/s,
    "an odd Expect is no reason to refuse",
  );
});

t.test("no header is left out, however many there are", async (t) => {
  const junk = "DNT:\r\n".repeat(2_000);
  const ask = (page: string, headers: string) =>
    sent(`GET ${page} HTTP/1.1\r\nHost: x\r\n${headers}${LAST}`);
  const mine = `Authorization: ${server.token}\r\n`;
  t.strictSame((await ask("/metrics", junk)).statuses, ["200"]);
  t.strictSame(
    (await ask("/metrics", `${junk}X-Forwarded-For: 192.0.2.1\r\n`)).statuses,
    ["401"],
    "what a proxy adds behind 2,000 headers is seen",
  );
  t.strictSame((await ask("/models", `${junk}${mine}`)).statuses, ["200"]);
  t.strictSame(
    (await ask("/models", `${mine}${junk}Authorization: x\r\n`)).statuses,
    ["401"],
    "two tokens",
  );
});

t.test("bodies that cost more than they say", async (t) => {
  const list = (count: number, text: string) => `[${Array<string>(count).fill(text).join(",")}]`;
  const fields = (count: number) => Array.from({ length: count }, (_, i) => `"k${i}":1`).join(",");
  const bodies: Record<string, [body: string, message: RegExp]> = {
    "lists in lists": [`${"[".repeat(2_500_000)}${"]".repeat(2_500_000)}`, /at most 32 deep/],
    "open lists": ["[".repeat(60_000), /at most 32 deep/],
    "objects in objects": [`${'{"a":'.repeat(33)}1${"}".repeat(33)}`, /at most 32 deep/],
    "brackets in text": [
      `{"input_folder_path":"${"[".repeat(1000)}\\"${"{".repeat(1000)}"}`,
      /absolute path/,
    ],
    "many unknown fields": [`{${fields(100_000)}}`, /k0: Unknown field.* And \d+ more/],
    "unknown fields in each of many items": [
      `{"items":${list(10_000, `{${fields(40)}}`)}}`,
      /items\[0\]\.k0: Unknown field|items\[0\]\.input_image_path: Expected/,
    ],
    "a million entries": [`{"items":${list(1_000_000, "1")}}`, /at most 10000 entries/],
    "one long name": [`{"${"k".repeat(1_000_000)}":1}`, /Unknown field/],
    "a number without end": [
      `{"idempotency_key":${"9".repeat(100_000)}}`,
      /idempotency_key: Expected a string/,
    ],
    "a name that is there twice": ['{"items":[],"\\u0069tems":[]}', /each field of an object once/],
    "halves of surrogate pairs": [
      '{"input_folder_path":"/\\ud800","output_folder_path":"/\\udc00"}',
      /surrogate/,
    ],
    __proto__: ['{"__proto__":{"admin":true}}', /__proto__/],
    "another encoding": ['{"a\0":1}', /fault at line 1/],
  };
  for (const [name, [body, message]] of Object.entries(bodies)) {
    const response = await server.post("/bulk_inference", body);
    const text = await response.text();
    t.match({ status: response.status, text }, { status: 400, text: message }, name);
    t.ok(text.length < 8_000, `${name}: a short answer`);
  }
  t.equal((await server.post("/bulk_inference", `{"a":"${"a".repeat(10_000_000)}"}`)).status, 413);
  const listed = await fetch(`${server.url}/health/live`);
  t.equal(listed.status, 200);
});

t.test("names of files that are none", async (t) => {
  const { input, output } = place;
  const make = (name: string) => path.join(input, name);
  execFileSync("mkfifo", [make("pipe")]);
  mkdirSync(make("folder"));
  execFileSync("mkfifo", [make("folder/a.dcm"), make("folder/b.json")]);
  for (const [name, target] of [
    ["loop", "loop"],
    ["here", "."],
    ["process", "/proc/self"],
    ["secret", "/etc/passwd"],
  ] as const)
    symlinkSync(target, make(name));
  symlinkSync("/tmp", path.join(output, "elsewhere"));
  for (const name of ["line\nfeed.png", "-rf", "c:\\x.png", "é.png", "e\u0301.png"])
    writeFileSync(make(name), PNG);
  const infer = async (input_image_path: string, output_folder_path = output) => {
    const response = await server.post("/single_inference", {
      input_image_path,
      output_folder_path,
    });
    return { status: response.status, ...((await response.json()) as { error: string }) };
  };
  // It is found, and no picture that could be read: a chunk is damaged
  const found = { status: 422, error: "corrupt_image" };
  const inputs: Record<string, object> = {
    ...Object.fromEntries(
      [
        "image.png",
        "./image.png",
        "here/here/image.png",
        "line\nfeed.png",
        "-rf",
        "c:\\x.png",
        "é.png",
      ].map((name) => [name, found]),
    ),
    pipe: { status: 400 },
    loop: { status: 404 },
    "loop/x": { status: 404 },
    "IMAGE.PNG": { status: 404 },
    "%2e%2e/image.png": { status: 404 },
    process: { status: 403 },
    "process/environ": { status: 403 },
    "process/fd/0": { status: 403 },
    secret: { status: 403 },
    "../state/keys": { status: 403 },
    "image.png/../../state": { status: 403 },
    folder: { status: 422, error: "series_invalid" },
    ["x/".repeat(2100)]: { status: 400 },
    ["x".repeat(256)]: { status: 404 },
  };
  for (const [name, answer] of Object.entries(inputs))
    t.match(await infer(`${input}/${name}`), answer, `input ${name.slice(0, 40)}`);
  for (const away of [
    "/",
    "/..",
    "/proc/self/environ",
    "/dev/stdin",
    `${input}x`,
    input.toUpperCase(),
  ])
    t.match(await infer(away), { status: 403 }, `input ${away}`);
  const outputs: Record<string, object> = {
    elsewhere: { status: 403 },
    "elsewhere/x": { status: 403 },
    "..": { status: 403 },
    "../state": { status: 403 },
    ".x.radserve/y": { status: 400 },
    ["x".repeat(256)]: { status: 403 },
  };
  for (const [name, answer] of Object.entries(outputs))
    t.match(
      await infer(`${input}/image.png`, `${output}/${name}`),
      answer,
      `output ${name.slice(0, 40)}`,
    );
  for (const away of ["/proc/self/cwd", "/dev/shm/x", "/dev/null", `${output}/../input`])
    t.match(await infer(`${input}/image.png`, away), { status: 403 }, `output ${away}`);
  t.strictSame(readdirSync(output).sort(), ["elsewhere"], "nothing was made");
});

t.test("halves of connections", async (t) => {
  const halves = {
    "a whole request": [`${LIVE}\r\n`, "200"],
    "half a head": ["GET /health/li", "400"],
    "half a body": [
      `POST /single_inference HTTP/1.1\r\nHost: x\r\nAuthorization: ${server.token}\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{`,
      "400",
    ],
  } as const;
  for (const [name, [text, status]] of Object.entries(halves)) {
    const { socket, closed } = await connected(server.port, text);
    socket.end();
    t.match(await closed, new RegExp(`^HTTP/1\\.1 ${status} `), name);
  }
});

t.test("nothing of all this is a fault of the server", (t) => {
  t.strictSame(
    server.log.filter(({ level, msg }) => level === "error" || msg === "unexpected failure"),
    [],
  );
  t.end();
});
