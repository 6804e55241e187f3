/**
 * Connections without an association from many addresses of one IPv6 network, which one client can
 * have. They need a network namespace of their own, with addresses that this machine does not have.
 */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { connect, createServer, type AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import t from "tap";
import { Admission } from "../../../../src/features/gateway/dimse/admission.js";
import { until } from "../../../support/until.js";

const FILE = fileURLToPath(import.meta.url);
const INSIDE = "inside";
const MOST = 8;
const APART = ["unshare", "--map-root-user", "--net", "sh", "-c"];
const UP =
  "ip link set lo up && ip -6 route add local fd00::/16 dev lo && echo 1 > /proc/sys/net/ipv6/ip_nonlocal_bind";

/** Prints whether the client that came first was closed, and how many strangers are left. */
async function strangersOfOneNetwork(): Promise<void> {
  const admission = new Admission([{ name: "roaming", networks: undefined }], MOST);
  let came = 0;
  const server = createServer((one) => {
    one.on("error", () => undefined);
    admission.admit(one);
    came += 1;
  });
  server.listen(0, "::");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const from = (localAddress: string) =>
    connect({ port, host: "fd00::1", localAddress }).on("error", () => undefined);
  const all = [from("fd00:2::1")];
  await until("the first has come", () => came === 1, setImmediate);
  for (let i = 1; i <= 4 * MOST; i++) all.push(from(`fd00:1::${i}`));
  await until("all have come", () => came === all.length, setImmediate);
  const isFirstThere = admission.silent.some(({ remoteAddress }) => remoteAddress === "fd00:2::1");
  process.stdout.write(JSON.stringify({ isFirstThere, left: admission.silent.length }));
  for (const one of [...all, ...admission.silent]) one.destroy();
  server.close();
}

function hasNamespaces(): boolean {
  try {
    execFileSync(APART[0] ?? "", [...APART.slice(1), UP], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

if (process.argv[2] === INSIDE) await strangersOfOneNetwork();
else
  await t.test(
    "one IPv6 network is one address",
    { skip: hasNamespaces() ? false : "no network namespaces here" },
    (t) => {
      const [command = "", ...rest] = APART;
      const text = execFileSync(command, [
        ...rest,
        `${UP} && exec "$0" "$1" ${INSIDE}`,
        process.execPath,
        FILE,
      ]);
      t.same(JSON.parse(text.toString()), { isFirstThere: true, left: 1 + MOST / 2 });
      t.end();
    },
  );
