/** Sessions of onnxruntime-common over models of the engine. */
import type {
  Backend,
  InferenceSession,
  InferenceSessionHandler,
  OnnxValue,
  SessionHandler,
} from "onnxruntime-common";
import { Tensor } from "onnxruntime-common";
import {
  createEngine,
  EngineError,
  type Engine,
  type Feed,
  type Model,
  type Tensor as Output,
  type TensorInfo,
} from "../index.js";
import { checkRunOptions, loadOptionsOf, unlike } from "./options.js";

let started: Engine | undefined;

/** The engine of this thread, from the first use on. It ends with the thread. */
export const engine = (): Engine => (started ??= createEngine());

/** The types that onnxruntime-common has tensors of. */
const TYPES: ReadonlySet<string> = new Set(
  Object.keys({
    float32: true,
    uint8: true,
    int8: true,
    uint16: true,
    int16: true,
    int32: true,
    int64: true,
    string: true,
    bool: true,
    float16: true,
    float64: true,
    uint32: true,
    uint64: true,
    uint4: true,
    int4: true,
  } satisfies Record<Tensor.Type, true>),
);

const isType = (dtype: string): dtype is Tensor.Type => TYPES.has(dtype);

/** @throws EngineError model_unavailable for a type that onnxruntime-common has no tensors of */
function metadataOf({ name, dtype, shape, names }: TensorInfo): InferenceSession.ValueMetadata {
  if (!isType(dtype))
    throw unlike(
      `"${name}"`,
      "a type that onnxruntime-common has tensors of (radserve-engine itself has all)",
      dtype,
      "model_unavailable",
    );
  const sides = shape.map((side, at) => (side === -1 ? (names[at] ?? "") : side));
  return { name, isTensor: true, type: dtype, shape: sides };
}

/** A tensor as a run of the engine is fed it; of whichever copy of onnxruntime-common it is. */
function feedOf(name: string, tensor: OnnxValue | null | undefined): Feed {
  if (typeof tensor !== "object" || tensor === null)
    throw unlike(`The input "${name}"`, "a Tensor", String(tensor));
  const { location, type, dims } = tensor;
  if (location !== "cpu" && location !== "cpu-pinned")
    throw unlike(`The location of "${name}"`, '"cpu"', `"${location}"`);
  return { dtype: type, shape: dims, data: tensor.data };
}

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength);

/** Puts an output where the caller wants to have it. */
function fill(name: string, place: OnnxValue, { dtype, shape, data }: Output): void {
  const wanted = `${place.type} [${place.dims.join(",")}]`;
  const found = `${dtype} [${shape.join(",")}]`;
  if (wanted !== found) throw unlike(`The output "${name}"`, wanted, found);
  const to = place.data;
  if (Array.isArray(to)) to.splice(0, to.length, ...(data as readonly string[]));
  else bytesOf(to).set(bytesOf(data as Exclude<typeof data, readonly string[]>));
}

const released = new FinalizationRegistry<Model>((model) => {
  model.unload().catch(() => undefined);
});

class Session implements InferenceSessionHandler {
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  readonly inputMetadata: readonly InferenceSession.ValueMetadata[];
  readonly outputMetadata: readonly InferenceSession.ValueMetadata[];
  readonly #model: Model;
  #released = false;

  constructor(model: Model) {
    this.#model = model;
    this.inputMetadata = model.inputs.map(metadataOf);
    const others = model.leftOut.map((name) => ({ name, isTensor: false as const }));
    this.outputMetadata = [...model.outputs.map(metadataOf), ...others];
    this.inputNames = this.inputMetadata.map(({ name }) => name);
    this.outputNames = this.outputMetadata.map(({ name }) => name);
    // Who forgets to release a session has its memory back when nobody can use it any more
    released.register(this, model, this);
  }

  async run(
    feeds: SessionHandler.FeedsType,
    fetches: SessionHandler.FetchesType,
    options: InferenceSession.RunOptions,
  ): Promise<SessionHandler.ReturnType> {
    this.#checkThere();
    checkRunOptions(options);
    // onnxruntime-node passes over feeds that no input has the name of, too
    const given = Object.fromEntries(
      this.inputNames.map((name) => [name, feedOf(name, feeds[name])]),
    );
    const outputs = await this.#model.run(given, { outputs: Object.keys(fetches) });
    const results: SessionHandler.ReturnType = {};
    for (const [name, output] of Object.entries(outputs)) {
      const place = fetches[name] ?? undefined;
      if (place !== undefined) fill(name, place, output);
      results[name] = place ?? tensorOf(output);
    }
    return results;
  }

  async dispose(): Promise<void> {
    this.#checkThere();
    this.#released = true;
    released.unregister(this);
    await this.#model.unload();
  }

  startProfiling(): never {
    throw new EngineError("bad_request", "startProfiling: the engine writes no profile.");
  }

  endProfiling(): never {
    throw new EngineError("bad_request", "endProfiling: the engine writes no profile.");
  }

  #checkThere(): void {
    if (this.#released)
      throw new EngineError("model_unavailable", "The session has been released already.");
  }
}

/** The data lies where the engine has put it. */
const tensorOf = ({ dtype, shape, data }: Output): Tensor =>
  new Tensor(dtype as "float32", data as Float32Array, shape);

export const backend: Backend = {
  init: () => Promise.resolve(),
  async createInferenceSessionHandler(pathOrBuffer, options = {}) {
    const model = await engine().load(pathOrBuffer, loadOptionsOf(options));
    try {
      return new Session(model);
    } catch (error) {
      await model.unload();
      throw error;
    }
  },
};
