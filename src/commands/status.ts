/** `radserve status`: the status of a running server. */
import { z } from "zod";
import { durations } from "../base/durations.js";
import { asRadserveError } from "../base/errors.js";
import type { Config } from "../config.js";
import { conditionSchema, type Condition } from "../server/condition.js";
import { modelListSchema } from "../server/model-list.js";
import { openClient } from "./client.js";
import { fleetStatus } from "./fleet.js";
import { print, remark, type ExitStatus, type JsonOption } from "./run.js";

const conditions = z.array(conditionSchema).optional();
const readySchema = z.object({
  message: z.string().optional(),
  conditions,
  warnings: conditions,
  details: z
    .object({
      conditions: conditions.unwrap(),
      warnings: conditions.unwrap(),
      models: z.array(z.object({ name: z.string(), required: z.boolean(), health: z.string() })),
    })
    .partial()
    .optional(),
});

/** The conditions in an answer of /health/ready, whether the server is ready or not. */
export function conditionsOf(health: unknown): Condition[] {
  const { conditions: known = [], details } = readySchema.parse(health);
  return details?.conditions ?? known;
}

/** What may become wrong, in such an answer. */
export function warningsOf(health: unknown): Condition[] {
  const { warnings: known = [], details } = readySchema.parse(health);
  return details?.warnings ?? known;
}

/** Prints what anybody may know of the models: why one failed takes a token. */
function withoutToken(health: unknown, hasToken: boolean): void {
  for (const { name, required, health: state } of readySchema.parse(health).details?.models ?? [])
    print(`${name}\t${state}${required ? " (required)" : ""}`);
  if (hasToken) return;
  remark("Set RADSERVE_TOKEN to see the models, and why one failed.");
}

const gibibytes = (bytes: number) => (bytes / 2 ** 30).toFixed(1);

/** An idle model comes back at its next use, after about the time that its last load took. */
function awayText(residence: { state: string; load_seconds: number } | null): string {
  if (residence === null || residence.state === "loaded") return "";
  return `\t${residence.state}, its last load took ${residence.load_seconds.toFixed(1)} s`;
}

export async function status(
  config: Config,
  { json = false, fleet = false }: JsonOption & { fleet?: boolean },
): Promise<ExitStatus> {
  if (fleet) return fleetStatus(config, { json });
  const client = openClient(config, { withinMs: durations.commandAnswer });
  const { url } = client;
  const health = await client.send("GET", "/health/ready");
  const ready = health.status === 200;
  // An answer that does not come in time hides none of the others
  const unanswered: string[] = [];
  const answerOf = <T>(what: string, answer: Promise<T>): Promise<T | undefined> =>
    answer.catch((error: unknown) => {
      unanswered.push(`${what}: ${asRadserveError(error).message}`);
      return undefined;
    });
  const models = client.hasToken
    ? await answerOf("models", client.send("GET", "/models"))
    : undefined;
  const certificateEnd = await answerOf("certificate", client.certificateEnd());
  if (json) {
    const certificate = certificateEnd === undefined ? {} : { certificate_expires: certificateEnd };
    const all = {
      url,
      ready,
      ...certificate,
      health: health.body,
      models: models?.body ?? null,
      unanswered,
    };
    print(JSON.stringify(all, null, 2));
    return ready ? 0 : 1;
  }
  print(
    `${url}: ${ready ? "ready" : `not ready: ${readySchema.parse(health.body).message ?? ""}`}`,
  );
  for (const { condition, message, remedy } of conditionsOf(health.body))
    print(`wrong\t${condition}\t${message} ${remedy}`);
  for (const { condition, message, remedy } of warningsOf(health.body))
    print(`warning\t${condition}\t${message} ${remedy}`);
  if (certificateEnd !== undefined)
    print(`certificate\tvalid until ${certificateEnd.toISOString()}`);
  for (const what of unanswered) print(`unanswered\t${what}`);
  if (models === undefined) withoutToken(health.body, client.hasToken);
  else if (models.status !== 200)
    remark(`The models were refused: ${readySchema.parse(models.body).message ?? ""}`);
  else {
    const known = modelListSchema.parse(models.body);
    for (const { name, version, release, health: state, provider, gpu, residence } of known.models)
      print(
        `${name} ${version}\t${release}\t${state}\t${provider ?? "-"}${gpu === null ? "" : ` (GPU ${gpu})`}${awayText(residence)}`,
      );
    for (const { number, lost, waiting, taken_bytes, total_bytes } of known.gpus)
      print(
        lost
          ? `GPU ${number}\tstopped working; restart the server to use it again`
          : `GPU ${number}\t${waiting} waiting\t${gibibytes(taken_bytes)} of ${gibibytes(total_bytes)} GiB taken by models`,
      );
    for (const { name, required, error } of known.problems)
      print(`problem\t${name}${required ? " (required)" : ""}\t${error.message}`);
  }
  return ready ? 0 : 1;
}
