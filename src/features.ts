/**
 * The features that this Radserve has. To be without one, take its line out here and delete its
 * folder: nothing else names it.
 */
import type { Interaction } from "./audit/interaction.js";
import type { JobsFeature } from "./jobs/feature.js";
import type { Feature } from "./commands/feature.js";
import type { Config, ConfigOptions, SettingTopics } from "./config.js";
import { drift } from "./features/drift/feature.js";
import { exports } from "./features/export/feature.js";
import { fhirAudit } from "./features/fhir-audit/feature.js";
import { gateway } from "./features/gateway/feature.js";
import { imports } from "./features/import/feature.js";
import { localPostgres } from "./features/local-postgres/feature.js";
import { reports } from "./features/reports/feature.js";
import { signIn } from "./features/sign-in/feature.js";
import { viewer } from "./features/viewer/feature.js";
import type { CheckSettings, ServingFeature } from "./server/feature.js";

export const FEATURES: readonly Feature[] = [
  gateway,
  viewer,
  reports,
  localPostgres,
  drift,
  imports,
  exports,
  fhirAudit,
  signIn,
];

/** What they are in a server. */
export async function servingFeatures(): Promise<ServingFeature[]> {
  return Promise.all(FEATURES.flatMap((feature) => feature.serving?.() ?? []));
}

/** What they do in the thread of jobs. */
export async function jobsFeatures(): Promise<JobsFeature[]> {
  return Promise.all(FEATURES.flatMap((feature) => feature.jobs?.() ?? []));
}

/** Their settings. */
export async function settingTopics(): Promise<SettingTopics[]> {
  return Promise.all(FEATURES.flatMap((feature) => feature.settings?.() ?? []));
}

/** The checks of their settings, for a server that is about to start. */
export const checks: readonly CheckSettings[] = FEATURES.flatMap(({ check }) => check ?? []);

/** Reads and checks all settings, those of features too. @throws ConfigError */
export async function readSettings(options: Omit<ConfigOptions, "features"> = {}): Promise<Config> {
  const { loadConfig } = await import("./config.js");
  return loadConfig({ ...options, features: await settingTopics() });
}

/** What each endpoint of the server does, in FHIR's words. */
export async function interactions(): Promise<(endpoint: string) => Interaction | undefined> {
  const { interactionsOf, routesOf } = await import("./server/routes.js");
  return interactionsOf(routesOf(await servingFeatures()));
}
