/**
 * `radserve gateway`: what the file of the gateway does to images that lie here, and whether its
 * destinations answer. Both need no server.
 */
import { readdir, stat } from "node:fs/promises";
import path from "node:path";
import { ConfigError } from "../../base/errors.js";
import { groupsBy } from "../../base/groups.js";
import { counted, table } from "../../base/table.js";
import { print, remark, type ExitStatus, type JsonOption } from "../../commands/run.js";
import type { Config } from "../../config.js";
import { sopClassName } from "../../images/dicom/dictionary.js";
import { echo, echoWebhook } from "./echo.js";
import { imagesIn, missingSeries, RuleBook, type ReadObject } from "./receive/rules.js";
import { makesJobs, type Rule } from "./rule-settings.js";
import { readGateway, type GatewaySettings } from "./settings.js";

async function gatewayOf(config: Config): Promise<GatewaySettings> {
  const found = await readGateway(config);
  if (found !== undefined) return found;
  throw new ConfigError("RADSERVE_GATEWAY: expected the file of the gateway; it is not set.");
}

/** Tries destinations and webhooks: all, or those that are named. */
export async function gatewayEcho(
  config: Config,
  names: readonly string[],
  { json }: JsonOption,
): Promise<ExitStatus> {
  const { destinations, webhooks } = await gatewayOf(config);
  const all = [...Object.keys(destinations), ...Object.keys(webhooks)];
  const unknown = names.find((name) => !all.includes(name));
  if (unknown !== undefined)
    throw new ConfigError(
      `Expected names of destinations or webhooks; found ${unknown}, and there are ${all.join(", ") || "none"}.`,
    );
  const isChosen = ([name]: [string, unknown]) => names.length === 0 || names.includes(name);
  const [answers, told] = await Promise.all([
    Promise.all(
      Object.entries(destinations)
        .filter(isChosen)
        .map(async ([name, one]) => ({ destination: name, ...(await echo(name, one)) })),
    ),
    Promise.all(
      Object.entries(webhooks)
        .filter(isChosen)
        .map(async ([name, one]) => ({
          webhook: name,
          ...(await echoWebhook(name, one, config.node_name)),
        })),
    ),
  ]);
  const rows = [
    ...answers.map(({ destination, ...one }) => ({ name: destination, ...one })),
    ...told.map(({ webhook, ...one }) => ({ name: `webhook ${webhook}`, ...one })),
  ];
  if (json === true) print(JSON.stringify({ destinations: answers, webhooks: told }, null, 2));
  else if (rows.length === 0) remark("The file names no destinations.");
  else
    print(
      table([
        ["DESTINATION", "", "FOUND"],
        ...rows.map(({ name, ok, found }) => [name, ok ? "ok" : "failed", found]),
      ]),
    );
  return rows.every(({ ok }) => ok) ? 0 : 1;
}

interface TryOptions extends JsonOption {
  from?: string;
  called?: string;
}

/** Says of each series below the paths which rules take it, and why the others do not. */
export async function gatewayTry(
  config: Config,
  paths: readonly string[],
  { from, called, json }: TryOptions,
): Promise<ExitStatus> {
  const { rules, dicom } = await gatewayOf(config);
  if (rules.length === 0) throw new ConfigError("The file of the gateway has no rules.");
  // Whoever has the files may see what stands in them
  const book = new RuleBook(rules, (_, values) => values.map((one) => `"${one}"`).join(", "));
  const objects: (ReadObject & { series: string; study: string })[] = [];
  let others = 0;
  for (const file of (await Promise.all(paths.map(filesBelow))).flat()) {
    const read = await book.readWith(file);
    const { seriesInstanceUid: series, studyInstanceUid: study } = read;
    if (series === undefined || study === undefined) others += 1;
    else objects.push({ ...read, series, study });
  }
  const ofSeries = [...groupsBy(objects, ({ study, series }) => `${study} ${series}`).values()];
  // Most senders call the usual title
  const title = called ?? dicom?.ae_title[0];
  const titles = title === undefined ? undefined : [title];
  const seen = ofSeries.map((all) => {
    const facts = { peer: from, titles, objects: all.map((one) => one.facts) };
    return { all, facts, verdicts: book.verdicts(facts) };
  });
  const told = seen.map(({ all, facts, verdicts }) => ({
    study_instance_uid: all[0]?.study,
    series_instance_uid: all[0]?.series,
    objects: all.length,
    images: imagesIn(facts),
    classes: [...new Set(facts.objects.map(({ sopClassUid }) => sopClassName(sopClassUid)))],
    rules: verdicts.map(({ rule, why, asked }) => {
      const takes = why.length === 0;
      const ofStudy = seen.filter((one) => one.all[0]?.study === all[0]?.study);
      const beside = ofStudy.filter((one) =>
        one.verdicts.some((other) => other.rule === rule && other.why.length === 0),
      );
      const more = takes
        ? ofTheStudy(
            rule,
            facts,
            beside.map((one) => one.facts),
          )
        : [];
      return {
        rule: rule.name,
        takes,
        asked,
        becomes: takes ? becomes(rule) : null,
        why: [...why, ...more],
      };
    }),
  }));
  if (json === true) print(JSON.stringify({ series: told, left_out: others }, null, 2));
  else {
    for (const one of told) print(textOf(one));
    if (told.length === 0) remark("No DICOM object with a series is there.");
    if (others > 0) remark(`Left out: ${counted(others, "file")} without a series.`);
  }
  const isTaken = ({ rules: all }: (typeof told)[number]) =>
    all.some(({ takes, asked }) => takes && asked);
  return told.length > 0 && told.every(isTaken) ? 0 : 1;
}

/** What a rule asks of a study, beside what it asks of each series. */
function ofTheStudy(
  rule: Rule,
  own: Parameters<typeof imagesIn>[0],
  all: readonly Parameters<typeof imagesIn>[0][],
): string[] {
  const missing = missingSeries(rule, all);
  const largest = Math.max(...all.map(imagesIn));
  return [
    ...(missing.length === 0
      ? []
      : [`It waits for the series that it requires: ${missing.join(", ")}.`]),
    ...(rule.series === "largest" && imagesIn(own) < largest
      ? [`It is not the largest of the study, which has ${counted(largest, "image")}.`]
      : []),
  ];
}

function becomes(rule: Rule): string {
  if (!makesJobs(rule)) return "it is discarded";
  const models = rule.models?.join(", ") ?? "every model that accepts it";
  const labels = rule.labels === undefined ? "" : `, of labels ${rule.labels.join(", ")} alone`;
  return `a job of the ${rule.group}, after ${rule.quiet} s without an object, for ${models}${labels}`;
}

interface ToldSeries {
  series_instance_uid: string | undefined;
  objects: number;
  images: number;
  classes: string[];
  rules: { rule: string; takes: boolean; asked: boolean; becomes: string | null; why: string[] }[];
}

function textOf({ series_instance_uid: uid, objects, images, classes, rules }: ToldSeries): string {
  const sizes = `${counted(objects, "object")}, ${counted(images, "image")}`;
  const lines = rules.map(({ rule, takes, asked, becomes: to, why }) => {
    if (!takes) return `  ${rule}: no. ${why.join(" ")}`;
    if (!asked) return `  ${rule}: not asked, because a rule before it takes the series`;
    return [`  ${rule}: yes, ${to ?? ""}.`, ...why].join(" ");
  });
  return [`${uid ?? ""}: ${sizes} (${classes.join(", ")})`, ...lines].join("\n");
}

async function filesBelow(given: string): Promise<string[]> {
  const at = path.resolve(given);
  const found = await stat(at).catch(() => undefined);
  if (found === undefined) throw new ConfigError(`Expected a file or folder at ${given}.`);
  if (!found.isDirectory()) return [at];
  const entries = await readdir(at, { withFileTypes: true, recursive: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .sort();
}
