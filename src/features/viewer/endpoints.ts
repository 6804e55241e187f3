/**
 * Results and their images for people who look at them on the page, how models do over time, and
 * completion of paths: off unless the settings allow it, inside the roots of the token, and written
 * down in the audit. Reading is done by threads apart.
 */
import { opendir } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import { errors } from "../../base/errors.js";
import type { Question } from "../../base/lane.js";
import { isMarkName } from "../../files/folder-mark.js";
import { isAwayNow } from "../../files/absent-roots.js";
import { withInput, type OpenedInput } from "../../files/guarded-paths.js";
import { nameOfHelper } from "../../files/helper-names.js";
import { translateIn } from "../../files/path-map.js";
import { folderOf, isInside, type Root } from "../../files/roots.js";
import { clientPath } from "../../inference/request.js";
import { ModelSharer } from "../../models/shared.js";
import { listedSchema } from "./list/list.js";
import { opaqueName, ResultNames } from "./list/result-name.js";
import { hashesOf, whoseSchema } from "./list/whose.js";
import {
  frameFactsSchema,
  marksSchema,
  verificationSchema,
  shownSchema,
  type Across,
  type ViewingThread,
} from "./messages.js";
import { VIEWER } from "./running.js";
import { callerOf, endpointByHttp, postedByHttp, rootsOf } from "../../server/handlers.js";
import { type Context, type Services } from "../../server/services.js";

const MOST_NAMES = 50;
/** Entries of a folder that are looked at for names to offer. */
const MOST_ENTRIES = 20_000;

const receiptPath = clientPath.describe("Path of a receipt: `receipt_path` of the answer");
const inputPath = clientPath.describe("Path of the image or folder that was analysed");
const MAC_MEANING =
  "`mac.hmac_sha256` of the receipt that the caller has read: where another one has replaced it, " +
  "the answer is 409 result_changed, with the reason replaced";
/** Which result is meant. */
const ofResult = {
  id: opaqueName.optional().describe("`id` of a result, as the list and `findResult` give it"),
  path: receiptPath.optional().meta({ deprecated: true }),
};
const ofInput = {
  input_id: opaqueName
    .optional()
    .describe("`input_id` of a result; beside `id` what the list has counts where it is absent"),
  input_path: inputPath.optional().meta({ deprecated: true }),
};
/** Which receipt the caller has seen under that name. */
const ofReceipt = {
  mac: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .optional()
    .describe(MAC_MEANING),
};
const frame = z.coerce
  .number()
  .int()
  .min(1)
  .max(1_000_000)
  .default(1)
  .describe("Number of the frame in the file, or of the slice in the receipt's list, from 1");

const pathListSchema = z.strictObject({
  paths: z.array(z.strictObject({ path: z.string(), kind: z.enum(["file", "folder"]) })),
  more: z.boolean().describe("There are more than these"),
});
export type PathList = z.infer<typeof pathListSchema>;

const sharer = new ModelSharer();

/** @throws RadserveError overloaded, deadline_exceeded, shutting_down; what the thread throws */
async function ask<Answer>(
  ctx: Context,
  services: Services,
  lane: "looks" | "planes" | "studies",
  question: Question<ViewingThread, Answer>,
): Promise<Answer> {
  const viewer = services.features.of(VIEWER);
  if (viewer === undefined) throw errors.not_found("This server shows no results.");
  const left = () => ctx.req.socket.destroyed;
  return viewer.service[lane].ask(question, callerOf(ctx).subject, left);
}

/**
 * One of two ways to say something.
 * @throws RadserveError bad_request where both are there
 */
function oneOf(names: [string, string], first: unknown, second: unknown): void {
  if (first !== undefined && second !== undefined)
    throw errors.bad_request(`Expected ${names.join(" or ")}; found both.`);
}

interface ResultQuery {
  id?: string | undefined;
  path?: string | undefined;
  input_id?: string | undefined;
  input_path?: string | undefined;
  mac?: string | undefined;
}

/** Where the receipt lies on this machine. */
async function receiptOf(services: Services, { id, path: given }: ResultQuery): Promise<string> {
  oneOf(["id", "the path of a receipt"], id, given);
  if (given !== undefined) return translateIn(given, services.config.path_map).path;
  if (id === undefined) throw errors.bad_request("Expected id of a result; found none.");
  return named(services, "receipt", id);
}

/**
 * What a name stands for, which a key in its output root says.
 * @throws RadserveError file_not_found; share_unavailable while a root is away
 */
async function named(
  { roots: { output } }: Services,
  of: "receipt" | "input",
  name: string,
): Promise<string> {
  const found = await new ResultNames(output).find(of, name);
  if (found !== undefined) return found;
  for (const root of output)
    if (await isAwayNow("output", root))
      throw errors.share_unavailable(
        "Expected the output root of this result; an output root is away, as where a share is not mounted. Mount it, and open the result again.",
      );
  throw errors.file_not_found(
    "Expected the id of a result of this server; no output root has one of this name.",
  );
}

/** Where its image lies, as far as the request says it, or the list. */
async function inputOf(
  ctx: Context,
  services: Services,
  receipt: string,
  asked: ResultQuery,
): Promise<string | undefined> {
  const { input_id: id, input_path: given } = asked;
  oneOf(["input_id", "input_path"], id, given);
  if (given !== undefined) return translateIn(given, services.config.path_map).path;
  if (id !== undefined) return named(services, "input", id);
  if (asked.id === undefined) return undefined;
  const roots = services.roots.output;
  return (await ask(ctx, services, "looks", (call) => call.row(receipt, roots)))?.input;
}

/**
 * The paths of a result on this machine, which receipt the caller has seen there, and the folders
 * that the caller may see.
 */
async function lookedAt(
  ctx: Context,
  services: Services,
  asked: ResultQuery,
  needsInput: "input" | "no input" = "input",
) {
  const receipt = await receiptOf(services, asked);
  ctx.state.action?.note({ outputPath: receipt });
  const roots = await rootsOf(callerOf(ctx), services);
  // A result outside the caller's roots is not revealed, not even that the list has it
  if (asked.id !== undefined && !isInside(receipt, roots.output))
    throw errors.path_not_allowed(
      "Expected a result in an output root of this token; found one outside.",
      { side: "output" },
    );
  const input = needsInput === "input" ? await inputOf(ctx, services, receipt, asked) : undefined;
  if (input !== undefined) ctx.state.action?.note({ inputPath: input });
  return { receiptPath: receipt, mac: asked.mac, input, roots };
}

const ACROSS_MEANING =
  "For a volume, the plane through one row or one column of every slice; `frame` is then the " +
  "number of that row or column, from 1";

const across = z.enum(["row", "column"]).optional().describe(ACROSS_MEANING);

const ofFrame = z.strictObject({ ...ofResult, ...ofReceipt, ...ofInput, frame, across });

const noInput = () =>
  errors.bad_request(
    "Expected input_id or input_path, because the list has no path for the image of this result; found none.",
  );

const laneOf = (across: Across) => (across === undefined ? "looks" : "planes");

/** Something of a frame of the image that a result is of. */
async function askOfFrame(
  kind: "picture" | "frame",
  ctx: Context,
  services: Services,
  query: z.infer<typeof ofFrame> & { model?: string | undefined },
): Promise<Buffer> {
  const { input, ...of } = await lookedAt(ctx, services, query);
  const { frame, across, model } = query;
  if (input === undefined) throw noInput();
  const view = { ...of, inputPath: input, frame, across, model };
  const lane = laneOf(across);
  const { buffer, byteOffset, byteLength } = await ask(ctx, services, lane, (call) =>
    call[kind](view),
  );
  return Buffer.from(buffer, byteOffset, byteLength);
}

/** Whose deliveries a caller may see, as in their list; all with the claim admin. */
function subjectOf(ctx: Context): string | undefined {
  const { admin, subject } = callerOf(ctx);
  return admin ? undefined : subject;
}

/** GET /results: the receipt, as text that the thread has made of it. */
export const showResult = endpointByHttp(
  "view",
  z.strictObject(ofResult),
  { ShownReceipt: shownSchema },
  async (ctx, services, query) => {
    const { receiptPath, roots } = await lookedAt(ctx, services, query, "no input");
    const { study, json } = await ask(ctx, services, "looks", (call) =>
      call.receipt({ receiptPath, roots, subject: subjectOf(ctx) }),
    );
    ctx.state.action?.wasOf({ studyInstanceUid: study });
    ctx.type = "json";
    ctx.body = Buffer.from(json.buffer, json.byteOffset, json.byteLength);
  },
);

/**
 * GET /results/picture: a frame of its image, a PNG. It goes by the type of a file, which
 * generators of clients know, and which no browser shows as a page.
 */
export const showPicture = endpointByHttp(
  "view",
  ofFrame.extend({
    model: z
      .string()
      .min(1)
      .max(200)
      .optional()
      .describe("A model of the receipt, whose picture is given"),
  }),
  "application/octet-stream",
  async (ctx, services, query) => {
    const png = await askOfFrame("picture", ctx, services, query);
    ctx.set({
      "Content-Security-Policy": "default-src 'none'; sandbox",
      "Cross-Origin-Resource-Policy": "same-origin",
    });
    ctx.type = "application/octet-stream";
    ctx.body = png;
  },
);

/**
 * GET /results/frame: the values of a frame of its image, and what a viewer says in the corners.
 */
export const showFrame = endpointByHttp(
  "view",
  ofFrame,
  { Frame: frameFactsSchema },
  async (ctx, services, query) => {
    ctx.type = "json";
    ctx.body = await askOfFrame("frame", ctx, services, query);
  },
);

/** GET /results/marks: what a model marked on a frame. */
export const showMarks = endpointByHttp(
  "view",
  z.strictObject({
    ...ofResult,
    ...ofReceipt,
    model: z.string().min(1).max(200).describe("A model of the receipt that wrote a segmentation"),
    ...ofInput,
    frame,
    across,
    fullest: z
      .string()
      .max(64)
      .optional()
      .describe("A label: the frame with the most of it is meant"),
    only: z
      .string()
      .regex(/^\d{1,5}(,\d{1,5}){0,999}$/, "Expected numbers of segments with commas between them")
      .optional()
      .describe("Numbers of segments: these alone are drawn, and all are counted"),
  }),
  { Marks: marksSchema },
  async (ctx, services, query) => {
    const { model, frame, across, fullest } = query;
    const only = query.only?.split(",").map(Number);
    const needs = across === undefined ? "no input" : "input";
    const { input, ...of } = await lookedAt(ctx, services, query, needs);
    if (across !== undefined && input === undefined) throw noInput();
    const view = { ...of, inputPath: input ?? "", model, frame, fullest, only, across };
    ctx.body = await ask(ctx, services, laneOf(across), (call) => call.marks(view));
  },
);

/** GET /results/nifti: the image of a result, or the masks of a model, as a volume. */
export const giveNifti = endpointByHttp(
  "view",
  z.strictObject({
    ...ofResult,
    ...ofReceipt,
    ...ofInput,
    model: z
      .string()
      .min(1)
      .max(200)
      .optional()
      .describe("A model of the receipt, whose masks are given as a label map; else the image is"),
  }),
  "application/octet-stream",
  async (ctx, services, query) => {
    const { model } = query;
    const needs = model === undefined ? "input" : "no input";
    const { input: inputPath, ...of } = await lookedAt(ctx, services, query, needs);
    if (model === undefined && inputPath === undefined) throw noInput();
    const file = await ask(ctx, services, "studies", (call) =>
      call.nifti({ ...of, inputPath, model }),
    );
    ctx.attachment(model === undefined ? "image.nii.gz" : "masks.nii.gz");
    ctx.type = "application/octet-stream";
    ctx.body = Buffer.from(file.buffer, file.byteOffset, file.byteLength);
  },
);

/** GET /results/verification: whether it is as it was written, computed again. */
export const showVerification = endpointByHttp(
  "view",
  z.strictObject({
    ...ofResult,
    ...ofReceipt,
    ...ofInput,
  }),
  { Verification: verificationSchema },
  async (ctx, services, query) => {
    const { input: inputPath, ...of } = await lookedAt(ctx, services, query);
    const models = sharer.share(services.inference.models.entries);
    const study = { ...of, inputPath, models };
    ctx.body = await ask(ctx, services, "studies", (call) => call.verify(study));
  },
);

/** 64 characters (PS3.5 6.2, LO), with the spaces around them that people paste. */
const identifier = z.string().trim().min(1).max(64);
/** A day in UTC; or a time with its offset, such as midnight where the reader is. */
const day = z.union([z.iso.date(), z.iso.datetime({ offset: true })]);

const wantedOf = {
  model: z.string().max(200).optional().describe("Name of a model that accepted the image"),
  finding: z
    .string()
    .max(200)
    .optional()
    .describe("A label that is present, in upper or lower case"),
  status: z.enum(["completed", "partial"]).optional().describe("Status of the result"),
  modality: z.string().max(16).optional().describe("Modality of the image, for example CT"),
  text: z
    .string()
    .max(200)
    .optional()
    .describe(
      "Part of the path of the receipt or the image, or a whole Study or Series Instance UID",
    ),
  patient: identifier
    .optional()
    .describe(
      "The whole PatientID, in upper or lower case, whichever node of the installation wrote the result; results of 0.6 are not found by it",
    ),
  accession: identifier.optional().describe("The whole AccessionNumber, in upper or lower case"),
  study: identifier.optional().describe("StudyInstanceUID"),
  from: day.optional().describe("A day in UTC, or a time with its offset"),
  to: day
    .optional()
    .describe("A day in UTC, which is included, or a time with its offset, which is not"),
  cursor: z.string().max(64).optional().describe("`next_cursor` of the page before"),
};
/**
 * A search in an address can ask for less than one in a body: browsers and proxies keep addresses.
 */
const { accession: _accession, study: _study, ...wantedInAddress } = wantedOf;
const limit = z.int().min(1).max(200).describe("Results of a page");
const searchSchema = z.strictObject({ ...wantedOf, limit: limit.default(50) });

/** The first moment that is not included any more: after a day, the midnight that ends it. */
function endOf(to: string): string {
  const begin = new Date(to);
  const isDay = z.iso.date().safeParse(to).success;
  return new Date(begin.getTime() + (isDay ? 86_400_000 : 0)).toISOString();
}

async function search(
  ctx: Context,
  services: Services,
  { limit, cursor, patient, accession, from, to, ...wanted }: z.infer<typeof searchSchema>,
): Promise<void> {
  const { output } = await rootsOf(callerOf(ctx), services);
  if (patient !== undefined) ctx.state.action?.wasOf({ patientId: patient });
  const question = {
    roots: services.roots.output,
    folders: output.map(folderOf),
    wanted: {
      ...wanted,
      patient: patient === undefined ? undefined : await hashesOf("patient", patient),
      accession: accession === undefined ? undefined : await hashesOf("accession", accession),
      from: from === undefined ? undefined : new Date(from).toISOString(),
      to: to === undefined ? undefined : endOf(to),
    },
    limit,
    cursor,
  };
  const { results, ...more } = await ask(ctx, services, "looks", (call) => call.list(question));
  const names = new ResultNames(services.roots.output);
  const named = results.map(async (row) => ({
    ...row,
    ...(await names.of(row.receipt, row.input)),
  }));
  ctx.body = { results: await Promise.all(named), ...more } satisfies ResultList;
}

const nameOfResult = opaqueName.describe(
  "For addresses: it stays as long as the result does, and is the same on all nodes of a share",
);
const nameOfInput = opaqueName.optional().describe("The same for the path of its image");

const resultListSchema = listedSchema.extend({
  results: z.array(
    listedSchema.shape.results.element.extend({
      id: nameOfResult.optional(),
      input_id: nameOfInput,
    }),
  ),
});
export type ResultList = z.infer<typeof resultListSchema>;

/** GET /results/list: the results that were written here, the latest first. */
export const listResults = endpointByHttp(
  "view",
  z.strictObject({
    ...wantedInAddress,
    text: wantedOf.text.meta({ deprecated: true }),
    patient: wantedOf.patient.meta({ deprecated: true }),
    limit: z.coerce.number().pipe(limit).default(50).describe("Results of a page"),
  }),
  { ResultList: resultListSchema },
  search,
);

/** POST /results/search: the same, and nothing of it stands in an address. */
export const searchResults = postedByHttp(
  "view",
  "ResultSearch",
  searchSchema,
  { ResultList: resultListSchema },
  search,
);

const foundResultSchema = z.strictObject({
  id: nameOfResult,
  input_id: nameOfInput,
  receipt_path: z.string(),
  input_path: z
    .string()
    .optional()
    .describe("As the request or the list has it; absent where neither does"),
  modality: z.string().optional(),
  written_at: z.string().optional().describe("ISO 8601"),
  whose: whoseSchema
    .optional()
    .describe("Patient and study, as the list has them; absent of what is not trusted"),
});
export type FoundResult = z.infer<typeof foundResultSchema>;

/** POST /results/find: the names of a result for addresses, its paths, and whose it is. */
export const findResult = postedByHttp(
  "view",
  "ResultQuestion",
  z.strictObject({
    id: opaqueName.optional().describe("`id` of a result"),
    receipt_path: receiptPath.optional().describe("Instead of `id`: the path of its receipt"),
    input_path: inputPath.optional(),
  }),
  { ResultFound: foundResultSchema },
  async (ctx, services, { id, receipt_path: given, input_path: inputGiven }) => {
    const receipt = await receiptOf(services, { id, path: given });
    ctx.state.action?.note({ outputPath: receipt });
    const roots = await rootsOf(callerOf(ctx), services);
    // There is a receipt, and the caller may read it
    const of = { receiptPath: receipt, roots, subject: subjectOf(ctx) };
    await ask(ctx, services, "looks", (call) => call.receipt(of));
    const all = services.roots.output;
    const row = await ask(ctx, services, "looks", (call) => call.row(receipt, all));
    const input =
      inputGiven === undefined
        ? row?.input
        : translateIn(inputGiven, services.config.path_map).path;
    const names = await new ResultNames(all).of(receipt, input);
    if (names === undefined)
      throw errors.file_not_found("The output root of this result has no key for names.");
    ctx.body = {
      ...names,
      receipt_path: given ?? receipt,
      ...(input === undefined ? {} : { input_path: inputGiven ?? input }),
      modality: row?.modality,
      written_at: row?.at,
      whose: row?.whose,
    } satisfies FoundResult;
  },
);

const pathsQuery = {
  side: z
    .enum(["input", "output"])
    .describe("Whether the folders of images or those of results are meant"),
  path: z
    .string()
    .max(4096)
    .default("")
    .describe("The first part of a path; without it, the folders that the token may use"),
};
const pathsSchema = z.strictObject(pathsQuery);

/** GET /paths: names that go on from what was typed. */
export const listPaths = endpointByHttp(
  "view",
  z.strictObject({ ...pathsQuery, path: pathsQuery.path.meta({ deprecated: true }) }),
  { PathList: pathListSchema },
  completed,
);

/** POST /paths: the same, and nothing of it stands in an address. */
export const completePath = postedByHttp(
  "view",
  "PathBegin",
  pathsSchema,
  { PathList: pathListSchema },
  completed,
);

async function completed(
  ctx: Context,
  services: Services,
  query: z.infer<typeof pathsSchema>,
): Promise<void> {
  const roots = (await rootsOf(callerOf(ctx), services))[query.side];
  const { path: typed, back } = translateIn(query.path, services.config.path_map);
  ctx.state.action?.note(query.side === "input" ? { inputPath: typed } : { outputPath: typed });
  const folders = roots.map(folderOf);
  // Above the roots nothing is listed but the roots themselves
  const below = folders.filter((folder) => folder.startsWith(typed));
  const answer =
    typed === "" || (below.length > 0 && !folders.some((folder) => typed.startsWith(`${folder}/`)))
      ? { paths: below.map((folder) => ({ path: folder, kind: "folder" as const })), more: false }
      : await namesUnder(typed, roots, query.side);
  ctx.body = {
    ...answer,
    paths: answer.paths.map(({ path: local, kind }) => ({ path: back(local), kind })),
  } satisfies z.infer<typeof pathListSchema>;
}

async function namesUnder(typed: string, roots: readonly Root[], side: "input" | "output") {
  const slash = typed.lastIndexOf("/");
  const [folder, start] = [typed.slice(0, slash + 1), typed.slice(slash + 1)];
  const listed = async (opened: OpenedInput) => {
    const found: z.infer<typeof pathListSchema>["paths"] = [];
    if (opened.kind !== "folder") return { paths: found, more: false };
    let [looked, more] = [0, false];
    for await (const entry of await opendir(opened.fdPath)) {
      looked += 1;
      if (looked > MOST_ENTRIES) {
        more = true;
        break;
      }
      const { name } = entry;
      const hidden = name.startsWith(".") || nameOfHelper(name) !== undefined || isMarkName(name);
      const kind = entry.isDirectory() ? "folder" : entry.isFile() ? "file" : undefined;
      if (!hidden && kind !== undefined && name.startsWith(start))
        found.push({ path: path.posix.join(folder, name), kind });
    }
    found.sort((a, b) => (a.path < b.path ? -1 : 1));
    return { paths: found.slice(0, MOST_NAMES), more: more || found.length > MOST_NAMES };
  };
  return withInput(folder, roots, listed, side);
}
