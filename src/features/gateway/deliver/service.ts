/**
 * Deliveries as the serving process sees them: what is asked for is kept by a thread of its own,
 * which sends it, and tells here what became of it. Off unless the gateway's file names
 * destinations.
 */
import path from "node:path";
import type { Audit } from "../../../audit/audit.js";
import { errors } from "../../../base/errors.js";
import { faultForLog, type Logger } from "../../../base/log.js";
import { ThreadEnded, type Calls } from "../../../base/remote.js";
import { ServiceThread } from "../../../base/service-thread.js";
import type { Config } from "../../../config.js";
import type { KnownDestinations } from "../../../inference/request.js";
import type { ResultPlace, Sending } from "../../../inference/result-hook.js";
import type { Delivery } from "../../../results/receipt/delivery.js";
import { holdsDeliveries, queueWithoutSpool } from "../setting.js";
import type { GatewaySettings } from "../settings.js";
import { keepEntry } from "./entry.js";
import type {
  Changed,
  DeliverOwner,
  DeliverThread,
  DeliverThreadOptions,
  DeliveryFilter,
  DeliveryList,
  DeliveryTold,
  OutgoingFigures,
} from "./messages.js";

/**
 * Where a node keeps what is to be delivered: in the spool, which all nodes see, or else in its
 * state directory.
 */
export const queueOf = (
  { spool }: GatewaySettings,
  { state_dir }: Pick<Config, "state_dir">,
): string =>
  spool === undefined ? queueWithoutSpool({ state_dir }) : path.join(spool, "deliveries");

/**
 * Whether there is something to deliver, or something that was to be delivered when the settings
 * still named where to: it is not to wait in silence.
 */
export const delivers = (settings: GatewaySettings, config: Pick<Config, "state_dir">): boolean => {
  if (Object.keys(settings.destinations).length > 0) return true;
  return holdsDeliveries(queueOf(settings, config));
};

export interface DeliveriesOptions {
  config: Config;
  settings: GatewaySettings;
  /** Real paths. */
  outputRoots: string[];
  audit: Audit;
  log: Logger;
}

export class DeliveryService implements Sending {
  readonly destinations: KnownDestinations;
  /** Where the queue is, if not in the state directory. */
  readonly spool: string | undefined;
  readonly #thread: ServiceThread<DeliverThread, DeliverOwner>;
  #figures: OutgoingFigures = { destinations: {}, webhooks: {}, untrusted: 0, unreadable: 0 };

  constructor(private readonly options: DeliveriesOptions) {
    const { config, settings, outputRoots, log } = options;
    const { log_level, minimum_free_disk, node_name } = config;
    this.destinations = { all: Object.keys(settings.destinations), usual: settings.deliver };
    this.spool = settings.spool;
    this.#thread = new ServiceThread({
      file: new URL("./thread.js", import.meta.url),
      workerData: {
        config: { log_level, minimum_free_disk, node_name },
        outputRoots,
        queue: queueOf(settings, config),
        destinations: settings.destinations,
        webhooks: settings.webhooks,
      } satisfies DeliverThreadOptions,
      stays: true,
      owner: {
        asked: (told) => this.#tell(told),
        became: (told) => void this.#tell(told).catch(() => undefined),
        figures: (figures) => {
          this.#figures = figures;
        },
      },
      failed: (error) =>
        log.error({ fault: faultForLog(error) }, "the thread that delivers failed"),
    });
  }

  get figures(): OutgoingFigures {
    return this.#figures;
  }

  /**
   * Keeps what is to be delivered. @throws RadserveError delivery_unavailable, shutting_down
   */
  async staged(delivery: Delivery, place: ResultPlace): Promise<void> {
    const { config, settings, outputRoots } = this.options;
    const entry = { ...place, delivery };
    await keepEntry(queueOf(settings, config), entry, outputRoots, config.minimum_free_disk);
  }

  /**
   * What the file beside a receipt says of its delivery.
   * @param ms waits so long until everything is delivered or set aside
   */
  async published(id: string, receiptPath: string, ms?: number): Promise<Delivery | undefined> {
    const { dir: folder, name } = path.parse(receiptPath);
    return this.#ask((call) => call.outcome(id, { folder, name }, ms));
  }

  async list(filter: DeliveryFilter, most: number): Promise<DeliveryList> {
    return this.#ask((call) => call.list(filter, most));
  }

  /** Sends set-aside objects again, or to another destination. */
  async retry(filter: DeliveryFilter, to?: string): Promise<Changed> {
    return this.#ask((call) => call.retry(filter, to));
  }

  /** Gives set-aside objects up. */
  async drop(filter: DeliveryFilter): Promise<Changed> {
    return this.#ask((call) => call.drop(filter));
  }

  /** Whether something is in the queue for a destination, which the settings may not name. */
  async hasFor(destination: string): Promise<boolean> {
    const own = { destination, within: this.options.outputRoots };
    return (await this.list(own, 1)).deliveries.length > 0;
  }

  /** Nobody is to wait for an outcome any longer. */
  hurry(): void {
    this.#thread.note.hurry();
  }

  /** Sends nothing more; what is not delivered goes on with the next start. */
  async close(): Promise<void> {
    await this.#thread.close((call) => call.close());
  }

  async #ask<T>(question: (call: Calls<DeliverThread>) => Promise<T>): Promise<T> {
    try {
      return await question(this.#thread.call);
    } catch (error) {
      if (error instanceof ThreadEnded)
        throw errors.shutting_down("The server stops. Send it again.");
      throw error;
    }
  }

  async #tell({ study, ...told }: DeliveryTold): Promise<void> {
    const { audit } = this.options;
    await audit.record({
      kind: "delivery",
      ...told,
      ...(study === "" ? {} : { study: audit.hash("study", study) }),
    });
  }
}
