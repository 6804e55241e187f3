/**
 * The viewer under hands and eyes, in Debian's Chromium with a touch screen: fingers, wheel,
 * outlines, labels, and a network that goes and comes back.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { CDPSession, Page } from "playwright-core";
import t from "tap";
import { ctPhantom } from "../../../scripts/demo/phantom.js";
import { ctSeries } from "../../../scripts/demo/samples.js";
import { ctPlace } from "../../support/bulk.js";
import { CHROMIUM, look, signIn, startBrowser } from "../../support/looks.js";
import { ADDON, needs } from "../../support/needs.js";
import { startServer } from "../../support/server.js";
import { until } from "../../support/until.js";

t.setTimeout(300_000);

interface Point {
  x: number;
  y: number;
}

/** Moves fingers from some points to others, and lifts them. */
async function fingers(cdp: CDPSession, from: readonly Point[], to: readonly Point[]) {
  const at = (share: number) =>
    from.map(({ x, y }, id) => ({
      id,
      x: x + (to[id]!.x - x) * share,
      y: y + (to[id]!.y - y) * share,
    }));
  const send = (type: "touchStart" | "touchMove" | "touchEnd", touchPoints: object[]) =>
    cdp.send("Input.dispatchTouchEvent", { type, touchPoints: touchPoints as never });
  await send("touchStart", at(0));
  for (let step = 1; step <= 8; step++) await send("touchMove", at(step / 8));
  await send("touchEnd", []);
}

t.test("hands and eyes", { skip: needs(ADDON, CHROMIUM) }, async (t) => {
  const place = ctPlace({ RADSERVE_FILES_BY_HTTP: "view" });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const series = path.join(place.input, "series");
  mkdirSync(series);
  ctSeries(8, 12, 128).forEach((bytes, i) => writeFileSync(path.join(series, `${i}.dcm`), bytes));
  const body = { input_image_path: series, output_folder_path: place.output };
  const answer = await server.post("/single_inference", body);
  t.equal(answer.status, 200);
  const { models } = (await answer.json()) as {
    models: {
      findings: { label: string; frame: number; present: boolean; area: { cm2: number } }[];
    }[];
  };
  const browser = await startBrowser(t);
  const open = async (options: object): Promise<Page> => {
    const page = await (await browser.newContext(options)).newPage();
    await signIn(page, server, "#/results");
    await page.getByRole("link", { name: "series", exact: true }).click();
    await page.locator(".stage img.marks").waitFor();
    return page;
  };
  const corner = (page: Page) => page.locator(".corners .se");
  const middleOf = async (page: Page): Promise<Point> => {
    const { x, y, width, height } = (await page.locator(".stage").boundingBox())!;
    return { x: x + width / 2, y: y + height / 2 };
  };

  await t.test("it opens where most of the first finding is", async (t) => {
    const page = await open({});
    const [first] = models[0]!.findings.filter(({ present }) => present);
    const same = models[0]!.findings.filter(
      ({ label, present }) => present && label === first!.label,
    );
    const most = same.reduce((a, b) => (b.area.cm2 > a.area.cm2 ? b : a));
    t.equal(await page.locator(".stage").getAttribute("data-frame"), String(most.frame));
    await page.context().close();
  });

  await t.test("on a phone: one finger scrolls, two zoom and move", async (t) => {
    const page = await open({
      viewport: { width: 390, height: 844 },
      hasTouch: true,
      isMobile: true,
      deviceScaleFactor: 2,
    });
    const cdp = await page.context().newCDPSession(page);
    await page.locator(".stage").scrollIntoViewIfNeeded();
    const before = await corner(page).innerText();
    const scrolled = () => page.evaluate<number>("window.scrollY");
    const at = await scrolled();
    const { x, y } = await middleOf(page);
    await fingers(cdp, [{ x, y: y + 60 }], [{ x, y: y - 60 }]);
    await until("the page has scrolled", async () => (await scrolled()) > at);
    t.equal(await corner(page).innerText(), before, "and the window is as it was");
    const now = await middleOf(page);
    const [left, right] = [
      { x: now.x - 30, y: now.y },
      { x: now.x + 30, y: now.y },
    ];
    await fingers(
      cdp,
      [left, right],
      [
        { x: left.x - 30, y: left.y },
        { x: right.x + 30, y: right.y },
      ],
    );
    await corner(page)
      .getByText(/^(1[6-9]\d|2\d\d) %$/)
      .waitFor();
    const moved = () =>
      page.evaluate<string>("document.querySelector('.stage-inner').style.transform");
    const was = await moved();
    await fingers(
      cdp,
      [left, right],
      [
        { x: left.x, y: left.y + 40 },
        { x: right.x, y: right.y + 40 },
      ],
    );
    await until("two fingers move it", async () => (await moved()) !== was);
    t.match(await corner(page).innerText(), /W 400 L 40/, "and the window is as it was");
    await page.getByRole("button", { name: "Fit" }).tap();
    await page.getByRole("button", { name: "Zoom in" }).tap();
    await corner(page).getByText("125 %").waitFor();
    await page.getByRole("button", { name: "Fit" }).tap();
    await page.getByLabel("One finger").selectOption("window");
    const place = await middleOf(page);
    await fingers(cdp, [place], [{ x: place.x + 40, y: place.y }]);
    await until(
      "a finger sets the window",
      async () => !(await corner(page).innerText()).includes("W 400"),
    );
    await page.context().close();
  });

  await t.test("the wheel goes by its distance", async (t) => {
    const page = await open({});
    await page.getByRole("slider", { name: "Slice" }).fill("1");
    const { x, y } = await middleOf(page);
    await page.mouse.move(x, y);
    // As a touchpad does it, without a rest between them
    await page.evaluate(`for (let i = 0; i < 12; i++) document.querySelector(".stage").dispatchEvent(
      new WheelEvent("wheel", { deltaY: 10, cancelable: true }))`);
    await page.locator(".stage[data-frame='2'] img.marks").waitFor();
    await page.mouse.wheel(0, -400);
    await page.locator(".stage[data-frame='1'] img.marks").waitFor();
    await page.mouse.wheel(0, 300);
    await page.locator(".stage[data-frame='4'] img.marks").waitFor();
    t.pass();
    await page.context().close();
  });

  await t.test("outlines beside filled masks, and one label alone", async (t) => {
    const page = await open({});
    await page.locator("canvas.outlines[data-drawn]").waitFor();
    const pixels = () =>
      page.evaluate<number>(`(() => {
        const canvas = document.querySelector("canvas.outlines");
        if (canvas === null || canvas.width < 2) return 0;
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let drawn = 0;
        for (let i = 3; i < data.length; i += 4) if (data[i] > 0) drawn++;
        return drawn;
      })()`);
    const all = await pixels();
    t.ok(all > 100, `${all} pixels of edges`);
    await look(t, page, "outlines");
    await page.getByLabel("Marks").selectOption("outlines");
    await page.locator("img.marks").waitFor({ state: "detached" });
    await page.getByLabel("Marks").selectOption("both");
    await page.locator("img.marks").waitFor();
    const labels = page.getByRole("list", { name: "Labels" });
    await labels.getByRole("button", { name: "Only bone" }).click();
    await until("one label is drawn", async () => {
      const now = await pixels();
      return now > 0 && now < all;
    });
    t.notOk(await labels.getByLabel("Show fat").isChecked());
    await labels.getByLabel("Show fat").check();
    t.ok(await labels.getByLabel("Show bone").isChecked());
    await page.getByRole("button", { name: "All labels" }).click();
    await until("all are drawn", async () => (await pixels()) === all);
    const { x, y } = await middleOf(page);
    await page.mouse.move(x, y);
    await page
      .locator(".corners .sw")
      .getByText(/HU · \w+/)
      .waitFor();
    await page.context().close();
  });

  await t.test("the scale is as long as it says, however far one zooms", async (t) => {
    // On a narrow screen a wrong one would not fit
    const page = await open({ viewport: { width: 400, height: 900 } });
    for (const zoom of [1, 2.5, 8, 16]) {
      // A notch of the wheel makes it a quarter larger
      await page.evaluate(`document.querySelector(".stage").dispatchEvent(new WheelEvent("wheel",
        { deltaY: -100 * Math.log(${zoom}) / Math.log(1.25), ctrlKey: true, cancelable: true }))`);
      if (zoom > 1)
        await corner(page)
          .getByText(`${zoom * 100} %`, { exact: true })
          .waitFor();
      const scale = page.locator(".corners .scale");
      const [, length, unit] = /^([\d.]+) (mm|cm)$/.exec(await scale.innerText()) ?? [];
      const said = Number(length) * (unit === "cm" ? 10 : 1);
      const { width } = (await page.locator(".stage .picture").boundingBox())!;
      const mmPerPixel = ctPhantom(128, 0).spacing * (128 / width);
      const drawn = (await scale.boundingBox())!.width * mmPerPixel;
      t.ok(Math.abs(drawn / said - 1) < 0.01, `${zoom} times: ${drawn} mm, and it says ${said} mm`);
      await page.getByRole("button", { name: "Fit" }).click();
    }
    await page.context().close();
  });

  await t.test("pixels of labels are those of the slice that is shown", async (t) => {
    const page = await open({});
    await page.getByRole("slider", { name: "Slice" }).fill("1");
    await page.locator(".stage[data-frame='1'] img.marks").waitFor();
    let release: () => void = () => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    await page.route(/results\/marks/, async (route) => {
      await held;
      await route.continue().catch(() => undefined);
    });
    await page.getByRole("slider", { name: "Slice" }).fill("2");
    await page.locator(".stage[data-frame='2'] .picture").waitFor();
    const bone = page.getByRole("list", { name: "Labels" }).locator("li", { hasText: "bone" });
    t.match(await bone.innerText(), /… pixels/);
    release();
    await bone.getByText(/\d pixels/).waitFor();
    await page.context().close();
  });

  await t.test("a network that comes back: what was asked for is shown", async (t) => {
    const page = await open({});
    await page.getByRole("slider", { name: "Slice" }).fill("2");
    await page.locator(".stage[data-frame='2'] img.marks").waitFor();
    await page.context().setOffline(true);
    await page.locator(".stage").press("ArrowDown");
    await page.getByText("The page tries again every few seconds.").first().waitFor();
    await page.getByText(/^Slice 3 of 8: not shown$/).waitFor();
    await page.context().setOffline(false);
    await page.locator(".stage[data-frame='3'] img.marks").waitFor();
    await page.getByText("tries again").first().waitFor({ state: "detached" });
    t.pass();
    await page.context().close();
  });

  await t.test("a result that may not be shown says so in title and corner", async (t) => {
    const page = await open({});
    const slice = path.join(series, "3.dcm");
    const [held] = ctSeries(1, 12, 128);
    writeFileSync(slice, held!);
    await page.reload();
    const note = page.getByRole("alert").getByText(/Result changed/);
    for (let frame = 1; frame <= 8 && (await note.count()) === 0; frame++) {
      await page.getByRole("slider", { name: "Slice" }).fill(String(frame));
      await note
        .or(page.locator(`.stage[data-frame='${frame}']`))
        .first()
        .waitFor();
    }
    await note.waitFor();
    await page.getByText(/^Slice \d of 8: not shown$/).waitFor();
    await page.goto(`${server.url}/#/results/${"x".repeat(30)}`);
    await page.getByRole("heading", { level: 1, name: "This result is not shown" }).waitFor();
    await until("the title says so", async () => /not shown/.test(await page.title()));
    t.pass();
    await page.context().close();
  });
});
