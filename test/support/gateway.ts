/** A server with a gateway, peers that send to it, and the objects that they send. */
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import { errno } from "../../src/base/errno.js";
import {
  call,
  type CallingAssociation,
  type AssociationOptions,
} from "../../src/features/gateway/dimse/requestor.js";
import { GATEWAY_SUBJECT } from "../../src/features/gateway/subject.js";
import { fileHead } from "../../src/results/dicom/elements.js";
import { jobListSchema, type Job } from "../../src/jobs/schema.js";
import { bulkOf, bulkPlace, type Bulk } from "./bulk.js";
import { withDurations } from "./durations.js";
import { CT, EXPLICIT } from "./dicom.js";
import { slice } from "./series.js";
import { issueToken, startServer, type Place } from "./server.js";
import { LONGEST_WAIT_MS, until } from "./until.js";

export const STUDY = "1.2.3";

/** Short enough that nobody waits. Objects of one association may come later on a busy machine. */
export const QUIET = "1s";

/**
 * A place whose server has a gateway, and the folders of its spool and results. @param change of
 * the gateway's file
 */
export function gatewayPlace(t: Test, change: object = {}, extra: Record<string, string> = {}) {
  const place = bulkPlace(t, {
    ...withDurations({
      gatewayRetry: 200,
      gatewayRetryMost: 500,
      gatewayFigures: 50,
      spoolLook: 1_000,
    }),
    ...extra,
  });
  const [spool, results] = [path.join(place.input, "spool"), path.join(place.output, "received")];
  mkdirSync(spool, { recursive: true });
  const file = path.join(place.directory, "gateway.json");
  place.environment["RADSERVE_GATEWAY"] = file;
  const gateway = {
    spool,
    dicom: { port: 0 },
    peers: { ct1: { ae_title: "CT ONE" } },
    rules: [{ name: "all", quiet: QUIET, resend: QUIET, output_folder: results }],
    ...change,
  };
  writeFileSync(file, JSON.stringify(gateway).replaceAll('"OUT"', JSON.stringify(results)));
  return { place, spool, results, file };
}

/** The server of a place, and the port that it opened for DICOM. */
export async function startGateway(
  t: Test,
  place: Place,
  listens = true,
): Promise<Bulk & { port: () => number }> {
  const server = await startServer(place);
  t.teardown(() => server.stop());
  // Whose jobs they are
  server.token = await issueToken(place, "--subject", GATEWAY_SUBJECT);
  const isPort = ({ msg }: { msg: string }) => msg === "the port for DICOM is open";
  if (listens) await server.logged(isPort);
  // The last, because one that was killed opened another
  return { ...bulkOf(server), port: () => Number(server.log.findLast(isPort)?.["port"]) };
}

/** An association of the peer ct1. */
export const associate = (
  port: number,
  more: Partial<AssociationOptions> = {},
  tls?: object,
): Promise<CallingAssociation> =>
  call(
    { host: "127.0.0.1", port, ...(tls === undefined ? {} : { tls }) },
    {
      mostData: 16_384,
      pduTimeout: LONGEST_WAIT_MS,
      idleTimeout: LONGEST_WAIT_MS,
      callingAe: "CT ONE",
      calledAe: "RADSERVE",
      contexts: [{ abstractSyntax: CT, transferSyntaxes: [EXPLICIT] }],
      ...more,
    },
  );

/** A slice as a file, and as an object to be sent. @param fill the value of its pixels */
export function object(z: number, attributes: Record<string, string> = {}, fill = z) {
  const dataSet = slice({ z, fill, attributes, preamble: false, meta: false });
  const names = {
    sopClassUid: attributes["SOPClassUID"] ?? CT,
    sopInstanceUid: attributes["SOPInstanceUID"] ?? instanceAt(z),
    transferSyntax: EXPLICIT,
  };
  const head = fileHead(names.sopClassUid, names.sopInstanceUid, names.transferSyntax);
  return { ...names, file: Buffer.concat([head, dataSet]), dataSet: [dataSet] };
}

/** As `slice` names it. */
export const instanceAt = (z: number) => `1.2.3.4.${Math.round(z * 1000) + 100_000}`;

/** Sends slices over one association, each of which must be kept. */
export async function send(
  port: number,
  slices: readonly ReturnType<typeof object>[],
): Promise<void> {
  const caller = await associate(port);
  for (const one of slices) {
    const { status } = await caller.store(one);
    if (status !== 0) throw new Error(`The status is ${status}`);
  }
  await caller.release();
}

/** The jobs of received images, once there are so many; the newest first. */
export async function jobsOnce({ send }: Pick<Bulk, "send">, count: number): Promise<Job[]> {
  return until(`${count} jobs are listed`, async () => {
    const { status, body } = await send("GET", "/bulk_inference");
    // Its database may still be starting
    if (status === 503) return false;
    const { jobs } = jobListSchema.parse(body);
    return jobs.length >= count && jobs;
  });
}

/** All files below a folder, by their paths in it. */
export function filesBelow(folder: string): string[] {
  const below = (at: string): string[] => {
    let entries;
    try {
      entries = readdirSync(path.join(folder, at), { withFileTypes: true });
    } catch (error) {
      // A server that removes folders meanwhile
      if (at !== "" && errno(error) === "ENOENT") return [];
      throw error;
    }
    return entries.flatMap((entry) => {
      const name = path.join(at, entry.name);
      return entry.isDirectory() ? below(name) : entry.isFile() ? [name] : [];
    });
  };
  return below("").sort();
}
