/** A client that waits for a server, and what it takes for a reason to. */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import t from "tap";
import { z } from "zod";
import { Client } from "../../src/commands/client.js";

t.test("what passes is asked again, and what does not is told at once", async (t) => {
  const statuses = [408, 429, 503, 200, 404];
  const server = createServer((_, response) => {
    response.writeHead(statuses.shift() ?? 500, { "Content-Type": "application/json" });
    response.end(JSON.stringify({ error: "bad_request", message: "It came too slowly." }));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  // One that ends a quiet connection just as the client asks again is another reason to wait
  server.keepAliveTimeout = 0;
  t.teardown(() => server.close());
  const client = new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, "token");
  const tried: string[] = [];
  const patience = { forMs: 60_000, onRetry: ({ message }: Error) => void tried.push(message) };
  await client.callPatiently(z.looseObject({}), patience, "GET", "/");
  t.equal(tried.length, 3);
  await t.rejects(client.callPatiently(z.looseObject({}), patience, "GET", "/"), {
    code: "bad_request",
  });
  t.equal(tried.length, 3, "404 is no reason to wait");
});

t.test("a proxy whose servers are away for a moment is asked again", async (t) => {
  const pages = [502, 504, 503].map((status) => ({ status, text: "<html>Bad Gateway</html>" }));
  const server = createServer((_, response) => {
    const { status, text } = pages.shift() ?? { status: 200, text: "{}" };
    response.writeHead(status).end(text);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  // One that ends a quiet connection just as the client asks again is another reason to wait
  server.keepAliveTimeout = 0;
  t.teardown(() => server.close());
  const client = new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, "token");
  await t.rejects(client.call(z.looseObject({}), "GET", "/"), {
    code: "model_unavailable",
    message: /a proxy answered 502, because no server behind it answers/,
  });
  const tried: string[] = [];
  const patience = { forMs: 60_000, onRetry: ({ message }: Error) => void tried.push(message) };
  t.strictSame(await client.callPatiently(z.looseObject({}), patience, "GET", "/"), {});
  t.match(tried, [/answered 504/, /answered 503/]);
});
