/** Reports in the thread of jobs. */
import type { JobsFeature } from "../../jobs/feature.js";
import { settingsOf } from "../../config.js";
import { SETTINGS } from "./setting.js";

export const jobs: JobsFeature = {
  reports(config) {
    const { job_reports } = settingsOf(SETTINGS, config);
    if (job_reports === "off") return undefined;
    return async (claim, context) => {
      const { writeReport } = await import("./write.js");
      return writeReport(claim, { ...context, pictures: job_reports === "pictures" });
    };
  },
};
