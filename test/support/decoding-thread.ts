/** A worker thread that reads the image it is given, says so, and stays. */
import { parentPort, workerData } from "node:worker_threads";
import { readImage } from "../../src/images/read-image.js";

await readImage(workerData as Uint8Array);
parentPort?.on("message", () => undefined);
parentPort?.postMessage("read");
