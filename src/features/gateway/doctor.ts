/** What doctor looks at of the gateway: its file, its ports and its destinations. */
import { ConfigError } from "../../base/errors.js";
import { bad, good, type Diagnosis } from "../../commands/doctor/finding.js";
import { whyClosed } from "../../commands/doctor/service.js";
import type { Config } from "../../config.js";
import { echo, echoWebhook } from "./echo.js";
import { checkGateway, receives, type GatewaySettings } from "./settings.js";

/**
 * The gateway's file, its folders and certificates, and whether its ports are there.
 */
export async function doctor(config: Config): Promise<Diagnosis[]> {
  try {
    const found = await checkGateway(config);
    if (found === undefined) return [];
    const { rules, destinations } = found;
    const coming = receives(found)
      ? `${found.spool} can be written; rules: ${rules.map(({ name }) => name).join(", ")}`
      : "no images come in";
    const going = Object.keys(destinations).join(", ");
    return [
      good("gateway", going === "" ? coming : `${coming}; destinations: ${going}`),
      ...(await gatewayPorts(found, config)),
      ...(await gatewayDestinations(found)),
      ...(await gatewayWebhooks(found, config)),
    ];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return [bad("gateway", error.message, "Correct the file, or what it names.")];
  }
}

async function gatewayPorts(
  { dicom, destinations }: GatewaySettings,
  config: Config,
): Promise<Diagnosis[]> {
  const ports = [
    { what: "port for DICOM", at: "dicom", address: dicom },
    ...Object.entries(destinations).map(([name, one]) => ({
      what: `port where ${name} calls back`,
      at: `destinations.${name}.listen`,
      address: one.type === "dicom" ? one.listen : undefined,
    })),
  ];
  const findings = ports.map(async ({ what, at, address }): Promise<Diagnosis[]> => {
    if (address === undefined) return [];
    const names = { port: `RADSERVE_GATEWAY: ${at}.port`, host: `RADSERVE_GATEWAY: ${at}.host` };
    const why = await whyClosed(address, config, names);
    if (typeof why === "string")
      return [bad("gateway", why, "Set another there, or stop what has the port.")];
    const where = `${what}, ${address.host}:${address.port}`;
    return [
      good(
        "gateway",
        `${where}${why === undefined ? " is free" : `: this server runs there (process ${why.own})`}`,
      ),
    ];
  });
  return (await Promise.all(findings)).flat();
}

/** The first result finds out otherwise. */
async function gatewayDestinations({ destinations }: GatewaySettings): Promise<Diagnosis[]> {
  const found = Object.entries(destinations).map(async ([name, settings]) => {
    const { ok, found } = await echo(name, settings);
    const what = `destination ${name}: ${found}`;
    return ok
      ? good("gateway", what)
      : bad("gateway", what, "Correct the file, or start the peer and let it know this server.");
  });
  return Promise.all(found);
}

async function gatewayWebhooks(
  { webhooks }: GatewaySettings,
  { node_name: node }: Config,
): Promise<Diagnosis[]> {
  const found = Object.entries(webhooks).map(async ([name, settings]) => {
    const { ok, found } = await echoWebhook(name, settings, node);
    const what = `webhook ${name}: ${found}`;
    return ok
      ? good("gateway", what)
      : bad("gateway", what, "Correct the file, or start the webhook and let it know the secret.");
  });
  return Promise.all(found);
}
