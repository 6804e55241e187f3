/** `radserve status`: how a running server is. */
import { z } from "zod";
import { clientSettings, type Config } from "../config.js";
import { RadserveError } from "../errors.js";
import { print, remark, type ExitStatus } from "./run.js";

const modelsSchema = z.object({
  models: z.array(
    z.object({
      name: z.string(),
      version: z.string(),
      release: z.string(),
      health: z.string(),
      provider: z.string().nullable(),
    }),
  ),
});
const readySchema = z.object({ status: z.string().optional(), message: z.string().optional() });

async function get(url: string, token?: string): Promise<{ status: number; body: unknown }> {
  try {
    const response = await fetch(url, { headers: token === undefined ? {} : { Authorization: token } });
    return { status: response.status, body: await response.json() };
  } catch (error) {
    throw new RadserveError(
      "model_unavailable",
      `Expected a Radserve at ${new URL(url).origin}; none answers. Start it with radserve serve, or set RADSERVE_URL.`,
      undefined,
      { cause: error },
    );
  }
}

export async function status(config: Config, json: boolean): Promise<ExitStatus> {
  const { url, token } = clientSettings(config);
  const health = await get(`${url}/health/ready`);
  const ready = health.status === 200;
  const models = token === undefined ? undefined : await get(`${url}/models`, token);
  if (json) {
    print(JSON.stringify({ url, ready, health: health.body, models: models?.body ?? null }, null, 2));
    return ready ? 0 : 1;
  }
  print(`${url}: ${ready ? "ready" : `not ready: ${readySchema.parse(health.body).message ?? ""}`}`);
  if (models === undefined) remark("Set RADSERVE_TOKEN to see the models.");
  else if (models.status !== 200)
    remark(`The models were refused: ${readySchema.parse(models.body).message ?? ""}`);
  else
    for (const { name, version, release, health: state, provider } of modelsSchema.parse(models.body).models)
      print(`${name} ${version}\t${release}\t${state}\t${provider ?? "-"}`);
  return ready ? 0 : 1;
}
