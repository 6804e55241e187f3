/**
 * `npm run bench -- readers`: connections without a token that send requests one behind the other
 * and never read an answer, against two goals: GET /health/live of another client answers within
 * 100 ms at the 99th percentile, and the server's memory grows by at most 200 MiB. Rounds: nobody
 * beside, 10 and 100 such connections that ask for the contract, and 100 that ask for its head, for
 * a page that is not there, and with a token that is none. It takes about a minute and a half.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { memoryOf, machine, startServer, type BenchServer } from "./lib/server.js";

const { values } = parseArgs({
  options: {
    port: { type: "string" },
    readers: { type: "string", default: "0" },
    asks: { type: "string", default: "contract" },
  },
});
const GOALS = { health_p99_ms: 100, grown_mib: 200 };
const ROUND_MS = 15_000;
const ASK_EVERY_MS = 20;
const REQUESTS: Record<string, string> = {
  contract: "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n",
  head: "HEAD /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n",
  nothing: "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n",
  token: "GET /models HTTP/1.1\r\nHost: x\r\nAuthorization: a.b.c\r\n\r\n",
};
const ROUNDS: [readers: number, asks: string][] = [
  [0, "contract"],
  [10, "contract"],
  [100, "contract"],
  [100, "head"],
  [100, "nothing"],
  [100, "token"],
];
/** What one write brings: more requests than one read of the server takes. */
const BURST = REQUESTS[values.asks]!.repeat(2_000);

/**
 * A client that writes requests for as long as the connection takes them, begins anew when it is
 * closed, and never reads.
 */
function neverReads(port: number): void {
  const socket: Socket = connect(port, "127.0.0.1");
  socket.pause();
  const more = () => {
    while (socket.writable && socket.write(BURST));
  };
  socket.on("connect", more).on("drain", more);
  socket
    .on("error", () => undefined)
    .on("close", () => {
      setTimeout(neverReads, 100, port);
    });
}

interface Round {
  readers: number;
  asks: string;
  health_p99_ms: number;
  health_most_ms: number;
  /** MiB beyond what the server held before this round, at most. */
  grown_mib: number;
}

async function round(server: BenchServer, readers: number, asks: string): Promise<Round> {
  const before = memoryOf(server);
  const port = Number(new URL(server.url).port);
  // In a process of their own, so that only the server's delays are measured
  const clients = fork(fileURLToPath(import.meta.url), [
    "--port",
    String(port),
    "--readers",
    String(readers),
    "--asks",
    asks,
  ]);
  const times: number[] = [];
  let most = before;
  for (const began = performance.now(); performance.now() - began < ROUND_MS;) {
    await delay(ASK_EVERY_MS);
    const asked = performance.now();
    await (await fetch(`${server.url}/health/live`)).arrayBuffer();
    times.push(performance.now() - asked);
    most = Math.max(most, memoryOf(server));
  }
  clients.kill();
  if (clients.exitCode === null) await once(clients, "exit");
  times.sort((a, b) => a - b);
  return {
    readers,
    asks,
    health_p99_ms: times[Math.floor(times.length * 0.99)]!,
    health_most_ms: times.at(-1)!,
    grown_mib: most - before,
  };
}

async function main(): Promise<void> {
  const server = await startServer({ RADSERVE_LOG_LEVEL: "error" });
  try {
    const rounds = [];
    for (const [readers, asks] of ROUNDS) rounds.push(await round(server, readers, asks));
    console.log(Object.values(machine()).join(", "));
    for (const { readers, asks, health_p99_ms, health_most_ms, grown_mib } of rounds)
      console.log(
        `${readers} that never read (${asks}): health ${health_p99_ms.toFixed(1)} ms at the 99th percentile ` +
          `(most ${health_most_ms.toFixed(1)}, goal ${GOALS.health_p99_ms}), ` +
          `${grown_mib.toFixed(0)} MiB more (goal ${GOALS.grown_mib})`,
      );
  } finally {
    await server.stop();
  }
}

if (values.port === undefined) await main();
else for (let i = 0; i < Number(values.readers); i++) neverReads(Number(values.port));
