/** How soon a revoked token is refused, beside the time after which keys are looked at again. */
import { performance } from "node:perf_hooks";
import jwt from "jsonwebtoken";
import t from "tap";
import { withDurations } from "../support/durations.js";
import { issueToken, makePlace, radserve, startServer } from "../support/server.js";
import { until } from "../support/until.js";

/**
 * In place of a third of a second, so that what a machine adds that stands still for some seconds
 * is a small part of it.
 */
const FRESH_MS = 6_000;

t.test("a revoked token is refused within a second", async (t) => {
  const place = makePlace({
    ...withDurations({ keysFresh: FRESH_MS }),
    RADSERVE_FAILED_TOKENS: "0",
  });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const token = await issueToken(place);
  const { jti } = jwt.decode(token) as { jti: string };
  const status = async () =>
    (await fetch(`${server.url}/models`, { headers: { Authorization: token } })).status;
  t.equal(await status(), 200);
  t.equal((await radserve(place, "token", "revoke", jti)).status, 0);
  const start = performance.now();
  await until("it is refused", async () => (await status()) === 401);
  const part = (performance.now() - start) / FRESH_MS;
  t.ok(part < 3, `within a second: after ${part.toFixed(2)} of the time between two looks`);
});
