/**
 * Loaded before a server (`--import`): at SIGUSR2 each of its processes says what is no JSON, as
 * Node.js and native libraries do.
 */
import { writeSync } from "node:fs";
import { isMainThread } from "node:worker_threads";

if (isMainThread)
  process.on("SIGUSR2", () => {
    process.emitWarning("old in /srv/PLANTED^NAME.dcm", "DeprecationWarning", "DEP9999");
    setTimeout(() => undefined, 2 ** 31).unref();
    if (process.argv[1]?.endsWith("serving.js") === true)
      writeSync(2, "libjpeg: damaged '/srv/PLANTED^NAME.jpg'\n\n");
  });
