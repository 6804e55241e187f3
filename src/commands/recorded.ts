/** Commands on the server's machine that the audit tells of. */
import { existsSync } from "node:fs";
import { Audit } from "../audit/audit.js";
import type { AuditFacts } from "../audit/entry.js";
import { createLog } from "../base/log.js";
import type { Config } from "../config.js";
import { remark } from "./run.js";

/**
 * Writes a line about a command where the state directory is on this machine; tokens may be issued
 * elsewhere too.
 * @throws ConfigError where it cannot be written
 */
export async function recordCommand(
  config: Config,
  facts: Omit<AuditFacts, "kind">,
): Promise<void> {
  if (!existsSync(config.state_dir)) {
    remark(`Not audited: there is no state directory at ${config.state_dir}.`);
    return;
  }
  const audit = await Audit.open(
    config.state_dir,
    { kind: "command", ...facts },
    createLog("silent"),
  );
  await audit.close();
}
