/**
 * The face of the engine for everybody: graphs are loaded, and tensors run through them on threads
 * of their own. It knows nothing of images.
 */
import { basename, resolve } from "node:path";
import { EngineError, textOf, unlike } from "./errors.js";
import { checkObject, isList, kindOf, refusalOf } from "./feeds.js";
import { Model } from "./model.js";
import { checkTimeout, GraphRuntime, isProvider, untilAborted } from "./runtime.js";
import { modelStatsOf } from "./stats.js";
import type { EngineOptions, EngineStats, LoadOptions, Provider } from "./types.js";

/** What a file of ONNX may hold: protobuf counts its bytes in 31 bits. */
const MOST_BYTES = 2 ** 31 - 1;
const PRECISIONS = ["float32", "tf32", "float16", "bfloat16"];

/** Models of this thread. `await using` closes it. */
export class Engine {
  readonly #runtime: GraphRuntime;

  /**
   * Engines come from createEngine.
   * @internal
   */
  constructor(options: EngineOptions) {
    checkObject("The options", options);
    const { threads } = options;
    checkThreads(threads);
    this.#runtime = new GraphRuntime(threads);
    if (threads !== undefined && threads !== this.threads)
      throw unlike(
        "threads",
        `${this.threads}, with which this process has started the engine`,
        `${threads}`,
      );
  }

  /** Runs that go on at a time in this process. */
  get threads(): number {
    return this.#runtime.info.threads;
  }

  /** Version of ONNX Runtime, "1.29.0" for one. */
  get onnxRuntimeVersion(): string {
    return this.#runtime.info.onnxRuntimeVersion;
  }

  /** Providers that are installed. */
  get providers(): Provider[] {
    const cuda = this.#runtime.info.providers.includes("CUDAExecutionProvider");
    const openvino = this.#runtime.openvinoProblem() === undefined;
    return ["cpu", ...(cuda ? ["cuda" as const] : []), ...(openvino ? ["openvino" as const] : [])];
  }

  /**
   * Loads an ONNX model. Who loads the same file, or equal bytes, with equal options, in whatever
   * thread of the process, gets the same model, in memory once; it goes with the last that unloads
   * it or ends. A file that has changed is another one.
   * @param source a path, or the bytes of a model that has all its weights inside: they are read
   * until the promise is settled
   * @throws EngineError: bad_request for what is no path, no bytes, or more than 2 GiB of them;
   * model_unavailable where there is no such file, ONNX Runtime cannot use it, or CUDA or OpenVINO
   * cannot be used; deadline_exceeded, cancelled, shutting_down
   */
  async load(source: string | Uint8Array, options: LoadOptions = {}): Promise<Model> {
    checkObject("The options", options);
    const {
      provider = "cpu",
      batching = { max: 1 },
      precision = "float32",
      threads,
      gpus = [0],
      gpuMemory = 0,
      signal,
      timeoutMs,
    } = options;
    checkSource(source);
    if (!isProvider(provider)) throw unlike("provider", '"cpu", "cuda" or "openvino"', provider);
    checkObject("batching", batching);
    if (!(Number.isInteger(batching.max) && batching.max >= 1 && batching.max <= 1024))
      throw unlike("batching.max", "a whole number from 1 to 1024", batching.max);
    if (!PRECISIONS.includes(precision))
      throw unlike("precision", PRECISIONS.join(", "), precision);
    checkThreads(threads);
    if (!isList(gpus)) throw unlike("gpus", "a list of numbers of GPUs", kindOf(gpus));
    if (gpus.length === 0 || !gpus.every((gpu) => Number.isInteger(gpu) && gpu >= 0))
      throw unlike("gpus", "numbers of GPUs from 0", `[${gpus.map(textOf).join(",")}]`);
    if (!Number.isSafeInteger(gpuMemory) || gpuMemory < 0)
      throw unlike("gpuMemory", "a whole number of bytes", gpuMemory);
    checkTimeout(timeoutMs);
    const problem = provider === "cuda" ? this.#runtime.cudaProblem(gpus) : undefined;
    if (problem !== undefined)
      throw new EngineError("model_unavailable", `CUDA cannot be used: ${problem}`);
    if (precision === "bfloat16" && provider !== "openvino")
      throw unlike("precision", "another than bfloat16, which openvino alone has", precision);
    const isPath = typeof source === "string";
    const name = options.name ?? (isPath ? basename(source) : "model");
    if (typeof name !== "string") throw unlike("name", "text", kindOf(name));
    const loaded = await untilAborted(this.#runtime.addon, signal, (cancelId) =>
      this.#runtime.call(() =>
        this.#runtime.addon.loadGraph({
          path: isPath ? resolve(source) : undefined,
          bytes: isPath ? undefined : source,
          name,
          maxBatch: batching.max,
          provider,
          precision,
          threads: threads ?? 0,
          gpus,
          gpuMemory,
          hashes: [],
          timeoutMs,
          cancelId: cancelId === 0 ? undefined : cancelId,
        }),
      ),
    );
    return new Model(this.#runtime, this.#runtime.hold(loaded), { name, provider });
  }

  /** Figures of the whole process. */
  stats(): EngineStats {
    const { threads, running, models } = this.#runtime.addon.stats();
    const runBytes = this.#runtime.addon.runMemory();
    return { threads, running, runBytes, models: models.map(modelStatsOf) };
  }

  /**
   * All runs of the process on the CPU may have so many bytes together, weights apart; 0 is no
   * limit. One that needs what others have waits some seconds and fails with overloaded then; one
   * that needs more by itself fails with memory_exceeded.
   */
  limitRuns(bytes: number): void {
    if (!Number.isSafeInteger(bytes) || bytes < 0)
      throw unlike("The limit", "a whole number of bytes", bytes);
    this.#runtime.addon.limitRuns(bytes);
  }

  /** Waits for what this thread has running, and unloads what it has loaded. Idempotent. */
  close(): Promise<void> {
    return this.#runtime.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function checkThreads(threads: number | undefined): void {
  if (threads !== undefined && !(Number.isInteger(threads) && threads >= 1 && threads <= 1024))
    throw unlike("threads", "a whole number from 1 to 1024", threads);
}

function checkSource(source: unknown): void {
  if (typeof source === "string") {
    if (source === "" || source.includes("\0")) throw unlike("The model", "a path", "no path");
    return;
  }
  if (!(source instanceof Uint8Array))
    throw unlike("The model", "a path or its bytes as Uint8Array", kindOf(source));
  const refusal = refusalOf(source.buffer);
  if (refusal !== undefined) throw unlike("The memory of the model", ...refusal);
  if (source.byteLength === 0) throw unlike("The model", "its bytes", "none");
  if (source.byteLength > MOST_BYTES)
    throw unlike(
      "The model",
      "at most 2 GiB of bytes, which is as much as one file of ONNX holds (load a larger one, with its weights beside it, by its path)",
      `${source.byteLength} bytes`,
    );
}

/**
 * The engine of this thread. Threads, queues and models behind it belong to the process: every
 * worker thread calls this for itself, and they share them.
 * @throws EngineError: bad_request for options that do not fit; internal where the addon cannot be
 * loaded
 */
export const createEngine = (options: EngineOptions = {}): Engine => new Engine(options);
