/** What doctor says of private databases that nobody looks after. */
import { BulkUnavailable } from "../../jobs/database-trouble.js";
import { advice, type Diagnosis } from "../../commands/doctor/finding.js";
import type { Config } from "../../config.js";
import { orphans } from "./orphans.js";

/** They harm no server, and take memory and disk. */
export function doctor(config: Config): Diagnosis[] {
  try {
    return orphans(config).map(({ found, fix }) => advice("orphaned database", found, fix));
  } catch (error) {
    // The finding about the bulk database tells it.
    if (error instanceof BulkUnavailable) return [];
    throw error;
  }
}
