/**
 * Certificates of the server and CAs of its clients that are replaced while it serves: what of them
 * is taken, and whom that lets in and shuts out.
 */
import { copyFileSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import https from "node:https";
import path from "node:path";
import tls from "node:tls";
import t from "tap";
import { TestCa, type Pair } from "../support/certificates.js";
import { ask, connected } from "../support/client.js";
import { withDurations } from "../support/durations.js";
import {
  makePlace,
  root,
  refusedStart,
  startServer,
  type Place,
  type TestServer,
} from "../support/server.js";
import { until } from "../support/until.js";

const CLOCK = path.join(root, "dist/test/support/shifted-clock.js");
const DAY_MS = 86_400_000;

const ca = new TestCa("Long CA", 400);
const short = new TestCa("Short CA", 20);
t.teardown(() => [ca, short].forEach(({ folder }) => rmSync(folder, { recursive: true })));
const trusting = { ca: ca.pem };

interface Rotated {
  place: Place;
  put: (pair: Pair) => void;
  clients: (...texts: (string | Buffer)[]) => void;
  /** Days that the server's clock is ahead. */
  clock: (days: number) => void;
}

function rotated(): Rotated {
  const place = makePlace(withDurations({ certificatesLook: 3_600_000 }));
  const file = (name: string) => path.join(place.directory, name);
  Object.assign(place.environment, {
    RADSERVE_TLS_CERT: file("server.crt"),
    RADSERVE_TLS_KEY: file("server.key"),
    RADSERVE_TLS_CLIENT_CA: file("clients.crt"),
  });
  const put = ({ cert, key }: Pair) => {
    copyFileSync(cert, file("server.crt"));
    copyFileSync(key, file("server.key"));
  };
  put(ca.issue("first", 390));
  return {
    place,
    put,
    clients: (...texts) => writeFileSync(file("clients.crt"), texts.join("")),
    clock(days) {
      writeFileSync(file("clock"), String(days * DAY_MS));
      Object.assign(place.environment, {
        NODE_OPTIONS: `--import=${CLOCK}`,
        TEST_CLOCK: file("clock"),
      });
    },
  };
}

/** Reads the files again, and gives what the log says of it. */
async function reloaded(server: TestServer): Promise<Record<string, unknown>> {
  const before = server.log.length;
  server.process.kill("SIGHUP");
  return server.logged(
    (line) =>
      server.log.indexOf(line) >= before &&
      /the previous ones stay in use|certificates read again/.test(line.msg),
  );
}

/** A client that keeps its connection: what it is answered on it, and when that has ended. */
function client({ pem }: Pair) {
  const agent = new https.Agent({ keepAlive: true, maxSockets: 1, ...trusting, ...pem });
  const sockets: tls.TLSSocket[] = [];
  agent.on("free", (socket: tls.TLSSocket) => {
    if (!sockets.includes(socket)) sockets.push(socket);
  });
  return {
    agent,
    ask: async ({ port }: TestServer) =>
      ask(port, "/health/live", { tls: { ...trusting, ...pem }, agent }),
    ended: () => {
      const [socket] = sockets;
      if (socket === undefined) throw new Error("Expected a connection");
      return (
        socket.destroyed || new Promise((resolve) => socket.once("close", () => resolve(true)))
      );
    },
    count: () => sockets.length,
  };
}

t.test(
  "files that are cut short, and certificates whose time has not come, are not taken",
  async (t) => {
    const { place, put, clients, clock } = rotated();
    clients(ca.pem, short.pem);
    clock(0);
    const server = await startServer(place);
    t.teardown(() => server.stop());
    const whole = Buffer.concat([ca.pem, short.pem]);
    for (const cut of [1, 10, 30, 200, short.pem.length - 5, short.pem.length - 20]) {
      clients(whole.subarray(0, whole.length - cut));
      if (cut === 1)
        t.match((await reloaded(server)).msg, /read again/, "without the last line feed alone");
      else
        t.match(await reloaded(server), {
          level: "error",
          reason: /^RADSERVE_TLS_CLIENT_CA: expected whole certificates in PEM; .*cut short/,
        });
    }
    clients(whole);
    const { cert, key } = ca.issue("chain", 300);
    put({ cert, key, pem: { cert: readFileSync(cert), key: readFileSync(key) } });
    writeFileSync(
      path.join(place.directory, "server.crt"),
      Buffer.concat([readFileSync(cert), ca.pem.subarray(0, 300)]),
    );
    t.match(await reloaded(server), { reason: /^RADSERVE_TLS_CERT: expected whole certificates/ });
    put(ca.issue("tomorrow", 300));
    clock(-1);
    t.match(await reloaded(server), {
      reason: /^RADSERVE_TLS_CERT: expected a certificate that is valid now; it begins on 20/,
    });
    clock(0);
    t.match(await reloaded(server), { msg: /read again/ });
  },
);

t.test("of several CAs of clients one may have expired", async (t) => {
  const { place, clients, clock } = rotated();
  clients(short.pem, ca.pem);
  clock(30);
  const server = await startServer(place);
  t.teardown(() => server.stop());
  await server.logged(({ msg }) => /RADSERVE_TLS_CLIENT_CA expired on/.test(msg));
  const mine = client(ca.issue("client", 300));
  t.teardown(() => mine.agent.destroy());
  t.equal((await mine.ask(server)).status, 200);
  clients(short.pem);
  t.match(await reloaded(server), { reason: /^RADSERVE_TLS_CLIENT_CA: .*; it expired on/ });
});

t.test(
  "who is let in by a CA that is taken away is shut out at once, on open connections too",
  async (t) => {
    const { place, put, clients } = rotated();
    clients(ca.pem, short.pem);
    const server = await startServer(place);
    t.teardown(() => server.stop());
    const [stays, goes] = [client(ca.issue("stays")), client(short.issue("goes"))];
    t.teardown(() => [stays, goes].forEach(({ agent }) => agent.destroy()));
    for (const one of [stays, goes])
      t.equal((await one.ask(server)).headers.connection, "keep-alive");
    const { socket: begun } = await connected(server.port);
    // Connections come to the server in their order: with this answer it has that one, too.
    await ask(server.port, "/health/live", { tls: { ...trusting, ...ca.issue("behind it").pem } });
    clients(ca.pem);
    t.match(await reloaded(server), { closed: 1 });
    const late = tls.connect({
      socket: begun,
      servername: "localhost",
      ...trusting,
      ...short.issue("late").pem,
    });
    late.on("error", () => undefined).write("GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n");
    const heard: string[] = [];
    late.setEncoding("utf8").on("data", (text: string) => heard.push(text));
    await new Promise((resolve) => late.once("close", resolve));
    t.strictSame(heard, [], "a connection of before whose handshake comes after");
    t.equal(await goes.ended(), true);
    await t.rejects(goes.ask(server));
    t.equal((await stays.ask(server)).headers.connection, "close", "an answer first");
    t.equal(await stays.ended(), true, "then it makes a connection with what is new");
    t.equal((await stays.ask(server)).headers.connection, "keep-alive");

    put(ca.issue("second"));
    t.match(await reloaded(server), { closed: 0 });
    t.equal((await stays.ask(server)).headers.connection, "close");
  },
);

t.test("no request is lost while certificates and CAs change again and again", async (t) => {
  const { place, put, clients } = rotated();
  clients(ca.pem);
  const server = await startServer(place);
  t.teardown(() => server.stop());
  let flowing = true;
  t.teardown(() => (flowing = false));
  /** Of each client, in their order. */
  const answers: string[][] = [];
  const pair = ca.issue("client");
  const kept = Array.from({ length: 6 }, () => client(pair));
  t.teardown(() => kept.forEach(({ agent }) => agent.destroy()));
  const fresh = () => ask(server.port, "/health/live", { tls: { ...trusting, ...pair.pem } });
  const flow = async (once: () => Promise<{ status: number }>) => {
    const mine: string[] = [];
    answers.push(mine);
    while (flowing)
      mine.push(
        await once().then(
          ({ status }) => String(status),
          (error: unknown) => String(error),
        ),
      );
  };
  const flows = Promise.all([
    ...kept.map((one) => flow(() => one.ask(server))),
    flow(fresh),
    flow(fresh),
  ]);
  for (let round = 0; round < 6; round++) {
    put(ca.issue(`round ${round}`));
    clients(...(round % 2 === 0 ? [ca.pem, short.pem] : [ca.pem]));
    t.match(await reloaded(server), { msg: /read again/, closed: 0 });
    // Of two more answers, the second is to a request that was made after the change
    const enough = answers.map(({ length }) => length + 2);
    await until("every client has its answers", () =>
      answers.every(({ length }, i) => length >= (enough[i] ?? 0)),
    );
  }
  flowing = false;
  await flows;
  t.strictSame([...new Set(answers.flat())], ["200"]);
  t.ok(kept.every(({ count }) => count() > 1));
});

t.test("a start with CAs that are cut short, or without a root", async (t) => {
  const { place, clients } = rotated();
  t.teardown(() => place.remove());
  clients(readFileSync(ca.issue("intermediate").cert));
  t.match(await refusedStart(place), /^RADSERVE_TLS_CLIENT_CA: expected CAs up to a root/);
  clients(ca.pem, "-----BEGIN CERTIFICATE-----\nMII");
  t.match(await refusedStart(place), /^RADSERVE_TLS_CLIENT_CA: expected whole certificates/);
});
