/** Jobs where neither DATABASE_URL names a database nor a feature gives one. */
import t from "tap";
import { FEATURES } from "../../src/features.js";
import { bulkOf } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { makePlace, startServer } from "../support/server.js";

const hasOwn = FEATURES.some(({ name }) => name === "local-postgres");
const skip = hasOwn ? "this Radserve has a private PostgreSQL" : needs(ADDON);

t.test("bulk pages say what to do", { skip }, async (t) => {
  const place = makePlace();
  t.teardown(() => place.remove());
  const server = await startServer(place);
  t.teardown(() => server.stop());
  t.match(await bulkOf(server).send("GET", "/bulk_inference"), {
    status: 503,
    body: { error: "bulk_unavailable", message: /No database is named.* Set DATABASE_URL\.$/ },
  });
});
