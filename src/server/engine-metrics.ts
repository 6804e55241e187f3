/** The engine's own counters for Prometheus. Labels are model names, classes and closed lists; nothing else. */
import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import type { EngineGpuStats, EngineHistogram, EngineModelStats, EngineStats } from "../engine/stats.js";

const CLASSES = ["stat", "routine", "bulk"] as const;

interface Sample {
  labels: Record<string, string>;
  value: number;
}

interface HistogramSample {
  labels: Record<string, string>;
  histogram: EngineHistogram;
}

/** A histogram that was counted elsewhere: the library's own can only observe. */
class CountedHistogram extends Histogram {
  constructor(
    private readonly about: { name: string; help: string; labelNames: string[]; registers: Registry[] },
    private readonly read: () => HistogramSample[],
  ) {
    super(about);
  }

  /** What `get` and the registry call. */
  getForPromString() {
    const { name, help } = this.about;
    const values = this.read().flatMap(({ labels, histogram }) => seriesOf(name, labels, histogram));
    return Promise.resolve({ name, help, type: "histogram", values });
  }
}

function seriesOf(name: string, labels: Record<string, string>, { ends, counts, sum }: EngineHistogram) {
  let total = 0;
  const buckets = counts.map((count, i) => {
    total += count;
    return {
      metricName: `${name}_bucket`,
      labels: { ...labels, le: String(ends[i] ?? "+Inf") },
      value: total,
    };
  });
  return [
    ...buckets,
    { metricName: `${name}_sum`, labels, value: sum },
    { metricName: `${name}_count`, labels, value: total },
  ];
}

function added(a: EngineHistogram | undefined, b: EngineHistogram): EngineHistogram {
  if (a === undefined) return b;
  return { ends: b.ends, counts: b.counts.map((n, i) => n + (a.counts[i] ?? 0)), sum: a.sum + b.sum };
}

/** Two versions of one model, while the old one drains, are one series. */
function merged<T>(samples: Iterable<[Record<string, string>, T]>, add: (a: T | undefined, b: T) => T) {
  const byLabels = new Map<string, { labels: Record<string, string>; value: T }>();
  for (const [labels, value] of samples) {
    const key = JSON.stringify(labels);
    byLabels.set(key, { labels, value: add(byLabels.get(key)?.value, value) });
  }
  return [...byLabels.values()];
}

/** Adds the engine's figures to a registry; `read` is called when they are asked for. */
export function registerEngineMetrics(registry: Registry, read: () => EngineStats): void {
  const registers = [registry];
  const numbers = (pick: (m: EngineModelStats) => [Record<string, string>, number][]): Sample[] =>
    merged(
      read().models.flatMap((m) =>
        pick(m).map(([labels, n]): [Record<string, string>, number] => [{ model: m.name, ...labels }, n]),
      ),
      (a, b) => (a ?? 0) + b,
    );
  const counter = (name: string, help: string, labels: string[], pick: Parameters<typeof numbers>[0]) =>
    new Counter({
      name,
      help,
      labelNames: ["model", ...labels],
      registers,
      collect() {
        this.reset();
        for (const { labels, value } of numbers(pick)) this.inc(labels, value);
      },
    });
  const histogram = (
    name: string,
    help: string,
    pick: (m: EngineModelStats) => [Record<string, string>, EngineHistogram][],
    labelNames = ["model"],
  ) =>
    new CountedHistogram({ name, help, labelNames, registers }, () =>
      merged(
        read().models.flatMap((m) =>
          pick(m).map(([labels, h]): [Record<string, string>, EngineHistogram] => [
            { model: m.name, ...labels },
            h,
          ]),
        ),
        added,
      ).map(({ labels, value }) => ({ labels, histogram: value })),
    );
  new Gauge({
    name: "radserve_engine_queued",
    help: "Inferences that wait in the engine",
    labelNames: ["model", "class"],
    registers,
    collect() {
      this.reset();
      const samples = numbers((m) => CLASSES.map((c) => [{ class: c }, m.queued[c]]));
      for (const { labels, value } of samples) this.set(labels, value);
    },
  });
  new Gauge({
    name: "radserve_engine_session_bytes",
    help: "Memory that the sessions of a model hold",
    labelNames: ["model"],
    registers,
    collect() {
      this.reset();
      const samples = numbers((m) => [[{}, m.sessions.reduce((sum, s) => sum + s.bytes, 0)]]);
      for (const { labels, value } of samples) this.set(labels, value);
    },
  });
  const perModel = (name: string, help: string, pick: (m: EngineModelStats) => number) =>
    new Gauge({
      name,
      help,
      labelNames: ["model"],
      registers,
      collect() {
        this.reset();
        // Of two versions, while the old one drains, the new one counts, which comes later.
        for (const m of read().models) this.set({ model: m.name }, pick(m));
      },
    });
  perModel("radserve_model_loaded", "1 where its memory is here, 0 while it is idle or returns", (m) =>
    m.residence.state === "loaded" ? 1 : 0,
  );
  perModel(
    "radserve_model_load_seconds",
    "How long its last load took, which a request for an idle model waits for",
    (m) => m.residence.loadSeconds,
  );
  const perGpu = (name: string, help: string, pick: (gpu: EngineGpuStats) => number) =>
    new Gauge({
      name,
      help,
      labelNames: ["gpu"],
      registers,
      collect() {
        this.reset();
        for (const gpu of read().gpus) this.set({ gpu: String(gpu.number) }, pick(gpu));
      },
    });
  perGpu("radserve_gpu_lost", "1 where the GPU broke and is used again after a restart", ({ lost }) =>
    lost ? 1 : 0,
  );
  perGpu("radserve_gpu_waiting", "Images that wait for the GPU or run on it", ({ waiting }) => waiting);
  perGpu("radserve_gpu_taken_bytes", "Memory of the GPU that all models have taken", (gpu) => gpu.takenBytes);
  perGpu("radserve_gpu_free_bytes", "Memory of the GPU that nobody has taken", (gpu) => gpu.freeBytes);
  counter("radserve_model_loads_total", "How often it was loaded, returns after idling included", [], (m) => [
    [{}, m.residence.loads],
  ]);
  counter("radserve_engine_inferences_total", "Inferences that ended, well or not", ["outcome"], (m) => [
    [{ outcome: "completed" }, m.completed],
    [{ outcome: "failed" }, m.failed],
  ]);
  counter("radserve_engine_refused_total", "Inferences refused by the engine", ["reason"], (m) =>
    Object.entries(m.refused).map(([reason, n]) => [{ reason }, n]),
  );
  histogram(
    "radserve_engine_wait_seconds",
    "From the request to its start in the engine",
    (m) => CLASSES.map((c) => [{ class: c }, m.waitSeconds[c]]),
    ["model", "class"],
  );
  histogram("radserve_engine_batch_size", "Images that ran together", (m) => [[{}, m.batchSizes]]);
  histogram("radserve_engine_run_seconds", "Time of a batch in the model", (m) => [[{}, m.runSeconds]]);
}
