/** The comparison of weeks in a server: its endpoint, and the thread that reads. */
import { z } from "zod";
import { errors } from "../../base/errors.js";
import { Lane } from "../../base/lane.js";
import { folderOf } from "../../files/roots.js";
import { type ServingFeature } from "../../server/feature.js";
import { FeatureName, type Running } from "../../server/running-features.js";
import { callerOf, endpointByHttp, rootsOf } from "../../server/handlers.js";
import { at, VIEW_ERRORS } from "../../server/route.js";
import { driftSchema, type DriftThread } from "./messages.js";

/** Receipts that one comparison of weeks reads: some minutes from a share. */
const MOST_RECEIPTS = 200_000;
const LONGEST_MS = 300_000;

interface Comparing extends Running {
  lane: Lane<DriftThread>;
}
const DRIFT = new FeatureName<Comparing>("drift");

/** GET /drift: how models do from week to week, in the receipts that the token reaches. */
const showDrift = endpointByHttp(
  "view",
  z.strictObject({
    week: z.iso
      .date()
      .optional()
      .describe(
        "A day of the week that is compared with earlier weeks; without it, the latest week that has receipts",
      ),
  }),
  { Drift: driftSchema },
  async (ctx, services, { week }) => {
    const caller = callerOf(ctx);
    const { output } = await rootsOf(caller, services);
    const folders = output.map(folderOf);
    const drift = services.features.of(DRIFT);
    if (drift === undefined) throw errors.not_found("This server compares no weeks.");
    const { output: roots } = services.roots;
    const question = { roots, folders, most: MOST_RECEIPTS, week };
    const left = () => ctx.req.socket.destroyed;
    ctx.body = await drift.lane.ask((call) => call.compare(question), caller.subject, left);
  },
);

const endpoints = [
  at("GET /drift", "getDrift", {
    claims: ["output_roots"],
    tag: "operations",
    summary:
      "Scores, shares and times of models week by week, read from receipts and never from images",
    errors: VIEW_ERRORS,
    ...showDrift,
  }),
];

export const serving: ServingFeature<Comparing> = {
  name: DRIFT,
  endpoints,
  start({ places, log }) {
    const file = new URL("./thread.js", import.meta.url);
    const lane = new Lane<DriftThread>({
      file,
      workerData: {},
      places,
      longestMs: LONGEST_MS,
      log,
    });
    return Promise.resolve({
      lane,
      leave: () => lane.close(),
    });
  },
};
