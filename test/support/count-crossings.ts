/**
 * Loaded before a program that a test starts (node --import, in NODE_OPTIONS), and by each of its
 * threads: writes down each message that goes from one thread to another, whatever sends it.
 */
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { MessagePort, type Transferable } from "node:worker_threads";
import type { Place } from "./server.js";

type Post = (this: MessagePort, message: unknown, transfer?: readonly Transferable[]) => void;

const file = process.env["TEST_CROSSINGS"];
if (file !== undefined) writeDown(file);

function writeDown(file: string): void {
  const post = Reflect.get(MessagePort.prototype, "postMessage") as Post;
  MessagePort.prototype.postMessage = function (this: MessagePort, message, transfer) {
    appendFileSync(file, `${nameOf(message)}\n`);
    post.call(this, message, transfer);
  } satisfies Post;
}

/** `call NAME`, `answer` or `note NAME`, as remote.ts sends them; `other` what Node.js sends. */
function nameOf(message: unknown): string {
  if (typeof message !== "object" || message === null) return "other";
  const { method, id } = message as { method?: string; id?: number };
  if (method !== undefined) return `${id === undefined ? "note" : "call"} ${method}`;
  return id === undefined ? "other" : "answer";
}

/** The messages of the server of a place that starts after this. */
export function crossingsOf(place: Place): { all: () => string[]; forget: () => void } {
  const file = path.join(place.directory, "crossings");
  const forget = () => writeFileSync(file, "");
  forget();
  place.environment["TEST_CROSSINGS"] = file;
  const options = place.environment["NODE_OPTIONS"] ?? "";
  place.environment["NODE_OPTIONS"] = `${options} --import=${import.meta.url}`;
  return { forget, all: () => readFileSync(file, "utf8").split("\n").slice(0, -1) };
}
