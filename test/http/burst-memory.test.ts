/**
 * What a burst of requests took goes back: large texts, uploads, and connections that only hold
 * something. Figures of one run are compared, whatever the machine takes for a server.
 */
import http from "node:http";
import t, { type Test } from "tap";
import { sampleTree } from "../soak/usage.js";
import { bulkPlace } from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { startServer } from "../support/server.js";
import { until } from "../support/until.js";

t.setTimeout(300_000);

const MIB = 2 ** 20;
/** Of what a burst took, so much may stay. */
const PART = 1 / 4;
/** A burst that takes less shows nothing. */
const LEAST_MIB = 48;

async function serve(t: Test) {
  const place = bulkPlace(t, {
    ...withDurations({ threadMoment: 100, bulkRest: 300, connectionLinger: 20 }),
    RADSERVE_FILES_BY_HTTP: "upload",
    RADSERVE_RATE_LIMIT: "100000",
  });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const held = () => sampleTree(server.process.pid!, 0).memory;
  /** A burst, after a small one that has everything loaded and started. */
  const after = async (what: string, burst: (count: number) => Promise<() => void>) => {
    (await burst(1))();
    let before = Infinity;
    await until("memory is at rest", () => {
      const now = held();
      const rests = now > before - 1;
      before = Math.min(before, now);
      return rests;
    });
    const end = await burst(32);
    const peak = held();
    end();
    t.comment(`${what}: ${before.toFixed()} MiB, ${peak.toFixed()} at the burst's end`);
    // How much of it is in memory at one moment is the machine's: without a peak nothing can stay
    if (peak <= before + LEAST_MIB) return void t.pass(`${what} take little`);
    const most = before + PART * (peak - before);
    // Looking costs the system more than a little
    await until(
      `${what}: memory goes back`,
      () => held() < most,
      (look) => setTimeout(look, 200),
    );
  };
  return { server, place, after };
}
const nothing = () => undefined;

t.test("large texts", async (t) => {
  const { server, after } = await serve(t);
  const body = JSON.stringify({ unknown: "x".repeat(7 * MIB) });
  // Over a connection of its own, which ends with it
  const post = () =>
    new Promise<void>((resolve) => {
      const headers = { "Content-Type": "application/json", Authorization: server.token };
      const url = `${server.url}/bulk_inference`;
      http
        .request(url, { method: "POST", agent: false, headers }, (answer) => answer.resume())
        .on("error", nothing)
        .on("close", resolve)
        .end(body);
    });
  await after("large texts", async (count) => {
    await Promise.all(Array.from({ length: count }, post));
    return nothing;
  });
});
