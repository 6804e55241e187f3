/**
 * The page for people: files that the build made of web/, held in memory and given with a strict
 * policy.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { errors } from "../base/errors.js";
import type { Context, Endpoint } from "./services.js";
import { giveHeld, hold, type HeldFile } from "./held.js";

const FOLDER = fileURLToPath(new URL("../../web/", import.meta.url));

/**
 * Nothing inline, nothing from elsewhere; what the page cannot do, a text that slips into it cannot
 * do either.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' blob:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const held = (file: string): HeldFile => hold(readFileSync(file));

function filesOf(folder: string): Map<string, HeldFile> {
  if (!existsSync(folder)) return new Map();
  return new Map(readdirSync(folder).map((name) => [name, held(path.join(folder, name))]));
}

let files: { index: HeldFile | undefined; assets: Map<string, HeldFile> } | undefined;

function built() {
  files ??= {
    index: existsSync(`${FOLDER}index.html`) ? held(`${FOLDER}index.html`) : undefined,
    assets: filesOf(`${FOLDER}assets`),
  };
  return files;
}

/** GET /: the page, which asks again whether it is still the newest. */
function giveIndex(ctx: Context): void {
  const page = built().index;
  if (page === undefined)
    throw errors.not_found("The page for people is not built. Run: npm run build");
  ctx.set({
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
  });
  giveHeld(ctx, ".html", page);
}
export const index: Endpoint = { answer: "text/html", handler: giveIndex };

/** GET /assets/NAME: a part of the page, whose name has a hash of its content. */
function giveAsset(ctx: Context): void {
  const { name = "" } = ctx["params"] as { name?: string };
  const found = built().assets.get(name);
  if (found === undefined)
    throw errors.not_found("The page has changed since it was loaded. Load it again.");
  ctx.set({
    "Content-Security-Policy": "default-src 'none'",
    "Cache-Control": "public, max-age=31536000, immutable",
  });
  giveHeld(ctx, path.extname(name), found);
}
export const asset: Endpoint = { answer: "text/html", handler: giveAsset };
