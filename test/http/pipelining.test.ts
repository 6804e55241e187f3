/**
 * Requests sent one behind the other on a connection, and clients that do not read their answers.
 */
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import t from "tap";
import { connected } from "../support/client.js";
import { startServer, type TestServer } from "../support/server.js";

const LIVE = "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n";
const CONTRACT = "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n";
const LAST = "GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
const MIB = 1024 * 1024;

const residentMib = (server: TestServer) =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.servingPid()}/status`, "utf8"))?.[1]) /
  1024;

t.test("pipelined requests", async (t) => {
  const server = await startServer();
  t.teardown(() => server.stop());

  await t.test("are answered in their order", async (t) => {
    const ids = Array.from({ length: 30 }, (_, i) => `id-${i}`);
    const requests = ids.map((id) => LIVE.replace("Host: x", `Host: x\r\nX-Request-Id: ${id}`));
    const { closed } = await connected(server.port, [...requests, LAST].join(""));
    const answered = [...(await closed).matchAll(/X-Request-Id: (id-\d+)/gi)].map(([, id]) => id);
    t.strictSame(answered, ids);
  });

  await t.test(
    "of which more wait than may end the connection, with whole answers before",
    async (t) => {
      const { closed } = await connected(server.port, LIVE.repeat(1_000));
      const answers = (await closed).split("HTTP/1.1 200 OK").slice(1);
      t.ok(answers.length >= 1 && answers.length < 1_000, `${answers.length} answers`);
      t.ok(answers.every((answer) => answer.endsWith('"}')));
      t.ok(
        await server.logged((line) =>
          JSON.stringify(line["refused"] ?? {}).includes("too_many_waiting"),
        ),
      );
    },
  );

  await t.test("of clients that never read take little memory", async (t) => {
    await (await fetch(`${server.url}/openapi.json`)).text();
    const before = residentMib(server);
    const sockets = Array.from({ length: 20 }, () => connect(server.port, "127.0.0.1"));
    t.teardown(() => sockets.forEach((socket) => socket.destroy()));
    await Promise.all(
      sockets.map(
        (socket) =>
          new Promise((resolve) => {
            socket.on("error", resolve).pause();
            socket.write(CONTRACT.repeat(1_500), resolve);
          }),
      ),
    );
    for (let i = 0; i < 20; i++) t.equal((await fetch(`${server.url}/health/live`)).status, 200);
    const grown = residentMib(server) - before;
    t.ok(grown < 150, `${grown.toFixed(0)} MiB`);
  });

  await t.test("and the contract is given once to whoever has it", async (t) => {
    const first = await fetch(`${server.url}/openapi.json`);
    t.ok((await first.arrayBuffer()).byteLength > 0.1 * MIB);
    const etag = first.headers.get("etag")!;
    const again = await fetch(`${server.url}/openapi.json`, { headers: { "If-None-Match": etag } });
    t.equal(again.status, 304);
    const other = await fetch(`${server.url}/openapi.json`, {
      headers: { "If-None-Match": '"other"' },
    });
    t.equal(other.status, 200);
  });
});
