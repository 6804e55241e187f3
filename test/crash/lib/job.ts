/** Bulk jobs of a node, over HTTP, by a client that outlives every restart. */
import { setTimeout as delay } from "node:timers/promises";
import type { z } from "zod";
import {
  acceptedSchema,
  itemListSchema,
  jobListSchema,
  jobSchema,
  type Item,
  type Job,
} from "../../../src/jobs/schema.js";
import { hasEnded } from "../../../src/commands/job-text.js";
import type { Client } from "../../../src/commands/client.js";

/** How long a node may be away at most; beyond it the scenario fails. */
const PATIENCE = { forMs: 120_000 };

/** Who is asked, a node or what stands before several, and the folders of a job that names none. */
export interface Asked {
  client: Client;
  input: string;
  output: string;
}

/** All jobs that a client may see, the latest first. */
export async function allJobs(client: Client, patience = PATIENCE): Promise<Job[]> {
  const all: Job[] = [];
  for (let cursor: string | null = ""; cursor !== null;) {
    const page: string = `/bulk_inference?limit=100${cursor === "" ? "" : `&cursor=${cursor}`}`;
    const list = await client.callPatiently(jobListSchema, patience, "GET", page);
    all.push(...list.jobs);
    cursor = list.next_cursor;
  }
  return all;
}

export class CrashJob {
  private constructor(
    private readonly node: Asked,
    readonly id: string,
  ) {}

  /**
   * Gives the node's folders to it as one job. The key makes a request that is repeated the same
   * job.
   */
  static async submit(
    node: Asked,
    key: string,
    body: Record<string, unknown> = {},
  ): Promise<CrashJob> {
    const whole = {
      input_folder_path: node.input,
      output_folder_path: node.output,
      models: ["ct-tissue"],
      outputs: ["json"],
      idempotency_key: key,
      ...body,
    };
    const { job_id } = await node.client.callPatiently(
      acceptedSchema,
      PATIENCE,
      "POST",
      "/bulk_inference",
      whole,
    );
    return new CrashJob(node, job_id);
  }

  look(): Promise<Job> {
    return this.node.client.callPatiently(jobSchema, PATIENCE, "GET", `/bulk_inference/${this.id}`);
  }

  resume(): Promise<Job> {
    const page = `/bulk_inference/${this.id}/resume`;
    return this.node.client.callPatiently(jobSchema, PATIENCE, "POST", page);
  }

  cancel(): Promise<Job> {
    return this.node.client.callPatiently(
      jobSchema,
      PATIENCE,
      "DELETE",
      `/bulk_inference/${this.id}`,
    );
  }

  /**
   * Polls until `wanted` holds. Throws where it does not within the time, with the last state seen.
   */
  async until(what: string, wanted: (job: Job) => boolean, limitMs = 1_800_000): Promise<Job> {
    let job = await this.look();
    for (const end = Date.now() + limitMs; !wanted(job); job = await this.look()) {
      if (Date.now() > end)
        throw new Error(
          `The job was not ${what} within ${limitMs / 1000} s: ${JSON.stringify(job)}`,
        );
      await delay(100);
    }
    return job;
  }

  untilEnded(limitMs?: number): Promise<Job> {
    return this.until("at its end", hasEnded, limitMs);
  }

  /** All items, or those of one state. */
  async items(state?: string): Promise<Item[]> {
    const all: Item[] = [];
    for (let cursor: string | null = ""; cursor !== null;) {
      const query: string = new URLSearchParams({
        limit: "500",
        ...(state === undefined ? {} : { state }),
        ...(cursor === "" ? {} : { cursor }),
      }).toString();
      const page: z.infer<typeof itemListSchema> = await this.node.client.callPatiently(
        itemListSchema,
        PATIENCE,
        "GET",
        `/bulk_inference/${this.id}/items?${query}`,
      );
      all.push(...page.items);
      cursor = page.next_cursor;
    }
    return all;
  }
}
