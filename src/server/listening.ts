/** The one place that listens: for `radserve serve`, and for the look of `radserve doctor`. */
import type net from "node:net";
import type { Config } from "../config.js";
import { ConfigError, PassingFault } from "../base/errors.js";

export type ListenAddress = Pick<Config, "host" | "port">;

/** What the settings call an address. */
const SERVER = { port: "RADSERVE_PORT", host: "RADSERVE_HOST" };

function whyNotListening(
  code: string,
  { host, port }: ListenAddress,
  names: typeof SERVER,
): string {
  if (code === "EADDRINUSE")
    return `${names.port}: cannot listen on ${host}:${port}; another program listens there.`;
  if (code === "EACCES")
    return `${names.port}: cannot listen on ${host}:${port}; this user may not. Use a port from 1024 on, or allow CAP_NET_BIND_SERVICE.`;
  return `${names.host}: expected an address or a name of this machine; found ${host}, where it cannot listen (${code}).`;
}

/** Another program may end, and the address of a network come up. */
const LATER: ReadonlySet<string> = new Set(["EADDRINUSE", "EADDRNOTAVAIL"]);

/** Listens where the settings say. Throws ConfigError that names the setting and why it cannot. */
export function listen(
  server: net.Server,
  config: ListenAddress,
  names = SERVER,
): Promise<net.AddressInfo> {
  return new Promise((resolve, reject) => {
    server.once("error", (error: Error & { code?: string }) => {
      const code = error.code ?? error.message;
      const Refusal = LATER.has(code) ? PassingFault : ConfigError;
      reject(new Refusal(whyNotListening(code, config, names)));
    });
    server.listen({ port: config.port, host: config.host, backlog: 1024 }, () => {
      const address = server.address();
      if (address === null || typeof address === "string")
        reject(new Error("Expected a TCP address."));
      else resolve(address);
    });
  });
}
