/** Jobs: the list, and one job with its images. */
import type { Item, Job, JobDetails } from "../src/jobs/schema.js";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { LookAt } from "./look.js";
import { call, judge, usePoll, type Fault } from "./api.js";
import { baseName, count, counted, moment, percent, span, words } from "./format.js";
import {
  Allowed,
  Badge,
  Card,
  Copy,
  Deliveries,
  Facts,
  FaultNote,
  FoundBy,
  NoPictures,
  Table,
  Pager,
  Renew,
} from "./parts.js";
import { Report } from "./onward.js";
import { useSteady } from "./steady.js";
import { useTitle } from "./title.js";

const LOOK_MS = 3_000;
const SLOW_MS = 10_000;
const PAGE = 50;

const hasEnded = ({ state }: Job) => state === "completed" || state === "cancelled";
/** Images that ran when their job was cancelled still end, and its report is written after them. */
const isSettled = (job: Job) => hasEnded(job) && job.finished_at !== null;

function doneOf({ counts }: Job): number {
  const { succeeded, partial, failed, skipped, cancelled } = counts;
  return succeeded + partial + failed + skipped + cancelled;
}

function folderOf({ request }: Job): string {
  return request.input_folder_path ?? "Listed images";
}

const PARTS = ["succeeded", "partial", "skipped", "failed", "cancelled"] as const;

/** How far a job is, in one bar of its parts. */
function Progress({ job }: { job: Job }) {
  const { counts } = job;
  const all = Math.max(job.total ?? doneOf(job) + counts.queued + counts.running, 1);
  const worked = doneOf(job) - counts.cancelled;
  const text =
    job.total === null
      ? `Scanning: ${counted(all, "image")} found`
      : `${count(worked)} of ${counted(job.total, "image")} (${percent(worked, job.total)})`;
  return (
    <div class="job-progress">
      <div
        class="parts"
        role="progressbar"
        aria-label="Images done"
        aria-valuemin={0}
        aria-valuemax={all}
        aria-valuenow={worked}
        aria-valuetext={text}
      >
        {PARTS.map((part) => (
          <span key={part} class={part} style={{ width: `${(100 * counts[part]) / all}%` }} />
        ))}
      </div>
      <span class="quiet">
        {text}
        {counts.failed > 0 && `, ${count(counts.failed)} failed`}
        {counts.skipped > 0 && `, ${count(counts.skipped)} skipped`}
        {counts.cancelled > 0 && `, ${count(counts.cancelled)} cancelled`}
      </span>
    </div>
  );
}

function restOf(job: Job): string {
  if (hasEnded(job)) return job.finished_at === null ? "over" : moment(job.finished_at);
  if (job.estimated_end === null) return "not known yet";
  return span((Date.parse(job.estimated_end) - Date.now()) / 1000);
}

interface JobPage {
  jobs: Job[];
  next_cursor: string | null;
}

const at = (cursors: string[]) => {
  const cursor = cursors.at(-1);
  return cursor === undefined ? "" : `&cursor=${cursor}`;
};

export function JobsView() {
  const [cursors, setCursors] = useState<string[]>([]);
  const { data, fault } = usePoll<JobPage>(`/bulk_inference?limit=20${at(cursors)}`, (page) =>
    page?.jobs.some((job) => !hasEnded(job)) === true ? LOOK_MS : SLOW_MS,
  );
  const list = useSteady(at(cursors), data?.jobs, ({ job_id }) => job_id);
  return (
    <>
      <h1>Jobs</h1>
      {fault !== undefined && <FaultNote fault={fault} />}
      {data === undefined && fault === undefined && <p class="quiet">Loading…</p>}
      {data?.jobs.length === 0 && (
        <div class="empty">
          <p>No job yet.</p>
          <a class="button" href="#/send">
            Send a folder
          </a>
        </div>
      )}
      {list !== undefined && <Renew of={list} />}
      <ul class="jobs">
        {list?.rows.map((job) => (
          <li key={job.job_id} class="card">
            <div class="job-line">
              <a href={`#/jobs/${job.job_id}`}>{folderOf(job)}</a>
              <Badge state={job.state} />
            </div>
            <Progress job={job} />
            <p class="quiet">
              Sent {moment(job.created_at)}
              {hasEnded(job) ? ` · ended ${restOf(job)}` : ` · time left: ${restOf(job)}`}
              {job.images_per_second !== null &&
                ` · ${job.images_per_second.toFixed(1)} images a second`}
            </p>
            {job.paused_reason !== null && <p class="note warn">{job.paused_reason.message}</p>}
          </li>
        ))}
      </ul>
      <Pager cursors={cursors} next={data?.next_cursor ?? null} go={setCursors} />
    </>
  );
}

/** Images that run again if somebody says so. */
const againOf = ({ counts }: Job) => counts.failed + counts.cancelled;

type JobOrder = "pause" | "resume" | "retry" | "cancel";

function ordersOf(job: Job): JobOrder[] {
  const { state, counts } = job;
  const orders: JobOrder[] = [];
  if (state === "paused") orders.push("resume");
  else if (!hasEnded(job)) orders.push("pause");
  if (againOf(job) > 0 && (state !== "cancelled" || counts.running === 0)) orders.push("retry");
  if (!hasEnded(job)) orders.push("cancel");
  return orders;
}

function Orders({ job, done }: { job: JobDetails; done: () => void }) {
  const [fault, setFault] = useState<Fault>();
  const [busy, setBusy] = useState(false);
  const [sure, setSure] = useState(false);
  const order = async (what: JobOrder) => {
    setBusy(true);
    setFault(undefined);
    setSure(false);
    try {
      const page = `/bulk_inference/${job.job_id}`;
      if (what === "cancel") await call("DELETE", page);
      else await call("POST", `${page}/${what}`);
    } catch (thrown) {
      setFault(judge(thrown));
    }
    setBusy(false);
    done();
  };
  return (
    <>
      <div class="orders">
        {ordersOf(job).map((what) =>
          what !== "cancel" ? (
            <button key={what} type="button" disabled={busy} onClick={() => void order(what)}>
              {what !== "retry"
                ? words(what)
                : job.state === "cancelled"
                  ? `Run the other ${count(againOf(job))}`
                  : `Retry ${count(againOf(job))} failed`}
            </button>
          ) : sure ? (
            <span key={what} class="sure">
              <button type="button" class="danger" disabled={busy} onClick={() => void order(what)}>
                Yes, cancel the rest
              </button>
              <button type="button" onClick={() => setSure(false)}>
                No
              </button>
            </span>
          ) : (
            <button key={what} type="button" disabled={busy} onClick={() => setSure(true)}>
              Cancel
            </button>
          ),
        )}
      </div>
      {fault !== undefined && <FaultNote fault={fault} />}
    </>
  );
}

const STATES = [
  "succeeded",
  "partial",
  "failed",
  "skipped",
  "running",
  "queued",
  "cancelled",
] as const;
type ItemState = (typeof STATES)[number];

interface ItemPage {
  items: Item[];
  next_cursor: string | null;
}

/** The outcome of one image, in words. */
function Fate({ item }: { item: Item }) {
  const why = item.error ?? item.reason;
  if (item.state === "running") return <span class="quiet">running</span>;
  if (item.state === "queued") return <span class="quiet">waiting</span>;
  if (item.state === "cancelled") return <span class="quiet">cancelled before it began</span>;
  if (why !== undefined) return <>{why.message}</>;
  return (
    <>
      <FoundBy models={item.models} />
      {item.reused === true && <span class="quiet"> (reused)</span>}
      {item.warnings.length > 0 && (
        <details>
          <summary>{counted(item.warnings.length, "warning")}</summary>
          <ul>
            {item.warnings.map(({ code, message }) => (
              <li key={code + message}>{message}</li>
            ))}
          </ul>
        </details>
      )}
      {item.replaced === true && <p class="note warn">Replaced by a newer result.</p>}
      <Deliveries deliveries={item.deliveries} />
      {item.outputs.length > 0 && (
        <details>
          <summary>{counted(item.outputs.length, "file")}</summary>
          <ul class="files">
            {item.outputs.map((file) => (
              <li key={file.path}>
                <code>{file.path}</code>{" "}
                <Copy text={file.path} what={`the path of ${baseName(file.path)}`} />
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

/** Which images are shown. */
interface Chosen {
  state: ItemState;
  code?: string | undefined;
}

function Items({
  job,
  chosen: { state, code },
  choose,
}: {
  job: JobDetails;
  chosen: Chosen;
  choose: (chosen: Chosen) => void;
}) {
  const looks = useContext(Allowed).includes("view");
  const [cursors, setCursors] = useState<string[]>([]);
  useEffect(() => setCursors([]), [state, code]);
  const page = `/bulk_inference/${job.job_id}/items?state=${state}&limit=${PAGE}${code === undefined ? "" : `&code=${code}`}${at(cursors)}`;
  const { data, fault, again } = usePoll<ItemPage>(page, () => (isSettled(job) ? null : LOOK_MS));
  // One that is set to work again has other images, and the last to end may be younger than these
  const settled = isSettled(job) ? job.finished_at : "";
  const asked = useRef(settled);
  useEffect(() => {
    if (asked.current === settled) return;
    asked.current = settled;
    again();
  }, [settled, again]);
  const list = useSteady(page, data?.items, ({ index }) => String(index));
  return (
    <Card title="Images" wide>
      <div class="tabs" role="group" aria-label="Images by state">
        {STATES.filter((one) => job.counts[one] > 0 || one === state).map((one) => (
          <button
            key={one}
            type="button"
            aria-pressed={one === state}
            onClick={() => choose({ state: one })}
          >
            {words(one)} <span class="figure">{count(job.counts[one])}</span>
          </button>
        ))}
      </div>
      {code !== undefined && (
        <p class="orders">
          <span>
            Only those with <strong>{words(code)}</strong>
          </span>
          <button type="button" class="small" onClick={() => choose({ state })}>
            Show all
          </button>
        </p>
      )}
      {!looks && job.counts.succeeded + job.counts.partial > 0 && <NoPictures />}
      {fault !== undefined && <FaultNote fault={fault} />}
      {data?.items.length === 0 && <p class="quiet">None.</p>}
      {list !== undefined && <Renew of={list} />}
      {list !== undefined && list.rows.length > 0 && (
        <Table label="Images" stacks head={["Index", "Image", "Outcome", "Attempts"]}>
          {list.rows.map((item) => (
            <tr key={item.index}>
              <td class="figure" data-label="Index ">
                {item.index}
              </td>
              <th scope="row" class="path">
                {looks && item.receipt_path !== undefined ? (
                  <a href={`#/jobs/${job.job_id}/${item.index}`}>{item.input_image_path}</a>
                ) : (
                  item.input_image_path
                )}
              </th>
              <td>
                <Fate item={item} />
              </td>
              <td class="figure" data-label="Attempts ">
                {count(item.attempts)}
              </td>
            </tr>
          ))}
        </Table>
      )}
      <Pager cursors={cursors} next={data?.next_cursor ?? null} go={setCursors} />
    </Card>
  );
}

/** That no model is for an image is no fault of anything. */
const isHarmless = ({ state, code }: JobDetails["failures"][number]) =>
  state === "skipped" || code === "no_model_accepts";

function Reasons({
  title,
  reasons,
  choose,
}: {
  title: string;
  reasons: JobDetails["failures"];
  choose: (chosen: Chosen) => void;
}) {
  if (reasons.length === 0) return null;
  return (
    <Card title={title} wide>
      <Table label={title} stacks head={["Images", "State", "Reason", "For example"]}>
        {reasons.map(({ state, code, message, images }) => (
          <tr key={state + code}>
            <td class="figure" data-label="Images ">
              {count(images)}
            </td>
            <td>
              <Badge state={state} />
            </td>
            <th scope="row">
              <button type="button" class="link" onClick={() => choose({ state, code })}>
                {words(code)}
              </button>
            </th>
            <td>{message}</td>
          </tr>
        ))}
      </Table>
    </Card>
  );
}

function firstState({ counts }: Job): ItemState {
  if (counts.failed > 0) return "failed";
  return STATES.find((state) => counts[state] > 0) ?? "succeeded";
}

export function JobView({ id }: { id: string }) {
  const [chosen, choose] = useState<Chosen>();
  /** What is shown until somebody chooses: as the job goes on, nothing changes under the eye. */
  const first = useRef<ItemState>(undefined);
  const {
    data: job,
    fault,
    again,
  } = usePoll<JobDetails>(`/bulk_inference/${id}`, (known) =>
    known !== undefined && isSettled(known) ? null : LOOK_MS,
  );
  if (job === undefined)
    return (
      <>
        <h1>Job</h1>
        {fault === undefined ? <p class="quiet">Loading…</p> : <FaultNote fault={fault} />}
      </>
    );
  first.current ??= firstState(job);
  const { counts } = job;
  return (
    <>
      <p class="back">
        <a href="#/jobs">All jobs</a>
      </p>
      <div class="job-line">
        <h1 class="path">{folderOf(job)}</h1>
        <Badge state={job.state} />
      </div>
      {fault !== undefined && <FaultNote fault={fault} />}
      <section class="card wide" aria-label="Progress">
        <Progress job={job} />
        <Facts
          rows={[
            ["Succeeded", count(counts.succeeded)],
            ["Partial", count(counts.partial)],
            ["Failed", count(counts.failed)],
            ["Skipped", count(counts.skipped)],
            ["Running", count(counts.running)],
            ["Waiting", count(counts.queued)],
            [
              "Rate",
              job.images_per_second === null ? "–" : `${job.images_per_second.toFixed(1)} a second`,
            ],
            [hasEnded(job) ? "Ended" : "Time left", restOf(job)],
          ]}
        />
        {job.warnings.map(({ code, message }) => (
          <p key={code} class="note warn">
            <strong>{words(code)}</strong> {message}
          </p>
        ))}
        {job.waiting.map(({ reason, message, node, images, since }) => (
          <div key={reason + (node ?? "")} class="note warn">
            <strong>{words(reason)}</strong>
            <p>
              {reason === "paused_by_request"
                ? "No more images start until the job is resumed."
                : message}
              {images !== null && ` Images: ${count(images)}.`}
              {node !== null && ` Node: ${node}.`}
              {since !== null && ` Since ${moment(since)}.`}
            </p>
          </div>
        ))}
        <Orders job={job} done={again} />
        <dl class="paths">
          <dt>Results</dt>
          <dd>{job.request.output_folder_path ?? "as listed for each image"}</dd>
          <dt>Job</dt>
          <dd>
            {job.job_id} <Copy text={job.job_id} what="the job id" />
          </dd>
          {job.report !== null && (
            <>
              <dt>Report</dt>
              <dd>
                <Report report={job.report} />
              </dd>
            </>
          )}
        </dl>
      </section>
      <Reasons
        title="Failed, by reason"
        reasons={job.failures.filter((one) => !isHarmless(one))}
        choose={choose}
      />
      <Reasons
        title="Not for these models, or no image"
        reasons={job.failures.filter(isHarmless)}
        choose={choose}
      />
      <Items job={job} chosen={chosen ?? { state: first.current }} choose={choose} />
    </>
  );
}

/** The result of one image of a job. */
export function ItemView({ id, index }: { id: string; index: number }) {
  const before = index === 0 ? "" : `&cursor=${index - 1}`;
  const { data, fault } = usePoll<ItemPage>(
    `/bulk_inference/${id}/items?limit=1${before}`,
    () => null,
  );
  const item = data?.items[0];
  useTitle(`Image ${index} of a job`);
  return (
    <>
      <p class="back">
        <a href={`#/jobs/${id}`}>The job</a>
      </p>
      <h1 class="path">{item === undefined ? "Result" : baseName(item.input_image_path)}</h1>
      {fault !== undefined && <FaultNote fault={fault} />}
      {data === undefined && fault === undefined && <p class="quiet">Loading…</p>}
      {item?.receipt_path !== undefined && (
        <LookAt
          receiptPath={item.receipt_path}
          inputPath={item.input_image_path}
          meant={{
            finishedAt: item.finished_at,
            files: item.outputs.map(({ sha256 }) => sha256),
          }}
        />
      )}
      {item !== undefined && item.receipt_path === undefined && <p>This image has no result.</p>}
    </>
  );
}
