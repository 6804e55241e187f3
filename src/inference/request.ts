/** A request for inference: one schema, for the types, the checks and the published contract. */
import { z } from "zod";
import { modelName, outputKindSchema } from "../manifest/manifest.js";
import { ABSOLUTE_NAME, EXPECTED_NAME } from "../files/path-map.js";
import { errors } from "../base/errors.js";
import { keepable } from "../base/validation.js";

const LONGEST_TIMEOUT_MS = 3_600_000;

/** Text that PostgreSQL and the file system can keep as it is. */
export const keepableText = (longest: number) =>
  z
    .string()
    .min(1, { abort: true })
    .max(longest)
    .refine((given) => keepable(given) === given, {
      message: "Expected text without NUL bytes and halves of surrogate pairs",
      abort: true,
    });
export const clientPath = keepableText(4095).regex(ABSOLUTE_NAME, EXPECTED_NAME);
export const inputImagePath = clientPath.describe(
  "Absolute path, or one that path_map translates, of a file or of a folder of slices",
);
export const outputFolderPath = clientPath.describe(
  "Absolute path, or one that path_map translates, of a folder; created inside its root where missing",
);

/** A list of names, each once; where it is absent, something else decides. */
const names = <T extends z.ZodType<string>>(name: T, most: number) =>
  z
    .array(name)
    .min(1)
    .max(most)
    .superRefine((given, context) => {
      if (new Set(given).size !== given.length)
        context.addIssue({ code: "custom", message: "Expected each entry once" });
    })
    .meta({ uniqueItems: true })
    .optional();

const LABELS_MEANING =
  "Labels of segmentations that are wanted: segmentation models mark these alone, of models of " +
  "parts only the parts with any of them run, and other models do not run. Default: all";

/**
 * Which models run, what they mark and what is written: fields of single and bulk requests and of
 * rules alike.
 */
export const choice = {
  models: names(modelName, 100).describe(
    "Names of the models to run; default: every active model that accepts the image",
  ),
  outputs: names(outputKindSchema, outputKindSchema.options.length).describe(
    "Files to write; json is always written. Default: as each model's manifest says",
  ),
  // Labels that no model has are refused, so that only known ones are kept
  labels: names(z.string().min(1).max(64), 1000).describe(LABELS_MEANING),
};

const destinations = names(z.string().min(1).max(32), 32).describe(
  "Names of destinations of the gateway's file; default: its `deliver`",
);

/** Where DICOM objects go beside the output folder, of a job. */
export const deliveryOfJob = {
  deliver: z
    .enum(["queue", "none"])
    .optional()
    .describe("none: the results stay in their folders; default: queue"),
  destinations,
};

/** The destinations of the settings, by name. */
export interface KnownDestinations {
  all: readonly string[];
  /** Those of requests that name none. */
  usual: readonly string[];
}

/**
 * Every way to results that are sent on asks this: requests, jobs that go on, received images.
 * @param to destinations
 * @param allowed those of the token; all if undefined
 * @throws RadserveError path_not_allowed
 */
export function requireMaySend(
  to: readonly string[],
  allowed: readonly string[] | undefined,
): void {
  const forbidden = to.filter((name) => allowed?.includes(name) === false);
  if (forbidden.length === 0) return;
  throw errors.path_not_allowed(
    `This token may not send to ${forbidden.join(", ")}. Leave that out, or use a token that may (radserve token issue --destination).`,
    { side: "destination", destinations: forbidden },
  );
}

/**
 * Where the objects of a request go.
 * @param allowed those that its token may send to; all if undefined
 * @throws RadserveError destination_not_found, path_not_allowed
 */
export function destinationsFor(
  asked: { deliver?: "wait" | "queue" | "none" | undefined; destinations?: string[] | undefined },
  { all, usual }: KnownDestinations = { all: [], usual: [] },
  allowed?: readonly string[],
): string[] {
  const { deliver, destinations: named } = asked;
  const refuse = (field: string, message: string) =>
    errors.destination_not_found(message, { field });
  const known =
    all.length === 0 ? "there are none in RADSERVE_GATEWAY" : `there are ${all.join(", ")}`;
  if (deliver === "none" && named !== undefined)
    throw refuse("deliver", "Expected deliver none, or destinations; found both.");
  if (deliver === "none") return [];
  const unknown = (named ?? []).filter((name) => !all.includes(name));
  if (unknown.length > 0)
    throw refuse(
      "destinations",
      `Expected names of destinations; found ${unknown.join(", ")}, and ${known}.`,
    );
  requireMaySend(named ?? [], allowed);
  const chosen = named ?? usual.filter((name) => allowed?.includes(name) !== false);
  if (chosen.length === 0 && deliver !== undefined)
    throw refuse(
      "destinations",
      `Expected destinations, because none are the usual ones of this token; ${known}.`,
    );
  return chosen;
}

const GROUP_MEANING =
  "series: each series of a folder is one item with one receipt, SEG and SR, also for models of " +
  "single images, which process its slices one by one; for folders alone";

/** Of single and bulk requests. */
export const group = z.enum(["series"]).optional().describe(GROUP_MEANING);

/** @throws RadserveError bad_request for a group of a file */
export function checkGroup(asked: "series" | undefined, kind: "file" | "folder"): void {
  if (asked !== undefined && kind === "file")
    throw errors.bad_request(
      'group: expected input_image_path to name a folder where group is "series"; found a file. Name the folder of its series, or leave group out.',
      { field: "group" },
    );
}

const SERIES_INSTANCE_UID_MEANING =
  "Which series of a folder is meant; default: the only one, or the only one that suits the " +
  "active models of series";
const DELIVER_MEANING =
  "wait: the answer comes when the objects are delivered or set aside, or at the time limit; " +
  "queue (default): the answer comes at once; none: the results stay in their folder";

export const priority = z
  .enum(["routine", "stat"])
  .optional()
  .describe("stat goes first and has a reserved thread; default: routine");

export const singleRequestSchema = z.strictObject({
  input_image_path: inputImagePath,
  output_folder_path: outputFolderPath,
  series_instance_uid: z
    .string()
    .max(64)
    .regex(/^[0-9]+(\.[0-9]+)*$/, "Expected a UID: digits and dots")
    .optional()
    .describe(SERIES_INSTANCE_UID_MEANING),
  group,
  ...choice,
  deliver: z.enum(["wait", "queue", "none"]).optional().describe(DELIVER_MEANING),
  destinations,
  priority,
  timeout_ms: z
    .int()
    .min(1)
    .max(LONGEST_TIMEOUT_MS)
    .optional()
    .describe(
      "Time after which the answer is 504 deadline_exceeded, 1 to 3600000; default: the setting deadline_seconds",
    ),
});
