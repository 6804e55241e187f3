import type { Destination } from "./destination.js";
import type { DestinationSettings } from "./destination-settings.js";

/** Opens a destination. Nothing is called before something is sent. @param name by which the settings know it */
export function openDestination(name: string, settings: DestinationSettings): Destination {
  throw new Error(`The destination ${name} has the type ${settings.type}, which is not spoken`);
}
