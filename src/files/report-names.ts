/**
 * Names of the report of a job, beside its results. The core knows them where reports are off, too:
 * a scan takes no report of an earlier job for an image.
 */
const PREFIX = "radserve-report-";
const UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}";

export const reportName = (jobId: string, kind: "html" | "csv"): string =>
  `${PREFIX}${jobId}.${kind}`;
/** The name of a report while it is written; the token tells those of two nodes apart. */
export const unfinishedName = (jobId: string, kind: "html" | "csv", token: string): string =>
  `.${PREFIX}${jobId}.${token}.${kind}`;

/** Whether an entry of a folder is a report, or one that is being written. */
export function isReportName(entry: string): boolean {
  return new RegExp(`^(?:${PREFIX}${UUID}|\\.${PREFIX}${UUID}\\.${UUID})\\.(?:html|csv)$`).test(
    entry,
  );
}
