/**
 * The report of a job as one HTML file, which needs nothing else: no script, no style and no
 * picture from elsewhere, and its policy forbids them. It opens from a share, in dark and light,
 * and can be printed.
 */
import { harmless } from "../../base/harmless.js";
import { ERRORS } from "../../base/errors.js";
import type { Distribution } from "../../base/distribution.js";
import { count, counted } from "../../base/table.js";
import type { Job } from "../../jobs/schema.js";
import type { PictureCandidate, LabelFacts, ModelFacts, ReportReason, Tally } from "./tally.js";

export interface Thumbnail extends PictureCandidate {
  /** JPEG. */
  bytes: Uint8Array;
  width: number;
  height: number;
  /** The whole picture, relative to the report; undefined if it lies elsewhere. */
  href: string | undefined;
}

export interface ReportedJob {
  job: Job;
  startedAt: string | undefined;
  version: string;
  /** Name of the table beside the page. */
  csv: string;
}

const STYLE = `
:root{color-scheme:light dark;--ground:#f4f6f7;--card:#fff;--ink:#16212b;--quiet:#55626e;--line:#dde3e8;--accent:#0b6e6e;--bad:#b3261e;--bad-ground:#fce8e6}
@media (prefers-color-scheme:dark){:root{--ground:#10171d;--card:#182128;--ink:#e6edf2;--quiet:#a3b1bd;--line:#2b3842;--accent:#4fc3bd;--bad:#ff9f96;--bad-ground:#3d1c1a}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI","DejaVu Sans",sans-serif}
main{max-width:1180px;margin:0 auto;padding:1.5rem;display:grid;grid-template-columns:minmax(0,1fr);gap:1rem}
h1{font-size:1.45rem;line-height:1.25;margin:0}h2{font-size:1.1rem;margin:0 0 .6rem}h3{font-size:1rem;margin:1.2rem 0 .4rem}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:1.1rem 1.25rem}
p{margin:.3rem 0}a{color:var(--accent)}.quiet{color:var(--quiet);font-size:.9rem}
.path,code{overflow-wrap:anywhere}code{font:.88em ui-monospace,"DejaVu Sans Mono",monospace}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(130px,1fr));gap:.6rem 1.2rem;margin:0}
dt{color:var(--quiet);font-size:.85rem}dd{margin:0;font-size:1.15rem;font-weight:600;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:left;vertical-align:top;padding:.4rem .9rem .4rem 0;border-top:1px solid var(--line);font-weight:400}
thead th{border-top:0;color:var(--quiet);font-size:.83rem;white-space:nowrap}tbody th{font-weight:600}
.n{white-space:nowrap;font-variant-numeric:tabular-nums}
.reason{border-left:5px solid var(--bad);background:var(--bad-ground);border-radius:8px;padding:.6rem .9rem;margin:.6rem 0}
.reason.calm{border-color:var(--quiet);background:none}.reason ul{margin:.3rem 0;padding-left:1.2rem}
svg.bars{display:block;width:160px;height:34px;fill:var(--accent)}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(220px,1fr));gap:1rem;list-style:none;padding:0;margin:0}
.pictures img{display:block;width:100%;height:auto;border-radius:6px;background:#000}
@media print{:root{color-scheme:light;--ground:#fff;--card:#fff;--ink:#000;--quiet:#444;--line:#bbb;--accent:#0b6e6e;--bad:#8c1d18;--bad-ground:#fff}
main{max-width:none;padding:0}section{border:0;border-radius:0;padding:.5rem 0}tr,.reason,.pictures li{break-inside:avoid}.scroll{overflow:visible}}
`;

/** The page in parts, the first to be written first. */
export function* pageOf(
  about: ReportedJob,
  tally: Tally,
  pictures: readonly Thumbnail[],
): Generator<string> {
  const { job, csv, version } = about;
  yield `<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">
<title>Report of job ${job.job_id}</title><style>${STYLE}</style></head><body><main>\n`;
  yield head(about);
  const from = job.request.input_folder_path;
  yield attention(tally, from);
  yield* [...tally.models.values()].sort(byName).map((model) => modelSection(model));
  if (pictures.length > 0) yield pictureSection(pictures, from);
  yield timings(about, tally);
  yield `<p class="quiet">All images are listed in <a href="${escaped(encodeURIComponent(csv))}">${escaped(csv)}</a>. ${
    tally.shortened
      ? "Tables of this page have no room for some rows; that file has them all. "
      : ""
  }Medians and percentiles are exact to half a percent. Written by Radserve ${escaped(version)} from the receipts of the job. Research software: scores are no diagnosis.</p>
</main></body></html>\n`;
}

function head({ job, startedAt }: ReportedJob): string {
  const { counts, request } = job;
  const from = request.input_folder_path ?? "a list of images";
  const facts: [string, string][] = [
    ["State", job.state],
    ["Images", count(job.total ?? 0)],
    ["Succeeded", count(counts.succeeded)],
    ["Partial", count(counts.partial)],
    ["Failed", count(counts.failed)],
    ["Skipped", count(counts.skipped)],
    ["Cancelled", count(counts.cancelled)],
    ["Begun", startedAt === undefined ? "never" : time(startedAt)],
    ["Ended", job.finished_at === null ? "" : time(job.finished_at)],
  ];
  return `<header><h1 class="path">Report: ${escaped(from)}</h1>
<p class="quiet path">Results in ${escaped(request.output_folder_path ?? "the folders of the list")} · job ${job.job_id}</p></header>
<section aria-label="Counts"><dl>${facts.map(([name, value]) => `<div><dt>${name}</dt><dd>${escaped(value)}</dd></div>`).join("")}</dl></section>\n`;
}

const KINDS: Record<ReportReason["kind"], string> = {
  failed: "Failed",
  untold: "A receipt that is not trusted, or of another run",
  model: "A model failed",
  skipped: "Skipped",
  refused: "Not taken by a model",
};
const ORDER: readonly ReportReason["kind"][] = ["failed", "untold", "model", "skipped", "refused"];

function attention(tally: Tally, from: string | undefined): string {
  const reasons = [...tally.reasons.values()].sort(
    (a, b) =>
      ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind) ||
      b.images - a.images ||
      (a.code < b.code ? -1 : 1),
  );
  const lost =
    tally.receiptsLost === 0
      ? ""
      : `<p>${counted(tally.receiptsLost, "receipt")} could not be read when this was written; these images are counted above and nowhere else.</p>`;
  const body =
    reasons.length === 0
      ? "<p>No image failed or was left out.</p>"
      : reasons.map((reason) => reasonText(reason, from)).join("");
  return `<section><h2>What failed or was left out, and what to do</h2>${lost}${body}</section>\n`;
}

/**
 * An image by its path below the job's folder, which the heading names; of a list of images, as it
 * is.
 */
const below = (input: string, from: string | undefined) =>
  from !== undefined && input.startsWith(`${from}/`) ? input.slice(from.length + 1) : input;

function reasonText(
  { kind, model, code, message, images, examples }: ReportReason,
  from: string | undefined,
): string {
  const calm = kind === "skipped" || kind === "refused";
  const remedy = !calm && code in ERRORS ? ERRORS[code as keyof typeof ERRORS].remedy : undefined;
  const who = model === undefined ? KINDS[kind] : `${KINDS[kind]}: ${model}`;
  return `<div class="reason${calm ? " calm" : ""}"><p><strong>${count(images)} × ${escaped(words(code))}</strong> · ${escaped(who)} · <code>${escaped(code)}</code></p>
<p class="path">${escaped(message)}</p>${remedy === undefined ? "" : `<p>What to do: ${escaped(remedy).replace(/`([^`]+)`/g, "<code>$1</code>")}</p>`}
<details${calm ? "" : " open"}><summary>${images > examples.length ? `${examples.length} of ${count(images)} images` : "Images"}</summary><ul>${examples.map((one) => `<li class="path">${escaped(below(one, from))}</li>`).join("")}</ul></details></div>\n`;
}

const byName = (a: ModelFacts, b: ModelFacts) =>
  compare(a.name, b.name) || compare(a.version, b.version) || Number(a.shadow) - Number(b.shadow);
const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);

function modelSection(model: ModelFacts): string {
  const { name, version, shadow, succeeded, failed, notAccepted } = model;
  const title = `${name} ${version}${shadow ? " (shadow: recorded, not shown)" : ""}`;
  const warnings = [...model.warnings].sort(([a], [b]) => compare(a, b));
  const caveats = warnings.map(([code, images]) => `${words(code)} on ${count(images)}`).join("; ");
  const labels = [...model.labels.values()].sort((a, b) => compare(a.label, b.label));
  const ran = [
    `Ran on ${images(succeeded)}.`,
    ...(failed === 0 ? [] : [`It failed on ${images(failed)}.`]),
    ...(notAccepted === 0 ? [] : [`It does not take ${images(notAccepted)} of this job.`]),
  ];
  return `<section><h2>${escaped(title)}</h2>
<p>${[...ran, ...(caveats === "" ? [] : [`Warnings: ${escaped(caveats)}.`])].join(" ")}</p>
${labels.length === 0 ? "" : table("Findings by label", ["Label", "Found in", "Distribution", "Median (5 % to 95 %)"], labels.map(labelRow))}
${measurements(model)}${labels.length === 0 ? "" : `<h3>By scanner</h3>${scanners(model)}`}</section>\n`;
}

function measurements({ measurements: all }: ModelFacts): string {
  const rows = [...all.values()]
    .sort((a, b) => compare(a.label ?? "", b.label ?? "") || compare(a.name, b.name))
    .map(({ label = "", name, unit, values }) => {
      const text = unit === "1" ? "" : ` ${escaped(unitText(unit))}`;
      return `<tr><th scope="row">${escaped(name)}</th><td>${escaped(label)}</td><td class="n">${count(values.count)}</td><td>${bars(name, unit, values)}</td><td class="n">${spread(values)}${text}</td></tr>`;
    });
  const columns = ["Measurement", "Label", "Values", "Distribution", "Median (5 % to 95 %)"];
  return rows.length === 0 ? "" : `<h3>Measurements</h3>${table("Measurements", columns, rows)}`;
}

function labelRow(facts: LabelFacts): string {
  return `<tr><th scope="row">${escaped(facts.label)}</th><td class="n">${share(facts.found, facts.images)}</td><td>${barsOf(facts)}</td><td class="n">${spreads(facts)}</td></tr>`;
}

function scanners(model: ModelFacts): string {
  const rows = [...model.scanners]
    .sort(([a], [b]) => compare(a, b))
    .flatMap(([scanner, { images, labels }]) =>
      [...labels.values()]
        .sort((a, b) => compare(a.label, b.label))
        .map(
          (facts) =>
            `<tr><th scope="row">${escaped(scanner)}</th><td class="n">${count(images)}</td><td>${escaped(facts.label)}</td><td class="n">${share(facts.found, facts.images)}</td><td class="n">${spreads(facts)}</td></tr>`,
        ),
    );
  return table(
    `Findings of ${model.name} ${model.version} by scanner`,
    ["Scanner", "Images", "Label", "Found in", "Median (5 % to 95 %)"],
    rows,
  );
}

function table(name: string, columns: readonly string[], rows: readonly string[]): string {
  return `<div class="scroll" role="region" tabindex="0" aria-label="${escaped(name)}"><table><thead><tr>${columns.map((column) => `<th scope="col">${column}</th>`).join("")}</tr></thead><tbody>${rows.join("")}</tbody></table></div>`;
}

const BARS = 20;

/** The scores of a label and, of images where it was found, its extents; each with its unit. */
function valuesOf({ scores, extents }: LabelFacts): [unit: string, values: Distribution][] {
  const all: [string, Distribution][] = [
    ["score", scores],
    ...[...extents].sort(([a], [b]) => compare(a, b)),
  ];
  return all.filter(([, { count }]) => count > 0);
}

function barsOf(facts: LabelFacts): string {
  const [first] = valuesOf(facts);
  return first === undefined ? "" : bars(facts.label, ...first);
}

/** Values in twenty equal parts: scores from 0 to 1 if they lie there, else over their range. */
function bars(name: string, unit: string, values: Distribution): string {
  const whole = unit === "score" && values.least >= 0 && values.most <= 1;
  const [from, to] = whole ? [0, 1] : [values.least, values.most];
  const counts = values.histogram(BARS, [from, to]);
  const most = Math.max(...counts);
  const drawn = counts
    .map((count, i) => {
      const height = count === 0 ? 0 : Math.max(1, Math.round((32 * count) / most));
      return height === 0
        ? ""
        : `<rect x="${i * 8}" y="${34 - height}" width="7" height="${height}"/>`;
    })
    .join("");
  const words =
    unit === "score"
      ? `score ${figure(from)} to ${figure(to)}`
      : `${figure(from)} to ${figure(to)}${unit === "1" ? "" : ` ${unitText(unit)}`}`;
  return `<svg class="bars" viewBox="0 0 160 34" role="img" aria-label="Distribution of ${escaped(name)}: ${escaped(words)}">${drawn}</svg><span class="quiet">${escaped(words)}</span>`;
}

function spread(values: Distribution): string {
  const [low, middle, high] = [0.05, 0.5, 0.95].map((at) => values.quantile(at));
  if (low === undefined || middle === undefined || high === undefined) return "";
  return `${figure(middle)} (${figure(low)} to ${figure(high)})`;
}

/** UCUM writes cm2 for what people write as cm². */
const unitText = (unit: string) => unit.replace(/^([cm]?m)2$/, "$1²");

const spreads = (facts: LabelFacts) =>
  valuesOf(facts)
    .map(
      ([unit, values]) =>
        `${unit === "score" ? "score " : ""}${spread(values)}${unit === "score" ? "" : ` ${escaped(unitText(unit))}`}`,
    )
    .join("<br>");

function pictureSection(pictures: readonly Thumbnail[], from: string | undefined): string {
  const items = pictures.map((one) => {
    const data = Buffer.from(one.bytes).toString("base64");
    const alt = `Picture of ${one.input} by ${one.model}: ${one.words}`;
    const image = `<img src="data:image/jpeg;base64,${data}" width="${one.width}" height="${one.height}" alt="${escaped(alt)}">`;
    const linked = one.href === undefined ? image : `<a href="${escaped(one.href)}">${image}</a>`;
    return `<li>${linked}<p><strong>${escaped(one.model)}</strong>: ${escaped(one.words)}</p><p class="quiet path">${escaped(below(one.input, from))}</p></li>`;
  });
  return `<section><h2>Some of the images with findings</h2><p class="quiet">Of each label those with the highest scores or the largest extent, and of images on which a model failed the first. They are not a random sample. Each leads to the picture beside its receipt.</p><ul class="pictures">${items.join("\n")}</ul></section>\n`;
}

function timings({ job, startedAt }: ReportedJob, tally: Tally): string {
  const row = (name: string, values: Distribution) =>
    `<tr><th scope="row">${escaped(name)}</th><td class="n">${count(values.count)}</td><td class="n">${ms(values.quantile(0.5))}</td><td class="n">${ms(values.quantile(0.95))}</td><td class="n">${ms(values.most)}</td></tr>`;
  const rows = [
    row("all steps", tally.work),
    ...[...tally.steps].map(([step, values]) => row(step, values)),
  ];
  const seconds =
    startedAt === undefined || job.finished_at === null
      ? 0
      : (Date.parse(job.finished_at) - Date.parse(startedAt)) / 1000;
  const whole =
    seconds > 0 ? `<p>The job took ${figure(seconds)} s from its first image to its last.</p>` : "";
  const again =
    tally.reused === 0
      ? ""
      : `<p>${counted(tally.reused, "existing result")} reused; they have no times here.</p>`;
  const body =
    tally.work.count === 0
      ? "<p>No image was computed.</p>"
      : table("Times of the steps of an image", ["Step", "Images", "Median", "95 %", "Most"], rows);
  return `<section><h2>Times of one image</h2>${whole}${again}${body}</section>\n`;
}

const ms = (value: number | undefined) => {
  if (value === undefined) return "";
  return value < 1000 ? `${figure(value)} ms` : `${figure(value / 1000)} s`;
};
const images = (images: number) => `${count(images)} ${images === 1 ? "image" : "images"}`;
const share = (part: number, all: number) =>
  `${count(part)} of ${count(all)} (${all === 0 ? 0 : figure((100 * part) / all)} %)`;
/** To three digits. */
const figure = (value: number) => String(Number(value.toPrecision(3)));
const time = (iso: string) => iso.replace("T", " ").replace(/\.\d+Z$/, " UTC");
const words = (code: string) =>
  code.charAt(0).toUpperCase() +
  code
    .slice(1)
    .replaceAll("_", " ")
    .replace(/^op class/, "OP class");

const ENTITIES: Record<string, string> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};
const escaped = (text: string) =>
  harmless(text).replace(/[&<>"']/g, (character) => ENTITIES[character] ?? "");
