/** The viewer while it runs. */
import { resultForms } from "../../config.js";
import { type Core } from "../../server/feature.js";
import { FeatureName, type Running } from "../../server/running-features.js";
import { ViewingService } from "./service.js";

export interface Viewer extends Running {
  service: ViewingService;
}
export const VIEWER = new FeatureName<Viewer>("viewer");

export function startViewer({ config, engine, places, log }: Core): Promise<Viewer> {
  const service = new ViewingService({ engine, forms: resultForms(config), places, log });
  return Promise.resolve({
    service,
    leave: () => service.close(),
  });
}
