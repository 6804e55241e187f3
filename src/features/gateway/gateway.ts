/** The gateway while it runs, as its endpoints find it. */
import { FeatureName, type Running } from "../../server/running-features.js";
import type { DeliveryService } from "./deliver/service.js";
import type { ReceptionService } from "./service.js";

export interface Gateway extends Running {
  /** Undefined where nothing is received. */
  reception: ReceptionService | undefined;
  /** Undefined where there are no destinations. */
  deliveries: DeliveryService | undefined;
}
export const GATEWAY = new FeatureName<Gateway>("gateway");
