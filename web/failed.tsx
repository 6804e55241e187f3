/** What came to nothing, and why: single requests, and images of jobs. */
import type { Job } from "../src/jobs/schema.js";
import type { FailedRequest, FailedRequestList } from "../src/server/failed-requests.js";
import { usePoll } from "./api.js";
import { baseName, count, counted, folderName, moment, words } from "./format.js";
import { Badge, Card, Copy, FaultNote, Renew, Table } from "./parts.js";
import { sendAgain } from "./send.js";
import { useSteady } from "./steady.js";

const LOOK_MS = 10_000;
const JOBS = 50;

/** Results that were written, and what came to nothing. */
export function Kinds({ now }: { now: "written" | "failed" }) {
  const kinds = [
    ["written", "Written", "#/results"],
    ["failed", "Failed", "#/results/failed"],
  ] as const;
  return (
    <nav class="tabs" aria-label="Kinds of results">
      {kinds.map(([kind, label, address]) => (
        <a
          key={kind}
          class="button"
          href={address}
          aria-current={kind === now ? "page" : undefined}
        >
          {label}
        </a>
      ))}
    </nav>
  );
}

function Request({ request }: { request: FailedRequest }) {
  const { at, input_image_path: input, output_folder_path: output, error, request_id } = request;
  return (
    <tr>
      <td class="figure">{moment(at)}</td>
      <th scope="row" class="path">
        {baseName(input)}
        <div class="quiet">{folderName(input)}</div>
      </th>
      <td>
        <strong>{words(error.error)}</strong>
        <div>{error.message}</div>
        <div class="quiet">
          Request {request_id} <Copy text={request_id} what="the id of the request" />
        </div>
      </td>
      <td>
        <button
          type="button"
          class="small"
          onClick={() => {
            sendAgain.paths = { input, output };
            location.hash = "#/send";
          }}
        >
          Send again<span class="unseen"> {baseName(input)}</span>
        </button>
      </td>
    </tr>
  );
}

function Requests() {
  const { data, fault } = usePoll<FailedRequestList>("/failed_requests", () => LOOK_MS);
  const list = useSteady("failed", data?.failed, ({ request_id, at }) => `${request_id} ${at}`);
  return (
    <Card title="Single requests" wide>
      {fault !== undefined && <FaultNote fault={fault} />}
      {data === undefined && fault === undefined && <p class="quiet">Loading…</p>}
      {list !== undefined && <Renew of={list} />}
      {list !== undefined && list.rows.length > 0 && (
        <Table label="Failed requests" stacks head={["When", "Image", "Why", "Again"]}>
          {list.rows.map((request) => (
            <Request key={request.request_id + request.at} request={request} />
          ))}
        </Table>
      )}
      {data !== undefined && data.dropped > 0 && (
        <p class="note warn" role="alert">
          {counted(data.dropped, "earlier failure")} {data.dropped === 1 ? "is" : "are"} not
          remembered any more.
        </p>
      )}
      {data !== undefined && (
        <p class="quiet">
          {data.failed.length === 0 && "None is known. "}
          This server remembers failures since {moment(data.since)}, until a single request for the
          same image succeeds; what a job has done since then changes nothing here. For what was
          before, and for other nodes: <code>radserve explain</code>.
        </p>
      )}
    </Card>
  );
}

function JobsWithFailures() {
  const { data, fault } = usePoll<{ jobs: Job[] }>(`/bulk_inference?limit=${JOBS}`, () => LOOK_MS);
  const failed = data?.jobs.filter(({ counts }) => counts.failed > 0);
  const list = useSteady("jobs", failed, ({ job_id }) => job_id);
  return (
    <Card title="Images of jobs" wide>
      {fault !== undefined && <FaultNote fault={fault} />}
      {list !== undefined && <Renew of={list} />}
      {data === undefined && fault === undefined && <p class="quiet">Loading…</p>}
      {list?.rows.length === 0 && (
        <p class="quiet">None has failed in the last {counted(data?.jobs.length ?? 0, "job")}.</p>
      )}
      {list !== undefined && list.rows.length > 0 && (
        <Table label="Jobs with failures" stacks head={["Sent", "Job", "Failed", "State"]}>
          {list.rows.map(({ job_id, created_at, request, counts, state }) => (
            <tr key={job_id}>
              <td class="figure">{moment(created_at)}</td>
              <th scope="row" class="path">
                <a href={`#/jobs/${job_id}`}>{request.input_folder_path ?? "Listed images"}</a>
              </th>
              <td class="figure" data-label="Failed ">
                {count(counts.failed)}
              </td>
              <td>
                <Badge state={state} />
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Card>
  );
}

export function FailedView() {
  return (
    <>
      <h1>Failed</h1>
      <Kinds now="failed" />
      <div class="grid">
        <Requests />
        <JobsWithFailures />
      </div>
    </>
  );
}
