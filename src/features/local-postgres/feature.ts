/** A PostgreSQL of this node's own, a child process, for jobs where DATABASE_URL names none. */
import type { Feature } from "../../commands/feature.js";

export const localPostgres: Feature = {
  name: "local-postgres",
  settings: async () => (await import("./setting.js")).TOPICS,
  serving: async () => (await import("./serving.js")).serving,
  jobs: async () => (await import("./jobs.js")).jobs,
  doctor: async (config) => (await import("./doctor.js")).doctor(config),
};
