/**
 * What decides what the models of a node say of an image. By it nodes are compared, and a job keeps
 * it, so that no image of it is seen by other models.
 */
import { createHash } from "node:crypto";
import { z } from "zod";
import { canonicalJson } from "../base/canonical-json.js";
import type { ModelEntry } from "./entry.js";

export const modelIdentitySchema = z.object({
  version: z.string(),
  sha256: z.string(),
  thresholds: z
    .string()
    .nullable()
    .describe("SHA-256 of the thresholds in site.json; null where it has none"),
  state: z.enum(["ready", "failed"]).describe("failed: it is there and was not loaded"),
});
export type ModelIdentity = z.infer<typeof modelIdentitySchema>;

/** By the names of the models. */
export const modelIdentitiesSchema = z.record(z.string(), modelIdentitySchema);
export type ModelIdentities = z.infer<typeof modelIdentitiesSchema>;

/** Those of models that are not switched off, in the order of names. */
export function identitiesOf(
  entries: readonly Pick<ModelEntry, "name" | "version" | "sha256" | "site" | "state">[],
): ModelIdentities {
  const known = entries.flatMap(({ name, version, sha256, site, state }) =>
    state === "off"
      ? []
      : [[name, { version, sha256, thresholds: hashOf(site.thresholds), state }] as const],
  );
  return Object.fromEntries(known.sort(([a], [b]) => (a < b ? -1 : 1)));
}

function hashOf(thresholds: Readonly<Record<string, unknown>>): string | null {
  if (Object.keys(thresholds).length === 0) return null;
  return createHash("sha256").update(canonicalJson(thresholds)).digest("hex");
}

/** Whether both are the same models. */
export const sameModels = (a: ModelIdentities, b: ModelIdentities): boolean =>
  canonicalJson(a) === canonicalJson(b);

/** Its name for people: version, and the first characters of its hash. */
export const shownModel = ({ version, sha256, thresholds, state }: ModelIdentity): string =>
  `${version} (${sha256.slice(0, 8)}${thresholds === null ? "" : `, thresholds ${thresholds.slice(0, 8)}`}${state === "failed" ? ", not loaded" : ""})`;
