/** The private PostgreSQL in a server: the thread of jobs runs it, when jobs need it. */
import { existsSync } from "node:fs";
import path from "node:path";
import type { ServingFeature } from "../../server/feature.js";
import { FeatureName } from "../../server/running-features.js";

export const serving: ServingFeature = {
  name: new FeatureName("local-postgres"),
  start({ config: { database_url, state_dir } }) {
    if (database_url !== undefined) return Promise.resolve(undefined);
    return Promise.resolve({
      localDatabase: { isMade: existsSync(path.join(state_dir, "postgres")) },
    });
  },
};
