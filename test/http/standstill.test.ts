/** A server whose thread stands still while it stops: what has come meanwhile is read first. */
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import t from "tap";
import { durations } from "../../src/base/durations.js";
import { createLog } from "../../src/base/log.js";
import { ClientAddresses } from "../../src/server/client-address.js";
import { Connections } from "../../src/server/connections.js";
import { connected } from "../support/client.js";
import { until } from "../support/until.js";

t.test(
  "a request that came while the server stood still is answered, and then it ends",
  async (t) => {
    const connections = new Connections({
      max_connections: 10,
      max_connections_per_address: 10,
      addresses: new ClientAddresses([]),
      tls: false,
      log: createLog("silent"),
    });
    const server = http.createServer((request, response) => {
      connections.follow(request.socket, response);
      response.setHeader("Connection", "close").end("answered");
    });
    server.prependListener("connection", (socket) => connections.admit(socket));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.teardown(() => server.close());
    const { socket, closed } = await connected((server.address() as AddressInfo).port);
    await until("the connection is there", () => connections.count === 1);

    const ended = connections.close(10_000, 0);
    socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    const cell = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    Atomics.wait(cell, 0, 0, durations.connectionLinger + 100);
    t.match(await closed, /answered$/);
    await ended;
    t.equal(connections.count, 0);
  },
);
