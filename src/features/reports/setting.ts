/** The setting of reports. */
import { z } from "zod";
import type { SettingTopics } from "../../config.js";

const MEANING =
  "Report in the output folder when a bulk job ends: a page and a table with small pictures, " +
  "without pictures (text), or none (off)";

export const SETTINGS = {
  job_reports: z.enum(["off", "text", "pictures"]).default("pictures").describe(MEANING),
};
export const TOPICS: SettingTopics = { Jobs: SETTINGS };
