/**
 * Results and their images for people who look at them on the page, how models do over time, and
 * completion of paths: off unless the settings allow it, inside the roots of the token, and written
 * down in the audit. Reading is done by threads apart.
 */
import { opendir } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import { errors } from "../../base/errors.js";
import { isMarkName } from "../../files/folder-mark.js";
import { withInput, type OpenedInput } from "../../files/guarded-paths.js";
import { nameOfHelper } from "../../files/helper-names.js";
import { translateIn } from "../../files/path-map.js";
import { folderOf, type Root } from "../../files/roots.js";
import { clientPath } from "../../inference/request.js";
import { ModelSharer } from "../../models/shared.js";
import { listedSchema } from "../../results/list/list.js";
import { receiptSchema, type Receipt } from "../../results/receipt/receipt.js";
import {
  frameFactsSchema,
  marksSchema,
  verificationSchema,
  type Marks,
  type Verification,
  type View,
} from "./messages.js";
import { VIEWER } from "./running.js";
import { callerOf, pageByHttp, rootsOf } from "../../server/handlers.js";
import { type Context, type Services } from "../../server/services.js";

const MOST_NAMES = 50;
/** Entries of a folder that are looked at for names to offer. */
const MOST_ENTRIES = 20_000;

const receiptPath = clientPath.describe("Path of a receipt: `receipt_path` of the answer");
const inputPath = clientPath.describe("Path of the image or folder that was analysed");
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

async function ask<T>(ctx: Context, services: Services, view: View): Promise<T> {
  const viewer = services.features.of(VIEWER);
  if (viewer === undefined) throw errors.not_found("This server shows no results.");
  const left = () => ctx.req.socket.destroyed;
  return (await viewer.service.ask(view, callerOf(ctx).subject, left)) as T;
}

/** The paths of a result on this machine, and the folders that the caller may see. */
async function lookedAt(
  ctx: Context,
  services: Services,
  query: { path: string; input_path?: string | undefined },
) {
  const { path_map } = services.config;
  const receipt = translateIn(query.path, path_map).path;
  const input =
    query.input_path === undefined ? undefined : translateIn(query.input_path, path_map).path;
  ctx.state.action?.note({
    outputPath: receipt,
    ...(input === undefined ? {} : { inputPath: input }),
  });
  return { receiptPath: receipt, input, roots: await rootsOf(callerOf(ctx), services) };
}

const ACROSS_MEANING =
  "For a volume, the plane through one row or one column of every slice; `frame` is then the " +
  "number of that row or column, from 1";

const across = z.enum(["row", "column"]).optional().describe(ACROSS_MEANING);

const ofFrame = z.strictObject({ path: receiptPath, input_path: inputPath, frame, across });

/** Something of a frame of the image that a result is of. */
async function askOfFrame(
  kind: "picture" | "frame",
  ctx: Context,
  services: Services,
  query: z.infer<typeof ofFrame> & { model?: string | undefined },
): Promise<Buffer> {
  const { receiptPath, roots, input = "" } = await lookedAt(ctx, services, query);
  const { frame, across, model } = query;
  const view = { kind, receiptPath, inputPath: input, frame, across, model, roots };
  const { buffer, byteOffset, byteLength } = await ask<Uint8Array>(ctx, services, view);
  return Buffer.from(buffer, byteOffset, byteLength);
}

/** GET /results: the receipt. */
export const showResult = pageByHttp(
  "view",
  z.strictObject({ path: receiptPath }),
  { Receipt: receiptSchema },
  async (ctx, services, query) => {
    const { receiptPath, roots } = await lookedAt(ctx, services, query);
    const receipt = await ask<Receipt>(ctx, services, { kind: "receipt", receiptPath, roots });
    ctx.state.action?.wasOf({ studyInstanceUid: receipt.source.study_instance_uid });
    ctx.body = receipt;
  },
);

/**
 * GET /results/picture: a frame of its image, a PNG. It goes by the type of a file, which
 * generators of clients know, and which no browser shows as a page.
 */
export const showPicture = pageByHttp(
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
export const showFrame = pageByHttp(
  "view",
  ofFrame,
  { Frame: frameFactsSchema },
  async (ctx, services, query) => {
    ctx.type = "json";
    ctx.body = await askOfFrame("frame", ctx, services, query);
  },
);

/** GET /results/marks: what a model marked on a frame. */
export const showMarks = pageByHttp(
  "view",
  z.strictObject({
    path: receiptPath,
    model: z.string().min(1).max(200).describe("A model of the receipt that wrote a segmentation"),
    input_path: inputPath.optional().describe("Path of the image or folder; needed with `across`"),
    frame,
    across,
    fullest: z
      .string()
      .max(64)
      .optional()
      .describe("A label: the frame with the most of it is meant"),
  }),
  { Marks: marksSchema },
  async (ctx, services, query) => {
    const { receiptPath, roots, input: inputPath = "" } = await lookedAt(ctx, services, query);
    const { model, frame, across, fullest } = query;
    if (across !== undefined && inputPath === "")
      throw errors.bad_request("Expected input_path beside across; found none.");
    const view = {
      kind: "marks",
      receiptPath,
      inputPath,
      model,
      frame,
      fullest,
      across,
      roots,
    } as const;
    ctx.body = await ask<Marks>(ctx, services, view);
  },
);

/** GET /results/verification: whether it is as it was written, computed again. */
export const showVerification = pageByHttp(
  "view",
  z.strictObject({
    path: receiptPath,
    input_path: inputPath
      .optional()
      .describe("Path of the image or folder; without it nothing is computed again"),
  }),
  { Verification: verificationSchema },
  async (ctx, services, query) => {
    const { receiptPath, roots, input: inputPath } = await lookedAt(ctx, services, query);
    const models = sharer.share(services.models.entries);
    ctx.body = await ask<Verification>(ctx, services, {
      kind: "verify",
      receiptPath,
      inputPath,
      models,
      roots,
    });
  },
);

/** GET /results/list: the results that were written here, the latest first. */
export const listResults = pageByHttp(
  "view",
  z.strictObject({
    model: z.string().max(200).optional().describe("Name of a model that accepted the image"),
    finding: z.string().max(200).optional().describe("A label that is present"),
    status: z.enum(["completed", "partial"]).optional().describe("Status of the result"),
    modality: z.string().max(16).optional().describe("Modality of the image, for example CT"),
    text: z
      .string()
      .max(200)
      .optional()
      .describe(
        "Part of the path of the receipt or the image, or a whole Study or Series Instance UID",
      ),
    patient: z
      .string()
      .max(64)
      .optional()
      .describe("PatientID; finds only results that this box wrote"),
    from: z.iso.date().optional().describe("UTC"),
    to: z.iso.date().optional().describe("UTC; the day is included"),
    limit: z.coerce.number().int().min(1).max(200).default(50).describe("Results of a page"),
    cursor: z.string().max(64).optional().describe("`next_cursor` of the page before"),
  }),
  { ResultList: listedSchema },
  async (ctx, services, { limit, cursor, patient, to, ...wanted }) => {
    const { output } = await rootsOf(callerOf(ctx), services);
    if (patient !== undefined) ctx.state.action?.wasOf({ patientId: patient });
    ctx.body = await ask<z.infer<typeof listedSchema>>(ctx, services, {
      kind: "list",
      roots: services.roots.output,
      folders: output.map(folderOf),
      wanted: {
        ...wanted,
        patient: patient === undefined ? undefined : services.audit.hash("patient", patient),
        to: to === undefined ? undefined : `${to}T24`,
      },
      limit,
      cursor,
    });
  },
);

/** GET /paths: names that go on from what was typed. */
export const listPaths = pageByHttp(
  "view",
  z.strictObject({
    side: z
      .enum(["input", "output"])
      .describe("Whether the folders of images or those of results are meant"),
    path: z
      .string()
      .max(4096)
      .default("")
      .describe("The first part of a path; without it, the folders that the token may use"),
  }),
  { PathList: pathListSchema },
  async (ctx, services, query) => {
    const roots = (await rootsOf(callerOf(ctx), services))[query.side];
    const { path: typed, back } = translateIn(query.path, services.config.path_map);
    ctx.state.action?.note(query.side === "input" ? { inputPath: typed } : { outputPath: typed });
    const folders = roots.map(folderOf);
    // Above the roots nothing is listed but the roots themselves
    const below = folders.filter((folder) => folder.startsWith(typed));
    const answer =
      typed === "" ||
      (below.length > 0 && !folders.some((folder) => typed.startsWith(`${folder}/`)))
        ? { paths: below.map((folder) => ({ path: folder, kind: "folder" as const })), more: false }
        : await namesUnder(typed, roots, query.side);
    ctx.body = {
      ...answer,
      paths: answer.paths.map(({ path: local, kind }) => ({ path: back(local), kind })),
    } satisfies z.infer<typeof pathListSchema>;
  },
);

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
