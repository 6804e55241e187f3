/** The models of a server: their first loading, which requests may wait for, and reloads. */
import type { Audit } from "../audit/audit.js";
import { durations } from "../base/durations.js";
import { RadserveError } from "../base/errors.js";
import { faultForLog, type Logger } from "../base/log.js";
import { monotonic } from "../base/monotonic.js";
import { writeReload, type ReloadReport } from "../models/reload-note.js";
import { loadModels, type LoadModelsOptions, type ModelSet } from "../models/set.js";

export interface ServedModelsOptions extends Omit<LoadModelsOptions, "stop" | "loading"> {
  log: Logger;
  /** Where the outcome of a reload is written down. */
  stateDir: string;
  audit: Audit;
  /** Told which model is loaded now, and undefined after each. */
  loading: (name: string | undefined) => Promise<void>;
  /** Told when other models are loaded than before. */
  changed: () => void;
  /** Resolves when no task works with the entries of before. */
  settled: () => Promise<void>;
}

export class ServedModels {
  /** Resolves when the first loading has ended, well or not. */
  readonly loaded: Promise<void>;
  #set: ModelSet | undefined;
  #loading: string | undefined = "";
  readonly #stop = new AbortController();

  constructor(private readonly options: ServedModelsOptions) {
    this.loaded = this.#load();
  }

  async #load(): Promise<void> {
    const { log, loading } = this.options;
    try {
      const set = await loadModels({
        ...this.options,
        stop: this.#stop.signal,
        optionalMs: durations.optionalModels,
        loading: (name) => {
          if (this.#loading !== undefined) this.#loading = name ?? "";
          return loading(name);
        },
      });
      this.#set = set;
      this.options.changed();
      log.info(
        { models: set.entries.length, problems: set.problems.length, ready: set.ready() },
        "models loaded",
      );
    } catch (error) {
      log.error({ fault: faultForLog(error) }, "models could not be loaded");
    } finally {
      this.#loading = undefined;
    }
    void this.#record();
  }

  get entries() {
    return this.#set?.entries ?? [];
  }

  /**
   * Models that do not serve as their folders say, those without a readable manifest among them.
   */
  get problems() {
    return this.#set?.problems ?? [];
  }

  /**
   * While the first loading goes on: the model that is loaded now, or "" between two of them; then
   * undefined.
   */
  get loading() {
    return this.#loading;
  }

  /** True when every required model is loaded, warm and its canary passed. */
  ready(): boolean {
    return this.#set?.ready() ?? false;
  }

  /** Loads what the start did not wait for. `changed` is told as by reload. */
  async loadPostponed(changed: () => void): Promise<void> {
    await this.loaded;
    if (this.#set?.hasPostponed === true) await this.reload(changed);
  }

  /** @param changed told once other models may serve, before anybody learns of the outcome */
  async reload(changed: () => void): Promise<void> {
    const { log, stateDir } = this.options;
    const asked = monotonic();
    const outcome = await this.#reloaded(changed);
    try {
      // Tells the command that may have asked for the reload
      writeReload(stateDir, { asked, ...outcome });
    } catch (error) {
      log.warn({ fault: faultForLog(error) }, "what the reload came to could not be written down");
    }
  }

  async #reloaded(changed: () => void): Promise<{ report: ReloadReport } | { error: string }> {
    const { log, settled } = this.options;
    try {
      await this.loaded;
      const report = await this.#set?.reload({ swapped: settled });
      this.options.changed();
      changed();
      if (report === undefined) {
        const error = "no models to reload: they could not be loaded at the start";
        log.error(error);
        return { error };
      }
      void this.#record();
      this.#log(report);
      return { report };
    } catch (thrown) {
      const error = "models could not be reloaded; the old ones stay";
      log.error({ fault: faultForLog(thrown) }, error);
      return { error: thrown instanceof RadserveError ? `${error}: ${thrown.message}` : error };
    }
  }

  #log({ failed, ...rest }: ReloadReport): void {
    const fields = {
      ...rest,
      failed: failed.map(({ name, error, kept }) => ({ name, kept, error })),
    };
    const done = rest.added.length + rest.replaced.length + rest.removed.length;
    const names = failed.map(({ name }) => name).join(", ");
    const more = failed.length === 0 ? "" : `, ${failed.length} failed (${names})`;
    this.options.log[failed.length === 0 ? "info" : "error"](
      fields,
      `models reloaded: ${done} changed${more}`,
    );
  }

  /** Writes down which models serve. The log says it where the audit cannot. */
  async #record(): Promise<void> {
    const models = this.entries.map(({ name, version, sha256, state }) => ({
      name,
      version,
      sha256,
      status: state,
    }));
    await this.options.audit.record({ kind: "models", models }).catch(() => undefined);
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.loaded;
    await this.#set?.close();
  }
}
