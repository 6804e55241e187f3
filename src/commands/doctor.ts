/**
 * `radserve doctor`: looks at everything that serving needs; each line is ok, or a problem with its
 * fix.
 */
import type { Config } from "../config.js";
import { durations } from "../base/durations.js";
import { ConfigError } from "../base/errors.js";
import { groupsBy } from "../base/groups.js";
import { VERSION } from "../base/version.js";
import { bad, checked, good, inTime, shared, type Diagnosis } from "./doctor/finding.js";
import { folders, keys } from "./doctor/folders.js";
import { clock, codecs, decoder, engine, machine, memory, openFiles } from "./doctor/machine.js";
import { models } from "./doctor/models.js";
import { silentFolders } from "./doctor/silent.js";
import { bulkDatabase, certificates, port, runningServer, token } from "./doctor/service.js";
import { unit } from "./doctor/unit.js";
import { during } from "./activity.js";
import type { Feature } from "./feature.js";
import { endAfterwards, print, type ExitStatus } from "./run.js";

function configuration(config: Config): Diagnosis[] {
  const { providers, role, threads } = config;
  return [
    shared(good("version", VERSION)),
    shared(good("work", `role ${role}, models on ${providers.join(" and ")}, ${threads} threads`)),
    good("configuration", config.file ?? "environment and defaults only"),
    ...config.warnings.map((warning) =>
      bad("settings", warning, "Correct what it names, or remove what means nothing."),
    ),
  ];
}

/** The checks that need the settings; each stands alone. */
async function everything(given: Config, features: readonly Feature[]): Promise<Diagnosis[]> {
  const report = "Report this as a fault of Radserve, with this line.";
  const silent = await silentFolders(given);
  const config = silent.without(given);
  const { state_dir, keys_dir, models_dir } = given;
  /** A check that reads from these folders is left out where one of them does not answer. */
  const reading = async <T>(needed: string[], look: () => Promise<T>, otherwise: T): Promise<T> =>
    needed.some((folder) => silent.has(folder)) ? otherwise : look();
  const { found, findings } = await reading([keys_dir], () => keys(config), NO_KEYS);
  const newest = found.keys.map(({ created }) => created).sort();
  // Checks that wait for something else run together, before those that compute
  const asked = (
    name: string,
    look: () => Diagnosis[] | Promise<Diagnosis[]>,
    { needed = [state_dir, keys_dir], fix = report }: { needed?: string[]; fix?: string } = {},
  ) =>
    reading(needed, () => inTime(name, checked(name, look, fix), durations.commandAnswer), [
      bad(name, "not looked at, because a folder does not answer", "Mend the folder first."),
    ]);
  const [ofFolders, ofToken, ofCertificate, ofFeature, ofPort, ofDatabase, ofServer, ofUnit] =
    await Promise.all([
      asked("folders", () => folders(config, given)),
      asked("token", () => token(config, found.keys), {
        fix: "Correct RADSERVE_TOKEN or RADSERVE_URL.",
      }),
      asked("certificate", () => certificates(config), { needed: [] }),
      ofFeatures(config, features, asked),
      asked("port", () => port(config)),
      asked("bulk database", () => bulkDatabase(config, features)),
      asked("server", () => runningServer(config)),
      asked("unit", () => unit(config), { needed: [] }),
    ]);
  const started = await engine(config);
  const onCpu = started.works || config.providers.includes("cuda");
  return [
    ...configuration(config),
    ...silent.findings(),
    ...(await reading(
      [models_dir],
      () => checked("models", () => models(config, onCpu), report),
      [],
    )),
    ...started.findings,
    ...(await codecs()),
    ...(await decoder()),
    memory(config),
    ...(await checked(
      "open files",
      () => openFiles(config, features),
      "Raise it for the server, or lower RADSERVE_THREADS.",
    )),
    ...ofFolders,
    ...findings,
    ...ofToken,
    ...ofCertificate,
    ...ofFeature,
    ...ofPort,
    ...ofDatabase,
    ...ofServer,
    ...ofUnit,
    clock(newest.at(-1) ?? ""),
  ];
}

const NO_KEYS: Awaited<ReturnType<typeof keys>> = {
  found: { keys: [], problems: [] },
  findings: [],
};

async function ofFeatures(
  config: Config,
  features: readonly Feature[],
  asked: (name: string, look: () => Promise<Diagnosis[]>) => Promise<Diagnosis[]>,
): Promise<Diagnosis[]> {
  const each = features.map((feature) =>
    asked(feature.name, async () => (await feature.doctor?.(config)) ?? []),
  );
  return (await Promise.all(each)).flat();
}

async function settings(
  load: () => Promise<Config>,
  features: readonly Feature[],
): Promise<Diagnosis[]> {
  let config;
  try {
    config = await load();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return [bad("configuration", error.message, "Correct the setting."), clock("")];
  }
  return everything(config, features);
}

const wordOf = ({ ok, fix }: Diagnosis) =>
  !ok ? "problem" : fix === undefined ? "ok     " : "advice ";

function line(finding: Diagnosis): string {
  const { name, found, fix } = finding;
  return `${wordOf(finding)}  ${name}: ${found}${fix === undefined ? "" : `\n         fix: ${fix}`}`;
}

/** What strangers may read of the findings: for a public report of a fault. */
function shareableReport(findings: readonly Diagnosis[]): string {
  const lines = findings.map(
    (one) =>
      `${wordOf(one)}  ${one.name}${one.shareable === undefined ? "" : `: ${one.shareable}`}`,
  );
  return [
    ...[...groupsBy(lines, (text) => text)].map(([text, { length }]) =>
      length === 1 ? text : `${text} (${length} times)`,
    ),
    "Left out: paths, names, addresses and ports. radserve doctor shows them.",
  ].join("\n");
}

/** @param load reads the settings; what is wrong with them is one of the findings */
export async function doctorFindings(
  load: () => Promise<Config>,
  features: readonly Feature[],
): Promise<Diagnosis[]> {
  return [
    ...machine(),
    ...(await during("Looking at models, folders and database", () => settings(load, features))),
  ];
}

export const statusOf = (findings: readonly Diagnosis[]): ExitStatus =>
  findings.every(({ ok }) => ok) ? 0 : 1;

/** Prints the findings: as lines, as JSON, or as what strangers may read of them. */
export async function doctor(
  load: () => Promise<Config>,
  features: readonly Feature[],
  form: { json?: boolean; report?: boolean },
): Promise<ExitStatus> {
  const findings = await doctorFindings(load, features);
  if (form.report === true) print(shareableReport(findings));
  else if (form.json === true) print(JSON.stringify(findings, ["name", "ok", "found", "fix"], 2));
  else for (const finding of findings) print(line(finding));
  // What it asked may never answer, and nobody waits for that: Node's own way out would
  if (findings.some(({ late }) => late)) endAfterwards();
  return statusOf(findings);
}
