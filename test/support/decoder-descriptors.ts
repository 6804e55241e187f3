/**
 * Decodes the picture that its argument names, and prints what the descriptors and threads of its
 * decoder are.
 */
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import process from "node:process";
import { readImage } from "../../src/images/read-image.js";
import { decodersOf } from "./processes.js";

await readImage(readFileSync(process.argv[2] ?? ""));
const [decoder] = decodersOf(process.pid);
const all = (what: string) => readdirSync(`/proc/${decoder}/${what}`);
const descriptors = all("fd").map((fd) => `${fd} ${readlinkSync(`/proc/${decoder}/fd/${fd}`)}`);
const threads = all("task").map((id) =>
  readFileSync(`/proc/${decoder}/task/${id}/comm`, "utf8").trim(),
);
console.log(JSON.stringify({ descriptors, threads }));
