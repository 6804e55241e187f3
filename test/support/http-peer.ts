/** An HTTP server of somebody else, in this process, which goes away and comes back at its port. */
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { freePort } from "./server.js";

export interface HttpPeer {
  /** Without a path. */
  url: string;
  stop(): Promise<void>;
  start(): Promise<void>;
}

export async function httpPeer(
  t: { teardown: (end: () => Promise<void>) => void },
  answer: RequestListener,
): Promise<HttpPeer> {
  const listening = async (port: number) => {
    // A connection that it closes by itself may have the next request on the way
    const server = createServer({ keepAliveTimeout: 0 }, answer).listen(port, "127.0.0.1");
    await once(server, "listening");
    return server;
  };
  // Nobody else gets the port while it is away
  const port = await freePort();
  let server = await listening(port);
  const stop = async () => {
    if (!server.listening) return;
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  t.teardown(stop);
  return {
    url: `http://127.0.0.1:${port}`,
    stop,
    async start() {
      server = await listening(port);
    },
  };
}
