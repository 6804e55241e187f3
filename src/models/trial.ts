/**
 * Models that are loaded and run for the first time by a process of their own, with a limit of
 * memory and time. What each took is written down beside its hash, so that it is tried once.
 */
import { fork, type ChildProcess } from "node:child_process";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { durations } from "../base/durations.js";
import { tried } from "../base/errno.js";
import { errorCode, errors, RadserveError } from "../base/errors.js";
import { monotonic } from "../base/monotonic.js";
import { mebibytes } from "../base/process-memory.js";
import { storedJson } from "../base/stored-json.js";
import { VERSION } from "../base/version.js";
import { replacePrivately } from "../files/private-file.js";
import { textOfRegularSync } from "../files/regular-file.js";
import type { GraphLook } from "./graph.js";
import type { Provider } from "../manifest/providers.js";
import { providerOf } from "./load.js";
import type { FolderReport, SoundModel } from "./read.js";
import type { LookAnswer, LookOrder, TrialAnswer, TrialOrder } from "./trial-messages.js";

/** Runs while a model is warmed, each of which may take durations.firstRun. */
const RUNS = 3;
/** Beyond the time of loading and running, how long it may take to start and to tell. */
const MARGIN_MS = 60_000;
/** Beside models that serve, a trial takes cores from nobody who works (setpriority(2)). */
const NICENESS = 10;
/** One that failed after so long is not tried again at each start. */
const LONG_MS = 5_000;
/** Models whose trials are remembered; those of longest ago are forgotten. */
const MOST_REMEMBERED = 256;

const rememberedSchema = z.object({
  /** SHA-256 of the model, and of what else a trial depends on. */
  model: z.string(),
  /** What it took at most. */
  bytes: z.number().int().nonnegative(),
  /** What its runs took of that. */
  runs: z.number().int().nonnegative(),
  /** Why it must not be tried again with so much memory or less; absent where it went well. */
  failed: z
    .object({ error: z.object({ error: errorCode, message: z.string() }), with_bytes: z.number() })
    .optional(),
});
type Remembered = z.infer<typeof rememberedSchema>;
const fileSchema = z.object({ tried: z.array(rememberedSchema) });

export interface TrialOptions {
  stateDir: string;
  providers: readonly Provider[];
  /** ONNX Runtime's. */
  version: string;
  openvinoVersion?: string | undefined;
  threads: number;
  /** Bytes that the weights of models that make room for each other may have together. */
  weights: number;
}

export interface TrialLimits {
  /** Bytes that the model may take to be loaded and run. */
  bytes: number;
  /**
   * Other models may serve meanwhile, and somebody asked for this one now: it takes cores from
   * nobody, and a failure of before does not count.
   */
  besideOthers: boolean;
  stop: AbortSignal | undefined;
  /** It is tried by the report's manifest, and even where its release is off. */
  asGiven?: boolean;
}

export interface TrialResult {
  /** What loading and running it takes, and its runs of that. */
  bytes: number;
  runs: number;
  /** Why it is not to be loaded here. */
  refused?: RadserveError;
}

/**
 * How commands have models tried, before they load them. A graph is looked at where it can take
 * neither memory nor time from anybody; model_unavailable where the look did not end well.
 */
export interface TriedFirst extends GraphLook {
  /**
   * Resolves once the model may be loaded here.
   * @returns whether it ran in that process, now or before; not so on a GPU
   * @throws RadserveError model_unavailable, with the message that a server gives
   */
  require(directory: string, model: SoundModel): Promise<boolean>;
  /**
   * Bytes that the model takes at most to be loaded and run, in a process that ran no other.
   * @throws RadserveError as require does
   */
  cost(directory: string, model: SoundModel): Promise<number>;
}

/** How the process that tries models answered; without a word, how it ended. */
interface Ended<Answer> {
  answer?: Answer;
  /** A status or a signal, or that its time was over. */
  ended?: string;
}

/** What is lower than this process's own priority by `NICENESS`, as far as there is such a one. */
const lowerPriority = (): number =>
  Math.min(os.getPriority() + NICENESS, os.constants.priority.PRIORITY_LOW);

type HowAsked = Pick<TrialLimits, "besideOthers"> & { stop?: AbortSignal | undefined };

export class ModelTrials {
  #child: ChildProcess | undefined;
  /** The process does one thing after the other. */
  #before: Promise<unknown> = Promise.resolve();

  constructor(private readonly options: TrialOptions) {}

  /**
   * Tries a model, unless that was done before.
   * @returns undefined for one that is not tried: of a GPU, or that does not serve anyhow
   */
  async of(report: FolderReport, limits: TrialLimits): Promise<TrialResult | undefined> {
    const { model, problems } = report;
    const { asGiven = false } = limits;
    if (model === undefined || problems.length > 0) return undefined;
    if (model.manifest.release === "off" && !asGiven) return undefined;
    const provider = providerOf(model.manifest, this.options.providers);
    if (provider === undefined || provider === "cuda") return undefined;
    const key = this.#keyOf(model, provider);
    const before = this.#remembered().find((one) => one.model === key);
    const known = before === undefined ? undefined : resultOf(report.name, before, limits);
    if (known !== undefined) return known;
    const begun = monotonic();
    const manifest = asGiven ? { manifest: { ...model.manifest, release: "active" } } : {};
    const order: TrialOrder = {
      folder: report.directory,
      provider,
      bytes: limits.bytes,
      weights: this.options.weights,
      ...manifest,
    };
    const { answer, ended } = await this.#ask<TrialAnswer>(order, limits);
    // Nobody wants it any more, and whoever loads it next says so
    if (limits.stop?.aborted === true) return undefined;
    const { bytes, runs, error } = answer ?? {
      bytes: limits.bytes,
      runs: 0,
      error: endedBy(`Model ${report.name}`, ended, limits.bytes).toObject(),
    };
    if (error === undefined) {
      this.#remember({ model: key, bytes, runs });
      return { bytes, runs };
    }
    if (monotonic() - begun > LONG_MS)
      this.#remember({ model: key, bytes, runs, failed: { error, with_bytes: limits.bytes } });
    return { bytes, runs, refused: RadserveError.fromObject(error) };
  }

  /**
   * For commands, which load what they are told to and try what failed before again.
   * @param bytes that a model may take to be loaded and run
   */
  within(bytes: number): TriedFirst {
    const tried = async (directory: string, model: SoundModel) => {
      const name = path.basename(directory);
      const report = { name, directory, model, required: false, problems: [] };
      const limits = { bytes, besideOthers: true, stop: undefined, asGiven: true };
      const result = await this.of(report, limits);
      if (result?.refused !== undefined) throw result.refused;
      return result;
    };
    return {
      inspectGraph: async (graph) => {
        const { answer, ended } = await this.#ask<LookAnswer>(
          { graph, bytes },
          { besideOthers: true },
        );
        if (answer === undefined) throw endedBy(`The graph ${path.basename(graph)}`, ended, bytes);
        if ("error" in answer) throw RadserveError.fromObject(answer.error);
        return answer.graph;
      },
      require: async (directory, model) => (await tried(directory, model)) !== undefined,
      cost: async (directory, model) => {
        this.rest();
        return (await tried(directory, model))?.bytes ?? 0;
      },
    };
  }

  /** Ends the process that tries models, until there is one to be tried. */
  rest(): void {
    this.#child?.kill("SIGKILL");
    this.#child = undefined;
  }

  #keyOf({ sha256 }: SoundModel, provider: "cpu" | "openvino"): string {
    const { version, openvinoVersion, threads } = this.options;
    const by = provider === "cpu" ? [] : [provider, openvinoVersion];
    return [sha256, VERSION, version, threads, ...by].join(" ");
  }

  #ask<Answer>(order: TrialOrder | LookOrder, how: HowAsked): Promise<Ended<Answer>> {
    const asked = this.#before.then(() => this.#askNow<Answer>(order, how));
    this.#before = asked;
    return asked;
  }

  #askNow<Answer>(
    order: TrialOrder | LookOrder,
    { stop, besideOthers }: HowAsked,
  ): Promise<Ended<Answer>> {
    const child = (this.#child ??= this.#start(besideOthers));
    return new Promise((resolve) => {
      const most = durations.modelLoad + RUNS * durations.firstRun + MARGIN_MS;
      const late = setTimeout(() => end("time"), most);
      const end = (ended: string) => {
        settle({ ended });
        this.rest();
      };
      const aborted = () => end("stop");
      const settle = (result: Ended<Answer>) => {
        clearTimeout(late);
        stop?.removeEventListener("abort", aborted);
        child.removeAllListeners();
        // What it says later nobody hears, and must not be uncaught
        child.on("error", () => undefined);
        resolve(result);
      };
      child.on("message", (said) => settle({ answer: said as Answer }));
      child.on("exit", (status, signal) => end(signal ?? `status ${status}`));
      child.on("error", (error) => end(error.name));
      stop?.addEventListener("abort", aborted);
      if (stop?.aborted === true) aborted();
      else child.send(order, () => undefined);
    });
  }

  /** @param besideOthers until `rest`, all that it is asked is */
  #start(besideOthers: boolean): ChildProcess {
    const child = fork(fileURLToPath(new URL("./trial-process.js", import.meta.url)), {
      execArgv: process.execArgv,
      stdio: ["ignore", "ignore", "ignore", "ipc"],
    });
    const { pid } = child;
    if (pid !== undefined && besideOthers) tried(() => os.setPriority(pid, lowerPriority()));
    return child;
  }

  get #file(): string {
    return path.join(this.options.stateDir, "tried-models.json");
  }

  #remembered(): Remembered[] {
    const found = tried(() => fileSchema.parse(storedJson(textOfRegularSync(this.#file))));
    return found?.tried ?? [];
  }

  /** What cannot be written down is tried again. */
  #remember(one: Remembered): void {
    const others = this.#remembered().filter(({ model }) => model !== one.model);
    const kept = { tried: [...others, one].slice(-MOST_REMEMBERED) };
    tried(() => replacePrivately(this.#file, JSON.stringify(kept)));
  }
}

/** What is known of a model that was tried; undefined where it is to be tried again. */
function resultOf(
  name: string,
  { bytes, runs, failed }: Remembered,
  limits: TrialLimits,
): TrialResult | undefined {
  if (failed === undefined)
    return bytes <= limits.bytes
      ? { bytes, runs }
      : { bytes, runs, refused: tooLarge(name, bytes, limits) };
  if (limits.besideOthers || failed.with_bytes < limits.bytes) return undefined;
  const { error } = failed;
  const message = `${error.message} That was when it was tried before; radserve models reload tries it again.`;
  return { bytes, runs, refused: RadserveError.fromObject({ ...error, message }) };
}

function tooLarge(name: string, bytes: number, limits: TrialLimits): RadserveError {
  return errors.model_unavailable(
    `Model ${name}: expected at most ${mebibytes(limits.bytes)} MiB to load and run it, found ${mebibytes(bytes)} MiB when it was tried. Give the server more memory, or use fewer or smaller models; a restart has more for it than a reload.`,
  );
}

/** How the process that tried something ended without a word. */
function endedBy(what: string, ended: string | undefined, bytes: number): RadserveError {
  const why =
    ended === "time" || ended === "SIGXCPU"
      ? "did not end in time"
      : `ended by ${ended ?? "itself"}, as where a graph needs more memory than that or makes ONNX Runtime crash`;
  return errors.model_unavailable(
    `${what}: it was tried in a process of its own with ${mebibytes(bytes)} MiB of memory, which ${why}. Correct the graph, use a smaller model, or give the server more memory.`,
  );
}
