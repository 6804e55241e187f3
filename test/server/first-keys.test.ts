/** When a node makes its first keys, and when it leaves that. */
import { mkdirSync, readdirSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { enter, NO_FACTS } from "../../src/jobs/nodes.js";
import { firstKeys } from "../../src/server/first-keys.js";
import { sharedDatabase } from "../support/postgres.js";
import { configOf, freePort, makePlace } from "../support/server.js";
import { newInstance } from "../support/tables.js";

async function made(t: Test, url: string, isNamed: boolean) {
  const place = makePlace({ DATABASE_URL: url });
  t.teardown(() => place.remove());
  const folder = path.join(place.directory, isNamed ? "share" : "state/keys");
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  if (isNamed) place.environment["RADSERVE_KEYS_DIR"] = folder;
  const { isNew, withheld } = await firstKeys(configOf(place));
  return { isNew, withheld, files: readdirSync(folder).length };
}

t.test("where the database knows no node with keys they are made", async (t) => {
  const { url } = await sharedDatabase(t);
  for (const isNamed of [true, false])
    t.match(await made(t, url, isNamed), { isNew: true, files: 2 });
});

t.test("where another node has keys none is made", async (t) => {
  const { pool, url } = await sharedDatabase(t);
  const instance = newInstance();
  await enter(pool, instance, true, { ...NO_FACTS, keys: ["k"], result_keys: ["r"] });
  for (const isNamed of [true, false])
    t.match(await made(t, url, isNamed), {
      isNew: false,
      withheld: "the node node-1 has some",
      files: 0,
    });
});

t.test("where the database does not answer a folder that was named may be a share", async (t) => {
  const url = `postgres://nobody@127.0.0.1:${await freePort()}/none`;
  t.match(await made(t, url, true), { isNew: false, withheld: /does not answer/, files: 0 });
  t.match(await made(t, url, false), { isNew: true, files: 2 });
});
