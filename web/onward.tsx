/** What became of a result: where it was delivered to, and the job and the report that it is of. */
import { useContext, useState } from "preact/hooks";
import type { JobDetails } from "../src/jobs/schema.js";
import type { Receipt } from "../src/results/receipt/receipt.js";
import type { Shown } from "../src/features/viewer/messages.js";
import { call, judge, saveFile, useLoaded, type Fault } from "./api.js";
import { baseName } from "./format.js";
import { Allowed, Card, Copy, Deliveries, FaultNote } from "./parts.js";

/** The report of a job that has ended, or why there is none. */
export function Report({ report }: { report: NonNullable<JobDetails["report"]> }) {
  const gives = useContext(Allowed).includes("download");
  const [fault, setFault] = useState<Fault>();
  const { html_path: html, csv_path: csv, error } = report;
  const save = async (path: string) => {
    setFault(undefined);
    try {
      await saveFile(path);
    } catch (thrown) {
      setFault(judge(thrown));
    }
  };
  return (
    <>
      {error !== null && `There is none: ${error.message}`}
      {[html, csv].map((path) =>
        path === null ? null : (
          <div key={path}>
            {gives ? (
              <button type="button" class="link" onClick={() => void save(path)}>
                {baseName(path)}
              </button>
            ) : (
              path
            )}{" "}
            <Copy text={path} what={`the path of ${baseName(path)}`} />
          </div>
        ),
      )}
      {fault !== undefined && <FaultNote fault={fault} />}
    </>
  );
}

/** The job that made a result, as its receipt says it: an item's request is JOB.INDEX. */
const jobIn = ({ timings }: Receipt): string | undefined =>
  /^([0-9a-f-]{36})\.\d{1,9}$/.exec(timings.request_id)?.[1];

/** Nothing where there is nothing that this token may see. */
export function Onward({ receipt }: { receipt: Shown }) {
  const of = jobIn(receipt);
  // A job of another subject, or one that is purged, is not found
  const { data: job } = useLoaded(of ?? null, (signal) =>
    call<JobDetails>("GET", `/bulk_inference/${of}`, { signal }).catch(() => undefined),
  );
  const { deliveries = [] } = receipt;
  if (deliveries.length === 0 && job === undefined) return null;
  return (
    <Card title="Where it went" wide>
      <Deliveries deliveries={deliveries} />
      {deliveries.length > 0 && (
        <p>
          <a href="#/gateway">What waits or was set aside, in the gateway</a>
        </p>
      )}
      {job !== undefined && (
        <p>
          <a href={`#/jobs/${job.job_id}`}>The job that it is of</a>
        </p>
      )}
      {job !== undefined && job.report !== null && <Report report={job.report} />}
    </Card>
  );
}
