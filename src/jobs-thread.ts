/** What the thread of jobs starts with: the jobs, and what features do for them. */
import { serveJobs } from "./jobs/thread.js";
import { jobsFeatures } from "./features.js";

serveJobs(await jobsFeatures());
