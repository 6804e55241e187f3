/** The setting that opens the gateway. */
import { absolute, type SettingTopics } from "../../config.js";

const DOORS_MEANING =
  "File with rules for images from modalities and PACS, and for results sent there " +
  "(docs/doors.md); off unless set";

export const SETTINGS = { gateway: absolute.optional().describe(DOORS_MEANING) };
export const TOPICS: SettingTopics = { "Files over HTTP, modalities and PACS": SETTINGS };
