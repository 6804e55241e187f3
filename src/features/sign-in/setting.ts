/** The setting that turns the sign-in of people on. */
import { absolute, settingsOf, type Config, type SettingTopics } from "../../config.js";

const MEANING =
  "File that says how people are signed in by a proxy (docs/page.md); without it, every request " +
  "needs a token";

export const SETTINGS = { sign_in: absolute.optional().describe(MEANING) };
export const TOPICS: SettingTopics = { Tokens: SETTINGS };

/** The file; undefined where nobody is signed in by a proxy. */
export const fileOf = (config: Config): string | undefined => settingsOf(SETTINGS, config).sign_in;
