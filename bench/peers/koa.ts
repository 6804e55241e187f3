/** The server of koa-worker.ts, a process for each core. */
import cluster from "node:cluster";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";

cluster.setupPrimary({ exec: fileURLToPath(new URL("./koa-worker.js", import.meta.url)) });
for (let i = 0; i < availableParallelism(); i++) cluster.fork();
