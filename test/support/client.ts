/**
 * Requests as clients of many kinds send them: from another loopback address, with TLS, or byte by
 * byte.
 */
import http from "node:http";
import https from "node:https";
import net from "node:net";

export interface Asked {
  status: number;
  headers: http.IncomingHttpHeaders;
  body: Record<string, unknown>;
}

/** One request on a connection of its own, unless an agent is given. Rejects as node does. */
export function ask(
  port: number,
  page: string,
  {
    tls,
    body,
    ...options
  }: http.RequestOptions & { tls?: https.RequestOptions; body?: unknown } = {},
): Promise<Asked> {
  return new Promise((resolve, reject) => {
    const all = { host: "127.0.0.1", port, path: page, agent: false as const, ...options };
    const request = tls === undefined ? http.request(all) : https.request({ ...all, ...tls });
    request.once("error", reject);
    request.once("response", (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (part: string) => (text += part));
      response.once("error", reject);
      response.once("end", () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          body: JSON.parse(text) as Record<string, unknown>,
        }),
      );
    });
    if (body === undefined) request.end();
    else request.setHeader("Content-Type", "application/json").end(JSON.stringify(body));
  });
}

export interface Line {
  socket: net.Socket;
  /** Everything that came until the other side closed. */
  closed: Promise<string>;
}

/** A connection that sends text and keeps open. */
export async function connected(
  port: number,
  text = "",
  localAddress = "127.0.0.1",
): Promise<Line> {
  const socket = net.connect({ port, host: "127.0.0.1", localAddress });
  let heard = "";
  socket.setEncoding("utf8").on("data", (part: string) => (heard += part));
  socket.on("error", () => undefined);
  const closed = new Promise<string>((resolve) => socket.once("close", () => resolve(heard)));
  await new Promise((resolve) => socket.once("connect", resolve));
  if (text !== "") socket.write(text);
  return { socket, closed };
}
