/** What the core knows of sending results on: which destinations there are, and whom to tell. */
import type { Delivery } from "../results/receipt/delivery.js";
import type { KnownDestinations } from "./request.js";
import type { ResultPlace } from "./task.js";

export interface Delivering {
  readonly known: KnownDestinations;
  /**
   * Resolves when the disk has it that a result is to be delivered: before the result is decided.
   * @throws RadserveError delivery_unavailable, shutting_down
   */
  intend(delivery: Delivery, place: ResultPlace): Promise<void>;
  /**
   * What has become of each object of a result.
   * @param ms waits so long until everything is delivered or set aside
   */
  outcome(id: string, receiptPath: string, ms?: number): Promise<Delivery | undefined>;
}
