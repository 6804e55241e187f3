/**
 * Checks of what a server shows to the outside: its port, TLS, tokens, and the database of bulk
 * jobs.
 */
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import net from "node:net";
import path from "node:path";
import { durations } from "../../base/durations.js";
import { tried } from "../../base/errno.js";
import { knownNodeId } from "../../files/node-id.js";
import { inspectDatabase, type Queryable } from "../../jobs/database.js";
import { checkTables } from "../../jobs/migrations.js";
import { BulkUnavailable } from "../../jobs/database-trouble.js";
import { databasesOf } from "../../jobs/feature.js";
import { clientSettings, type Config } from "../../config.js";
import { ConfigError, RadserveError } from "../../base/errors.js";
import { holderHere } from "../../files/state-lock.js";
import { expiryWarning, readCertificates } from "../../files/certificates.js";
import type { Key } from "../../files/key-file.js";
import { listen, type ListenAddress } from "../../server/listening.js";
import { isRevoked } from "../../server/token-records.js";
import { authenticate } from "../../server/tokens.js";
import { openClient } from "../client.js";
import type { Feature } from "../feature.js";
import { conditionsOf, warningsOf } from "../status.js";
import { advice, bad, good, type Diagnosis } from "./finding.js";

/** State of a listening socket in /proc/net/tcp (include/net/tcp_states.h). */
const LISTENING = "0A";

/** Inodes of the sockets that listen on a port. */
function listeners(port: number): string[] {
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  return ["/proc/net/tcp", "/proc/net/tcp6"].flatMap((file) => {
    let lines: string[];
    try {
      lines = readFileSync(file, "utf8").split("\n");
    } catch {
      return [];
    }
    const fields = lines.map((line) => line.trim().split(/\s+/));
    return fields
      .filter(([, local, , state]) => local?.endsWith(suffix) === true && state === LISTENING)
      .map((line) => line[9] ?? "");
  });
}

/** Processes that hold one of these sockets, as far as this user may see that. */
function holdersOf(inodes: readonly string[]): number[] {
  const wanted = new Set(inodes.map((inode) => `socket:[${inode}]`));
  const holds = (pid: string) => {
    const open = tried(() => readdirSync(`/proc/${pid}/fd`)) ?? [];
    return open.some((fd) => wanted.has(tried(() => readlinkSync(`/proc/${pid}/fd/${fd}`)) ?? ""));
  };
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && holds(name))
    .map(Number);
}

/** The port for DICOM is the serving process's, which is the supervisor's child. */
function childrenOf(pid: number): number[] {
  const children = tried(() => readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8")) ?? "";
  return children.split(" ").map(Number);
}

function nameOfProcess(pid: number): string {
  try {
    // Not /proc/PID/comm, which for Node.js 24 is the name of its main thread
    return `process ${pid}, ${path.basename(readlinkSync(`/proc/${pid}/exe`))}`;
  } catch {
    return `process ${pid}`;
  }
}

/**
 * Why a server could not listen there; undefined where it could, and the process where a running
 * server of this state directory does.
 */
export async function whyClosed(
  address: ListenAddress,
  config: Config,
  names?: Parameters<typeof listen>[2],
): Promise<{ own: number } | string | undefined> {
  const server = net.createServer();
  try {
    await listen(server, address, names);
    return undefined;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const own = holderHere(config.state_dir);
    const holders = holdersOf(listeners(address.port));
    const ours = own === undefined ? [] : [own, ...childrenOf(own)];
    if (own !== undefined && (holders.length === 0 || holders.some((pid) => ours.includes(pid))))
      return { own };
    const who = holders.length === 0 ? "" : ` Held by ${holders.map(nameOfProcess).join(" and ")}.`;
    return `${error.message}${who}`;
  } finally {
    server.close();
  }
}

export async function port(config: Config): Promise<Diagnosis[]> {
  const where = `${config.host}:${config.port}`;
  const why = await whyClosed(config, config);
  if (typeof why === "string")
    return [
      bad("port", why, "Set another RADSERVE_PORT or RADSERVE_HOST, or stop what has the port."),
    ];
  if (why !== undefined)
    return [good("port", `${where}: this server runs there (process ${why.own})`)];
  return [good("port", config.port === 0 ? `${config.host}, any free one` : `${where} is free`)];
}

export async function certificates(config: Config): Promise<Diagnosis[]> {
  try {
    const found = await readCertificates(config);
    if (found === undefined) return [good("TLS", "off (RADSERVE_TLS_CERT is not set)")];
    return found.validities.map((expiry) => {
      const name = expiry.certificate === "server" ? "certificate" : "client CA";
      const warning = expiryWarning(expiry);
      return warning === undefined
        ? good(name, `valid until ${expiry.at.toISOString()}`)
        : bad(name, warning, "Replace the file; a running server reads it within seconds.");
    });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return [bad("certificate", error.message, "Correct the file or the setting.")];
  }
}

/** The token of client commands, where one is set, as this server would judge it. */
export function token(config: Config, keys: readonly Key[]): Diagnosis[] {
  const { token: given } = clientSettings(config);
  if (given === undefined) return [];
  const again = "Make one with radserve token issue, and set RADSERVE_TOKEN.";
  const keyring = {
    keys: () => keys,
    isRevoked: (jti: string) => isRevoked(config.keys_dir, jti),
    listsRevoked: () => true,
  };
  try {
    const { subject } = authenticate(given, keyring, config);
    return [good("token", `of ${subject}`)];
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    const { cause } = error;
    const why = cause instanceof Error && cause.message !== "" ? ` (${cause.message})` : "";
    // A client may talk to another server, whose keys are not here.
    return error.message === "Token expired"
      ? [bad("token", "RADSERVE_TOKEN: Token expired", again)]
      : [
          advice(
            "token",
            `RADSERVE_TOKEN: ${error.message}${why}, by the keys of this machine`,
            again,
          ),
        ];
  }
}

export async function bulkDatabase(
  config: Config,
  features: readonly Feature[],
): Promise<Diagnosis[]> {
  const forJobs = await Promise.all(features.flatMap((feature) => feature.jobs?.() ?? []));
  try {
    const node = await knownNodeId(config.state_dir).catch(() => undefined);
    const look = (client: Queryable) => checkTables(client, node);
    const found = await inspectDatabase(config, look, databasesOf(forJobs));
    return [good("bulk database", found)];
  } catch (error) {
    if (!(error instanceof BulkUnavailable)) throw error;
    return [bad("bulk database", error.found, error.fix)];
  }
}

/** The conditions that the running server of this state directory tells; none if no server runs. */
export async function runningServer(config: Config): Promise<Diagnosis[]> {
  if (holderHere(config.state_dir) === undefined) return [];
  const client = openClient(config, { withinMs: durations.commandAnswer });
  try {
    const { body } = await client.send("GET", "/health/ready");
    const found = conditionsOf(body);
    const warned = warningsOf(body).map(({ condition, message, remedy }) =>
      advice("server", `${condition}: ${message}`, remedy),
    );
    return found.length === 0
      ? [good("server", `${client.url} reports no problem`), ...warned]
      : [
          ...found.map(({ condition, message, remedy }) =>
            bad("server", `${condition}: ${message}`, remedy),
          ),
          ...warned,
        ];
  } catch (error) {
    if (!(error instanceof RadserveError)) throw error;
    // Its lock is held, so that it runs
    return client.isLate
      ? [bad("server", error.message, "Restart it, when what holds it is mended.")]
      : [advice("server", error.message, "Set RADSERVE_URL to ask it what is wrong.")];
  }
}
