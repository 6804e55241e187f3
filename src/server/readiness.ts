/** Whether a server is ready, and how each of its models is. */
import { auditFailed, type Audit } from "../audit/audit.js";
import { errors, type RadserveError } from "../base/errors.js";
import { shuttingDown } from "../inference/worker-pool.js";
import { missingOf } from "../models/entry.js";
import { withoutEntry } from "../models/set.js";
import type { InferenceService } from "./inference-service.js";
import type { Keyring } from "./keys.js";
import { healthOf } from "./model-list.js";
import type { Shares } from "./shares.js";
import type { ServedModels } from "./served-models.js";
import { keysMissing, revocationsUnavailable } from "./tokens.js";

type LoadedModels = Pick<ServedModels, "entries" | "problems" | "loading" | "ready">;

/**
 * Names of what keeps the server from being ready: the model that is loaded now, or required models
 * that failed.
 */
function waitsFor({ loading, problems }: LoadedModels): string[] {
  if (loading !== undefined) return loading === "" ? [] : [loading];
  return problems.filter(({ required }) => required).map(({ name }) => name);
}

function whyNotReady(models: LoadedModels): string {
  const names = waitsFor(models).join(", ");
  if (models.loading !== undefined)
    return `The models are still being loaded${names === "" ? "" : `: now ${names}`}. Ask again shortly.`;
  return names === ""
    ? "Expected a readable folder of models; found none. The server's log and radserve doctor say why."
    : `Expected every required model to be loaded and checked; these are not: ${names}. radserve status says why.`;
}

/** How each model is, with names and codes alone. */
export function healthOfModels({ models, engine }: Pick<InferenceService, "models" | "engine">) {
  const missing = engine.missing();
  const loaded = models.entries.map((entry) => {
    const { health, error } = healthOf(entry, missingOf(entry, missing));
    const { name, manifest } = entry;
    return {
      name,
      required: manifest.required,
      health,
      ...(error === undefined ? {} : { error: error.error }),
    };
  });
  const unreadable = withoutEntry(models).map(({ name, required, error }) => ({
    name,
    required,
    health: "failed" as const,
    error: error.error,
  }));
  return [...loaded, ...unreadable].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** A node that starts beside others may lack its shares, and cannot know it. */
export const notYetKnown = (): RadserveError =>
  errors.bulk_unavailable(
    "Expected to know what the other nodes of the database see; it has not answered yet. Ask again shortly.",
  );

/** What may keep a server from being ready. */
export interface Needed {
  inference: Pick<InferenceService, "engine" | "models" | "pool">;
  keyring: Pick<Keyring, "keys" | "listsRevoked">;
  audit: Pick<Audit, "isFailing">;
  /** It is to stop, and may still answer. */
  leaving: () => boolean;
  /** Why requests for a root would fail. */
  shares: Pick<Shares, "fault">;
  /** The models, keys and roots that most other nodes have, and this one has not. */
  lacking: () => readonly string[];
  /** Other nodes have keys of results, and this one has none. */
  lacksResultKeys: () => boolean;
}

/** Why the server is not ready; undefined where it is. */
export function unready({
  inference,
  keyring,
  audit,
  leaving,
  shares,
  lacking,
  lacksResultKeys,
}: Needed): RadserveError | undefined {
  const { models, pool } = inference;
  if (leaving()) return shuttingDown();
  if (!models.ready())
    return errors.model_unavailable(whyNotReady(models), {
      waits_for: waitsFor(models),
      models: healthOfModels(inference),
      problems: models.problems.map(({ name, error }) => ({ name, error: error.error })),
    });
  if (keyring.keys().length === 0) return keysMissing();
  if (lacksResultKeys())
    return errors.keys_missing(
      "Expected a key of results, as other nodes have; the keys folder of this node has none. Its share is probably not mounted.",
    );
  if (!keyring.listsRevoked()) return revocationsUnavailable();
  if (audit.isFailing) return auditFailed();
  if (pool.isStuck)
    return errors.overloaded(
      "Expected a worker thread for single requests to go on; none has for 10 seconds, because each is held by an image. They are ended when the deadlines of these images are over.",
      { threads_stuck: pool.threadsStuck },
    );
  const { late, threads } = inference.engine.stats();
  // Each late run beyond the first of every place takes one away (native/scheduling/agenda.h)
  if (late >= 2 * threads)
    return errors.overloaded(
      `Expected a place for runs of networks; ${late} runs hold all of them after the time of their images was over. Look at the condition runs_late, or restart the server.`,
      { runs_late: late },
    );
  return shares.fault() ?? lacksWhatOthersHave(lacking());
}

function lacksWhatOthersHave(lacking: readonly string[]): RadserveError | undefined {
  if (lacking.length === 0) return undefined;
  return errors.model_unavailable(
    `Expected what the other nodes have; this one lacks ${lacking.join(", ")}. Give it the same models, keys and roots: radserve status --fleet shows what each has.`,
    { lacking },
  );
}
