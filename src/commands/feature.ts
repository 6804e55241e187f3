/**
 * The shape of a feature: something that a node can do without. Its folder in src/features/ says
 * all of itself in one feature.ts, of this shape; src/features.ts lists them, and nothing else
 * imports one. Every part is loaded when it is needed.
 */
import type { JobsFeature } from "../jobs/feature.js";
import type { Config, SettingTopics } from "../config.js";
import type { CheckSettings, ServingFeature } from "../server/feature.js";
import type { CommandLine } from "./command-line.js";
import type { Diagnosis } from "./doctor/finding.js";

export interface Feature {
  /** The name of its folder. */
  readonly name: string;
  /** Its settings, by the topics of the published table. */
  settings?(): Promise<SettingTopics>;
  /** Checks them before a server starts anything. */
  readonly check?: CheckSettings;
  /** Adds its commands. */
  commands?(line: CommandLine): void;
  /** What it is in a server. */
  serving?(): Promise<ServingFeature>;
  /** What it does in the thread of jobs. */
  jobs?(): Promise<JobsFeature>;
  /** What `radserve doctor` says of it. @throws what becomes a finding */
  doctor?(config: Config): Promise<Diagnosis[]>;
}
