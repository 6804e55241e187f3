/** Figures for Prometheus. Labels are routes, statuses and model names; never subjects, paths or anything of a patient. */
import { Counter, Gauge, Histogram, Registry, collectDefaultMetrics } from "prom-client";
import { registerEngineMetrics } from "./engine-metrics.js";
import type { EngineStats } from "../engine/stats.js";

export interface Gauges {
  queued(): number;
  running(): number;
  /** Bytes that the images in work take. */
  memory(): number;
  threadsStuck(): number;
  threadsEnded(): number;
  /** Open connections. */
  connections(): number;
  /** Connections that were refused, by why. */
  refused(): ReadonlyMap<string, number>;
  /** When certificates end. */
  certificates(): readonly { certificate: string; at: Date }[];
  /** State of each model. */
  models(): { name: string; version: string; state: string }[];
  /** Items and jobs of the bulk queue, and items that ended in this process. */
  bulk(): { queued: number; running: number; paused: number; ended: Readonly<Record<string, number>> };
  engine(): EngineStats;
}

/** The event loop's delay is looked at as often; each ten milliseconds would take 0.3 % of a core that has nothing to do. */
export const EVENT_LOOP_STEP_MS = 100;

export class Metrics {
  readonly #registry = new Registry();
  readonly #requests: Counter<"route" | "status">;
  readonly #seconds: Histogram<"route">;
  readonly #errors: Counter<"route" | "error">;
  readonly #models: Counter<"model" | "status" | "error">;
  /** Read once for one answer. */
  #engine: EngineStats | undefined;

  constructor(gauges: Gauges) {
    const registers = [this.#registry];
    collectDefaultMetrics({
      register: this.#registry,
      eventLoopMonitoringPrecision: EVENT_LOOP_STEP_MS,
    });
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
      help: "What models came to in answers to single requests; error is empty where there is none",
      labelNames: ["model", "status", "error"],
      registers,
    });
    gauge("radserve_inferences_queued", "Requests that wait for a worker", () => gauges.queued());
    gauge("radserve_inferences_running", "Requests that a worker has", () => gauges.running());
    gauge("radserve_image_memory_bytes", "Memory counted for the images in work", () => gauges.memory());
    gauge(
      "radserve_worker_threads_stuck",
      "Worker threads with work that have not gone on for 10 seconds",
      () => gauges.threadsStuck(),
    );
    new Counter({
      name: "radserve_worker_threads_ended_total",
      help: "Worker threads that were ended because a task did not stop when its time was over",
      registers,
      collect() {
        this.reset();
        this.inc(gauges.threadsEnded());
      },
    });
    gauge("radserve_connections", "Open connections", () => gauges.connections());
    new Counter({
      name: "radserve_connections_refused_total",
      help: "Connections that were refused, or closed for others",
      labelNames: ["reason"],
      registers,
      collect() {
        this.reset();
        for (const [reason, count] of gauges.refused()) this.inc({ reason }, count);
      },
    });
    new Gauge({
      name: "radserve_certificate_expiry_timestamp_seconds",
      help: "When the first certificate of the server's chain, and of the client CAs, ends (Unix time)",
      labelNames: ["certificate"],
      registers,
      collect() {
        this.reset();
        for (const { certificate, at } of gauges.certificates())
          this.set({ certificate }, at.getTime() / 1000);
      },
    });
    gauge(
      "radserve_bulk_items_queued",
      "Images of bulk jobs that wait, on all boxes",
      () => gauges.bulk().queued,
    );
    gauge(
      "radserve_bulk_items_running",
      "Images of bulk jobs in work, on all boxes",
      () => gauges.bulk().running,
    );
    gauge("radserve_bulk_jobs_paused", "Bulk jobs that wait for something", () => gauges.bulk().paused);
    new Counter({
      name: "radserve_bulk_items_total",
      help: "Images of bulk jobs that ended in this process",
      labelNames: ["state"],
      registers,
      collect() {
        this.reset();
        for (const [state, count] of Object.entries(gauges.bulk().ended)) this.inc({ state }, count);
      },
    });
    new Gauge({
      name: "radserve_model_ready",
      help: "1 where the model can be used",
      labelNames: ["model", "version", "state"],
      registers,
      collect() {
        this.reset();
        for (const { name, version, state } of gauges.models())
          this.set({ model: name, version, state }, state === "ready" ? 1 : 0);
      },
    });
    registerEngineMetrics(this.#registry, () => (this.#engine ??= gauges.engine()));
    function gauge(name: string, help: string, read: () => number) {
      new Gauge({
        name,
        help,
        registers,
        collect() {
          this.set(read());
        },
      });
    }
  }

  answered(route: string, status: number, milliseconds: number): void {
    this.#requests.inc({ route, status: String(status) });
    this.#seconds.observe({ route }, milliseconds / 1000);
  }

  /** What an answer said: the code of its error, and what became of each model. */
  told(
    route: string,
    error: string | undefined,
    models: readonly { name: string; status: string; error?: string }[] | undefined,
  ): void {
    if (error !== undefined) this.#errors.inc({ route, error });
    // A name that no model has is the client's own: it must not become a label.
    if (error === "model_not_found") return;
    for (const { name, status, error: code } of models ?? [])
      this.#models.inc({ model: name, status, error: code ?? "" });
  }

  readonly contentType = Registry.PROMETHEUS_CONTENT_TYPE;

  text(): Promise<string> {
    this.#engine = undefined;
    return this.#registry.metrics();
  }
}
