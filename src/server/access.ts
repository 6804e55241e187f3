/** Who may call a route: its token, its rate, and addresses that need none. */
import { BlockList, isIP } from "node:net";
import type { Config } from "../config.js";
import type { Context } from "./handlers.js";
import type { Keyring } from "./keys.js";
import { RateLimit } from "./rate-limit.js";
import type { Route } from "./routes.js";
import { authenticate } from "./tokens.js";

/** True where the connection comes from this machine and no proxy speaks for somebody else. */
function isLocal(ctx: Context, allowed: BlockList): boolean {
  const address = (ctx.req.socket.remoteAddress ?? "").replace(/^::ffff:/, "");
  const family = isIP(address);
  if (family === 0 || ctx.get("X-Forwarded-For") !== "" || ctx.get("Forwarded") !== "") return false;
  return allowed.check(address, family === 6 ? "ipv6" : "ipv4");
}

function allowList(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of ["127.0.0.0/8", "::1", ...networks]) {
    const [address = "", bits] = network.split("/");
    const family = isIP(address) === 6 ? "ipv6" : "ipv4";
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(bits), family);
  }
  return list;
}

export function accessTo({
  config,
  keyring,
}: {
  config: Config;
  keyring: Keyring;
}): (ctx: Context, route: Route) => void {
  const rate = new RateLimit(config.rate_limit);
  const local = allowList(config.metrics_allow);
  return (ctx, route) => {
    if (route.auth === "open" || (route.auth === "local" && isLocal(ctx, local))) return;
    // Node's headers.authorization is the first of several; joined, as RFC 9110, 5.3 reads them, they are no token.
    ctx.state.caller = authenticate(ctx.req.headersDistinct.authorization?.join(","), keyring, config);
    rate.take(ctx.state.caller.subject);
  };
}
