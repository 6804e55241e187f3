/**
 * Several test files in one process, one after the other, for scripts/test.mjs, which names them in
 * FILES. Each is a subtest with its path as its name, and the tap that it imports is that subtest,
 * so what it sets up ends with it. After each, a line tells what it took and counted.
 */
import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import path from "node:path";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { fileURLToPath, pathToFileURL } from "node:url";
import t from "tap";

const tests = fileURLToPath(new URL("../dist/test", import.meta.url));
const SCHEME = "tap-of:";
/** The subtest of each file, by the file's URL. */
const subtests = (globalThis.subtestsOfFiles = new Map());

registerHooks({
  resolve: (specifier, context, next) =>
    specifier === "tap" && subtests.has(context.parentURL)
      ? { url: SCHEME + context.parentURL, format: "module", shortCircuit: true }
      : next(specifier, context),
  load: (url, context, next) =>
    url.startsWith(SCHEME)
      ? {
          source: `export default subtestsOfFiles.get(${JSON.stringify(url.slice(SCHEME.length))});`,
          format: "module",
          shortCircuit: true,
        }
      : next(url, context),
});

/**
 * What this process and all that it waited for took of the processor, in seconds: fields 14 to 17
 * of proc(5), in hundredths.
 */
function processorSeconds() {
  const fields = readFileSync("/proc/self/stat", "utf8").split(") ").at(-1).split(" ");
  return fields.slice(11, 15).reduce((sum, ticks) => sum + ticks / 100, 0);
}

const timeout = 1000 * Number(process.env.TAP_TIMEOUT);
/** What a failed file left at work may hold the process open: whoever waits wants to know of it. */
const AFTER_FAILURE_MS = 5_000;
// Each file has that time, and after the last one what holds the process open
t.setTimeout(0);
for (const file of process.env.FILES.split(" ")) {
  const [began, used] = [performance.now(), processorSeconds()];
  let own;
  await t.test(file, { timeout }, (subtest) => {
    own = subtest;
    const { href } = pathToFileURL(path.join(tests, file));
    subtests.set(href, subtest);
    return import(href);
  });
  const { total, pass, fail, skip, todo } = own.counts;
  t.comment(
    `together: ${JSON.stringify({
      file,
      seconds: (performance.now() - began) / 1000,
      processor: processorSeconds() - used,
      counts: { total, pass, fail, skip, todo },
    })}`,
  );
}
t.setTimeout(t.passing() ? timeout : AFTER_FAILURE_MS);
