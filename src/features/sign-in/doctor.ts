/** What doctor looks at of sign-in: its file, and whether the issuer's keys can be read. */
import { ConfigError } from "../../base/errors.js";
import { bad, good, type Diagnosis } from "../../commands/doctor/finding.js";
import type { Config } from "../../config.js";
import { fileOf } from "./setting.js";

export async function doctor(config: Config): Promise<Diagnosis[]> {
  if (fileOf(config) === undefined) return [];
  const { readSignIn } = await import("./settings.js");
  const { KeySet } = await import("./key-set.js");
  try {
    const settings = readSignIn(config);
    if (settings === undefined) return [];
    const keys = new KeySet(settings.jwks);
    await keys.look();
    const { fault, count } = keys;
    if (fault !== undefined)
      return [
        bad(
          "sign-in",
          `the issuer's keys cannot be read from ${settings.jwks} (${fault})`,
          "Let this machine reach it, or correct jwks.",
        ),
      ];
    const roles = settings.roles.map(({ role }) => role).join(", ");
    return [good("sign-in", `keys of ${settings.issuer}: ${count}; roles: ${roles}`)];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return [bad("sign-in", error.message, "Correct the file.")];
  }
}
