/**
 * TLS at the server's own port: who is let in, how certificates are replaced, and what a crash
 * costs.
 */
import { chmodSync, copyFileSync, rmSync, writeFileSync } from "node:fs";
import https from "node:https";
import path from "node:path";
import tls from "node:tls";
import t from "tap";
import { certificates } from "../../src/commands/doctor/service.js";
import { loadConfig } from "../../src/config.js";
import { TestCa, type Pair } from "../support/certificates.js";
import { ask, connected } from "../support/client.js";
import { withDurations } from "../support/durations.js";
import {
  makePlace,
  radserve,
  refusedStart,
  startServer,
  type Place,
  type TestServer,
} from "../support/server.js";
import { until } from "../support/until.js";

const ca = new TestCa();
const strangers = new TestCa("Another CA");
t.teardown(() => [ca, strangers].forEach(({ folder }) => rmSync(folder, { recursive: true })));
const trusting = { ca: ca.pem };

/** In place of a second between two looks at the files. */
const SHORT = { certificatesLook: 200, connectionLinger: 20 };

/** A place whose certificate and key lie in it under fixed names. */
function tlsPlace(pair: Pair, extra: Record<string, string> = {}): Place {
  const place = makePlace({ ...withDurations(SHORT), ...extra });
  put(place, pair);
  place.environment["RADSERVE_TLS_CERT"] = path.join(place.directory, "server.crt");
  place.environment["RADSERVE_TLS_KEY"] = path.join(place.directory, "server.key");
  return place;
}

function put(place: Place, { cert, key }: Pair): void {
  copyFileSync(cert, path.join(place.directory, "server.crt"));
  copyFileSync(key, path.join(place.directory, "server.key"));
}

/** What a new connection is shown. */
function shown({ port }: TestServer, options: tls.ConnectionOptions = {}): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = tls.connect({ port, host: "127.0.0.1", ...trusting, ...options }, () => {
      resolve(String(socket.getPeerCertificate().subject.CN));
      socket.destroy();
    });
    socket.once("error", reject);
  });
}

t.test("a server with TLS", async (t) => {
  const place = tlsPlace(ca.issue("localhost", 20));
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const live = (options: https.RequestOptions = trusting) =>
    ask(server.port, "/health/live", { tls: options });

  await t.test("speaks TLS 1.2 and 1.3 with forward secrecy alone", async (t) => {
    t.equal((await live()).status, 200);
    t.equal((await live({ ...trusting, maxVersion: "TLSv1.2" })).status, 200);
    const weak = {
      ...trusting,
      maxVersion: "TLSv1.2",
      ciphers: "AES128-SHA:AES128-GCM-SHA256@SECLEVEL=0",
    } as const;
    await t.rejects(live(weak), /handshake failure/);
    const old = {
      ...trusting,
      minVersion: "TLSv1",
      maxVersion: "TLSv1.1",
      ciphers: "ALL@SECLEVEL=0",
    } as const;
    await t.rejects(live(old), /protocol version/);
    await t.rejects(live({}), { code: /UNABLE_TO_VERIFY|SELF_SIGNED/ }, "who does not know the CA");
    const headers = { Authorization: server.token };
    t.equal((await ask(server.port, "/models", { tls: trusting, headers })).status, 200);
  });

  await t.test("tells plain HTTP what it expects", async (t) => {
    const { closed } = await connected(server.port, "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n");
    t.match(
      await closed,
      /^HTTP\/1\.1 400 .*"error":"bad_request","message":"Expected TLS on this port/s,
    );
    const junk = await connected(server.port, "\x16\x03\x01\x00\x05hello");
    t.notMatch(await junk.closed, /HTTP/, "anything else is closed");
    const lines = await server.told(({ msg }) => msg === "connections refused");
    t.ok(lines.length < 3);
  });

  await t.test("closes connections on which nothing comes", async (t) => {
    const place = tlsPlace(ca.issue(), withDurations({ ...SHORT, tlsHandshake: 500 }));
    const hasty = await startServer(place);
    t.teardown(() => hasty.stop());
    t.equal(await (await connected(hasty.port)).closed, "");
  });

  await t.test("says when its certificate ends", async (t) => {
    await server.logged(({ msg }) => /RADSERVE_TLS_CERT expires in (19|20) days/.test(msg));
    const all = await new Promise<string>((resolve, reject) => {
      https
        .get(
          { port: server.port, host: "127.0.0.1", path: "/metrics", agent: false, ...trusting },
          (response) => {
            let text = "";
            response.setEncoding("utf8").on("data", (part: string) => (text += part));
            response.once("end", () => resolve(text));
          },
        )
        .once("error", reject);
    });
    const [, seconds] =
      /radserve_certificate_expiry_timestamp_seconds\{certificate="server"\} (\S+)/.exec(all) ?? [];
    t.ok(Math.abs(Number(seconds) - Date.now() / 1000 - 20 * 86_400) < 3600);
    t.match(await radserve(place, "doctor"), {
      stdout: /problem {2}certificate: .*expires in (19|20) days/,
    });
  });

  await t.test("client commands speak it, too", async (t) => {
    const client = (more: Record<string, string>, ...args: string[]) => {
      const environment = { ...place.environment, RADSERVE_TOKEN: server.token, ...more };
      return radserve({ ...place, environment }, ...args);
    };
    const at = { RADSERVE_URL: `https://localhost:${server.port}`, RADSERVE_TLS_CA: ca.file };
    const status = await client(at, "status");
    t.match(status, {
      status: 0,
      stdout:
        /^https:\/\/localhost:\d+: ready\nwrong\tno_models\t.*\nwrong\tcertificate_expires\t.*\ncertificate\tvalid until 20/,
    });
    t.match(await client({ ...at, RADSERVE_TLS_CA: "", NODE_EXTRA_CA_CERTS: ca.file }, "status"), {
      status: 0,
    });
    t.match(await client(at, "bulk", "/elsewhere", "/elsewhere"), {
      status: 2,
      stderr: /path_not_allowed/,
    });
    t.match(await client({ ...at, RADSERVE_TLS_CA: "" }, "status"), {
      status: 1,
      stderr: /UNABLE_TO_VERIFY_LEAF_SIGNATURE.*RADSERVE_TLS_CA/,
    });
    t.match(await client({ ...at, RADSERVE_TLS_CA: "/no/such" }, "status"), {
      status: 2,
      stderr: /^RADSERVE_TLS_CA: .*ENOENT/,
    });
    t.match(await client({ ...at, RADSERVE_TLS_CLIENT_CERT: ca.file }, "status"), {
      status: 2,
      stderr: /^RADSERVE_TLS_CLIENT_KEY: expected a file/,
    });
  });
});

t.test("clients wait for a server that was killed, and are answered", async (t) => {
  const server = await startServer(tlsPlace(ca.issue()));
  t.teardown(() => server.stop());
  const before = server.servingPid();
  process.kill(before, "SIGKILL");
  await server.logged(({ msg }) => /starting it again/.test(msg));
  const answers = await Promise.all(
    Array.from({ length: 20 }, () =>
      ask(server.port, "/models", { tls: trusting, headers: { Authorization: server.token } }),
    ),
  );
  t.strictSame([...new Set(answers.map(({ status }) => status))], [200]);
  t.not(server.servingPid(), before);
});

t.test("certificates are replaced while requests flow", async (t) => {
  const place = tlsPlace(ca.issue("first"));
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const agent = new https.Agent({ keepAlive: true, ...trusting });
  t.teardown(() => agent.destroy());
  let flowing = true;
  t.teardown(() => (flowing = false));
  const statuses: number[] = [];
  const flow = async (options: object) => {
    while (flowing) statuses.push((await ask(server.port, "/health/live", options)).status);
  };
  const flows = Promise.all([flow({ tls: trusting }), flow({ tls: trusting, agent })]);
  t.equal(await shown(server), "first");

  put(place, ca.issue("second"));
  await until("the second certificate is shown", async () => (await shown(server)) === "second");
  const wrong = async () => {
    const { body } = await ask(server.port, "/health/ready", { tls: trusting });
    const all = body["conditions"] as { condition: string; message: string }[];
    // The place has no models, which is one too
    return all.filter(({ condition }) => condition.startsWith("certificate"));
  };
  const refused = async (why: RegExp) => {
    // A look may come between the two files of a pair, and the log may have said the same then
    await until("they are refused", async () =>
      (await wrong()).some(({ message }) => why.test(message)),
    );
    const line = await server.logged((line) => why.test(String(line["reason"])));
    t.match(line, { level: "error", msg: /the previous ones stay in use/ });
    t.match(await wrong(), [{ condition: "certificate_refused", message: why }]);
    t.equal(await shown(server), "second");
  };
  copyFileSync(ca.issue("third").cert, path.join(place.directory, "server.crt"));
  await refused(/^RADSERVE_TLS_KEY: expected the private key of the first certificate/);
  writeFileSync(path.join(place.directory, "server.crt"), "junk");
  await refused(/^RADSERVE_TLS_CERT: expected a certificate in PEM/);
  put(place, ca.issue("expired", -1));
  await refused(/^RADSERVE_TLS_CERT: .*it expired on/);
  rmSync(path.join(place.directory, "server.key"));
  await refused(/^RADSERVE_TLS_KEY: expected a file in PEM; it cannot be read \(ENOENT\)/);
  t.notMatch(JSON.stringify(server.log), place.directory, "no path is logged");

  const count = server.log.filter(({ msg }) => msg.startsWith("certificates read again")).length;
  t.equal(count, 1);
  put(place, ca.issue("fourth"));
  server.process.kill("SIGHUP");
  await until("the fourth certificate is shown", async () => (await shown(server)) === "fourth");
  // A look of before may end after the reload
  await until("what is in use is what lies there again", async () => (await wrong()).length === 0);
  await until("enough was asked meanwhile", () => statuses.length > 20);
  flowing = false;
  await flows;
  t.strictSame([...new Set(statuses)], [200], "no request failed meanwhile");
});

t.test("mTLS: every client shows a certificate", async (t) => {
  const place = tlsPlace(ca.issue());
  const clientCa = path.join(place.directory, "clients.crt");
  copyFileSync(ca.file, clientCa);
  place.environment["RADSERVE_TLS_CLIENT_CA"] = clientCa;
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const mine = ca.issue("client");
  const live = (options: https.RequestOptions) =>
    ask(server.port, "/health/live", { tls: { ...trusting, ...options } });
  t.equal((await live(mine.pem)).status, 200);
  t.equal((await live({ ...mine.pem, maxVersion: "TLSv1.2" })).status, 200);
  for (const maxVersion of ["TLSv1.2", "TLSv1.3"] as const) {
    await t.rejects(
      live({ maxVersion }),
      /certificate required|handshake failure|ECONNRESET|EPIPE|socket hang up|disconnected/i,
      "none",
    );
    const other = strangers.issue("client").pem;
    await t.rejects(
      live({ ...other, maxVersion }),
      /ECONNRESET|EPIPE|socket hang up|disconnected|unknown ca/,
      "of another CA",
    );
    await t.rejects(live({ ...ca.issue("client", -1).pem, maxVersion }), /./, "expired");
  }
  const environment = {
    ...place.environment,
    RADSERVE_URL: `https://localhost:${server.port}`,
    RADSERVE_TLS_CA: ca.file,
  };
  t.match(await radserve({ ...place, environment }, "status"), {
    status: 1,
    stderr: /RADSERVE_TLS_CLIENT_CERT/,
  });
  const own = { RADSERVE_TLS_CLIENT_CERT: mine.cert, RADSERVE_TLS_CLIENT_KEY: mine.key };
  const status = await radserve({ ...place, environment: { ...environment, ...own } }, "status");
  t.match(status, { status: 0, stdout: /ready/ });

  // A session of before must not open the door once its CA is taken away
  const session = await new Promise<Buffer>((resolve, reject) => {
    const socket = tls.connect({
      port: server.port,
      host: "127.0.0.1",
      ...trusting,
      ...mine.pem,
      maxVersion: "TLSv1.2",
    });
    socket.once("session", resolve).once("error", reject);
    t.teardown(() => socket.destroy());
  });
  copyFileSync(strangers.file, clientCa);
  server.process.kill("SIGHUP");
  await server.logged(({ msg }) => msg.startsWith("certificates read again"));
  await t.rejects(
    new Promise<void>((resolve, reject) => {
      const again = tls.connect(
        {
          port: server.port,
          host: "127.0.0.1",
          ...trusting,
          ...mine.pem,
          session,
          maxVersion: "TLSv1.2",
        },
        () => again.write("GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"),
      );
      again.once("data", () => resolve()).once("error", reject);
      again.once("close", () => reject(new Error("closed")));
    }),
    /./,
  );
  t.equal((await live(strangers.issue("client").pem)).status, 200);
});

t.test("what is wrong with the settings is said at the start", async (t) => {
  const good = ca.issue();
  const cases: [string, (place: Place) => void, RegExp][] = [
    [
      "no key",
      ({ environment }) => (environment["RADSERVE_TLS_KEY"] = ""),
      /^RADSERVE_TLS_KEY: expected a file beside RADSERVE_TLS_CERT/,
    ],
    [
      "no certificate",
      ({ environment }) => (environment["RADSERVE_TLS_CERT"] = ""),
      /^RADSERVE_TLS_CERT: expected a file beside RADSERVE_TLS_KEY/,
    ],
    [
      "CA alone",
      ({ environment }) => {
        environment["RADSERVE_TLS_CLIENT_CA"] = ca.file;
        environment["RADSERVE_TLS_CERT"] = environment["RADSERVE_TLS_KEY"] = "";
      },
      /^RADSERVE_TLS_CERT: expected a file beside RADSERVE_TLS_CLIENT_CA/,
    ],
    [
      "expired",
      (place) => put(place, ca.issue("old", -1)),
      /^RADSERVE_TLS_CERT: .*; it expired on 20.*\n$/,
    ],
    [
      "open key",
      ({ directory }) => chmodSync(path.join(directory, "server.key"), 0o644),
      /^RADSERVE_TLS_KEY: .*found mode 644\. Run chmod 600/,
    ],
    [
      "other key",
      (place) => put(place, { ...good, key: strangers.issue().key }),
      /^RADSERVE_TLS_KEY: .*found another key/,
    ],
    [
      "no PEM",
      ({ directory }) => writeFileSync(path.join(directory, "server.crt"), "x"),
      /^RADSERVE_TLS_CERT: .*found none/,
    ],
    [
      "no such CA",
      ({ environment }) => (environment["RADSERVE_TLS_CLIENT_CA"] = "/no/such"),
      /^RADSERVE_TLS_CLIENT_CA: .*\(ENOENT\)/,
    ],
  ];
  for (const [name, spoil, message] of cases) {
    const place = tlsPlace(good);
    t.teardown(() => place.remove());
    spoil(place);
    t.match(await refusedStart(place), message, name);
    if (name === "expired")
      t.match(
        await radserve(place, "serve"),
        { status: 1, stderr: message },
        "a clock may be wrong",
      );
    if (name !== "other key") continue;
    t.match(await radserve(place, "serve"), { status: 2, stderr: message }, name);
    const config = loadConfig({ environment: place.environment, directory: place.directory });
    t.match(
      await certificates(config),
      [{ ok: false, name: "certificate", found: /another key/ }],
      "doctor",
    );
  }
});
