/**
 * Sign-in of people: the page behind a proxy that knows who they are (OpenID Connect). Off unless
 * the settings name its file.
 */
import type { Feature } from "../../commands/feature.js";

export const signIn: Feature = {
  name: "sign-in",
  settings: async () => (await import("./setting.js")).TOPICS,
  check: async (config) => (await import("./check.js")).check(config),
  serving: async () => (await import("./serving.js")).serving,
  doctor: async (config) => (await import("./doctor.js")).doctor(config),
};
