/** The setting of the private PostgreSQL. */
import { absolute, type SettingTopics } from "../../config.js";

const MEANING =
  "Folder of PostgreSQL's programs for the private database (default: the newest of the " +
  "distribution, else the npm package's)";

export const SETTINGS = { postgres_bin: absolute.optional().describe(MEANING) };
export const TOPICS: SettingTopics = { Jobs: SETTINGS };
