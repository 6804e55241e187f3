/**
 * How many connections there may be, what becomes of slow and silent ones, and which address
 * counts.
 */
import type http from "node:http";
import t from "tap";
import { ask, connected } from "../support/client.js";
import { withDurations } from "../support/durations.js";
import { makePlace, startServer, type TestServer } from "../support/server.js";
import { HOUR_MS, holdHours } from "../support/held.js";
import { until } from "../support/until.js";

/** After its answer the connection is idle, and kept. */
const LIVE = "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n";
const refusals = ({ log }: TestServer) => log.filter(({ msg }) => msg === "connections refused");

async function metric(server: TestServer, name: string): Promise<number> {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  const at = text.split("\n").find((line) => line.startsWith(`${name} `));
  return Number(at?.slice(name.length));
}

t.test("one address has its limit, others go on, and the log is not flooded", async (t) => {
  const place = makePlace({
    ...withDurations({ refusedConnections: HOUR_MS }),
    RADSERVE_MAX_CONNECTIONS_PER_ADDRESS: "4",
  });
  const endHours = holdHours(place);
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const far = { localAddress: "127.0.0.2" };
  const lines = await Promise.all(
    Array.from({ length: 4 }, () => connected(server.port, LIVE, far.localAddress)),
  );
  await until(
    "four connections are counted",
    async () => (await metric(server, "radserve_connections")) >= 4,
  );

  const refused = await ask(server.port, "/health/live", far);
  t.match(refused, {
    status: 503,
    headers: { "retry-after": "2", connection: "close" },
    body: { error: "overloaded", message: /at most 4 connections of one address/, request_id: /./ },
  });
  t.equal((await ask(server.port, "/health/live", { localAddress: "127.0.0.3" })).status, 200);
  t.match(await server.logged(({ msg }) => msg === "connections refused"), {
    level: "warn",
    refused: { too_many_of_address: 1 },
    address: "127.0.0.2",
  });
  const many = await Promise.all(
    Array.from(
      { length: 200 },
      async () => (await connected(server.port, "", far.localAddress)).closed,
    ),
  );
  t.ok(
    many.every((text) => text === "" || text.startsWith("HTTP/1.1 503 ")),
    "each is told, or closed where too many are being told",
  );
  t.equal(refusals(server).length, 1, "and not one line each");
  t.equal(
    await metric(server, 'radserve_connections_refused_total{reason="too_many_of_address"}'),
    201,
  );
  endHours();
  await server.logged(({ refused: sums }) => {
    const { too_many_of_address: sum = 0 } = (sums ?? {}) as { too_many_of_address?: number };
    return sum === 200;
  });

  lines[0]!.socket.destroy();
  await until(
    "the address gets an answer again",
    async () => (await ask(server.port, "/health/live", far)).status === 200,
  );
});

t.test("in all: whoever is idle makes room, and requests in work are never closed", async (t) => {
  const server = await startServer(makePlace({ RADSERVE_MAX_CONNECTIONS: "3" }));
  t.teardown(() => server.stop());
  const body = JSON.stringify({ input_image_path: "/x", output_folder_path: "/x" });
  // Its body is not whole yet
  const request =
    `POST /single_inference HTTP/1.1\r\nHost: x\r\nAuthorization: ${server.token}\r\n` +
    `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
  const working = await Promise.all([1, 2, 3].map(() => connected(server.port, request)));
  const last = working[2]!;
  await until(
    "there are too many connections",
    async () => (await ask(server.port, "/health/live")).status === 503,
  );
  t.match(await ask(server.port, "/health/live"), {
    status: 503,
    body: { error: "overloaded", message: /at most 3 connections; found more/ },
  });
  const answered = new Promise<string>((resolve) => last.socket.once("data", resolve));
  last.socket.write(body);
  t.match(await answered, /^HTTP\/1\.1 403 /, "a request in work is answered");
  await until(
    "there is room for a connection again",
    async () => (await ask(server.port, "/health/live")).status === 200,
  );
  t.match(
    await last.closed,
    /path_not_allowed/,
    "then its connection is idle, and closed for another",
  );
  t.equal(await metric(server, 'radserve_connections_refused_total{reason="closed_idle"}'), 1);
  for (const { socket } of working.slice(0, 2)) {
    const whole = new Promise<string>((resolve) => socket.once("data", resolve));
    socket.write(body);
    t.match(await whole, /^HTTP\/1\.1 403 /);
  }
});

t.test("silent and slow clients are told and closed", async (t) => {
  const server = await startServer(
    makePlace(withDurations({ requestHeaders: 1_000, requestLook: 100 })),
  );
  t.teardown(() => server.stop());
  const silent = await connected(server.port);
  const slow = await connected(server.port, "GET /health/live HTTP/1.1\r\n");
  const dribble = setInterval(() => slow.socket.write("X-A: b\r\n"), 100);
  t.match(await silent.closed, /^HTTP\/1\.1 408 .*"error":"bad_request"/s);
  t.match(await slow.closed, /^HTTP\/1\.1 408 /);
  clearInterval(dribble);
});

t.test("the address of a client behind a proxy", async (t) => {
  const server = await startServer(
    makePlace({
      RADSERVE_TRUSTED_PROXIES: "127.0.0.2,10.9.0.0/16",
      RADSERVE_MAX_CONNECTIONS_PER_ADDRESS: "3",
    }),
  );
  t.teardown(() => server.stop());
  const addressOf = async (localAddress: string, headers: http.OutgoingHttpHeaders) => {
    const id = `a${Math.random()}`;
    await ask(server.port, "/health/live", {
      localAddress,
      headers: { ...headers, "X-Request-Id": id },
    });
    return (await server.logged((line) => line["request_id"] === id))["address"];
  };
  const spoofed = "6.6.6.6, 192.0.2.7, 10.9.1.1";
  t.equal(await addressOf("127.0.0.2", { "X-Forwarded-For": spoofed }), "192.0.2.7");
  t.equal(await addressOf("127.0.0.2", { Forwarded: 'for="[2001:db8::7]:99"' }), "2001:db8::7");
  t.equal(await addressOf("127.0.0.2", { "X-Forwarded-For": "<x>, unknown" }), "127.0.0.2");
  t.equal(
    await addressOf("127.0.0.1", { "X-Forwarded-For": spoofed, Forwarded: "for=6.6.6.6" }),
    "127.0.0.1",
  );
  t.equal(await addressOf("127.0.0.2", {}), "127.0.0.2");
  const metrics = { localAddress: "127.0.0.2", headers: { "X-Forwarded-For": "127.0.0.1" } };
  t.equal(
    (await ask(server.port, "/metrics", metrics)).status,
    401,
    "a proxy's word opens no local page",
  );
  const lines = await Promise.all(
    Array.from({ length: 5 }, () => connected(server.port, "", "127.0.0.2")),
  );
  t.equal((await ask(server.port, "/health/live", { localAddress: "127.0.0.2" })).status, 200);
  for (const { socket } of lines) socket.destroy();
});

t.test("failed tokens are slowed for their address, and good ones never", async (t) => {
  const place = makePlace({
    ...withDurations({ refusedToken: HOUR_MS }),
    RADSERVE_FAILED_TOKENS: "3",
    RADSERVE_TRUSTED_PROXIES: "127.0.0.9",
  });
  const endHours = holdHours(place);
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const order: string[] = [];
  const send = async (
    name: string,
    token: string | undefined,
    options: http.RequestOptions = {},
  ) => {
    const headers = {
      ...(options.headers as object),
      ...(token === undefined ? {} : { Authorization: token }),
    };
    const answer = await ask(server.port, "/models", { ...options, headers });
    order.push(name);
    return answer;
  };
  const bad = { status: 401, body: { error: "unauthorized", message: "Invalid token" } };
  for (const name of ["1", "2", "3"]) t.match(await send(name, "x.y.z"), bad);
  order.length = 0;
  const waiting = send("slow", "x.y.z");
  const missing = send("slow, too", undefined);
  t.equal((await send("good", server.token)).status, 200);
  t.match(await send("elsewhere", "x.y.z", { localAddress: "127.0.0.2" }), bad);
  t.strictSame(order, ["good", "elsewhere"], "the good one and another address go before");
  const answered = async <T>(answers: Promise<T>) => {
    const all = { answered: false };
    void answers.finally(() => (all.answered = true));
    await until("they are answered", () => {
      endHours();
      return all.answered;
    });
    return answers;
  };
  t.match(await answered(waiting), bad, "with the message of always");
  t.match(await answered(missing), { status: 401, body: { message: "Token missing" } });

  order.length = 0;
  const through = (client: string) => ({
    localAddress: "127.0.0.9",
    headers: { "X-Forwarded-For": client },
  });
  for (const name of ["1", "2", "3"]) await send(name, "x.y.z", through("192.0.2.1"));
  const attacker = send("attacker", "x.y.z", through("192.0.2.1"));
  t.match(await send("neighbour", "x.y.z", through("192.0.2.2")), bad);
  t.strictSame(
    order,
    ["1", "2", "3", "neighbour"],
    "behind one proxy each client counts for itself",
  );
  await answered(attacker);

  order.length = 0;
  const many = Promise.all(Array.from({ length: 200 }, () => send("many", "x.y.z")));
  await until("most of many are answered", () => order.length > 100);
  const waits = 200 - order.length;
  const answers = await answered(many);
  t.ok(answers.every(({ status }) => status === 401));
  t.ok(waits < 100, `few answers wait in memory: ${waits}`);
});
