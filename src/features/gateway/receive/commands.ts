/** `radserve received`: what the gateway of a running server has received. */
import { durations } from "../../../base/durations.js";
import { clientWithToken, queryOf } from "../../../commands/client.js";
import { print, remark, type ExitStatus, type JsonOption } from "../../../commands/run.js";
import { counted, table } from "../../../base/table.js";
import type { Config } from "../../../config.js";
import {
  receivedListSchema,
  receivedStudySchema,
  removedSchema,
  replaceableSchema,
} from "./endpoints.js";
import type { Received, ReceivedChange } from "./received.js";

interface Choice extends JsonOption {
  peer?: string;
  series?: string;
}

const pageOf = (study: string) => `/gateway/received/${encodeURIComponent(study)}`;

/** Why it is so, in words. */
function stateOf({ state, why, jobs, lost, broken, apart }: Received): string {
  const parts = [
    ...(apart ? ["apart, of another patient"] : []),
    ...(lost === 0 ? [] : [`${counted(lost, "object")} lost`]),
    ...(broken === 0 ? [] : [`${counted(broken, "association")} broken off`]),
  ];
  const what = state === "job" ? jobs.map(({ rule }) => rule).join(", ") : (why ?? "");
  return [state, what, ...parts].filter((one) => one !== "").join("; ");
}

export async function receivedList(
  config: Config,
  { peer, state, limit, json }: Choice & { state?: string; limit: string },
): Promise<ExitStatus> {
  const page = `/gateway/received?${queryOf({ peer, state, limit })}`;
  const { received } = await clientWithToken(config).call(receivedListSchema, "GET", page);
  if (json === true) print(JSON.stringify({ received }, null, 2));
  else if (received.length === 0)
    remark("Nothing of it lies in the spool, as far as this token reaches.");
  else
    print(
      table([
        ["PEER", "STUDY", "SERIES", "OBJECTS", "STATE"],
        ...received.map((one) => [
          one.peer,
          one.study,
          one.series_instance_uid,
          String(one.objects),
          stateOf(one),
        ]),
      ]),
    );
  if (json !== true && received.length === Number(limit))
    remark(`These are the first ${received.length} series; --limit shows more, if there are more.`);
  return 0;
}

export async function receivedShow(
  config: Config,
  study: string,
  { json }: JsonOption,
): Promise<ExitStatus> {
  const client = clientWithToken(config);
  const { received } = await client.call(receivedStudySchema, "GET", pageOf(study));
  if (json === true) {
    print(JSON.stringify({ received }, null, 2));
    return 0;
  }
  for (const one of received) {
    print(
      `${one.series_instance_uid} of ${one.peer}, study ${one.study}: ${counted(one.objects, "object")}; ${stateOf(one)}`,
    );
    for (const { rule, takes, asked, why } of one.rules)
      print(`  ${rule}: ${takes ? (asked ? "takes it" : "not asked") : `no. ${why.join(" ")}`}`);
  }
  return 0;
}

function tellChanged(all: readonly ReceivedChange[], what: string): void {
  print(
    table([
      ["PEER", "STUDY", "SERIES", "OBJECTS"],
      ...all.map((one) => [one.peer, one.study, one.series_instance_uid, String(one.objects)]),
    ]),
  );
  print(what);
}

export async function receivedRemove(
  config: Config,
  study: string,
  { peer, series, json }: Choice,
): Promise<ExitStatus> {
  const page = `${pageOf(study)}/remove?${queryOf({ peer, series })}`;
  const { removed } = await clientWithToken(config, durations.commandWork).call(
    removedSchema,
    "POST",
    page,
  );
  if (json === true) print(JSON.stringify({ removed }, null, 2));
  else
    tellChanged(removed, "They were removed. Results of their jobs stay, and their UIDs are free.");
  return 0;
}

export async function receivedReplace(
  config: Config,
  study: string,
  { peer, series, json }: Choice,
): Promise<ExitStatus> {
  const page = `${pageOf(study)}/replace?${queryOf({ peer, series })}`;
  const { replaceable } = await clientWithToken(config, durations.commandWork).call(
    replaceableSchema,
    "POST",
    page,
  );
  if (json === true) print(JSON.stringify({ replaceable }, null, 2));
  else
    tellChanged(
      replaceable,
      "For a day, objects that are sent again with other bytes take their place and make another job.",
    );
  return 0;
}
