/**
 * The engine of images. It stands on that of graphs (src/graph/), which has what runs, what is held
 * and tensors; here are images, what a manifest says of them, and what Radserve asks of models
 * beside. Every call is checked, and every failure becomes a RadserveError.
 */
import { dirname, join } from "node:path";
import { checkFeeds, checkGeometry, checkInferOptions, checkPlane, checkRender } from "./checks.js";
import { engineStatsSchema, type EngineStats } from "./stats.js";
import { inferenceOf, type EngineAddon } from "./engine-addon.js";
import { feedsOf, tensorsOf } from "./graph-tensors.js";
import { loadAddon } from "../addon/load-addon.js";
import { requireRegular } from "../files/regular-file.js";
import { asRadserveError, ERRORS, errors, RadserveError, type ErrorCode } from "../base/errors.js";
import type { VolumeGeometry } from "../images/image.js";
import type { Tensor } from "../base/tensor.js";
import { Model } from "../graph/model.js";
import { GraphRuntime } from "../graph/runtime.js";
import type { Provider } from "../graph/types.js";
import type {
  CanaryTensors,
  EngineInfo,
  EngineOptions,
  GraphInfo,
  InferOptions,
  InferResult,
  LoadedModel,
  LoadOptions,
  Plane,
  Progress,
  RenderOptions,
} from "./types.js";

/** What Radserve's priorities are to graphs. */
const PRIORITIES = { stat: "high", routine: "normal", bulk: "low" } as const;

/** Errors of the engine carry a code of errors.ts; anything else is a fault of ours. */
function fromNative(thrown: unknown): RadserveError {
  if (
    thrown instanceof Error &&
    "code" in thrown &&
    typeof thrown.code === "string" &&
    thrown.code in ERRORS
  )
    return new RadserveError(thrown.code as ErrorCode, thrown.message);
  return asRadserveError(thrown);
}

/** The reason that CUDA cannot be used, in one sentence with the fix; undefined if it can. */
function cudaRefusal(runtime: GraphRuntime, gpus: readonly number[]): string | undefined {
  const fix = "or allow the CPU instead (RADSERVE_GPU_FALLBACK=cpu).";
  if (!runtime.info.providers.includes("CUDAExecutionProvider"))
    return `CUDA cannot be used: the CUDA execution provider is not in this ONNX Runtime build. Run npm run setup:gpu, ${fix}`;
  const problem = runtime.cudaProblem(gpus);
  if (problem === undefined) return undefined;
  const library = /\b(lib[\w+-]+\.so[.\d]*): cannot open shared object file/.exec(problem)?.[1];
  return library === undefined
    ? `CUDA cannot be used: ${problem} Check the driver with nvidia-smi, ${fix}`
    : `CUDA cannot be used: the library ${library} is missing. Install the CUDA and cuDNN that ONNX Runtime needs, ${fix}`;
}

export class Engine {
  readonly #runtime: GraphRuntime;
  readonly #addon: EngineAddon;
  readonly #gpus: readonly number[];
  readonly #gpuMemory: number;
  readonly #modelsLeave: boolean;
  /** The graphs of the models that this thread has loaded. */
  readonly #graphs = new Map<number, Model>();
  /** Those that may leave the memory. */
  readonly #leaving = new Set<number>();

  constructor(options: EngineOptions) {
    // First, for the words of Radserve where it cannot be loaded
    this.#addon = loadAddon() as EngineAddon;
    this.#runtime = new GraphRuntime(options.threads);
    this.#gpus = options.gpus ?? [0];
    this.#gpuMemory = options.gpuMemory ?? 0;
    this.#modelsLeave = options.modelsLeave === true;
    this.#checkProvider(options.provider);
    if (options.openvino === true) this.#checkProvider("openvino");
  }

  info(): EngineInfo {
    return this.#runtime.info;
  }

  /** Why OpenVINO cannot be used, in one sentence with the fix; undefined if it can. */
  openvinoRefusal(): string | undefined {
    const problem = this.#runtime.openvinoProblem();
    return problem === undefined
      ? undefined
      : `OpenVINO cannot be used: ${problem}. Run npm run setup:openvino, or leave openvino out of RADSERVE_PROVIDERS.`;
  }

  /** The version of OpenVINO; undefined where it cannot be used. */
  get openvinoVersion(): string | undefined {
    return this.#addon.openvino().version || undefined;
  }

  /**
   * Inputs and outputs of a graph without a manifest. Throws bad_request where it is no ONNX model.
   */
  inspectGraph(modelPath: string): Promise<GraphInfo> {
    return this.#call(async () => {
      const require = (path: string) =>
        requireRegular(path).catch((thrown: unknown) => {
          // The runtime has words of its own for a file that is missing
          if (thrown instanceof RadserveError) throw thrown;
        });
      await require(modelPath);
      for (const location of this.#addon.externalData(modelPath) ?? [])
        await require(join(dirname(modelPath), location));
      return this.#addon.inspect(modelPath);
    });
  }

  load(options: LoadOptions): Promise<LoadedModel> {
    return this.#call(async () => {
      const { provider } = options;
      const leaves = this.#modelsLeave || options.mayLeave === true;
      this.#checkProvider(provider);
      const loaded = await this.#addon.load({
        paths: [options.modelPath, ...(options.ensemble?.others ?? [])],
        meanAfterActivation: options.ensemble?.average === "after_activation",
        name: options.name,
        version: options.version,
        maxBatch: options.batching.max,
        ...(options.tiling === undefined ? {} : { tiling: options.tiling }),
        provider,
        precision: options.precision ?? "float32",
        gpus: this.#gpus,
        gpuMemory: this.#gpuMemory,
        hashes: leaves ? (options.files ?? []) : [],
        timeoutMs: options.timeoutMs,
        cancelId: options.cancelId,
        inputs: options.inputs,
        roles: options.roles ?? [],
        outputs: options.outputs,
      });
      const { id, inputs, outputs, gpu, sessions } = this.#runtime.hold(loaded);
      const graph = {
        ...loaded,
        byWindows: options.tiling !== undefined,
        leftOut: [],
        batching: options.batching.max,
      };
      this.#graphs.set(id, new Model(this.#runtime, graph, { name: options.name, provider }));
      if (leaves) this.#leaving.add(id);
      return { id, inputs, outputs, provider, ...(gpu === undefined ? {} : { gpu }), sessions };
    });
  }

  /**
   * Keeps the canary that the model must pass when it comes back from idling; tensors are copied.
   * Does nothing for a model that stays.
   */
  keepCanary(id: number, canary: CanaryTensors): void {
    if (!this.#leaving.has(id)) return;
    try {
      checkFeeds([...canary.feeds, ...canary.expected]);
      this.#addon.keepCanary(id, canary);
    } catch (thrown) {
      throw fromNative(thrown);
    }
  }

  /**
   * Models of the process that may leave and that nobody has used for so long give their memory
   * back. The next request for one waits until it is loaded again from the same bytes, and its
   * canary has passed; its deadline counts meanwhile. Where it cannot come, those that wait fail
   * with model_unavailable, and the next request tries again.
   */
  leaveIdle(milliseconds: number): void {
    this.#addon.leaveIdle(milliseconds);
  }

  /** Why models could not come back when they were last wanted, by their numbers. */
  missing(): Map<number, string> {
    const models = this.#leaving.size > 0 ? this.stats().models : [];
    return new Map(
      models.flatMap(({ id, residence }) =>
        residence.problem === undefined ? [] : [[id, residence.problem] as const],
      ),
    );
  }

  /** New work is refused; what runs is finished; memory goes back when the last is done. */
  unload(id: number): Promise<void> {
    const graph = this.#graphs.get(id);
    this.#graphs.delete(id);
    this.#leaving.delete(id);
    return this.#call(async () => graph?.unload());
  }

  infer(id: number, planes: Plane[], options: InferOptions): Promise<InferResult> {
    return this.#call(async () => {
      checkInferOptions(options);
      planes.forEach(checkPlane);
      for (const { geometry } of [options, ...(options.sources ?? [])])
        if (geometry !== undefined) checkGeometry(geometry);
      return inferenceOf(
        await this.#addon.infer(id, planes, { priority: "routine", dump: false, ...options }),
      );
    });
  }

  /**
   * Raw tensors through a model that this thread has loaded: canaries and `models try`. Feeds are
   * read as planes are.
   */
  runTensors(id: number, feeds: Tensor[], options: InferOptions = {}): Promise<Tensor[]> {
    return this.#call(async () => {
      checkInferOptions(options);
      checkFeeds(feeds);
      const graph = this.#graphs.get(id);
      if (graph === undefined)
        throw errors.model_unavailable(
          `The engine has no model number ${id}; it was never loaded or has been unloaded.`,
        );
      const { priority = "routine", timeoutMs, cancelId = 0, subject = 0 } = options;
      const limits = { priority: PRIORITIES[priority], timeoutMs, cancelId, subject };
      return tensorsOf(await graph.runWithin(feedsOf(feeds), undefined, limits));
    });
  }

  /** Display picture of one frame, RGB, 8 bits, by the same pixel code that feeds the models. */
  render(plane: Plane, options: RenderOptions): Promise<Uint8Array> {
    return this.#call(() => {
      checkPlane(plane);
      checkRender(options);
      return this.#addon.render(plane, options);
    });
  }

  cancel(cancelId: number): void {
    this.#addon.cancel(cancelId);
  }

  /**
   * Progress of the work with that number; undefined unless it goes window by window, and has
   * begun.
   */
  progress(cancelId: number): Progress | undefined {
    return this.#addon.progress(cancelId);
  }

  /**
   * Bytes that a model which takes volumes in windows needs at most for such a volume, beside its
   * weights, the source and the results; 0 for other models.
   * @throws RadserveError no_model_accepts or series_invalid where the volume does not fit
   */
  plan(
    id: number,
    volume: { slices: number; rows: number; columns: number; geometry: VolumeGeometry },
  ): number {
    checkGeometry(volume.geometry);
    try {
      return this.#addon.plan(id, volume);
    } catch (thrown) {
      throw fromNative(thrown);
    }
  }

  /**
   * Bytes that a run of the model over so many pixels of an image is expected to take beside its
   * weights, by the runs that were seen; 0 before the first, and for a model that goes by windows.
   */
  runBytes(id: number, pixels: number): number {
    try {
      return this.#addon.runBytes(id, pixels);
    } catch (thrown) {
      throw fromNative(thrown);
    }
  }

  /**
   * All runs of the process on the CPU may have so many bytes together, weights apart. One that
   * needs what others have waits some seconds and fails with overloaded then; one that needs more
   * than that by itself fails with memory_exceeded.
   */
  limitRuns(bytes: number): void {
    this.#addon.limitRuns(bytes);
  }

  /**
   * Limits the weights on the CPU, in bytes, of all models together that may leave. A model for
   * which there is no room waits until others have left: first those unused for longest, and those
   * in use when their work has ended. One model alone may have more.
   */
  limitWeights(bytes: number): void {
    this.#addon.limitWeights(bytes);
  }

  /** Bytes that runs on the CPU have, or keep for the next ones. */
  runMemory(): number {
    return this.#addon.runMemory();
  }

  /** Figures of the whole process, whoever loaded the models. */
  stats(): EngineStats {
    return engineStatsSchema.parse(this.#addon.stats());
  }

  /** Waits for what runs, releases sessions that this environment loaded. Idempotent. */
  close(): Promise<void> {
    this.#graphs.clear();
    return this.#runtime.close();
  }

  #checkProvider(provider: Provider): void {
    if (provider === "cpu") return;
    const refusal =
      provider === "cuda" ? cudaRefusal(this.#runtime, this.#gpus) : this.openvinoRefusal();
    if (refusal !== undefined) throw errors.model_unavailable(refusal);
  }

  async #call<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await this.#runtime.call(work);
    } catch (thrown) {
      throw fromNative(thrown);
    }
  }
}

/**
 * The engine of this thread. Sessions, queues and threads behind it belong to the process and are
 * shared by all its worker threads; models loaded here go when this thread ends. Throws
 * RadserveError: internal where the addon is not built, model_unavailable where CUDA is asked for
 * and cannot be used.
 */
export const createEngine = (options: EngineOptions): Engine => new Engine(options);
