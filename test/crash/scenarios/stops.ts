/**
 * SIGTERM at any moment of a server's life, again and again: it ends with 0, and no result is in
 * part.
 */
import { copyFileSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { samples } from "../../../scripts/demo/samples.js";
import { databaseFolders } from "../../../src/features/local-postgres/folders.js";
import { removePlace } from "../../support/private-postgres.js";
import { makePlace, radserve, root, startServer } from "../../support/server.js";
import { random } from "../../support/dicom.js";
import { seconds, type Options, type Outcome, type Scenario } from "../lib/scenario.js";

/** A server under load has answered all requests by then. */
const LONGEST_LIFE_MS = 2_000;
/** More than the threads take at once, so that some start while it is stopped. */
const AT_ONCE = 6;

/**
 * What a client may be told by a server that stops. A connection that is refused gives no answer.
 */
const PROMISED: ReadonlySet<number> = new Set([200, 503]);

async function stops({ items, seed, say }: Options): Promise<Outcome> {
  const made = makePlace({ RADSERVE_MODELS_DIR: path.join(root, "models"), RADSERVE_THREADS: "2" });
  // Whoever stops a test's server takes its place away
  const place = { ...made, remove: () => undefined };
  const began = performance.now();
  const faults: string[] = [];
  const next = random(seed);
  try {
    await radserve(place, "init");
    const source = path.join(place.directory, "ct.dcm");
    writeFileSync(source, (await samples()).ct);
    for (let i = 0; i < items; i++) {
      if (i % 10 === 0) say(`${i} of ${items} stops; ${seconds(began)}`);
      const output = path.join(place.output, String(i));
      mkdirSync(output);
      const server = await startServer(place);
      const answers = Array.from({ length: AT_ONCE }, async (_, request) => {
        const name = `${i}-${request}.dcm`;
        copyFileSync(source, path.join(place.input, name));
        const body = { input_image_path: path.join(place.input, name), output_folder_path: output };
        const answer = await server.post("/single_inference", body).catch(() => undefined);
        await answer?.arrayBuffer().catch(() => undefined);
        return { name, status: answer?.status };
      });
      await delay(Math.floor(next() * LONGEST_LIFE_MS));
      const status = await server.stop();
      if (status !== 0) faults.push(`stop ${i}: ended with ${status ?? "a signal"}`);
      const written = readdirSync(output).filter((name) => !name.startsWith("."));
      for (const { name, status } of await Promise.all(answers)) {
        if (status !== undefined && !PROMISED.has(status))
          faults.push(`stop ${i}: ${name} was answered with ${status}`);
        const receipts = written.filter((file) => file === `${name}.json`).length;
        if (status === 200 && receipts !== 1)
          faults.push(`stop ${i}: ${name} was answered and has no receipt`);
        if (receipts === 0 && written.some((file) => file.startsWith(`${name}.`)))
          faults.push(`stop ${i}: ${name} has files and no receipt`);
        rmSync(path.join(place.input, name));
      }
    }
    return { summary: `${items} stops; ${seconds(began)}`, faults };
  } finally {
    await removePlace(databaseFolders(place.environment["RADSERVE_STATE_DIR"]!));
    made.remove();
  }
}

export const stopping: Record<string, Scenario> = {
  stops: { description: "SIGTERM at any moment, each time with 0", run: stops },
};
