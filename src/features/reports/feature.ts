/** Reports: when a bulk job ends, a page for people and a table for programs beside its results. */
import type { Feature } from "../../commands/feature.js";

export const reports: Feature = {
  name: "reports",
  settings: async () => (await import("./setting.js")).TOPICS,
  jobs: async () => (await import("./jobs.js")).jobs,
};
