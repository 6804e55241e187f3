/** What the server says to requests of every wrong kind, over a real socket. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import path from "node:path";
import { gzipSync } from "node:zlib";
import t from "tap";
import { issueToken, makePlace, startServer } from "../support/server.js";
import { until } from "../support/until.js";

const place = makePlace({
  RADSERVE_BODY_LIMIT: "100KB",
  DATABASE_URL: "postgres://nobody@127.0.0.1:9/none",
  RADSERVE_PATH_MAP: '[{"from": "\\\\\\\\pacs\\\\share", "to": "/nowhere"}]',
});
const server = await startServer(place);
t.teardown(() => server.stop());
const good = { input_image_path: `${place.input}/image.png`, output_folder_path: place.output };

interface Answer {
  error: string;
  message: string;
  request_id: string;
  details?: Record<string, unknown>;
}
async function post(page: string, body: unknown, headers: Record<string, string> = {}) {
  const response = await server.post(page, body, headers);
  return {
    status: response.status,
    headers: response.headers,
    body: (await response.json()) as Answer,
  };
}

t.test("bodies that are not as documented", async (t) => {
  const cases: [string, unknown, RegExp, Record<string, string>?][] = [
    ["no JSON", '{"input_image_path": x}', /fault at line 1, column 22/],
    ["a list", "[]", /Expected an object; found a list/],
    ["a string", '"x"', /Expected a JSON object; found a string\.$/],
    ["null", "null", /Expected a JSON object; found null\.$/],
    ["a number", " 7", /Expected a JSON object; found 7\.$/],
    ["far", { ...good, zzz: 1 }, /zzz: Unknown field\.$/],
    ["nothing", "", /input_image_path: Expected a string; found nothing/],
    [
      "a form",
      "a=b",
      /Content-Type application\/json; found application\/x-www-form-urlencoded/,
      { "Content-Type": "application/x-www-form-urlencoded" },
    ],
    ["model", { ...good, model: "x" }, /model: Unknown field; the nearest known field is "models"/],
    ["prototype", '{"__proto__": {}}', /Expected a JSON object/],
    [
      "relative path",
      { ...good, input_image_path: "x.dcm" },
      /input_image_path: Expected an absolute path, beginning with \/, .*; found "x\.dcm"/,
    ],
    ["NUL", { ...good, input_image_path: "/a\0b" }, /without NUL bytes/],
    ["encoding", "{}", /Content-Encoding gzip/, { "Content-Encoding": "br2" }],
    ["not packed", "{}", /packed as Content-Encoding says/, { "Content-Encoding": "gzip" }],
    ["not packed", "{}", /packed as Content-Encoding says/, { "Content-Encoding": "br" }],
  ];
  for (const [name, body, message, headers] of cases) {
    const answer = await post("/single_inference", body, headers);
    t.equal(answer.status, 400, name);
    t.equal(answer.body.error, "bad_request", name);
    t.match(answer.body.message, message, name);
    t.equal(answer.headers.get("X-Request-Id"), answer.body.request_id, name);
  }
});

t.test("other machines' names are taken where path_map has them", async (t) => {
  for (const [field, name, found] of [
    ["input_image_path", "\\\\other\\share\\x", "Windows path"],
    ["output_folder_path", "D:/out", "Windows path"],
    ["input_image_path", "smb://other/share/x", "address"],
  ] as const)
    t.match(
      await post("/single_inference", { ...good, [field]: name }),
      {
        status: 403,
        body: {
          error: "path_not_allowed",
          message: new RegExp(`RADSERVE_PATH_MAP translates; found an? ${found} that it does not`),
        },
      },
      name,
    );
  const mapped = { ...good, input_image_path: "\\\\PACS\\share\\x" };
  t.match(await post("/single_inference", mapped), {
    status: 403,
    body: { message: /RADSERVE_INPUT_ROOTS/ },
  });
  const contract = (await (await fetch(`${server.url}/openapi.json`)).json()) as {
    components: { schemas: Record<string, { properties: Record<string, { pattern?: string }> }> };
  };
  const { SingleRequest, BulkFolderRequest } = contract.components.schemas;
  for (const { pattern } of [
    SingleRequest!.properties["input_image_path"]!,
    SingleRequest!.properties["output_folder_path"]!,
    BulkFolderRequest!.properties["input_folder_path"]!,
  ]) {
    const published = new RegExp(pattern ?? "");
    for (const name of ["/a", "\\\\s\\x", "D:\\x", "smb://s/x"]) t.ok(published.test(name), name);
    for (const name of ["a", "./a", "", "\\a", "/a\0"])
      t.notOk(published.test(name), JSON.stringify(name));
  }
});

t.test("a model that there is not is 404: the contract cannot say which there are", async (t) => {
  const answer = await post("/single_inference", { ...good, models: ["no-such"] });
  t.equal(answer.status, 404);
  t.match(answer.body, { error: "model_not_found", message: /no model is called "no-such"/ });
});

t.test(
  "a field that is there twice is refused, though JSON.parse would take the last",
  async (t) => {
    const { input_image_path: input, output_folder_path: output } = good;
    const fields = `"output_folder_path": "${output}"`;
    const twice = [
      [
        "plain",
        `{"input_image_path": "${input}", "input_image_path": "${input}", ${fields}}`,
        1,
        57,
      ],
      [
        "escaped",
        `{"input_image_path": "${input}",\n"input\\u005fimage_path": "${input}", ${fields}}`,
        2,
        1,
      ],
      ["below", `{"models": [{"a": 1, "b": {"a": "\\"a\\":"}}, {"a": 1,\r\n "a": 2}]}`, 2, 2, "a"],
      ["strange", '{"": 1, "": 2}', 1, 9, ""],
      ["prototype", '{"toString": 1, "toString": 2}', 1, 17, "toString"],
    ] as const;
    for (const [name, text, line, column, field = "input_image_path"] of twice) {
      const { status, body } = await post("/single_inference", text);
      t.equal(status, 400, name);
      t.match(body, {
        error: "bad_request",
        message: `Expected each field of an object once; found "${field}" again at line ${line}, column ${name === "plain" ? text.lastIndexOf('"input_image_path"') + 1 : column}.`,
        details: { field, line },
      });
    }
    const item = `{"input_image_path": "${input}", ${fields}, "output_folder_path": "/elsewhere"}`;
    const bulk = await post(
      "/bulk_inference",
      `{"items": [{"input_image_path": "${input}", ${fields}}, ${item}]}`,
    );
    t.match(bulk, {
      status: 400,
      body: { error: "bad_request", message: /found "output_folder_path" again/ },
    });
    const odd = `${place.input}/\\","output_folder_path":"`;
    t.match(
      await post("/single_inference", {
        ...good,
        input_image_path: odd,
        models: ["models", "outputs"],
      }),
      { status: 404, body: { error: "input_not_found" } },
      "values and the fields of other objects are no repeats",
    );
  },
);

t.test("bytes that are no UTF-8 never become a name", async (t) => {
  const send = async (page: string, body: Buffer) => {
    const response = await fetch(server.url + page, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: server.token },
      body,
    });
    return { status: response.status, body: (await response.json()) as Answer };
  };
  const latin1 = (body: object) => Buffer.from(JSON.stringify(body), "latin1");
  const refused = {
    status: 400,
    body: { error: "bad_request", message: /^Expected a body in UTF-8/ },
  };
  t.match(
    await send(
      "/single_inference",
      latin1({ ...good, output_folder_path: `${place.output}/Müller` }),
    ),
    refused,
  );
  const folders = { input_folder_path: place.input, output_folder_path: `${place.output}/Müller` };
  t.match(await send("/bulk_inference", latin1(folders)), refused);
  t.match(
    await send("/single_inference", Buffer.from(`\ufeff${JSON.stringify(good)}`, "utf16le")),
    refused,
  );
  t.strictSame(readdirSync(place.output), []);
  const meant = JSON.stringify({ ...good, input_image_path: `${place.input}/\ufffd` }).replace(
    "\ufffd",
    "\\ufffd",
  );
  t.match(
    await send("/single_inference", Buffer.from(meant)),
    { status: 404 },
    "escaped it is a name like others",
  );
});

t.test("without its database bulk alone cannot be taken", async (t) => {
  const folders = { input_folder_path: place.input, output_folder_path: place.output };
  for (const body of [folders, { items: [good] }, { ...folders, idempotency_key: "x" }]) {
    const answer = await post("/bulk_inference", body);
    t.match(answer, {
      status: 503,
      body: { error: "bulk_unavailable", message: /127\.0\.0\.1:9 .*ECONNREFUSED.*DATABASE_URL/ },
    });
    t.match(answer.headers.get("Retry-After"), /^\d+$/);
  }
  t.match(await post("/bulk_inference", { ...folders, output_folder: "/x" }), { status: 400 });
  t.match(
    await post("/bulk_inference", { items: [good, { ...good, input_image_path: "/etc/passwd" }] }),
    {
      status: 403,
      body: { details: { index: 1 } },
    },
  );
  t.match(await post("/bulk_inference/x/retry", ""), {
    status: 503,
    body: { error: "bulk_unavailable" },
  });
  // As soon as it is known that the database cannot say what other nodes see
  await until(
    "the server is ready",
    async () => (await fetch(`${server.url}/health/ready`)).status === 200,
  );
});

t.test("paths outside the roots", async (t) => {
  symlinkSync("/etc", path.join(place.input, "link"));
  symlinkSync("/etc", path.join(place.output, "link"));
  execFileSync("mkfifo", [path.join(place.input, "pipe")]);
  const cases: [object, number, string][] = [
    [{ input_image_path: "/etc/hostname" }, 403, "path_not_allowed"],
    [{ input_image_path: `${place.input}/../../../etc/hostname` }, 403, "path_not_allowed"],
    [{ input_image_path: `${place.input}/link/hostname` }, 403, "path_not_allowed"],
    [{ input_image_path: `${place.input}/link/none` }, 403, "path_not_allowed"],
    [{ input_image_path: "/no/such/thing" }, 403, "path_not_allowed"],
    [{ input_image_path: "\\\\pacs\\share\\x" }, 403, "path_not_allowed"],
    [{ input_image_path: place.output }, 403, "path_not_allowed"],
    [{ input_image_path: `${place.input}/none.dcm` }, 404, "input_not_found"],
    [{ input_image_path: `${place.input}/pipe` }, 400, "bad_request"],
    [{ output_folder_path: "/tmp" }, 403, "path_not_allowed"],
    [{ output_folder_path: `${place.output}/../elsewhere` }, 403, "path_not_allowed"],
    [{ output_folder_path: `${place.output}/link/x` }, 403, "path_not_allowed"],
    [{ output_folder_path: place.input }, 403, "path_not_allowed"],
    [{ output_folder_path: `${place.output}/.image.png.radserve/x` }, 400, "bad_request"],
  ];
  for (const [change, status, error] of cases)
    t.match(
      await post("/single_inference", { ...good, ...change }),
      { status, body: { error } },
      JSON.stringify(change),
    );
  t.notOk(existsSync(path.join(place.directory, "elsewhere")));
  const logged = JSON.stringify(server.log);
  t.notMatch(logged, /hostname|none\.dcm|elsewhere/, "no path is logged");
});

t.test("a token narrows the roots", async (t) => {
  mkdirSync(path.join(place.input, "mine"));
  writeFileSync(path.join(place.input, "mine", "x.png"), "x");
  const token = await issueToken(place, "--input-root", `${place.input}/mine`);
  const send = (input_image_path: string) =>
    post("/single_inference", { ...good, input_image_path }, { Authorization: token });
  t.match(await send(good.input_image_path), {
    status: 403,
    body: { message: /this token allows/ },
  });
  t.match(await send(`${place.input}/mine/none`), { status: 404 });
  const early = await issueToken(place, "--output-root", `${place.output}/n1`);
  const write = (output_folder_path: string) =>
    post("/single_inference", { ...good, output_folder_path }, { Authorization: early });
  t.match(await write(`${place.output}/n1/x`), { status: 422 }, "the paths are allowed");
  t.match(await write(`${place.output}/n2`), {
    status: 403,
    body: { details: { reason: "token" } },
  });
});

t.test("pages and methods that are not there", async (t) => {
  const none = await fetch(`${server.url}/inference`);
  t.equal(none.status, 404);
  t.match(await none.json(), { error: "not_found" });
  const method = await fetch(`${server.url}/single_inference`);
  t.equal(method.status, 405);
  t.equal(method.headers.get("Allow"), "POST");
  t.match(await method.json(), {
    error: "method_not_allowed",
    message: /Expected POST for this endpoint; found GET/,
  });
  const put = await fetch(`${server.url}/bulk_inference`, { method: "PUT" });
  t.match(put.headers.get("Allow"), /POST/);
  t.match(put.headers.get("Allow"), /GET/);
});

t.test("bodies that are too large, also when they unpack", async (t) => {
  const large = JSON.stringify({ ...good, filler: "x".repeat(70_000) });
  t.match(await post("/single_inference", large), {
    status: 413,
    body: { error: "body_too_large", details: { limit: 65536 } },
  });
  t.match(await post("/bulk_inference", "x".repeat(100_001)), {
    status: 413,
    body: { details: { limit: 100_000 } },
  });
  const bomb = gzipSync(Buffer.alloc(10_000_000, 0x20));
  const response = await fetch(`${server.url}/single_inference`, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      "Content-Encoding": "gzip",
      Authorization: server.token,
    },
    body: bomb,
  });
  t.equal(response.status, 413);
});

t.test("a client that is still sending gets its 413, and the connection stays", async (t) => {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => agent.destroy());
  const send = (page: string, sized: boolean) =>
    new Promise<{ status: number | undefined; port: number | undefined }>((resolve, reject) => {
      const request = http.request(server.url + page, {
        agent,
        method: "POST",
        headers: {
          Authorization: server.token,
          "Content-Type": "application/json",
          ...(sized ? { "Content-Length": 8_000_000 } : {}),
        },
      });
      let sent = 0;
      const more = () => {
        while (sent < 8) {
          sent += 1;
          if (!request.write(Buffer.alloc(1_000_000, 0x20))) {
            request.once("drain", more);
            return;
          }
        }
        request.end();
      };
      request.once("error", reject).once("response", (response) => {
        const { localPort: port } = response.socket;
        response.resume().once("end", () => resolve({ status: response.statusCode, port }));
      });
      more();
    });
  const answers = [
    await send("/single_inference", true),
    await send("/single_inference", false),
    await send("/bulk_inference", true),
  ];
  t.match(answers, [{ status: 413 }, { status: 413 }, { status: 413 }]);
  t.equal(new Set(answers.map(({ port }) => port)).size, 1);
});

t.test("request ids", async (t) => {
  const idOf = async (given?: string) =>
    (
      await fetch(`${server.url}/health/live`, {
        headers: given === undefined ? {} : { "X-Request-Id": given },
      })
    ).headers.get("X-Request-Id");
  t.equal(await idOf("pacs-7.1:a_b"), "pacs-7.1:a_b");
  const uuid = /^[0-9a-f]{8}-[0-9a-f-]{27}$/;
  t.match(await idOf(), uuid);
  for (const odd of ["a b", "x".repeat(65), "<script>", '"'])
    t.match(await idOf(odd), uuid, odd.slice(0, 10));
});

t.test("one connection serves many requests, refused ones too", async (t) => {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => agent.destroy());
  const ports = new Set<number | undefined>();
  const send = (method: string, page: string, headers: http.OutgoingHttpHeaders = {}) =>
    new Promise<number>((resolve, reject) => {
      const request = http.request(server.url + page, { agent, method, headers }, (response) => {
        ports.add(response.socket.localPort);
        response.resume().once("end", () => resolve(response.statusCode ?? 0));
      });
      request.once("error", reject).end(method === "POST" ? "{}" : undefined);
    });
  t.equal(await send("GET", "/health/live"), 200);
  t.equal(await send("POST", "/single_inference"), 401);
  t.equal(await send("GET", "/none"), 404);
  t.equal(
    await send("POST", "/single_inference", {
      Authorization: server.token,
      "Content-Type": "application/json",
    }),
    400,
  );
  t.equal(await send("GET", "/models", { Authorization: server.token }), 200);
  t.equal(ports.size, 1);
});

function raw(text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = net.connect(server.port, "127.0.0.1", () => socket.write(text));
    let answer = "";
    socket.setEncoding("utf8").on("data", (part: string) => (answer += part));
    socket.once("close", () => resolve(answer)).once("error", reject);
  });
}

t.test("what is no HTTP gets the same shape, and the server goes on", async (t) => {
  const answer = await raw("HELLO\r\n\r\n");
  t.match(answer, /^HTTP\/1\.1 400 Bad Request\r\n/);
  t.match(JSON.parse(answer.split("\r\n\r\n")[1]!), { error: "bad_request", request_id: /.+/ });
  t.match(
    await raw(`GET / HTTP/1.1\r\nHost: x\r\nX: ${"y".repeat(20_000)}\r\n\r\n`),
    /^HTTP\/1\.1 431 /,
  );
  const says = async (text: string, status: number, message: RegExp) => {
    const [head = "", body = ""] = (await raw(text)).split("\r\n\r\n");
    t.match(head, new RegExp(`^HTTP/1\\.1 ${status} `), String(message));
    const answer = JSON.parse(body) as Answer;
    t.match(answer, { error: "bad_request", message });
    t.match(head, `X-Request-Id: ${answer.request_id}`);
    return head;
  };
  await says(
    "GET / HTTP/1.1\r\nHost: x\r\nX: a\u0001\r\n\r\n",
    400,
    /something else \(Invalid header value char\)/,
  );
  await says(
    "GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
    400,
    /^Expected one Host header; found none\.$/,
  );
  const two = "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n";
  await says(two, 400, /^Expected one Host header; found 2\.$/);
  await server.logged(({ msg, status }) => msg === "connection refused" && status === 400);
  t.equal(await raw("CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"), "");
  const expecting =
    "GET /health/live HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\nConnection: close\r\n\r\n";
  t.match(
    await raw(expecting),
    /^HTTP\/1\.1 200 /,
    "what is expected beyond 100-continue is ignored",
  );
  t.match(
    await raw("GET /health/live HTTP/1.0\r\n\r\n"),
    /^HTTP\/1\.1 200 /,
    "HTTP/1.0 has no Host",
  );
  t.equal((await fetch(`${server.url}/health/live`)).status, 200);
});

t.test("figures behind a proxy of this machine need a token", async (t) => {
  const status = async (headers: Record<string, string>) =>
    (await fetch(`${server.url}/metrics`, { headers })).status;
  t.equal(await status({}), 200, "asked for here");
  for (const [name, value] of [
    ["Via", "1.1 proxy"],
    ["X-Forwarded-For", "203.0.113.7"],
    ["X-Forwarded-For", "127.0.0.1"],
    ["X-Forwarded-For", ""],
    ["Forwarded", "for=203.0.113.7"],
    ["Forwarded", ""],
    ["X-Forwarded-Host", "radserve.example"],
    ["X-Forwarded-Proto", "https"],
    ["X-Real-IP", "203.0.113.7"],
  ] as const) {
    t.equal(await status({ [name]: value }), 401, `${name}: ${value}`);
    t.equal(
      await status({ [name]: value, Authorization: server.token }),
      200,
      `${name}, with a token`,
    );
  }
});

t.test("the open pages", async (t) => {
  const get = async (page: string, headers = {}) => fetch(server.url + page, { headers });
  const ready = await get("/health/ready");
  t.notMatch(await ready.text(), new RegExp(place.directory), "no paths");
  const contract = (await (await get("/openapi.json")).json()) as {
    openapi: string;
    paths: Record<string, Record<string, { responses: object; security?: unknown }>>;
    components: { schemas: Record<string, { properties: object; additionalProperties?: boolean }> };
  };
  t.equal(contract.openapi, "3.1.0");
  t.strictSame(Object.keys(contract.paths["/bulk_inference/{id}"]!).sort(), ["delete", "get"]);
  t.hasStrict(contract.components.schemas["SingleRequest"], { additionalProperties: false });
  t.ok(contract.paths["/single_inference"]?.["post"]?.security);
  t.strictSame(
    contract.paths["/metrics"]?.["get"]?.security,
    [{}, { token: [] }],
    "from here without a token",
  );
  const { BulkRequest, BulkItemsRequest, BulkFolderRequest } = contract.components.schemas;
  t.match(BulkRequest, {
    oneOf: [
      { $ref: "#/components/schemas/BulkFolderRequest" },
      { $ref: "#/components/schemas/BulkItemsRequest" },
    ],
  });
  t.strictSame(
    [BulkItemsRequest, BulkFolderRequest].map(
      (schema) => (schema as { required?: string[] }).required,
    ),
    [["items"], ["input_folder_path", "output_folder_path"]],
  );
  for (const status of [
    "200",
    "400",
    "401",
    "403",
    "404",
    "409",
    "413",
    "415",
    "422",
    "429",
    "500",
    "503",
    "504",
    "507",
  ])
    t.ok(status in contract.paths["/single_inference"]!["post"]!.responses, status);
  t.match(
    await (await get("/metrics")).text(),
    /radserve_http_requests_total\{route="GET \/health\/live",status="200"\}/,
  );
  t.equal(
    (await get("/metrics", { "X-Forwarded-For": "10.1.1.1" })).status,
    401,
    "through a proxy it is not this machine",
  );
  t.equal(
    (await get("/metrics", { "X-Forwarded-For": "10.1.1.1", Authorization: server.token })).status,
    200,
  );
  t.match((await get("/")).headers.get("Content-Type"), /text\/html/);
});
