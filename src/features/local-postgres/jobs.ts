/** The private PostgreSQL in the thread of jobs. */
import type { JobsFeature } from "../../jobs/feature.js";
import { settingsOf, type Config } from "../../config.js";
import { SETTINGS } from "./setting.js";

const settings = (config: Config) => ({
  state_dir: config.state_dir,
  ...settingsOf(SETTINGS, config),
});

export const jobs: JobsFeature = {
  databases: {
    start: async (config, log) =>
      (await import("./postgres.js")).PrivatePostgres.start(settings(config), log),
    inspect: async (config) => (await import("./postgres.js")).inspectPostgres(settings(config)),
  },
};
