/** What the serving process starts with: the server, and the features that it has. */
import { servingFeatures } from "./features.js";
import { serveUnderSupervisor } from "./server/serving-process.js";

serveUnderSupervisor(servingFeatures);
