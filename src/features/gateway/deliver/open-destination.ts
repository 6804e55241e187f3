import type { Destination } from "./destination.js";
import type { DestinationSettings } from "./destination-settings.js";
import { DicomDestination } from "./dicom.js";
import { StowDestination } from "./stow.js";

/**
 * Opens a destination. Nothing is called before something is sent. @param name by which the
 * settings know it
 */
export const openDestination = (name: string, settings: DestinationSettings): Destination =>
  settings.type === "stow"
    ? new StowDestination(name, settings)
    : new DicomDestination(name, settings);
