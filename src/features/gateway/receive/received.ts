/** What lies in the spool, as a person sees it, and what a person decides of it. */
import { z } from "zod";

/** Why a series is no job, though it is complete. */
export const UNMADE = [
  "no_rule",
  "no_images",
  "not_largest",
  "not_whole",
  "series_missing",
  "discarded",
] as const;
export type Unmade = (typeof UNMADE)[number];

export const RECEIVED_STATES = ["waiting", "job", "unused"] as const;

const count = z.int().min(0);

export const receivedSchema = z.object({
  peer: z.string(),
  study_instance_uid: z.string(),
  study: z
    .string()
    .describe(
      "The study as remove and replace take it: its StudyInstanceUID, and of another patient = and a hash behind that",
    ),
  series_instance_uid: z.string(),
  apart: z
    .boolean()
    .describe("It is of another patient than the one whose study came first under this UID"),
  objects: count,
  state: z
    .enum(RECEIVED_STATES)
    .describe("waiting: it is not complete; job: it is of jobs; unused: it is of none"),
  why: z.enum(UNMADE).nullable().describe("Why an unused one is of no job"),
  jobs: z.array(z.object({ rule: z.string(), job_id: z.string() })),
  lost: count.describe("Objects that were begun and are not there"),
  broken: count.describe("Associations and requests that broke off"),
  classes: z
    .record(z.string(), count)
    .optional()
    .describe("Numbers of objects of an unused one, by SOP class"),
});
export type Received = z.infer<typeof receivedSchema>;

export const receivedDetailsSchema = receivedSchema.extend({
  rules: z.array(
    z.object({
      rule: z.string(),
      takes: z.boolean(),
      asked: z.boolean().describe("false behind a rule that takes it, without `continue`"),
      why: z.array(z.string()).describe("Why it does not take it, as far as that may be told"),
    }),
  ),
});
export type ReceivedDetails = z.infer<typeof receivedDetailsSchema>;

export const changedSchema = z.object({
  peer: z.string(),
  study: z.string().describe("As the list has it"),
  series_instance_uid: z.string(),
  objects: count,
});
export type ReceivedChange = z.infer<typeof changedSchema>;

/** Which series are meant. */
export interface ReceivedChoice {
  peer?: string | undefined;
  series?: string | undefined;
}
