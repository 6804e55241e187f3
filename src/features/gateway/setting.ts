/** The setting that opens the gateway. */
import { readdirSync } from "node:fs";
import path from "node:path";
import { absolute, settingsOf, type Config, type SettingTopics } from "../../config.js";

const GATEWAY_MEANING =
  "File with rules for images from modalities and PACS, and for results sent there " +
  "(docs/gateway.md); off unless set";

export const SETTINGS = { gateway: absolute.optional().describe(GATEWAY_MEANING) };
export const TOPICS: SettingTopics = { "Files over HTTP, modalities and PACS": SETTINGS };

/** Whether a folder has entries of the queue of deliveries. */
export function holdsDeliveries(queue: string): boolean {
  try {
    return readdirSync(queue).some((name) => name.endsWith(".json"));
  } catch {
    return false;
  }
}

/** Where a node without a spool keeps what is to be delivered. */
export const queueWithoutSpool = ({ state_dir }: Pick<Config, "state_dir">): string =>
  path.join(state_dir, "deliveries");

/**
 * Whether there is a gateway: its setting is set, or something waits that was to be delivered when
 * it was. That is not to wait in silence.
 */
export const isOn = (config: Config): boolean =>
  settingsOf(SETTINGS, config).gateway !== undefined || holdsDeliveries(queueWithoutSpool(config));
