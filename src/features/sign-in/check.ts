/** The check of the file before anything is started. */
import type { Config } from "../../config.js";
import { fileOf } from "./setting.js";

/** Of one question for keys. */
const DESCRIPTORS = 2;

/**
 * @returns how many descriptors it may take
 * @throws ConfigError
 */
export async function check(config: Config): Promise<number> {
  if (fileOf(config) === undefined) return 0;
  const { readSignIn } = await import("./settings.js");
  readSignIn(config);
  return DESCRIPTORS;
}
