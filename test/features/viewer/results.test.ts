/**
 * Results with their images over HTTP: the right frame under the right marks, or an error; inside
 * the roots, and off unless set.
 */
import {
  mkdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import sharp from "sharp";
import { gunzipSync } from "node:zlib";
import t, { type Test } from "tap";
import { receiptText, type Answer, type Receipt } from "../../../src/results/receipt/receipt.js";
import type { Trust } from "../../../src/results/receipt/seal.js";
import type {
  FrameFacts,
  ResultMarks,
  Verification,
} from "../../../src/features/viewer/messages.js";
import type { FoundResult, PathList } from "../../../src/features/viewer/endpoints.js";
import { linesOf, textOf } from "../../support/audit.js";
import { bulkPlace } from "../../support/bulk.js";
import { ADDON, needs } from "../../support/needs.js";
import { slice } from "../../support/series.js";
import { issueToken, startServer, type Place, type TestServer } from "../../support/server.js";

const [ROWS, COLUMNS, SLICES] = [4, 6, 5];
const [BONE_HU, WATER_HU] = [600, 40];
const VIEW = { RADSERVE_FILES_BY_HTTP: "view" };

t.setTimeout(300_000);

/**
 * Where the bone of a slice lies: a hook that no turn or mirror image leaves as it is, and another
 * in each slice.
 */
const isBone = (z: number, x: number, y: number): boolean =>
  (y === 1 && x >= 1 && x <= 1 + (z % 4)) || (y === 2 && x === 1) || (z >= 3 && y === 0 && x === 5);

function pixelsOf(z: number): Uint8Array {
  const values = Array.from({ length: ROWS * COLUMNS }, (_, at) =>
    isBone(z, at % COLUMNS, Math.floor(at / COLUMNS)) ? BONE_HU : WATER_HU,
  );
  return new Uint8Array(Int16Array.from(values).buffer);
}

const WINDOW = { WindowCenter: "320", WindowWidth: "1000" };

/** A series whose files' names go the other way than its slices. */
function writeSeries(folder: string): void {
  mkdirSync(folder, { recursive: true });
  for (let z = 0; z < SLICES; z++)
    writeFileSync(
      path.join(folder, `${9 - z}.dcm`),
      slice({ z, frames: [pixelsOf(z)], attributes: { ...WINDOW, Manufacturer: "Maker" } }),
    );
}

async function started(
  t: Test,
  extra: Record<string, string> = VIEW,
): Promise<{ place: Place; server: TestServer }> {
  const place = bulkPlace(t, { RADSERVE_MINIMUM_FREE_DISK: "0", ...extra });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  return { place, server };
}

interface Got<T> {
  status: number;
  body: T & { error?: string; message?: string };
}

async function get<T>(
  { url, token }: TestServer,
  page: string,
  query: Record<string, string | number> = {},
  as = token,
): Promise<Got<T>> {
  const text = new URLSearchParams(
    Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]),
  );
  const response = await fetch(`${url}${page}?${text.toString()}`, {
    headers: { Authorization: as },
  });
  return { status: response.status, body: (await response.json()) as Got<T>["body"] };
}

async function pictureOf({ url, token }: TestServer, query: Record<string, string>) {
  const response = await fetch(`${url}/results/picture?${new URLSearchParams(query).toString()}`, {
    headers: { Authorization: token },
  });
  const bytes = Buffer.from(await response.arrayBuffer());
  return { status: response.status, headers: response.headers, bytes };
}

async function analysed(
  server: TestServer,
  input: string,
  output: string,
  outputs: readonly string[] = ["seg", "sr"],
): Promise<Answer> {
  const response = await server.post("/single_inference", {
    input_image_path: input,
    output_folder_path: output,
    outputs,
  });
  return (await response.json()) as Answer;
}

/** Which pixels of a PNG a condition holds for. */
async function places(png: Buffer, holds: (pixel: number[]) => boolean): Promise<string[]> {
  const { data, info } = await sharp(png).raw().toBuffer({ resolveWithObject: true });
  const found: string[] = [];
  for (let at = 0; at < info.width * info.height; at++) {
    const pixel = [...data.subarray(at * info.channels, (at + 1) * info.channels)];
    if (holds(pixel)) found.push(`${at % info.width},${Math.floor(at / info.width)}`);
  }
  return found;
}

const bonesOf = (z: number): string[] =>
  Array.from(
    { length: ROWS * COLUMNS },
    (_, at) => [at % COLUMNS, Math.floor(at / COLUMNS)] as const,
  )
    .filter(([x, y]) => isBone(z, x, y))
    .map(([x, y]) => `${x},${y}`);

t.test("nothing of it is there unless the settings say so", { skip: needs(ADDON) }, async (t) => {
  const { server } = await started(t, { RADSERVE_FILES_BY_HTTP: "upload,download" });
  for (const page of [
    "/results",
    "/results/list",
    "/results/picture",
    "/results/frame",
    "/results/marks",
    "/results/nifti",
    "/results/verification",
    "/paths",
  ])
    t.match(
      await get(server, page),
      { status: 404, body: { message: /RADSERVE_FILES_BY_HTTP=view/ } },
      page,
    );
  t.match(await get(server, "/results", {}, "nonsense"), { status: 401 });
});

t.test("each slice under its own marks", { skip: needs(ADDON) }, async (t) => {
  const { place, server } = await started(t);
  const [input, output] = [path.join(place.input, "series"), path.join(place.output, "out")];
  writeSeries(input);
  const answer = await analysed(server, input, output);
  t.match(answer, { status: "completed", models: [{ name: "ct-tissue", status: "succeeded" }] });
  const of = { path: answer.receipt_path, input_path: input };

  await t.test("the receipt as it lies there", async (t) => {
    const page = { path: answer.receipt_path };
    const { status, body } = await get<Receipt & { trust: Trust }>(server, "/results", page);
    t.equal(status, 200);
    const { trust, ...receipt } = body;
    t.match(trust, { trusted: true });
    t.equal(receiptText(receipt), readFileSync(answer.receipt_path, "utf8"));
    t.match(body.source, { rows: ROWS, columns: COLUMNS, frames: SLICES });
  });

  await t.test("pictures and marks, in any order", async (t) => {
    for (const number of [4, 1, 5, 2, 3, 4]) {
      const z = number - 1;
      const { status, bytes, headers } = await pictureOf(server, { ...of, frame: String(number) });
      t.equal(status, 200, bytes.toString("utf8").slice(0, 200));
      t.match(headers.get("Content-Type"), /^application\/octet-stream$/);
      // 0.5 mm a row and 0.8 mm a column: pixels are shown lower than they are wide, in whole
      // numbers of them
      const { width, height } = await sharp(bytes).metadata();
      t.same([width, height], [COLUMNS, Math.round((ROWS * 0.5) / 0.8)]);
      const marks = await get<ResultMarks>(server, "/results/marks", {
        path: answer.receipt_path,
        model: "ct-tissue",
        frame: number,
      });
      t.match(marks, { status: 200, body: { rows: ROWS, columns: COLUMNS } });
      const bone = marks.body.segments.find(({ label }) => /bone/i.test(label));
      t.equal(bone?.pixels, bonesOf(z).length, `slice ${number}`);
      const colour = [1, 3, 5].map((at) =>
        Number.parseInt(bone?.colour.slice(at, at + 2) ?? "", 16),
      );
      const png = Buffer.from(marks.body.png ?? "", "base64");
      t.same(
        await places(png, ([r, g, b, a]) => a === 255 && String([r, g, b]) === String(colour)),
        bonesOf(z),
      );
    }
  });

  await t.test("the image and its masks as NIfTI", async (t) => {
    const volume = async (more: Record<string, string>) => {
      const query = new URLSearchParams({ ...of, ...more }).toString();
      const headers = { Authorization: server.token };
      const answer = await fetch(`${server.url}/results/nifti?${query}`, { headers });
      const bytes = Buffer.from(await answer.arrayBuffer());
      t.equal(answer.status, 200, bytes.toString("utf8").slice(0, 200));
      return gunzipSync(bytes);
    };
    const [image, masks] = [await volume({}), await volume({ model: "ct-tissue" })];
    t.equal(image.length, 352 + ROWS * COLUMNS * SLICES * 2);
    t.strictSame([...image.subarray(352, 352 + 48)], [...pixelsOf(0)], "the first slice is");
    const labels = Array.from({ length: SLICES }, (_, z) => {
      const at = 352 + z * ROWS * COLUMNS;
      return new Set(
        bonesOf(z).map((place) => {
          const [x = 0, y = 0] = place.split(",").map(Number);
          return masks[at + y * COLUMNS + x];
        }),
      );
    });
    const bone = [...labels[0]!][0];
    t.ok(bone !== undefined && bone > 0);
    t.ok(
      labels.every((found) => found.size === 1 && found.has(bone)),
      "bone has its number where it lies",
    );
    t.match(await get(server, "/results/nifti", { ...of, model: "none" }), { status: 404 });
  });

  await t.test("values of a slice, with what a viewer says of it", async (t) => {
    for (const number of [5, 1, 3]) {
      const { status, body } = await get<FrameFacts>(server, "/results/frame", {
        ...of,
        frame: number,
      });
      t.equal(status, 200);
      t.match(body, {
        rows: ROWS,
        columns: COLUMNS,
        pixel_aspect: 0.5 / 0.8,
        inverted: false,
        unit: "HU",
        window: { center: 320, width: 1000, exact: false },
        spacing: [0.5, 0.8],
        sides: { left: "R", right: "L", top: "A", bottom: "P" },
        patient_id: "Nobody",
        position: [-10, -20, number - 1],
        values: { type: "int16", slope: 1, intercept: 0 },
      });
      const pixels = Buffer.from(pixelsOf(number - 1)).toString("base64");
      t.equal(body.values?.base64, pixels, `slice ${number}`);
    }
  });

  await t.test("planes across the slices, and what was marked on them", async (t) => {
    for (const [across, at] of [
      ["row", 2],
      ["column", 2],
    ] as const) {
      const plane = { ...of, across, frame: at };
      const { status, body } = await get<FrameFacts>(server, "/results/frame", plane);
      t.equal(status, 200, JSON.stringify(body).slice(0, 300));
      const along = across === "row" ? COLUMNS : ROWS;
      // The head is above: the last slice comes first
      const bones = Array.from({ length: SLICES * along }, (_, i) => {
        const [z, n] = [SLICES - 1 - Math.floor(i / along), i % along];
        return across === "row" ? isBone(z, n, at - 1) : isBone(z, at - 1, n);
      });
      const expected = Int16Array.from(bones, (bone) => (bone ? BONE_HU : WATER_HU));
      t.equal(body.values?.base64, Buffer.from(expected.buffer).toString("base64"));
      t.match(body, {
        rows: SLICES,
        columns: along,
        across: { down: { along: "slice", reversed: true } },
      });
      const marks = await get<ResultMarks>(server, "/results/marks", {
        ...plane,
        model: "ct-tissue",
      });
      t.match(marks, { status: 200, body: { rows: SLICES, columns: along } });
      const bone = marks.body.segments.find(({ label }) => /bone/i.test(label));
      t.equal(bone?.pixels, bones.filter(Boolean).length);
      const colour = [1, 3, 5].map((from) =>
        Number.parseInt(bone?.colour.slice(from, from + 2) ?? "", 16),
      );
      t.same(
        await places(Buffer.from(marks.body.png ?? "", "base64"), ([r, g, b, a]) => {
          return a === 255 && String([r, g, b]) === String(colour);
        }),
        bones.flatMap((is, i) => (is ? [`${i % along},${Math.floor(i / along)}`] : [])),
      );
      const drawn = await pictureOf(server, { ...of, across, frame: String(at) });
      t.equal(drawn.status, 200);
      const { width, height } = await sharp(drawn.bytes).metadata();
      t.equal(width, along);
      t.equal(height, Math.round((SLICES * 1) / (across === "row" ? 0.8 : 0.5)));
    }
    const beyond = await get(server, "/results/frame", { ...of, across: "row", frame: ROWS + 1 });
    t.match(beyond, { status: 400, body: { message: /a row from 1 to 4; found 5/ } });
    const alone = { path: of.path, model: "ct-tissue", across: "row" };
    t.match(await get(server, "/results/marks", alone), {
      status: 400,
      body: { message: /input_path/ },
    });
  });

  await t.test("what is not there, or not whose", async (t) => {
    t.match(await get(server, "/results/marks", { path: of.path, model: "none" }), {
      status: 404,
      body: { error: "file_not_found" },
    });
    for (const frame of [0, 6, "x"])
      t.match(
        await get(server, "/results/picture", { ...of, frame }),
        { status: 400 },
        `frame ${frame}`,
      );
    t.match(await get(server, "/results", { path: `${output}/none.json` }), {
      status: 404,
      body: { error: "file_not_found" },
    });
    t.match(await get(server, "/results", { path: "/etc/passwd" }), {
      status: 403,
      body: { error: "path_not_allowed" },
    });
    t.match(await get(server, "/results/picture", { ...of, input_path: "/etc/passwd" }), {
      status: 403,
    });
    const token = await issueToken(place, "--output-root", path.join(place.output, "mine"));
    t.match(await get(server, "/results", { path: of.path }, token), { status: 403 });
    writeFileSync(path.join(output, "other.json"), "{}");
    t.match(await get(server, "/results", { path: path.join(output, "other.json") }), {
      status: 400,
    });
    symlinkSync(answer.receipt_path, path.join(output, "link.json"));
    t.match(await get(server, "/results", { path: path.join(output, "link.json") }), {
      status: 400,
    });
  });

  await t.test("computed again, it is equal", async (t) => {
    const { status, body } = await get<Verification>(server, "/results/verification", of);
    t.equal(status, 200);
    t.ok(body.equal, JSON.stringify(body.checks));
    t.ok(body.checks.some(({ what, verdict }) => what === "ct-tissue" && verdict === "ok"));
    const without = await get<Verification>(server, "/results/verification", { path: of.path });
    t.match(without.body, { equal: false });
    t.ok(
      without.body.checks.some(({ what, verdict }) => what === "source" && verdict === "missing"),
    );
  });

  await t.test("each look is written down, without a path", (t) => {
    const looks = linesOf(place).filter(
      (line) => "endpoint" in line && String(line.endpoint).startsWith("GET /results"),
    );
    t.ok(looks.length > 15);
    t.ok(
      looks.every((line) => "output" in line || !("outcome" in line) || line.outcome !== "done"),
    );
    t.ok(
      looks.some(
        (line) => "study" in line && "endpoint" in line && line.endpoint === "GET /results",
      ),
    );
    t.notMatch(textOf(place), place.output);
    t.end();
  });

  await t.test(
    "another image in its place is not shown, and changed marks are not either",
    async (t) => {
      const at = path.join(input, "9.dcm");
      writeFileSync(at, slice({ z: 0, frames: [pixelsOf(2)], attributes: WINDOW }));
      t.match(await get(server, "/results/picture", { ...of, frame: 1 }), {
        status: 409,
        body: { error: "result_changed" },
      });
      t.equal((await pictureOf(server, { ...of, frame: "2" })).status, 200, "the others are");
      const seg =
        answer.models[0]?.outputs.find((file) => file.path.endsWith(".seg.dcm"))?.path ?? "";
      const bytes = readFileSync(seg);
      bytes[bytes.length - 2]! ^= 255;
      // A file of its own: the one that was read before is known by its hash
      renameSync(seg, `${seg}.kept`);
      writeFileSync(seg, bytes);
      const { body } = await get<Verification>(server, "/results/verification", of);
      t.notOk(body.equal);
      t.ok(
        body.checks.some(
          ({ what, verdict }) => what === path.basename(seg) && verdict === "differs",
        ),
      );
    },
  );

  await t.test("files that are longer than any that is read are passed over", async (t) => {
    const huge = 2 ** 31;
    const [seg = ""] = (answer.models[0]?.outputs ?? []).flatMap(({ path: file }) =>
      file.endsWith(".seg.dcm") ? file : [],
    );
    const beside = path.join(path.dirname(seg), "series.another.sr.dcm");
    for (const file of [path.join(input, "0"), seg, beside]) {
      writeFileSync(file, "");
      truncateSync(file, huge);
    }
    // The folder is listed again, because the first slice is not there
    await get(server, "/results/picture", { ...of, frame: 1 });
    t.equal((await pictureOf(server, { ...of, frame: "2" })).status, 200);
    t.match(await get(server, "/results/nifti", { ...of, model: "ct-tissue" }), {
      status: 409,
      body: { error: "result_changed" },
    });
    const { body } = await get<Verification>(server, "/results/verification", of);
    t.match(
      body.checks.find(({ what }) => what === path.basename(seg)),
      { verdict: "differs", detail: `${huge} bytes instead of` },
    );
  });
});

t.test("the address of a result whose share is away", { skip: needs(ADDON) }, async (t) => {
  const { place, server } = await started(t);
  const input = path.join(place.input, "series");
  writeSeries(input);
  const { receipt_path } = await analysed(server, input, place.output);
  const find = async (question: object) => {
    const answer = await server.post("/results/find", question);
    const body = (await answer.json()) as Partial<FoundResult> & { error?: string };
    return { status: answer.status, ...body };
  };
  const { id, input_id } = await find({ receipt_path });
  t.match(await find({ id }), { status: 200 });
  t.match(await find({ id: "A".repeat(40) }), { status: 404, error: "file_not_found" });
  renameSync(place.output, `${place.output}-away`);
  const away = { status: 503, error: "share_unavailable" };
  t.match(await find({ id }), away);
  const both = { id: id ?? "", input_id: input_id ?? "" };
  const { status, body } = await get(server, "/results/frame", both);
  t.match({ status, error: body.error }, away);
  renameSync(`${place.output}-away`, place.output);
});

t.test("a result that was replaced since it was read", { skip: needs(ADDON) }, async (t) => {
  const { place, server } = await started(t, { RADSERVE_FILES_BY_HTTP: "view,download" });
  const [input, output] = [path.join(place.input, "series"), path.join(place.output, "out")];
  writeSeries(input);
  const { receipt_path, models } = await analysed(server, input, output);
  const [seg] = models[0]!.outputs;
  const named = { path: receipt_path, input_path: input };
  const macNow = async () =>
    (await get<Receipt>(server, "/results", { path: receipt_path })).body.mac?.hmac_sha256 ?? "";
  const [model, across] = ["ct-tissue", "row"];
  const looks: [page: string, query: Record<string, string | number>][] = [
    ["/results/frame", { ...named, frame: 2 }],
    ["/results/frame", { ...named, across, frame: 2 }],
    ["/results/marks", { path: receipt_path, model, frame: 2 }],
    ["/results/marks", { path: receipt_path, model, fullest: "bone" }],
    ["/results/marks", { ...named, model, across, frame: 2 }],
    ["/results/picture", { ...named, frame: 2 }],
    ["/results/nifti", named],
    ["/results/nifti", { path: receipt_path, model }],
    ["/results/verification", named],
    ["/files", { path: receipt_path }],
  ];
  const ofSeg = { path: seg!.path, sha256: seg!.sha256 };
  const statusOf = async (page: string, query: Record<string, string | number>) => {
    const text = Object.entries(query).map(([name, value]) => [name, String(value)]);
    const asked = new URLSearchParams(text as [string, string][]).toString();
    const headers = { Authorization: server.token };
    return (await fetch(`${server.url}${page}?${asked}`, { headers })).status;
  };
  const mac = await macNow();
  for (const [page, query] of looks) t.equal(await statusOf(page, { ...query, mac }), 200, page);
  t.equal(await statusOf("/files", ofSeg), 200);
  t.equal(await statusOf("/files", { path: seg!.path, mac }), 409, "no receipt has no MAC");
  await analysed(server, input, output, ["seg"]);
  t.not(await macNow(), mac);
  t.equal(await statusOf("/files", ofSeg), 409);
  t.equal(await statusOf("/files", { path: seg!.path }), 200);
  for (const [page, query] of looks) {
    t.match(
      await get(server, page, { ...query, mac }),
      { status: 409, body: { error: "result_changed", details: { reason: "replaced" } } },
      page,
    );
    t.equal(await statusOf(page, query), 200, `${page}, whichever is there`);
  }
  t.match(await get(server, "/results/frame", { ...named, mac: "none" }), { status: 400 });
});

t.test("a single image, and one whose file was corrected", { skip: needs(ADDON) }, async (t) => {
  const { place, server } = await started(t);
  const input = path.join(place.input, "one.dcm");
  writeFileSync(
    input,
    slice({ z: 1, frames: [pixelsOf(1)], attributes: { ...WINDOW, PixelSpacing: "1\\1" } }),
  );
  const answer = await analysed(server, input, place.output);
  const of = { path: answer.receipt_path, input_path: input };
  const { bytes } = await pictureOf(server, of);
  t.same(await places(bytes, ([value]) => (value ?? 0) > 128), bonesOf(1));
  const corrected = { ...WINDOW, PixelSpacing: "1\\1", PatientID: "Corrected" };
  writeFileSync(input, slice({ z: 1, frames: [pixelsOf(1)], attributes: corrected }));
  t.equal((await pictureOf(server, of)).status, 200, "other attributes, the same pixels");
  writeFileSync(input, slice({ z: 1, frames: [pixelsOf(3)], attributes: corrected }));
  t.match(await get(server, "/results/picture", of), {
    status: 409,
    body: { error: "result_changed" },
  });
});

t.test("paths are completed inside the roots", { skip: needs(ADDON) }, async (t) => {
  const { place, server } = await started(t);
  for (const name of ["alpha", "alps", "beta", ".hidden"]) mkdirSync(path.join(place.input, name));
  writeFileSync(path.join(place.input, "al.dcm"), "");
  symlinkSync("/etc", path.join(place.input, "also"));
  const listed = async (typed: string, as?: string) => {
    const { status, body } = await get<PathList>(
      server,
      "/paths",
      { side: "input", path: typed },
      as,
    );
    return status === 200
      ? body.paths.map((one) => `${one.kind} ${path.relative(place.input, one.path)}`)
      : status;
  };
  t.same(await listed(""), ["folder "]);
  t.same(await listed(place.input.slice(0, 6)), ["folder "], "above the roots only the roots");
  t.same(await listed(path.join(place.input, "al")), [
    "file al.dcm",
    "folder alpha",
    "folder alps",
  ]);
  t.same(await listed(place.input), ["folder "], "a root itself");
  t.same(await listed(`${place.input}/.`), [], "nothing hidden");
  t.same(await listed("/etc/pass"), 403);
  t.same(await listed(`${place.input}/also/`), 403, "a link that leads out");
  t.same(await listed(`${place.input}/none/`), 404);
  for (let i = 0; i < 60; i++) writeFileSync(path.join(place.input, "beta", `${i}.dcm`), "");
  const many = await get<PathList>(server, "/paths", {
    side: "input",
    path: `${place.input}/beta/`,
  });
  t.match(many.body, { more: true });
  t.equal(many.body.paths.length, 50);
  const narrow = await issueToken(place, "--input-root", path.join(place.input, "alpha"));
  t.same(await listed(path.join(place.input, "al"), narrow), ["folder alpha"]);
  t.same(await listed(path.join(place.input, "beta/"), narrow), 403);
});
