/**
 * What a feature does for jobs, in their thread. The core imports no feature: the list comes from
 * src/features.ts.
 */
import type { Config } from "../config.js";
import type { NodeContext } from "./nodes.js";
import type { LocalDatabases } from "./local-database.js";
import type { ReportClaim } from "./report-claims.js";
import type { JobDetails } from "./schema.js";

export type Report = NonNullable<JobDetails["report"]>;

export interface ReportContext extends Pick<NodeContext, "config" | "roots" | "database" | "log"> {
  /** This node is to end: what was begun is left to another. */
  stopped: () => boolean;
}

/** The claim is no longer this node's, or the node is to end. */
export class ReportLeft extends Error {}

/**
 * Writes what is to lie beside the results of a job before the job counts as ended. One node at a
 * time does it; where it dies, another begins anew.
 * @throws ReportLeft; any other error ends the report, and the job all the same
 */
export type WriteReport = (claim: ReportClaim, context: ReportContext) => Promise<Report>;

export interface JobsFeature {
  /** For jobs where DATABASE_URL names no database. */
  databases?: LocalDatabases;
  /** Undefined where its settings leave reports off. */
  reports?(config: Config): WriteReport | undefined;
}

/** Those of the one feature that gives them. */
export const databasesOf = (features: readonly JobsFeature[]): LocalDatabases | undefined =>
  features.find(({ databases }) => databases !== undefined)?.databases;
