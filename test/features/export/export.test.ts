/** `radserve export`: what is written, what is refused, and that equal input is equal bytes. */
import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import t from "tap";
import { ADDON, needs } from "../../support/needs.js";
import { resultOf, runExport, stackFiles, writeFiles } from "../../support/nifti-results.js";
import { engineWithFolder } from "../../support/real-engine.js";

const skip = needs(ADDON);
const json = (file: string) => JSON.parse(readFileSync(file, "utf8")) as unknown;
const below = (folder: string) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name).slice(folder.length + 1))
    .sort();

t.test("a folder that nnU-Net trains from", { skip }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "nnunet");
  // Two series of one name
  for (const patient of ["one", "two"]) {
    const files = stackFiles({ attributes: { PatientID: patient } });
    const input = writeFiles(join(folder, "in", patient, "series"), files);
    await resultOf(engine, input, join(folder, "out", patient));
  }
  const words = [join(folder, "out"), "--nnunet", "--input", join(folder, "in"), "--to"];
  const to = join(folder, "to");
  const { status, text } = runExport(folder, ...words, to);
  t.equal(status, 0, text);
  const files = below(to);
  const [name, other] = files.flatMap((file) => /^labelsTr\/(.*)\.nii\.gz$/.exec(file)?.[1] ?? []);
  t.match(name, /^series_[0-9a-f]{8}$/, "equal names are told apart by the image");
  t.strictSame(
    files,
    [
      "dataset.json",
      ...[name, other].map((one) => `imagesTr/${one}_0000.nii.gz`),
      ...[name, other].map((one) => `labelsTr/${one}.nii.gz`),
    ],
    "each case has an image and a label map",
  );
  const { labels, ...dataset } = json(join(to, "dataset.json")) as { labels: unknown };
  t.strictSame(dataset, { channel_names: { 0: "CT" }, numTraining: 2, file_ending: ".nii.gz" });
  t.match(labels, { background: 0 });

  const image = gunzipSync(readFileSync(join(to, `imagesTr/${name}_0000.nii.gz`)));
  t.equal(image.length, 352 + 7 * 10 * 14 * 2);
  t.equal(image.readInt16LE(352), -160, "values are HU");
  const masks = gunzipSync(readFileSync(join(to, `labelsTr/${name}.nii.gz`)));
  t.strictSame(masks.subarray(256, 328), image.subarray(256, 328), "both lie at one place");

  const again = join(folder, "again");
  t.equal(runExport(folder, ...words, again).status, 0);
  for (const file of files)
    t.ok(readFileSync(join(to, file)).equals(readFileSync(join(again, file))), `${file} again`);
  t.match(runExport(folder, ...words, to), { status: 2, text: /expected a new or empty folder/ });
});

t.test("two results of one image, and places that are no folder", { skip }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "twice");
  const input = writeFiles(join(folder, "in"), stackFiles());
  for (const name of ["one", "two"]) await resultOf(engine, input, join(folder, "out", name));
  const words = [join(folder, "out"), "--input", input, "--to"];
  const to = join(folder, "to");
  t.match(runExport(folder, ...words, to, "--nifti"), { status: 0, text: /2 results of 2/ });
  t.match(
    below(to).filter((file) => file.endsWith(".seg.nii.gz")),
    [/^in_[0-9a-f]{8}\.[^.]+\.seg/, /^in_[0-9a-f]{8}_2\.[^.]+\.seg/],
  );
  t.equal(runExport(folder, ...words, join(folder, "nnunet"), "--nnunet").status, 0);
  t.match(json(join(folder, "nnunet", "dataset.json")), { numTraining: 2 });
  t.equal(below(join(folder, "nnunet", "labelsTr")).length, 2, "a case for each");

  const [one] = words;
  const overlapping = runExport(
    folder,
    join(one!, "one"),
    ...words,
    join(folder, "both"),
    "--nifti",
  );
  t.match(overlapping, { status: 0, text: /2 results of 2/ }, "a folder and one in it");
  process.env["RADSERVE_MINIMUM_FREE_DISK"] = "900000GiB";
  const full = runExport(folder, ...words, join(folder, "full"), "--nifti");
  delete process.env["RADSERVE_MINIMUM_FREE_DISK"];
  t.match(full, { status: 1, text: /Not written: .*free/ }, "the disk is full");
  t.strictSame(below(join(folder, "full")), []);

  const file = join(folder, "file");
  writeFileSync(file, "");
  symlinkSync("/nowhere/at/all", join(folder, "link"));
  const pipe = join(folder, "pipe");
  execFileSync("mkfifo", [pipe]);
  const closed = join(folder, "closed");
  mkdirSync(closed, { mode: 0o555 });
  for (const [at, found] of [
    [file, /found a file in its place/],
    [join(file, "below"), /found a file in its place/],
    [join(folder, "link"), /expected a new or empty folder/],
    [pipe, /found a file in its place/],
    [join(pipe, "below"), /found a file in its place/],
    ["/dev/null/x", /found a file in its place/],
    // Where Node's own way to make folders never ends
    ["/proc/x", /found none that this user may write to \(ENOENT\)/],
    ["/proc/x/y", /found none that this user may write to \(ENOENT\)/],
    ["/sys/x", /found none that this user may write to \(E[A-Z]+\)/],
    [closed, /found none that this user may write to \(EACCES\)/],
    [join(closed, "below"), /found none that this user may write to \(EACCES\)/],
  ] as const)
    t.match(runExport(folder, ...words, at, "--nifti"), { status: 2, text: found }, at);
});

t.test("a name that becomes too long is refused, and nothing of it stays", { skip }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "long");
  // A result's names are shorter than that of a segment's file
  const input = writeFiles(join(folder, "in", "n".repeat(235)), stackFiles());
  await resultOf(engine, input, join(folder, "out"));
  const words = [join(folder, "out"), "--input", input, "--to", join(folder, "to")];
  t.match(runExport(folder, ...words, "--nifti", "--separate"), {
    status: 1,
    text: /Not written: .*The output folder's file system cannot hold file names as long/,
  });
  t.strictSame(below(join(folder, "to")), []);
});

t.test("what NIfTI cannot say is refused, each by its name", { skip }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "refused");
  const nowhere = { ImagePositionPatient: undefined, ImageOrientationPatient: undefined };
  const radiograph = stackFiles({ slices: 1, attributes: { ...nowhere, Modality: "DX" } });
  const slices = { model: "segmenter", group: "series" } as const;
  const cases = {
    tilted: [stackFiles({ aside: 0.8 }), slices, /Not written: .*The gantry was tilted/],
    uneven: [stackFiles({ shifted: 0.6 }), slices, /Not written: .*Expected slices at even/],
    radiograph: [radiograph, { model: "segmenter" }, /where in the patient .*Train with .*PNG/],
    overlapping: [stackFiles({ slices: 1 }), { model: "overlapping" }, /overlap in slice 1.*--sep/],
    fractions: [stackFiles(), { model: "volume-fractional" }, /probabilities .*--separate/],
  } as const;
  for (const [name, [files, options, refusal]] of Object.entries(cases)) {
    const input = writeFiles(join(folder, "in", name), files);
    const one = files.length === 1 ? join(input, "000.dcm") : input;
    const change = (manifest: { outputs: object[] }) => {
      if (name === "fractions")
        for (const output of manifest.outputs)
          Object.assign(output, { segment_type: "fractional" });
    };
    const { receipt } = await resultOf(engine, one, join(folder, "out", name), {
      ...options,
      change,
    });
    const words = [receipt, "--nifti", "--input", input, "--to"];
    const { status, text } = runExport(folder, ...words, join(folder, name));
    t.match({ status, text }, { status: 1, text: refusal }, name);
    t.strictSame(below(join(folder, name)), [], `${name}: nothing of it is left`);
    if (!/separate|sep/.test(refusal.source)) continue;
    const apart = runExport(folder, ...words, join(folder, `${name}-apart`), "--separate");
    t.equal(apart.status, 0, apart.text);
    t.equal(below(join(folder, `${name}-apart`)).length, 3, "an image and two segments");
  }
});

t.test("changed files, missing images, and wrong calls", { skip }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "changed");
  const input = writeFiles(join(folder, "in"), stackFiles());
  const { receipt, seg } = await resultOf(engine, input, join(folder, "out"));
  const to = (name: string) => ["--to", join(folder, name)];
  const missing = runExport(folder, receipt, "--nifti", ...to("a"));
  t.match(missing, { status: 1, text: /name of the receipt's source/ });
  const masks = runExport(folder, receipt, "--nifti", "--no-image", ...to("b"));
  t.equal(masks.status, 0, masks.text);
  t.match(masks.text, /not one that this installation signed/);
  t.strictSame(
    below(join(folder, "b")).map((file) => file.replace(/^in\.[^.]+\./, "")),
    ["seg.json", "seg.nii.gz"],
  );
  t.match(runExport(folder, receipt, ...to("c")), { status: 2, text: /--nifti or --nnunet/ });
  t.match(runExport(folder, input, "--nifti", ...to("c")), { status: 2, text: /found none/ });

  const first = join(input, "000.dcm");
  const bytes = readFileSync(first);
  bytes[bytes.length - 1]! ^= 1;
  writeFileSync(first, bytes);
  const other = runExport(folder, receipt, "--nifti", "--input", input, ...to("d"));
  t.match(other, { status: 1, text: /other pixels/ });
  appendFileSync(seg, "x");
  const changed = runExport(folder, receipt, "--nifti", "--no-image", ...to("e"));
  t.match(changed, { status: 1, text: /with the SHA-256 that it lists/ });
  t.notOk(existsSync(join(folder, "e", "in.nii.gz")));
});
