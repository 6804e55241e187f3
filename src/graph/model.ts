/** A loaded graph, and tensors through it. */
import { DATA_TYPES, type TensorData } from "./data-types.js";
import { EngineError, unlike } from "./errors.js";
import { checkedFeeds, checkObject, isList, kindOf, wasTransferred } from "./feeds.js";
import type { LoadedGraph, NativeOutputs } from "./graph-addon.js";
import { checkTimeout, untilAborted, type GraphRuntime } from "./runtime.js";
import { modelStatsOf } from "./stats.js";
import type {
  Feeds,
  ModelStats,
  Outputs,
  Priority,
  Provider,
  RunOptions,
  Tensor,
  TensorInfo,
} from "./types.js";

/** In the order of Priority in native/scheduling/fair_queue.h. */
const PRIORITIES: readonly Priority[] = ["high", "normal", "low"];

/** What a run of Radserve's own may say beside: a number to cancel it by, and whose it is. */
export interface RunLimits {
  priority: Priority;
  timeoutMs: number | undefined;
  /** 0 for none. */
  cancelId: number;
  subject: number;
}

/** A loaded graph. `await using` unloads it. */
export class Model {
  readonly name: string;
  /** What `run` has to be fed. */
  readonly inputs: readonly TensorInfo[];
  /** Those that are tensors. */
  readonly outputs: readonly TensorInfo[];
  /** Names of outputs that are no tensors: to ask for one is an error. */
  readonly leftOut: readonly string[];
  readonly provider: Provider;
  /** Number of the GPU that it went to; undefined on a CPU. */
  readonly gpu: number | undefined;
  /** Most runs with one row each that go together; 1 if each runs alone. */
  readonly batching: number;
  readonly #runtime: GraphRuntime;
  readonly #loaded: LoadedGraph;
  readonly #numbers: ReadonlyMap<string, number>;
  #unloading: Promise<void> | undefined;

  /**
   * Models come from Engine.load.
   * @internal
   */
  constructor(
    runtime: GraphRuntime,
    loaded: LoadedGraph,
    { name, provider }: { name: string; provider: Provider },
  ) {
    this.#runtime = runtime;
    this.#loaded = loaded;
    this.name = name;
    this.provider = provider;
    this.inputs = loaded.inputs;
    this.outputs = loaded.outputs;
    this.leftOut = loaded.leftOut;
    this.gpu = loaded.gpu;
    this.batching = loaded.batching;
    this.#numbers = new Map(loaded.outputs.map((output, number) => [output.name, number]));
  }

  /**
   * Runs the graph once, on threads of the engine.
   * @param feeds a tensor for each input, by its name
   * @returns the outputs that are wanted, by their names
   * @throws EngineError: bad_request before anything has run, for feeds and options that do not
   * fit; model_unavailable after unload; deadline_exceeded, cancelled, overloaded,
   * memory_exceeded, shutting_down; output_invalid, or internal, where ONNX Runtime fails
   */
  async run(feeds: Feeds, options: RunOptions = {}): Promise<Outputs> {
    checkObject("The options", options);
    const { signal, timeoutMs, priority = "normal", outputs } = options;
    if (!PRIORITIES.includes(priority)) throw unlike("priority", PRIORITIES.join(", "), priority);
    return untilAborted(this.#runtime.addon, signal, (cancelId) =>
      this.runWithin(feeds, outputs, { priority, timeoutMs, cancelId, subject: 0 }),
    );
  }

  /**
   * The same for a caller that has numbers of its own to cancel by.
   * @internal
   */
  async runWithin(
    feeds: Feeds,
    wanted: readonly string[] | undefined,
    { priority, timeoutMs, cancelId, subject }: RunLimits,
  ): Promise<Outputs> {
    if (this.#unloading !== undefined)
      throw new EngineError("model_unavailable", `The model "${this.name}" has been unloaded.`);
    checkTimeout(timeoutMs);
    const numbers = wanted === undefined ? [] : this.#numbersOf(wanted);
    const { data, shapes } = checkedFeeds(this.inputs, feeds, this.#loaded.byWindows);
    const given = await this.#runtime.call(() =>
      this.#runtime.addon.run(
        this.#loaded.id,
        data,
        shapes,
        numbers,
        PRIORITIES.indexOf(priority),
        timeoutMs ?? 0,
        cancelId,
        subject,
      ),
    );
    if (wasTransferred(data))
      throw unlike(
        "The feeds",
        "buffers that stay here until the run has ended",
        "one that was transferred meanwhile",
      );
    return outputsOf(given, wanted === undefined ? this.outputs : numbers.map(this.#output));
  }

  /** Figures since its load, of all threads that share it; undefined once it is unloaded. */
  stats(): ModelStats | undefined {
    const { models } = this.#runtime.addon.stats();
    const own = models.find(({ id }) => id === this.#loaded.id);
    return own === undefined || this.#unloading !== undefined ? undefined : modelStatsOf(own);
  }

  /**
   * Lets go of the model: runs after it are refused. Its memory is free when the promise is
   * settled, unless other threads, or other loads of this one, hold it still. Idempotent.
   */
  unload(): Promise<void> {
    this.#unloading ??= this.#runtime.letGo(this.#loaded.id);
    return this.#unloading;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.unload();
  }

  #numbersOf(wanted: readonly string[]): number[] {
    if (!isList(wanted) || wanted.length === 0)
      throw unlike("outputs", "names of at least one output", kindOf(wanted));
    return wanted.map((name) => {
      const number = this.#numbers.get(name);
      if (number !== undefined) return number;
      const names = this.outputs.map((output) => `"${output.name}"`).join(", ");
      if (typeof name !== "string") throw unlike("outputs", names, name);
      const left = this.#loaded.leftOut.includes(name);
      throw unlike("outputs", names, left ? `"${name}", which is no tensor` : `"${name}"`);
    });
  }

  readonly #output = (number: number): TensorInfo | undefined => this.outputs[number];
}

/** What the addon gave for these outputs, in their order. */
function outputsOf(given: NativeOutputs, infos: readonly (TensorInfo | undefined)[]): Outputs {
  const outputs: [string, Tensor][] = [];
  let at = 0;
  for (const info of infos) {
    const [shape, memory] = [given[at++], given[at++]];
    if (info === undefined) continue;
    const { name, dtype } = info;
    const data: TensorData =
      dtype === "string" ? (memory as string[]) : DATA_TYPES[dtype].make(memory as ArrayBuffer);
    outputs.push([name, { dtype, shape: shape as number[], data }]);
  }
  // Which an output called "__proto__" comes through, too
  return Object.fromEntries(outputs);
}
