/**
 * Images in and results out over HTTP, for clients that do not have the shared folders: off unless
 * the settings allow it, inside the roots of the token, and written down in the audit. What is
 * given is a stranger's bytes to a browser: it is always an attachment, of a type that no browser
 * runs.
 */
import { closeSync, constants, createReadStream, fstatSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import path from "node:path";
import { z } from "zod";
import { errors } from "../base/errors.js";
import { count } from "../base/table.js";
import { openDescriptor } from "../files/disk.js";
import { bytesOfDisk, hashOpen, requireRoom } from "../files/durable-files.js";
import { isInSpool, isMarkName } from "../files/folder-mark.js";
import { openInput, openOutputFolder, type OpenedPath } from "../files/guarded-paths.js";
import { LIST_FOLDER, nameOfHelper } from "../files/helper-names.js";
import { receiveFile, tooLarge } from "../files/new-file.js";
import { translateIn } from "../files/path-map.js";
import { isInside, type Root } from "../files/roots.js";
import { requireFormat, SNIFF_BYTES } from "../images/read-image.js";
import { clientPath } from "../inference/request.js";
import { hasAlready } from "./held.js";
import { parseBody } from "../base/json-body.js";
import { macOf, nameOfReceipt } from "../results/receipt/read-receipt.js";
import { callerOf, endpointByHttp, rootsOf } from "./handlers.js";
import { type Context, type Services } from "./services.js";

/** A client that sends nothing of a file for so long has gone. */
const LONGEST_SILENCE_MS = 60_000;
const SENT_AT_ONCE = 256 * 1024;
const sha256 = z.string().regex(/^[0-9a-f]{64}$/, "Expected a SHA-256 in 64 hexadecimal digits");

/**
 * In a query bytes that are no UTF-8 become U+FFFD, and the names of two files could become one.
 */
const filePath = clientPath.refine(
  (given) => !given.includes("\ufffd"),
  "Expected UTF-8, percent-encoded; found bytes that are none, or U+FFFD",
);

/** A path in a header: addresses are kept by browsers and proxies. */
const PATH_HEADER = "Radserve-Path";
export const pathHeader = {
  [PATH_HEADER]: "The path, percent-encoded as in an address, instead of `path`",
};
const pathInAddress = (what: string) =>
  filePath.optional().describe(`${what}; deprecated: Radserve-Path`).meta({ deprecated: true });

/** @throws RadserveError bad_request where it stands nowhere, or twice */
function pathOf(ctx: Context, inAddress: string | undefined): string {
  const given = ctx.get(PATH_HEADER);
  if ((given === "") === (inAddress === undefined))
    throw errors.bad_request(
      `Expected the path in the header ${PATH_HEADER}, or in the query as path; found ${given === "" ? "none" : "both"}.`,
    );
  if (inAddress !== undefined) return inAddress;
  let decoded = "\ufffd";
  try {
    decoded = decodeURIComponent(given);
  } catch {
    // No UTF-8, which the schema tells
  }
  return parseBody(z.strictObject({ path: filePath }), { path: decoded }).path;
}

const uploadQuerySchema = z.strictObject({
  path: pathInAddress(
    "Path of the new file in an input folder; folders that are missing are created",
  ),
  overwrite: z
    .enum(["true", "false"])
    .default("false")
    .describe("true: replaces a file of that name; else one with other bytes is 409 file_exists"),
  sha256: sha256
    .optional()
    .describe("SHA-256 of the file; one that came with other bytes is refused"),
});
const downloadQuerySchema = z.strictObject({
  path: pathInAddress("A file in an output folder, as `receipt_path` and `outputs` name it"),
  sha256: sha256
    .optional()
    .describe("SHA-256 of the file that is meant: where another lies there, 409 result_changed"),
  mac: sha256
    .optional()
    .describe("The same for a receipt: `mac.hmac_sha256` of the one that is meant"),
});
export const uploadedSchema = z.object({
  path: z.string(),
  bytes: z.int(),
  sha256: z.string().describe("SHA-256 of the bytes on the disk, in hexadecimal"),
  outcome: z
    .enum(["created", "replaced", "same"])
    .describe("replaced: another file was there; same: these bytes were there already"),
});

/** PUT /files: the body becomes a file of an input folder. */
export const upload = endpointByHttp(
  "upload",
  uploadQuerySchema,
  { Uploaded: uploadedSchema },
  async (ctx, services, query) => {
    const { config } = services;
    const named = pathOf(ctx, query.path);
    const target = translateIn(named, config.path_map).path;
    ctx.state.action?.note({ inputPath: target });
    const name = path.posix.basename(target);
    checkHeaders(ctx, config.upload_limit);
    checkName(target, name);
    const roots = await rootsOf(callerOf(ctx), services);
    const made = await uploadFolder(path.posix.dirname(target), roots.input, services);
    try {
      // A file that no time and no cleaning up makes fit is the client's to mend
      const room = (await bytesOfDisk(made.fdPath)) - config.minimum_free_disk;
      const mostBytes = Math.max(0, Math.min(config.upload_limit, room));
      if (lengthOf(ctx) > mostBytes) throw tooLarge(mostBytes);
      await requireRoom(made.fdPath, config.minimum_free_disk + lengthOf(ctx), "input");
      const file = await receiveFile(made.fdPath, name, ofImage(piecesOf(ctx.req)), {
        overwrite: query.overwrite === "true",
        mostBytes,
        minimumFreeBytes: config.minimum_free_disk,
        check: (content) => {
          if (query.sha256 !== undefined && query.sha256 !== content.sha256())
            throw errors.bad_request(
              "Expected the bytes that sha256 names; other bytes came. Nothing was written; send the file again.",
            );
        },
      });
      ctx.state.action?.note({ bytes: file.bytes, sha256: file.sha256 });
      ctx.status = file.outcome === "created" ? 201 : 200;
      const { outcome, bytes, sha256 } = file;
      ctx.body = { path: named, bytes, sha256, outcome } satisfies z.infer<typeof uploadedSchema>;
    } finally {
      made.close();
    }
  },
);

/**
 * The folder that a file goes to, made where it is missing; never one of results, where whoever
 * could write could forge a receipt or exchange a result; nor one of the spool, where a name says
 * which peer an object is of.
 */
async function uploadFolder(
  given: string,
  roots: readonly Root[] | undefined,
  {
    config: { minimum_free_disk: minimumFreeBytes },
    roots: { output },
    features: { spool },
  }: Services,
): Promise<OpenedPath> {
  const options = { side: "input", minimumFreeBytes } as const;
  const refuse = async ({ realPath }: OpenedPath) => {
    if (isInside(realPath, output))
      throw errors.path_not_allowed(
        "Expected an input folder outside all output folders; found one where results lie. Upload into another, or set RADSERVE_OUTPUT_ROOTS to folders outside the input roots.",
        { side: "input", reason: "output_root" },
      );
    // A node without the gateway may share the folder
    if ((spool !== undefined && isInside(realPath, [spool])) || (await isInSpool(realPath)))
      throw errors.path_not_allowed(
        "Expected a folder outside the spool of the gateway; found one in it. Send images there by POST /dicomweb/studies or C-STORE.",
        { side: "input", reason: "spool" },
      );
  };
  // A refused upload makes no folder
  const nearest = await openOutputFolder(given, roots, { ...options, create: false });
  nearest.close();
  await refuse(nearest);
  const folder = await openOutputFolder(given, roots, options);
  try {
    await refuse(folder);
  } catch (error) {
    folder.close();
    throw error;
  }
  return folder;
}

/** The bytes that are announced; 0 where none are. */
const lengthOf = (ctx: Context) => Number(ctx.get("Content-Length"));

function checkHeaders(ctx: Context, limit: number): void {
  // RFC 9110, 14.5: a part of a file that a server does not know to be a part would be taken for
  // the whole
  if (ctx.get("Content-Range") !== "")
    throw errors.bad_request("Expected a whole file; found a part of one (Content-Range).");
  if (!["", "identity"].includes(ctx.get("Content-Encoding")))
    throw errors.bad_request(
      "Expected the bytes of the file as they are; found a Content-Encoding.",
    );
  if (lengthOf(ctx) > limit) throw tooLarge(limit);
}

/**
 * Throws bad_request where the path names no file, or one of those that Radserve itself makes
 * beside results.
 */
function checkName(target: string, name: string): void {
  if (target.endsWith("/") || name === "" || name === "." || name === "..")
    throw errors.bad_request("Expected path to name a file; found the name of a folder.");
  // In folders of such names too: a scan passes them over
  const isOwn = (part: string) =>
    nameOfHelper(part) !== undefined || part.toLowerCase().startsWith(".radserve-");
  if (target.split("/").some(isOwn))
    throw errors.bad_request(
      "Expected a path without names of the form .NAME.radserve, .NAME.lock or .radserve-...: Radserve uses these itself.",
    );
  if (Buffer.byteLength(name) > 255)
    throw errors.bad_request("Expected a file name of at most 255 bytes; found a longer one.");
}

/** The body of an upload, piece by piece. Throws cancelled where it goes away or falls silent. */
export async function* piecesOf(request: IncomingMessage): AsyncGenerator<Buffer> {
  const silence = setTimeout(() => request.destroy(), LONGEST_SILENCE_MS);
  try {
    // The answer still has to go over the connection if the rest is not wanted
    for await (const piece of request.iterator({
      destroyOnReturn: false,
    }) as AsyncIterable<Buffer>) {
      silence.refresh();
      yield piece;
    }
  } catch (error) {
    if (request.destroyed && !request.complete)
      throw errors.cancelled("The client has gone.", undefined, { cause: error });
    throw error;
  } finally {
    clearTimeout(silence);
  }
  if (!request.complete) throw errors.cancelled("The client has gone.");
}

/**
 * The pieces of what begins as an image does. Throws unsupported_format before the first goes on.
 */
async function* ofImage(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let head: Buffer | undefined = Buffer.alloc(0);
  for await (const piece of pieces) {
    head = head && Buffer.concat([head, piece]);
    if (head !== undefined && head.length < SNIFF_BYTES) continue;
    if (head !== undefined) requireFormat(head);
    yield head ?? piece;
    head = undefined;
  }
  if (head === undefined) return;
  requireFormat(head);
  yield head;
}

const TYPES: Readonly<Record<string, string>> = {
  ".dcm": "application/dicom",
  ".json": "application/json",
  ".png": "image/png",
};

/** GET /files: a file of an output folder. */
export const download = endpointByHttp(
  "download",
  downloadQuerySchema,
  "application/octet-stream",
  async (ctx, services, query) => {
    const target = translateIn(pathOf(ctx, query.path), services.config.path_map).path;
    ctx.state.action?.note({ outputPath: target });
    const roots = await rootsOf(callerOf(ctx), services);
    const opened = await openInput(target, roots.output, [], undefined, "output");
    let fd;
    try {
      if (opened.kind !== "file" || isHidden(opened.realPath))
        throw errors.file_not_found(
          `Expected the name of a file; found ${opened.kind === "file" ? "one that is being written" : "a folder"}.`,
        );
      // The stream closes what it reads from
      fd = await openDescriptor(opened.fdPath, constants.O_RDONLY);
    } finally {
      opened.close();
    }
    await requireMeant(fd, opened.name, query);
    give(ctx, fd, opened.name);
  },
);

/**
 * A newer result has files of the same names. Closes the descriptor where it throws.
 * @throws RadserveError result_changed
 */
async function requireMeant(
  fd: number,
  name: string,
  { sha256, mac }: z.infer<typeof downloadQuerySchema>,
): Promise<void> {
  try {
    const isMeant =
      (sha256 === undefined || (await hashOpen(fd, fstatSync(fd))) === sha256) &&
      (mac === undefined || (await macOf(fd, nameOfReceipt(name))) === mac);
    if (!isMeant)
      throw errors.result_changed(
        "The result was replaced since it was opened, or this file of it was changed. Load it again.",
        { reason: "replaced" },
      );
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** Files of staging folders and files that help to make results are not given out. */
function isHidden(realPath: string): boolean {
  return realPath
    .split("/")
    .some((part) => part === LIST_FOLDER || nameOfHelper(part) !== undefined || isMarkName(part));
}

/** Answers with the bytes of an open file; from here on the stream owns the descriptor. */
function give(ctx: Context, fd: number, name: string): void {
  const { size, mtimeNs, ctimeNs, ino } = fstatSync(fd, { bigint: true });
  const length = Number(size);
  const etag = `"${[size, ino, mtimeNs, ctimeNs].map((part) => part.toString(36)).join("-")}"`;
  ctx.set({
    ETag: etag,
    "Accept-Ranges": "bytes",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
  });
  ctx.status = 200;
  if (hasAlready(ctx, etag)) {
    closeSync(fd);
    ctx.status = 304;
    return;
  }
  const range = rangeOf(ctx, etag, length);
  if (range === "outside") {
    closeSync(fd);
    ctx.set("Content-Range", `bytes */${length}`);
    throw errors.range_not_satisfiable(
      `Expected a range that begins inside the file; the file has ${count(length)} bytes.`,
      { bytes: length },
    );
  }
  const { first, last } = range ?? { first: 0, last: length - 1 };
  // No more than what is promised, though the file may grow
  ctx.body = createReadStream("", {
    fd,
    start: first,
    end: Math.max(last, 0),
    highWaterMark: SENT_AT_ONCE,
  });
  ctx.attachment(name);
  ctx.type = TYPES[path.extname(name).toLowerCase()] ?? "application/octet-stream";
  ctx.length = last - first + 1;
  if (range === undefined) return;
  ctx.status = 206;
  ctx.set("Content-Range", `bytes ${first}-${last}/${length}`);
}

/**
 * The range of RFC 9110, 14.1.2 that is asked for, both ends inclusive; "outside" where the file
 * has nothing of it. Undefined where the whole file is the answer: no range, several, or one of
 * another file (If-Range).
 */
function rangeOf(
  ctx: Context,
  etag: string,
  length: number,
): { first: number; last: number } | "outside" | undefined {
  const [, from = "", to = ""] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(ctx.get("Range")) ?? [];
  const condition = ctx.get("If-Range");
  if ((from === "" && to === "") || (condition !== "" && condition !== etag)) return undefined;
  if (from === "") {
    const count = Math.min(Number(to), length);
    return count === 0 ? "outside" : { first: length - count, last: length - 1 };
  }
  const first = Number(from);
  const last = to === "" ? length - 1 : Math.min(Number(to), length - 1);
  // RFC 9110, 14.1.1: a range whose end is before its begin is none
  if (to !== "" && Number(to) < first) return undefined;
  return first < length ? { first, last } : "outside";
}
