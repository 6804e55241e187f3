/** The check of the gateway's file before anything is started. */
import { settingsOf, type Config } from "../../config.js";
import { SETTINGS } from "./setting.js";

/**
 * @returns how many descriptors the gateway may take
 * @throws ConfigError
 */
export async function check(config: Config): Promise<number> {
  if (settingsOf(SETTINGS, config).gateway === undefined) return 0;
  const { checkGateway, descriptorsOf } = await import("./settings.js");
  return descriptorsOf(await checkGateway(config));
}
