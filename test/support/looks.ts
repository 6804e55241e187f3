/** Pages in Debian's Chromium: what axe finds wrong with them, in all widths and colours. */
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { chromium, type Browser, type Page } from "playwright-core";
import type { Test } from "tap";
import { LONGEST_WAIT_MS } from "./until.js";

export const CHROMIUM = "/usr/bin/chromium";
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** A folder; pictures of what is looked at are kept there. */
const PICTURES = process.env["RADSERVE_PICTURES"];
const LOOKS = [
  ["light", 1280, "light"],
  ["dark", 1280, "dark"],
  ["narrow", 400, "light"],
  ["narrow-dark", 400, "dark"],
] as const;

/** A browser that ends with the test. */
export async function startBrowser(t: Test): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath: CHROMIUM,
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
  t.teardown(() => browser.close());
  return browser;
}

interface Violation {
  id: string;
  nodes: { html: string }[];
}

/** What axe finds wrong with the page as it stands. */
async function violations(page: Page): Promise<string[]> {
  // Not as a tag, which the policy of the page would refuse
  await page.evaluate(AXE);
  const found = await page.evaluate<{ violations: Violation[] }>(
    "axe.run(document, { resultTypes: ['violations'] })",
  );
  return found.violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html ?? ""}`);
}

/** What reaches beyond the window, by its tag, class and text. */
const BESIDE = `[...document.querySelectorAll("body *")]
  .filter((one) => one.getBoundingClientRect().right > window.innerWidth + 0.5)
  .map((one) => [one.tagName, one.className, (one.textContent ?? "").slice(0, 40)].join(" "))`;

/**
 * Looks at a view as it is now: nothing wrong for axe, nothing wider than the window, in all widths
 * and colours.
 */
export async function look(t: Test, page: Page, name: string): Promise<void> {
  for (const [how, width, colorScheme] of LOOKS) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    t.same(await violations(page), [], `${name}: axe, ${width} px, ${how}`);
    const wide = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth");
    t.ok(Number(wide) <= 0, `${name}: nothing lies beside the window, ${width} px`, {
      beside: Number(wide) <= 0 ? [] : await page.evaluate(BESIDE),
    });
    if (PICTURES === undefined) continue;
    mkdirSync(PICTURES, { recursive: true });
    await page.screenshot({ path: path.join(PICTURES, `${name}-${how}.png`), fullPage: true });
  }
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.emulateMedia({ colorScheme: "light" });
}

/** Opens a page of a server, by default its overview, and signs in. */
export async function signIn(
  page: Page,
  { url, token }: { url: string; token: string },
  address = "",
): Promise<void> {
  page.setDefaultTimeout(LONGEST_WAIT_MS);
  await page.goto(`${url}/${address}`);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("navigation", { name: "Views" }).waitFor();
}
