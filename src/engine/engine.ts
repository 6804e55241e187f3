/**
 * The face of the native engine. Nothing else knows the addon's shape; every call is checked here,
 * and every native failure becomes a RadserveError.
 */
import os from "node:os";
import { dirname, join } from "node:path";
import { checkFeeds, checkGeometry, checkInferOptions, checkPlane, checkRender } from "./checks.js";
import { engineStatsSchema, type EngineStats } from "./stats.js";
import { inferenceOf, type EngineAddon } from "./engine-addon.js";
import { loadAddon } from "../addon/load-addon.js";
import { requireRegular } from "../files/regular-file.js";
import { asRadserveError, ERRORS, errors, RadserveError, type ErrorCode } from "../base/errors.js";
import type { VolumeGeometry } from "../images/image.js";
import type { Tensor } from "../base/tensor.js";
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

/** Native errors carry a code of errors.ts; anything else is a fault of ours. */
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
function cudaRefusal(
  addon: EngineAddon,
  providers: readonly string[],
  gpu: number,
): string | undefined {
  const fix = "or allow the CPU instead (RADSERVE_GPU_FALLBACK=cpu).";
  if (!providers.includes("CUDAExecutionProvider"))
    return `CUDA cannot be used: the CUDA execution provider is not in this ONNX Runtime build. Run npm run setup:gpu, ${fix}`;
  const problem = addon.cudaProblem(gpu);
  if (problem === "") return undefined;
  const library = /\b(lib[\w+-]+\.so[.\d]*): cannot open shared object file/.exec(problem)?.[1];
  return library === undefined
    ? `CUDA cannot be used: ${problem} Check the driver with nvidia-smi, ${fix}`
    : `CUDA cannot be used: the library ${library} is missing. Install the CUDA and cuDNN that ONNX Runtime needs, ${fix}`;
}

export class Engine {
  readonly #addon: EngineAddon;
  readonly #info: EngineInfo;
  readonly #gpus: readonly number[];
  readonly #gpuMemory: number;
  readonly #modelsLeave: boolean;
  #underWay = 0;
  #idle: (() => void) | undefined;
  readonly #loaded = new Set<number>();
  /** Those of the loaded models that may leave the memory. */
  readonly #leaving = new Set<number>();
  #closing: Promise<void> | undefined;

  constructor(options: EngineOptions) {
    this.#addon = loadAddon() as EngineAddon;
    this.#gpus = options.gpus ?? [0];
    this.#gpuMemory = options.gpuMemory ?? 0;
    this.#modelsLeave = options.modelsLeave === true;
    this.#info = this.#addon.start({ threads: options.threads ?? os.availableParallelism() });
    this.#checkProvider(options.provider);
  }

  info(): EngineInfo {
    return this.#info;
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
      const { id, inputs, outputs, gpu, sessions } = await this.#addon.load({
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
      this.#loaded.add(id);
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
    this.#loaded.delete(id);
    this.#leaving.delete(id);
    return this.#call(() => this.#addon.unload(id));
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
   * Raw tensors through a loaded model: canaries and `models try`. Feeds are read as planes are.
   */
  runTensors(id: number, feeds: Tensor[], options: InferOptions = {}): Promise<Tensor[]> {
    return this.#call(() => {
      checkInferOptions(options);
      checkFeeds(feeds);
      return this.#addon.runTensors(id, { priority: "routine", ...options, feeds });
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
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    if (this.#underWay > 0) await new Promise<void>((resolve) => (this.#idle = resolve));
    await Promise.all([...this.#loaded].map((id) => this.#addon.unload(id)));
    this.#loaded.clear();
  }

  #checkProvider(provider: "cpu" | "cuda"): void {
    if (provider === "cpu") return;
    for (const gpu of this.#gpus) {
      const refusal = cudaRefusal(this.#addon, this.#info.providers, gpu);
      if (refusal !== undefined) throw errors.model_unavailable(refusal);
    }
  }

  async #call<T>(work: () => Promise<T>): Promise<T> {
    if (this.#closing !== undefined)
      throw errors.shutting_down("The engine is closed and takes no new work.");
    this.#underWay++;
    try {
      return await work();
    } catch (thrown) {
      throw fromNative(thrown);
    } finally {
      if (--this.#underWay === 0) this.#idle?.();
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
