/** What is told where the thread of the jobs cannot answer. */
import t from "tap";
import { RadserveError } from "../../src/base/errors.js";
import { ThreadEnded } from "../../src/base/remote.js";
import { unlessEnded } from "../../src/jobs/database-trouble.js";

t.test("whoever asks a thread that ends is told to ask again, and no fault", async (t) => {
  t.equal(await unlessEnded(Promise.resolve("an answer")), "an answer");
  await t.rejects(unlessEnded(Promise.reject(new ThreadEnded(false))), {
    code: "bulk_unavailable",
    message: /starting again\. Send the request again/,
  });
  const other = new RadserveError("job_not_found", "On purpose.");
  await t.rejects(unlessEnded(Promise.reject(other)), other);
});
