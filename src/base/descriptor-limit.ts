/**
 * How many files and sockets a process may have open, and how many connections that leaves room
 * for.
 */
import { readFileSync } from "node:fs";
import { ConfigError } from "./errors.js";

/**
 * Descriptors that a serving process has open at rest, with its database's connections and its
 * watched folders.
 */
const AT_REST = 128;
/** Files, folders and locks of the images that one thread works on at once. */
const FOR_A_THREAD = 32;
const FEWEST_CONNECTIONS = 64;

/**
 * The limit of this process (getrlimit(2), RLIMIT_NOFILE), which Node.js raises to the hard one;
 * Infinity for none.
 */
export function descriptorLimit(limits = readFileSync("/proc/self/limits", "utf8")): number {
  const [, soft] = /^Max open files\s+(\S+)/m.exec(limits) ?? [];
  return soft === undefined || soft === "unlimited" ? Number.POSITIVE_INFINITY : Number(soft);
}

/**
 * The HTTP connections that a process with so many threads has descriptors for. Without room for
 * more, a request would fail for the want of one in any place, and a part of the program that could
 * not be loaded then stays away until a restart.
 * @param forGateway descriptors that the port for DICOM may take
 * @throws ConfigError where the limit is too low to serve
 */
export function connectionsWithin(limit: number, threads: number, forGateway = 0): number {
  const most = limit - AT_REST - FOR_A_THREAD * threads - forGateway;
  if (most >= FEWEST_CONNECTIONS) return most;
  throw new ConfigError(
    `Expected a limit of at least ${limit - most + FEWEST_CONNECTIONS} open files for ${threads} threads${forGateway === 0 ? "" : " and the port for DICOM"}; found ${limit}. ` +
      `Raise it (LimitNOFILE= in a unit of systemd, --ulimit nofile= for a container, ulimit -n in a shell), or lower RADSERVE_THREADS${forGateway === 0 ? "" : " or dicom.associations of RADSERVE_GATEWAY"}.`,
  );
}
