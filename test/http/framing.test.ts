/** Heads that two readers of HTTP could take in two ways, and signs of a proxy. */
import t from "tap";
import { connected } from "../support/client.js";
import { startServer } from "../support/server.js";

t.test("HTTP by the letter", async (t) => {
  const server = await startServer();
  t.teardown(() => server.stop());
  const body = JSON.stringify({ input_image_path: "/x", output_folder_path: "/x" });
  const chunked = `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
  const statusOf = async (text: string) => {
    const { closed } = await connected(server.port, text);
    return Number(/^HTTP\/1\.1 (\d+)/.exec(await closed)?.[1]);
  };
  const post = (headers: string[], sent = body) =>
    statusOf(
      [
        "POST /single_inference HTTP/1.1",
        "Host: x",
        "Connection: close",
        `Authorization: ${server.token}`,
      ]
        .concat(headers, "", sent)
        .join("\r\n"),
    );
  const json = "Content-Type: application/json";
  const length = `Content-Length: ${body.length}`;
  // 403: the body was read, and names folders that are no roots
  t.equal(await post([json, length]), 403);
  t.equal(await post([json, "Transfer-Encoding: chunked"], chunked), 403);
  t.equal(await post([`${json}; charset=UTF-8`, length]), 403);
  t.equal(await post([json, length, "Transfer-Encoding:"]), 400, "empty, beside a length");
  t.equal(await post([json, length, "Transfer-Encoding: x"]), 400, "unknown, beside a length");
  t.equal(await post([json, length, "Transfer-Encoding: identity"]), 400);
  t.equal(
    await post([json, "Transfer-Encoding: gzip, chunked"], chunked),
    400,
    "nobody would unpack it",
  );
  t.equal(await post([json, length, "Transfer-Encoding: chunked"], chunked), 400, "both");
  const inChunks = (count: number, bytes: number) =>
    Array.from({ length: count }, (_, i) =>
      body.padEnd(count * bytes).slice(i * bytes, (i + 1) * bytes),
    )
      .map((chunk) => `${bytes.toString(16)}\r\n${chunk}\r\n`)
      .concat("0\r\n\r\n")
      .join("");
  const coded = [json, "Transfer-Encoding: chunked"];
  t.equal(await post(coded, inChunks(1000, 60)), 403, "many chunks");
  t.equal(await post(coded, inChunks(3000, 16)), 400, "thousands of tiny ones");
  t.equal(await post([json, json, length]), 400, "a type twice");
  t.equal(await post([json, "Content-Type: text/plain", length]), 400);
  for (const charset of ["iso-8859-1", "utf-16", "windows-1252", "nonsense"])
    t.equal(await post([`${json}; charset=${charset}`, length]), 400, charset);

  const metrics = (header: string) =>
    statusOf(`GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${header}\r\n`);
  t.equal(await metrics(""), 200);
  t.equal(await metrics("User-Agent: prometheus\r\nAccept-Encoding: gzip\r\n"), 200);
  for (const name of [
    "Via",
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Real-IP",
    "X-Client-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "X-Envoy-External-Address",
    "Client-IP",
    "X-Original-Forwarded-For",
    "X-Cluster-Client-IP",
    "Fastly-Client-IP",
    "X-Remote-Addr",
    "X-Original-URL",
  ])
    t.equal(await metrics(`${name}: 192.0.2.1\r\n`), 401, name);
  t.equal(await metrics("X-Client-IP:\r\n"), 401, "emptied by a proxy");
  for (const name of [
    "X-Azure-SocketIP",
    "X-Appengine-User-Ip",
    "X-Nginx-Proxy",
    "X-Varnish",
    "Akamai-Origin-Hop",
    "X-Request-Id",
    "Front-End-Https",
    "Proxy-Connection",
    "X-SSL-Client-Cert",
    "X-Of-Tomorrow",
  ])
    t.equal(await metrics(`${name}: 1\r\n`), 401, `${name}, which no scraper sends`);
  t.equal(await statusOf("GET /metrics HTTP/1.0\r\n\r\n"), 401, "as nginx asks by itself");
  t.equal(await statusOf("GET /health/live HTTP/1.0\r\n\r\n"), 200);
  t.equal(
    await metrics("Sec-Fetch-Mode: navigate\r\nCookie: a=1\r\n"),
    200,
    "a browser on this machine",
  );
  t.equal(await metrics("X-Prometheus-Scrape-Timeout-Seconds: 10\r\n"), 200);
  for (const version of ["2.0", "0.9"])
    t.equal(await statusOf(`GET /health/live HTTP/${version}\r\nHost: x\r\n\r\n`), 400, version);
});
