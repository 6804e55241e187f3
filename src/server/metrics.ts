/**
 * Figures for Prometheus. Labels are routes, statuses, model names and closed lists; never
 * subjects, paths or anything of a patient.
 */
import { setTimeout as delay } from "node:timers/promises";
import { Counter, Gauge, Histogram, Registry, collectDefaultMetrics } from "prom-client";
import type { BulkService } from "../jobs/service.js";
import type { EngineHistogram, EngineModelStats, EngineStats } from "../engine/stats.js";
import type { InferencePool } from "../inference/worker-pool.js";
import { missingOf, type ModelEntry } from "../models/entry.js";
import { withoutEntry } from "../models/set.js";
import type { Expiry } from "../files/certificates.js";
import type { Connections } from "./connections.js";
import { healthOf } from "./model-list.js";

type Labels = Record<string, string>;
export type MetricSample = readonly [labels: Labels, value: number | EngineHistogram];

/** A metric that is counted elsewhere, and read when somebody asks. */
export interface ReadMetric {
  type: "gauge" | "counter" | "histogram";
  name: string;
  help: string;
  /** Samples of equal labels are added up. */
  read: () => number | readonly MetricSample[];
}

/** A metric without labels is a sample with none. */
const samplesOf = (given: MetricSample[1] | readonly MetricSample[]): readonly MetricSample[] =>
  Array.isArray(given) ? (given as readonly MetricSample[]) : [[{}, given as MetricSample[1]]];

function added<T extends number | EngineHistogram>(
  a: T | undefined,
  b: T,
): number | EngineHistogram {
  if (typeof b === "number") return b + (typeof a === "number" ? a : 0);
  if (typeof a !== "object") return b;
  return {
    ends: b.ends,
    counts: b.counts.map((n, i) => n + (a.counts[i] ?? 0)),
    sum: a.sum + b.sum,
  };
}

/** The lines of a sample in the text format of Prometheus. */
function linesOf(
  name: string,
  { labels, value }: { labels: Labels; value: number | EngineHistogram },
) {
  if (typeof value === "number") return [{ metricName: name, labels, value }];
  let total = 0;
  const buckets = value.counts.map((count, i) => {
    total += count;
    const le = String(value.ends[i] ?? "+Inf");
    return { metricName: `${name}_bucket`, labels: { ...labels, le }, value: total };
  });
  return [
    ...buckets,
    { metricName: `${name}_sum`, labels, value: value.sum },
    { metricName: `${name}_count`, labels, value: total },
  ];
}

/** A metric of the library that holds nothing: the library's own histogram can only observe. */
class Read extends Gauge {
  constructor(
    private readonly metric: ReadMetric,
    registry: Registry,
  ) {
    super({ name: metric.name, help: metric.help, registers: [registry] });
  }

  /** The registry calls this. */
  getForPromString() {
    const { type, name, help, read } = this.metric;
    const sums = new Map<string, { labels: Labels; value: number | EngineHistogram }>();
    for (const [labels, value] of samplesOf(read())) {
      const key = JSON.stringify(labels);
      sums.set(key, { labels, value: added(sums.get(key)?.value, value) });
    }
    return Promise.resolve({
      type,
      name,
      help,
      values: [...sums.values()].flatMap((sum) => linesOf(name, sum)),
    });
  }
}

export function register(registry: Registry, metrics: readonly ReadMetric[]): void {
  for (const metric of metrics) new Read(metric, registry);
}

type MakeMetric = (name: string, help: string, read: ReadMetric["read"]) => ReadMetric;
export const gauge: MakeMetric = (name, help, read) => ({ type: "gauge", name, help, read });
export const counter: MakeMetric = (name, help, read) => ({ type: "counter", name, help, read });
const histogram: MakeMetric = (name, help, read) => ({ type: "histogram", name, help, read });

/** The parts of the server that count. */
export interface MetricSources {
  pool: Pick<InferencePool, "queued" | "running" | "memory" | "threadsStuck" | "threadsEnded">;
  connections: Pick<Connections, "count" | "refusals">;
  certificates: () => readonly Expiry[];
  models: Parameters<typeof withoutEntry>[0] & { entries: readonly ModelEntry[] };
  /** Why models could not come back from idling, by the engine's numbers. */
  missing: () => ReadonlyMap<number, string>;
  bulk: Pick<BulkService, "figures">;
  /** Those of features that have started. */
  features: readonly ReadMetric[];
  engine: () => EngineStats;
}

function serverMetrics({
  pool,
  connections,
  certificates,
  models,
  missing,
  bulk,
}: MetricSources): ReadMetric[] {
  return [
    gauge("radserve_inferences_queued", "Requests that wait for a worker", () => pool.queued),
    gauge("radserve_inferences_running", "Requests that a worker has", () => pool.running),
    gauge(
      "radserve_image_memory_bytes",
      "Memory counted for the images in work",
      () => pool.memory,
    ),
    gauge(
      "radserve_worker_threads_stuck",
      "Worker threads that made no progress for 10 seconds while they had work",
      () => pool.threadsStuck,
    ),
    counter(
      "radserve_worker_threads_ended_total",
      "Worker threads that were ended because a task did not stop at its deadline",
      () => pool.threadsEnded,
    ),
    gauge("radserve_connections", "Open connections", () => connections.count),
    counter(
      "radserve_connections_refused_total",
      "Connections that were refused, or closed to make room for others",
      () => [...connections.refusals.totals].map(([reason, count]) => [{ reason }, count]),
    ),
    gauge(
      "radserve_certificate_expiry_timestamp_seconds",
      "When the first certificate of the server's chain, and of the client CAs, ends (Unix time)",
      () => certificates().map(({ certificate, at }) => [{ certificate }, at.getTime() / 1000]),
    ),
    gauge(
      "radserve_bulk_items_queued",
      "Images of bulk jobs that wait, on all nodes",
      () => bulk.figures.queued,
    ),
    gauge(
      "radserve_bulk_items_running",
      "Images of bulk jobs in work, on all nodes",
      () => bulk.figures.running,
    ),
    gauge(
      "radserve_bulk_jobs_paused",
      "Bulk jobs that wait for something",
      () => bulk.figures.paused,
    ),
    counter("radserve_bulk_items_total", "Images of bulk jobs that ended in this process", () =>
      Object.entries(bulk.figures.ended).map(([state, count]) => [{ state }, count]),
    ),
    gauge(
      "radserve_model_ready",
      "1 if the model can be used; a model with release off has none, since nobody waits for it",
      () => {
        const away = missing();
        const loaded = models.entries.map((entry) => {
          const { name: model, version } = entry;
          return { model, version, state: healthOf(entry, missingOf(entry, away)).health };
        });
        const unreadable = withoutEntry(models).map(
          ({ name: model }) => ({ model, version: "", state: "failed" }) as const,
        );
        return [...loaded, ...unreadable]
          .filter(({ state }) => state !== "off")
          .map((labels) => [labels, Number(labels.state === "ready")] as const);
      },
    ),
  ];
}

const CLASSES = ["stat", "routine", "bulk"] as const;

/**
 * The engine's own figures. Two versions of one model, while the old one drains, are one series.
 */
export function engineMetrics(read: () => EngineStats): ReadMetric[] {
  type Model = EngineModelStats;
  const perModel =
    (pick: (model: Model) => MetricSample[1] | readonly MetricSample[]) => (): MetricSample[] =>
      read().models.flatMap((model) =>
        samplesOf(pick(model)).map(([labels, value]): MetricSample => [
          { model: model.name, ...labels },
          value,
        ]),
      );
  const perClass = (key: "queued" | "waitSeconds") =>
    perModel((model) => CLASSES.map((one) => [{ class: one }, model[key][one]]));
  /** If two versions of a model are loaded, the sample is of the new one, which comes later. */
  const perNewest = (pick: (model: Model) => number) => (): MetricSample[] =>
    [...new Map(read().models.map((model) => [model.name, model]))].map(([name, model]) => [
      { model: name },
      pick(model),
    ]);
  const perGpu = (key: "lost" | "waiting" | "takenBytes" | "freeBytes") => (): MetricSample[] =>
    read().gpus.map((gpu) => [{ gpu: String(gpu.number) }, Number(gpu[key])]);
  return [
    gauge("radserve_engine_queued", "Inferences that wait in the engine", perClass("queued")),
    gauge(
      "radserve_engine_session_bytes",
      "Memory that the sessions of a model hold",
      perModel(({ sessions }) => sessions.reduce((sum, { bytes }) => sum + bytes, 0)),
    ),
    gauge(
      "radserve_model_loaded",
      "1 if the model is loaded, 0 while it is idle or being loaded again",
      perNewest(({ residence }) => (residence.state === "loaded" ? 1 : 0)),
    ),
    gauge(
      "radserve_model_load_seconds",
      "Duration of the last load: a request for an idle model waits that long",
      perNewest(({ residence }) => residence.loadSeconds),
    ),
    gauge(
      "radserve_gpu_lost",
      "1 if the GPU failed; it is used again after a restart",
      perGpu("lost"),
    ),
    gauge("radserve_gpu_waiting", "Images that wait for the GPU or run on it", perGpu("waiting")),
    gauge(
      "radserve_gpu_taken_bytes",
      "Memory of the GPU that all models have taken",
      perGpu("takenBytes"),
    ),
    gauge("radserve_gpu_free_bytes", "Free memory of the GPU", perGpu("freeBytes")),
    counter(
      "radserve_model_loads_total",
      "Number of loads, including those after idle times",
      perModel(({ residence }) => residence.loads),
    ),
    counter(
      "radserve_engine_inferences_total",
      "Inferences that ended, successful or not",
      perModel(({ completed, failed }) => [
        [{ outcome: "completed" }, completed],
        [{ outcome: "failed" }, failed],
      ]),
    ),
    counter(
      "radserve_engine_refused_total",
      "Inferences refused by the engine",
      perModel(({ refused }) =>
        Object.entries(refused).map(([reason, count]) => [{ reason }, count]),
      ),
    ),
    histogram(
      "radserve_engine_wait_seconds",
      "Time from the request to its start in the engine",
      perClass("waitSeconds"),
    ),
    histogram(
      "radserve_engine_batch_size",
      "Images that ran together",
      perModel((model) => model.batchSizes),
    ),
    histogram(
      "radserve_engine_run_seconds",
      "Time of a batch in the model",
      perModel((model) => model.runSeconds),
    ),
  ];
}

interface Answered {
  route: string;
  error?: string | undefined;
  models?: readonly { name: string; status: string; error?: string | undefined }[] | undefined;
}

/**
 * The event loop's delay is looked at as often, once somebody reads the metrics; a server whose
 * metrics nobody reads is not woken for it.
 */
export const EVENT_LOOP_STEP_MS = 100;
/** Two looks give a first delay. */
const FIRST_DELAY_MS = 2 * EVENT_LOOP_STEP_MS;

export class Metrics {
  readonly #registry = new Registry();
  readonly #requests: Counter<"route" | "status">;
  readonly #seconds: Histogram<"route">;
  readonly #errors: Counter<"route" | "error">;
  readonly #models: Counter<"model" | "status" | "error">;
  /** Resolves when the figures of the process are there. */
  #ofProcess: Promise<void> | undefined;
  /** Read once for one answer. */
  #engine: EngineStats | undefined;

  constructor(sources: MetricSources) {
    const registers = [this.#registry];
    this.#requests = new Counter({
      name: "radserve_http_requests_total",
      help: "Answered requests",
      labelNames: ["route", "status"],
      registers,
    });
    this.#seconds = new Histogram({
      name: "radserve_http_request_seconds",
      help: "Time from the request to its answer",
      labelNames: ["route"],
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
      registers,
    });
    this.#errors = new Counter({
      name: "radserve_http_errors_total",
      help: "Answers that were errors, by their code",
      labelNames: ["route", "error"],
      registers,
    });
    this.#models = new Counter({
      name: "radserve_model_answers_total",
      help: "Outcomes of models in answers to single requests; error is empty if there is none",
      labelNames: ["model", "status", "error"],
      registers,
    });
    register(this.#registry, [...serverMetrics(sources), ...sources.features]);
    register(
      this.#registry,
      engineMetrics(() => (this.#engine ??= sources.engine())),
    );
  }

  /** Counts an answer: its status and time, the code of its error, and the status of each model. */
  answered({ route, error, models = [] }: Answered, status: number, milliseconds: number): void {
    this.#requests.inc({ route, status: String(status) });
    this.#seconds.observe({ route }, milliseconds / 1000);
    if (error !== undefined) this.#errors.inc({ route, error });
    // A name that no model has is the client's own: it must not become a label.
    if (error === "model_not_found") return;
    for (const { name, status: became, error: code = "" } of models)
      this.#models.inc({ model: name, status: became, error: code });
  }

  readonly contentType = Registry.PROMETHEUS_CONTENT_TYPE;

  async text(): Promise<string> {
    await (this.#ofProcess ??= this.#watchProcess());
    this.#engine = undefined;
    return this.#registry.metrics();
  }

  async #watchProcess(): Promise<void> {
    collectDefaultMetrics({
      register: this.#registry,
      eventLoopMonitoringPrecision: EVENT_LOOP_STEP_MS,
    });
    await delay(FIRST_DELAY_MS);
  }
}
