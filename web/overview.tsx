/** Is it well, and why not; how busy it is and was. */
import type { Overview } from "../src/server/overview.js";
import type { Polled } from "./api.js";
import { LastHour } from "./chart.js";
import { bytes, count, counted, moment, percent, since } from "./format.js";
import { Badge, Card, Facts, FaultNote, Meter, Table } from "./parts.js";

/** While the server does not answer nothing is said of how it is. */
function Verdict({ overview, away }: { overview: Overview; away: boolean }) {
  if (away)
    return (
      <section class="verdict bad" aria-label="State">
        <h1>No connection</h1>
        <p role="alert">The server does not answer. The page tries again every few seconds.</p>
        <p class="quiet">The figures below are from {moment(overview.now)}.</p>
      </section>
    );
  const { ready, fault, conditions: found, warnings } = overview;
  const tone = !ready ? "bad" : found.length > 0 ? "warn" : "good";
  const title = !ready
    ? "Not ready"
    : found.length > 0
      ? `Ready, with ${counted(found.length, "problem")}`
      : "All is well";
  return (
    <section class={`verdict ${tone}`} aria-label="State">
      <div>
        <h1>{title}</h1>
        <p class="quiet">
          Radserve {overview.version} · role {overview.role} · up for{" "}
          {since(overview.started_at, Date.parse(overview.now))}
        </p>
      </div>
      {fault !== undefined && found[0]?.message !== fault.message && <p>{fault.message}</p>}
      {warnings.map(({ condition, where, message, remedy }) => (
        <p class="quiet" key={`${condition} ${where}`}>
          {message} {remedy}
        </p>
      ))}
      {found.length > 0 && (
        <ul>
          {found.map(({ condition, where, message, remedy }) => (
            <li key={`${condition} ${where}`}>
              <code>{condition}</code>{" "}
              {condition === "job_paused" ? <a href="#/jobs">{message}</a> : message} {remedy}
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function canaryText({ canary, health }: Overview["models"][number]): string {
  if (!canary) return "none";
  return health === "ready" ? "passed" : health === "failed" ? "see above" : "not run";
}

function Models({ overview }: { overview: Overview }) {
  const { models, problems } = overview;
  const unread = problems.filter(({ name }) => !models.some((model) => model.name === name));
  return (
    <Card title="Models" wide>
      <Table
        label="Models"
        head={["Model", "Version", "State", "Release", "Canary", "Runs on", "Done", "Failed"]}
      >
        {models.map((model) => (
          <tr key={model.name}>
            <th scope="row">
              {model.name}
              {model.required && <span class="quiet"> required</span>}
            </th>
            <td class="figure">{model.version}</td>
            <td>
              <Badge state={model.health} />
            </td>
            <td>{model.release}</td>
            <td>{canaryText(model)}</td>
            <td>
              {model.provider === null
                ? "–"
                : model.gpu === null
                  ? model.provider.toUpperCase()
                  : `GPU ${model.gpu}`}
              {model.residence !== null && model.residence !== "loaded" && (
                <span class="quiet"> {model.residence}</span>
              )}
            </td>
            <td class="figure">{count(model.completed)}</td>
            <td class="figure">{count(model.failed)}</td>
          </tr>
        ))}
        {unread.map(({ name, error }) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>–</td>
            <td>
              <Badge state="failed" />
            </td>
            <td colSpan={5}>{error.message}</td>
          </tr>
        ))}
      </Table>
    </Card>
  );
}

function Room({ overview }: { overview: Overview }) {
  const { memory, disks, gpus } = overview;
  return (
    <Card title="Memory and disks">
      <Meter
        label="Images in memory"
        part={memory.images_bytes}
        all={memory.images_limit_bytes}
        text={`${bytes(memory.images_bytes)} of ${bytes(memory.images_limit_bytes)}`}
      />
      {disks.map(({ folder, free_bytes, total_bytes, least_bytes }) =>
        free_bytes === null || total_bytes === null ? (
          <p key={folder}>
            {folder}: <Badge state="no answer" tone="bad" />
          </p>
        ) : (
          <Meter
            key={folder}
            label={`Disk of ${folder}`}
            part={total_bytes - free_bytes}
            all={total_bytes}
            text={`${bytes(free_bytes)} free (${percent(free_bytes, total_bytes)})`}
            tone={free_bytes < least_bytes ? "bad" : "calm"}
          />
        ),
      )}
      {gpus.map((gpu) => (
        <Meter
          key={gpu.number}
          label={`GPU ${gpu.number}${gpu.lost ? " (stopped working)" : ""}`}
          part={gpu.total_bytes - gpu.free_bytes}
          all={gpu.total_bytes}
          text={`${bytes(gpu.free_bytes)} free, ${count(gpu.waiting)} waiting`}
          tone={gpu.lost ? "bad" : "calm"}
        />
      ))}
      <p class="quiet">The server process uses {bytes(memory.process_bytes)}.</p>
    </Card>
  );
}

/** By how much a clock is ahead of the database's. */
const clockText = (offset: number | null): string =>
  offset === null ? "" : `${offset < 0 ? "-" : "+"}${(Math.abs(offset) / 1000).toFixed(1)} s`;

function Nodes({ overview: { nodes, jobs } }: { overview: Overview }) {
  if (!jobs.open) return null;
  return (
    <Card title="Nodes" wide>
      {nodes.length === 0 ? (
        <p class="quiet">Job database is asleep; it starts on demand.</p>
      ) : (
        <Table
          label="Nodes"
          head={["Node", "State", "Release", "Runs jobs", "Models", "Clock", "Last seen"]}
        >
          {nodes.map((node) => (
            <tr key={node.instance}>
              <th scope="row">
                {node.name}
                <br />
                <span class="quiet">{node.address}</span>
              </th>
              <td>
                <Badge state={node.alive ? "alive" : "silent"} tone={node.alive ? "good" : "bad"} />
              </td>
              <td>{node.release}</td>
              <td>{node.works ? "yes" : "no"}</td>
              <td>{node.ready ? "ready" : "not ready"}</td>
              <td class="figure">{clockText(node.clock_offset_ms)}</td>
              <td class="figure">{moment(node.seen_at)}</td>
            </tr>
          ))}
        </Table>
      )}
    </Card>
  );
}

export function OverviewView({ data: overview, fault }: Polled<Overview>) {
  if (overview === undefined)
    return fault === undefined ? <p class="quiet">Loading…</p> : <FaultNote fault={fault} />;
  const { requests, jobs } = overview;
  return (
    <>
      {fault !== undefined && fault.status !== 0 && <FaultNote fault={fault} />}
      <Verdict overview={overview} away={fault?.status === 0} />
      <div class="grid">
        <Card title="The last hour" aside={<span class="quiet">on this server</span>} wide>
          <LastHour minutes={overview.history} />
        </Card>
        <Card title="Work now">
          <Facts
            rows={[
              ["Requests running", count(requests.running)],
              ["Requests waiting", `${count(requests.waiting)} of ${count(requests.most_waiting)}`],
              ["Job images running", count(jobs.running)],
              ["Job images waiting", count(jobs.queued)],
              ["What failed", <a href="#/results/failed">why, and where</a>],
              ["Paused jobs", jobs.paused === 0 ? "0" : <a href="#/jobs">{count(jobs.paused)}</a>],
            ]}
          />
        </Card>
        <Room overview={overview} />
        <Models overview={overview} />
        <Nodes overview={overview} />
      </div>
    </>
  );
}
