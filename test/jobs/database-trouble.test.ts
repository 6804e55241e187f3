/** What is told where the thread of the jobs, or its database, cannot answer. */
import t from "tap";
import { RadserveError } from "../../src/base/errors.js";
import { ThreadEnded } from "../../src/base/remote.js";
import { BulkUnavailable, DatabaseTroubles, unlessEnded } from "../../src/jobs/database-trouble.js";

t.test("whoever asks a thread that ends is told to ask again, and no fault", async (t) => {
  t.equal(await unlessEnded(Promise.resolve("an answer")), "an answer");
  await t.rejects(unlessEnded(Promise.reject(new ThreadEnded(false))), {
    code: "bulk_unavailable",
    message: /starting again\. Send the request again/,
  });
  const other = new RadserveError("job_not_found", "On purpose.");
  await t.rejects(unlessEnded(Promise.reject(other)), other);
});

t.test("troubles of jobs are forgotten where nobody has to know them any more", (t) => {
  const troubles = new DatabaseTroubles();
  const full = new BulkUnavailable("It is full.", "Make room.", { reason: "database_full" });
  for (const job of ["open", "over"]) troubles.failed(full, job);
  troubles.keep(new Set(["open", "other"]));
  t.equal(troubles.of("over"), undefined);
  t.match(troubles.of("open"), { code: "database_full" });
  troubles.failed(full);
  troubles.keep(new Set());
  t.match(troubles.of("over"), { code: "database_full" }, "that of all jobs stays");
  t.end();
});
