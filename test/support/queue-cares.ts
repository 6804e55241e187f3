/** The care that the queue of scans takes of itself (`queueCare` of src/base/durations.ts). */
import type { Pool } from "pg";
import { until } from "./until.js";

/** Resolves when the queue has looked after itself so often from now on. */
export async function queueCares(pool: Pool, times: number): Promise<void> {
  const last = async () => {
    const { rows } = await pool.query<{ at: string | null }>(
      "select max(monitor_on)::text as at from radserve_queue.queue",
    );
    return rows[0]?.at;
  };
  for (let time = 0; time < times; time++) {
    const before = await last();
    await until("the queue looks after itself", async () => (await last()) !== before);
  }
}
