/** Bodies that nobody wants: the answer comes whole, and what is read of them has a bound. */
import http from "node:http";
import net from "node:net";
import t from "tap";
import { makePlace, startServer } from "../support/server.js";

const server = await startServer(
  makePlace({
    RADSERVE_FILES_BY_HTTP: "upload",
    // One request, and then none for a hundred seconds
    RADSERVE_RATE_LIMIT: "0.01",
    RADSERVE_FAILED_TOKENS: "1000",
  }),
);
t.teardown(() => server.stop());

/** More than what the kernels of both sides keep of a connection. */
const FAR_TOO_MUCH = 64 * 1024 * 1024;
const PIECE = Buffer.alloc(64 * 1024, 0x20);
const CHUNK = Buffer.concat([Buffer.from("10000\r\n"), PIECE, Buffer.from("\r\n")]);

/** Sends a head and then a body without end, until the server closes or has taken far too much. */
function endless(head: string, headers: readonly string[], piece: Buffer) {
  return new Promise<{ heard: string; sent: number }>((resolve) => {
    const socket = net.connect({ port: server.port, host: "127.0.0.1", allowHalfOpen: true });
    let heard = "";
    const more = () => {
      if (socket.destroyed) return;
      if (socket.bytesWritten >= FAR_TOO_MUCH) socket.destroy();
      else if (socket.write(piece)) later();
    };
    // An answer that has come is read before more is sent: a write that fails would drop it
    const later = () => void setImmediate(more);
    socket.setEncoding("utf8").on("data", (text: string) => (heard += text));
    socket.on("drain", later).on("error", () => undefined);
    socket.once("close", () => resolve({ heard, sent: socket.bytesWritten }));
    socket.once("connect", () => {
      socket.write(`${[`${head} HTTP/1.1`, "Host: x", ...headers].join("\r\n")}\r\n\r\n`);
      more();
    });
  });
}

const JSON_TYPE = "Content-Type: application/json";
const LONG = ["Content-Length: 2000000000000"];
const CHUNKED = ["Transfer-Encoding: chunked"];

t.test("of a body without a token little is read before the connection closes", async (t) => {
  const pages = [
    ["POST /single_inference", 401],
    ["POST /bulk_inference", 401],
    ["POST /dicomweb/studies", 401],
    ["PUT /files?path=/x/y.dcm", 401],
    ["POST /nope", 404],
    ["DELETE /models", 405],
    ["GET /models", 401],
    ["GET /health/live", 200],
  ] as const;
  const framings = [
    [LONG, PIECE],
    [CHUNKED, CHUNK],
  ] as const;
  const all = pages.flatMap(([head, status]) =>
    framings.map(async ([framing, piece]) => {
      const { heard, sent } = await endless(head, [JSON_TYPE, ...framing], piece);
      const name = `${head}, ${framing[0] ?? ""}`;
      t.ok(heard.startsWith(`HTTP/1.1 ${status} `), `${name}: ${heard.slice(0, 20)}`);
      t.equal(heard.split("HTTP/1.1 ").length, 2, `${name}: one answer`);
      t.match(heard, /\}$/, `${name}: the answer is whole`);
      t.ok(sent < FAR_TOO_MUCH, `${name}: closed after ${sent} bytes`);
    }),
  );
  await Promise.all(all);
});

t.test("nor of one whose subject sends too often", async (t) => {
  const headers = { Authorization: server.token };
  for (let i = 0; i < 20; i++) await fetch(`${server.url}/models`, { headers });
  const authorization = `Authorization: ${server.token}`;
  const { heard, sent } = await endless("POST /bulk_inference", [authorization, ...LONG], PIECE);
  t.match(heard, /^HTTP\/1\.1 429 /);
  t.ok(sent < FAR_TOO_MUCH, `closed after ${sent} bytes`);
});

t.test("a small body that is refused costs no connection", async (t) => {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => agent.destroy());
  const ports = new Set<number | undefined>();
  for (const chunked of [false, true])
    for (const page of ["/single_inference", "/nope", "/bulk_inference"]) {
      const body = Buffer.alloc(60_000, 0x20);
      const status = await new Promise((resolve, reject) => {
        const headers = chunked ? {} : { "Content-Length": body.length };
        const request = http.request(server.url + page, { agent, method: "POST", headers });
        request.once("error", reject).once("response", (response) => {
          ports.add(response.socket.localPort);
          response.resume().once("end", () => resolve(response.statusCode));
        });
        request.end(body);
      });
      t.equal(status, page === "/nope" ? 404 : 401, page);
    }
  t.equal(ports.size, 1, "all went over one connection");
});
