/**
 * The engine of the process as one thread uses it: what the thread has under way, and which models
 * it holds. Everything that runs graphs stands on this, images too.
 */
import os from "node:os";
import { openAddon } from "../addon/open-addon.js";
import { EngineError, engineErrorOf, unlike } from "./errors.js";
import { kindOf } from "./feeds.js";
import type { GraphAddon, LoadedGraph, RuntimeInfo } from "./graph-addon.js";
import type { Provider } from "./types.js";

/** The addon of this thread; a user that knows more of it than graphs says which part. */
export function graphAddon(): GraphAddon {
  try {
    return openAddon("addon") as GraphAddon;
  } catch (cause) {
    const reason = cause instanceof Error ? (cause.message.split("\n")[0] ?? "") : "";
    throw new EngineError("internal", `The native engine cannot be loaded (${reason}).`, { cause });
  }
}

export class GraphRuntime {
  readonly addon: GraphAddon;
  readonly info: RuntimeInfo;
  #underWay = 0;
  #idle: (() => void) | undefined;
  /** Models that this thread holds, and how often. */
  readonly #held = new Map<number, number>();
  #closing: Promise<void> | undefined;

  constructor(threads: number = os.availableParallelism()) {
    this.addon = graphAddon();
    this.info = this.addon.start({ threads });
  }

  /** Does a call that ends before the engine closes. */
  async call<T>(work: () => Promise<T>): Promise<T> {
    this.checkOpen();
    this.#underWay++;
    try {
      return await work();
    } finally {
      if (--this.#underWay === 0) this.#idle?.();
    }
  }

  checkOpen(): void {
    if (this.#closing !== undefined)
      throw new EngineError("shutting_down", "The engine is closed and takes no new work.");
  }

  /** The model goes when this thread ends or lets it go, unless others hold it. */
  hold<T extends Pick<LoadedGraph, "id">>(loaded: T): T {
    this.#held.set(loaded.id, (this.#held.get(loaded.id) ?? 0) + 1);
    return loaded;
  }

  /**
   * New work of this thread's is refused; when nobody holds the model any more, memory goes back as
   * soon as what runs is finished. An engine that closes lets go of all.
   */
  letGo(id: number): Promise<void> {
    if (this.#closing !== undefined) return this.#closing;
    const held = this.#held.get(id) ?? 0;
    if (held > 1) this.#held.set(id, held - 1);
    else this.#held.delete(id);
    return this.call(() => this.addon.unload(id)).catch(fail);
  }

  /**
   * Why CUDA cannot be used on these GPUs, in words of the system; undefined if it can.
   * @throws EngineError bad_request for what is no number of a GPU
   */
  cudaProblem(gpus: readonly number[]): string | undefined {
    if (!this.info.providers.includes("CUDAExecutionProvider"))
      return "the CUDA execution provider is not in this ONNX Runtime build.";
    for (const gpu of gpus) {
      const problem = this.addon.cudaProblem(gpu);
      if (problem !== "") return problem;
    }
    return undefined;
  }

  /** Why OpenVINO cannot be used, in words of the system; undefined if it can. */
  openvinoProblem(): string | undefined {
    return this.addon.openvino().problem || undefined;
  }

  /** Waits for what runs, and lets go of what this thread holds. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    if (this.#underWay > 0) await new Promise<void>((resolve) => (this.#idle = resolve));
    const holds = [...this.#held].flatMap(([id, held]) => Array.from({ length: held }, () => id));
    this.#held.clear();
    await Promise.all(holds.map((id) => this.addon.unload(id)));
  }
}

/** @throws EngineError bad_request */
export function checkTimeout(timeoutMs: number | undefined): void {
  if (timeoutMs === undefined) return;
  if (typeof timeoutMs !== "number" || Number.isNaN(timeoutMs) || timeoutMs > 2 ** 40)
    throw unlike("timeoutMs", "milliseconds, at most 2^40", timeoutMs);
  if (timeoutMs <= 0)
    throw new EngineError("deadline_exceeded", "The work came after its deadline.");
}

/**
 * Work that a signal ends, by a number that the addon cancels it with. Fails with EngineErrors.
 * @param start is called unless the signal is aborted already; 0 is no number
 */
export async function untilAborted<T>(
  addon: GraphAddon,
  signal: AbortSignal | undefined,
  start: (cancelId: number) => Promise<T>,
): Promise<T> {
  if (signal === undefined) return start(0).catch(fail);
  if (!isSignal(signal)) throw unlike("signal", "an AbortSignal", kindOf(signal));
  const cancelled = () =>
    new EngineError("cancelled", "The work was cancelled by its signal.", { cause: signal.reason });
  if (signal.aborted) throw cancelled();
  const id = addon.newCancelId();
  const abort = () => addon.cancel(id);
  signal.addEventListener("abort", abort, { once: true });
  try {
    return await start(id);
  } catch (thrown) {
    const error = engineErrorOf(thrown);
    throw error.code === "cancelled" && wasAborted(signal) ? cancelled() : error;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/** Of another realm or a library, too, whose class is not the one here. */
const isSignal = (value: Partial<AbortSignal> | null): boolean =>
  typeof value?.aborted === "boolean" && typeof value.addEventListener === "function";

/** What may have changed meanwhile. */
const wasAborted = (signal: AbortSignal): boolean => signal.aborted;

function fail(thrown: unknown): never {
  throw engineErrorOf(thrown);
}

export const isProvider = (value: unknown): value is Provider =>
  value === "cpu" || value === "cuda" || value === "openvino";
