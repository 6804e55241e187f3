/**
 * Starts a server with a private database, prints what runs then (JSON), and waits to be killed.
 */
import path from "node:path";
import { databaseFolders } from "../../src/features/local-postgres/folders.js";
import { postmasterOf } from "../../src/features/local-postgres/process.js";
import { bulkOf } from "./bulk.js";
import { decodersOf } from "./processes.js";
import { makePlace, startServer } from "./server.js";
import { until } from "./until.js";

const place = makePlace();
const server = await startServer(place);
const bulk = bulkOf(server);
const opened = await until("the database is open", async () => {
  const { status } = await bulk.send("GET", "/bulk_inference");
  return status !== 503 && status;
});
await server.post("/single_inference", {
  input_image_path: path.join(place.input, "image.png"),
  output_folder_path: place.output,
});
const state = place.environment["RADSERVE_STATE_DIR"]!;
const postmaster = postmasterOf(databaseFolders(state).data);
const serving = server.servingPid();
const pids = [server.process.pid, serving, postmaster, ...decodersOf(serving)];
process.stdout.write(JSON.stringify({ opened, pids, directory: place.directory }));
