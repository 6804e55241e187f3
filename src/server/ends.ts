/** By what a connection is known. */
import type { Socket } from "node:net";

/** The same for a connection and for TLS on it: no two open connections have the same ends. */
export function endsOf(socket: Socket): string {
  return [socket.remoteAddress, socket.remotePort, socket.localAddress, socket.localPort].join(" ");
}
