/** What came in from whom, what waits for what, what nothing becomes of, and what goes out. */
import { useState } from "preact/hooks";
import type { DeliveryList, Undelivered } from "../src/features/gateway/deliver/messages.js";
import type { Received } from "../src/features/gateway/receive/received.js";
import type { Senders } from "../src/features/gateway/receive/senders.js";
import { asked, call, judge, usePoll, type Fault, type Polled } from "./api.js";
import { baseName, bytes, count, counted, moment, words } from "./format.js";
import { Badge, Card, Copy, FaultNote, Table, type Tone } from "./parts.js";

const LOOK_MS = 5_000;
const SHOWN = 100;

/** Without a gateway that receives, or without its subject, nothing is shown of what came. */
const isNotMine = ({ code }: Fault): boolean => code === "path_not_allowed" || code === "not_found";

const totalOf = (counts: Record<string, number>): number =>
  Object.values(counts).reduce((sum, one) => sum + one, 0);

/** For example "3 (corrupt image 2, disk full 1)". */
function Refused({ of }: { of: Record<string, number> }) {
  const all = Object.entries(of);
  const shown = all.map(([reason, times]) => {
    const what = words(reason).toLowerCase();
    return all.length === 1 ? what : `${what} ${count(times)}`;
  });
  return (
    <>
      <span class="figure">{count(totalOf(of))}</span>
      {all.length > 0 && <span class="quiet"> ({shown.join(", ")})</span>}
    </>
  );
}

function SendersCard({ data }: { data: Senders }) {
  return (
    <Card
      title="What came in"
      aside={<span class="quiet">{counted(data.associations, "open association")}</span>}
      wide
    >
      <Table
        label="Senders"
        stacks
        head={["Sender", "Studies", "Objects", "Size", "Refused", "Last object"]}
      >
        {data.senders.map((one) => (
          <tr key={one.peer}>
            <th scope="row">{one.peer}</th>
            <td class="figure" data-label="Studies ">
              {count(one.studies)}
            </td>
            <td class="figure" data-label="Objects ">
              {count(one.objects)}
            </td>
            <td class="figure" data-label="Size ">
              {bytes(one.bytes)}
            </td>
            <td data-label="Refused ">
              <Refused of={one.refused} />
            </td>
            <td class="figure" data-label="Last object ">
              {one.last_at === null ? "none yet" : moment(one.last_at)}
            </td>
          </tr>
        ))}
      </Table>
      {data.contexts.length + data.callers.length > 0 && (
        <ul class="quiet">
          {data.contexts.map(({ peer, sop_class, why, count: times }) => (
            <li key={`${peer} ${sop_class} ${why}`}>
              {peer}: {count(times)} refused by {words(why)}, <code>{sop_class}</code>
            </li>
          ))}
          {data.callers.map(({ why, name, count: times }) => (
            <li key={`${why} ${name}`}>
              Strangers: {count(times)} refused by {words(why).toLowerCase()}, <code>{name}</code>
            </li>
          ))}
        </ul>
      )}
      <p class="quiet">
        Studies and objects are those in the spool now. Refusals are counted on this node since{" "}
        {moment(data.since)}.
      </p>
    </Card>
  );
}

const HEAD = ["Series", "Sender", "Objects"];

function SeriesCells({ one }: { one: Received }) {
  return (
    <>
      <th scope="row" class="uid">
        {one.series_instance_uid}
        <br />
        <span class="quiet">of study {one.study_instance_uid}</span>{" "}
        <Copy text={one.study_instance_uid} what="StudyInstanceUID" />
        {one.apart && <span class="quiet"> of another patient under the same study</span>}
      </th>
      <td>{one.peer}</td>
      <td class="figure" data-label="Objects ">
        {count(one.objects)}
      </td>
    </>
  );
}

function interruption({ lost, broken }: Received): string {
  return [
    ...(lost === 0 ? [] : [`${counted(lost, "object")} begun and not kept`]),
    ...(broken === 0 ? [] : [`${counted(broken, "association")} broken off`]),
  ].join(", ");
}

function WaitingCard({ waiting }: { waiting: readonly Received[] }) {
  return (
    <Card title="What waits" aside={<Many of={waiting} />} wide>
      {waiting.length === 0 ? (
        <p class="quiet">No series waits.</p>
      ) : (
        <Table label="Series that wait" stacks head={[...HEAD, "Waits for"]}>
          {waiting.map((one) => (
            <tr key={`${one.peer} ${one.study} ${one.series_instance_uid}`}>
              <SeriesCells one={one} />
              <td>
                {interruption(one) === ""
                  ? "its sender: it may not be complete"
                  : `the rest, to be sent again: ${interruption(one)}`}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Card>
  );
}

const WHY: Readonly<Record<NonNullable<Received["why"]>, string>> = {
  no_rule: "no rule takes it",
  no_images: "it has no images",
  not_largest: "another series of its study is larger",
  not_whole: "it did not come whole, and its rule requires that",
  series_missing: "its rule requires series that have not come",
  discarded: "its rule discards it",
};

function UnusedCard({ unused }: { unused: readonly Received[] }) {
  return (
    <Card title="What nothing becomes of" aside={<Many of={unused} />} wide>
      {unused.length === 0 ? (
        <p class="quiet">None: a rule takes each series that came.</p>
      ) : (
        <>
          <Table label="Series that nothing becomes of" stacks head={[...HEAD, "Why"]}>
            {unused.map((one) => (
              <tr key={`${one.peer} ${one.study} ${one.series_instance_uid}`}>
                <SeriesCells one={one} />
                <td>
                  {one.why !== null && WHY[one.why]}
                  {interruption(one) !== "" && ` (${interruption(one)})`}
                </td>
              </tr>
            ))}
          </Table>
          <p class="quiet">
            It is kept for the time <code>keep</code>. On the server,{" "}
            <code>radserve received show STUDY</code> says why each rule takes it or not.
          </p>
        </>
      )}
    </Card>
  );
}

/** A list that may go on. */
function Many({ of }: { of: readonly unknown[] }) {
  if (of.length === 0) return null;
  return (
    <span class="quiet">{of.length < SHOWN ? count(of.length) : `the first ${count(SHOWN)}`}</span>
  );
}

const DELIVERY_TONES: Readonly<Record<string, Tone>> = {
  waiting: "busy",
  sent: "busy",
  proven: "good",
  accepted: "good",
  refused: "bad",
  unproven: "bad",
};

/** The objects of a result for one destination, in a line for each state and reason. */
function statesOf(objects: Undelivered["destinations"][string]) {
  const lines = new Map<string, { state: string; reason: string | undefined; objects: number }>();
  for (const { state, reason } of objects) {
    const key = `${state} ${reason ?? ""}`;
    const known = lines.get(key) ?? { state, reason, objects: 0 };
    lines.set(key, { ...known, objects: known.objects + 1 });
  }
  return [...lines.values()];
}

const isSetAside = (state: string) => state === "refused" || state === "unproven";

/** Whether something of it can be sent again: objects set aside, or messages given up. */
const mayRetry = ({ destinations, events }: Undelivered): boolean =>
  Object.values(destinations).some((objects) => objects.some(({ state }) => isSetAside(state))) ||
  events.some(({ state }) => state === "given_up");

function Retry({ id, done }: { id: string; done: () => void }) {
  const [busy, setBusy] = useState(false);
  const [fault, setFault] = useState<Fault>();
  const retry = async () => {
    setBusy(true);
    setFault(undefined);
    try {
      await call("POST", asked("/deliveries/retry", { id }));
    } catch (thrown) {
      setFault(judge(thrown));
    }
    setBusy(false);
    done();
  };
  return (
    <>
      <button type="button" class="small" disabled={busy} onClick={() => void retry()}>
        Send again
      </button>
      {fault !== undefined && <FaultNote fault={fault} />}
    </>
  );
}

function DeliveryRows({ one, again }: { one: Undelivered; again: () => void }) {
  const lines = [
    ...Object.entries(one.destinations).flatMap(([to, objects]) =>
      statesOf(objects).map((line) => ({ to, ...line, what: counted(line.objects, "object") })),
    ),
    ...one.events.map(({ webhook, event, state, reason }) => ({
      to: `webhook ${webhook}`,
      state,
      reason,
      what: `message: ${words(event).toLowerCase()}`,
    })),
  ];
  return (
    <>
      {lines.map(({ to, state, reason, what }, i) => (
        <tr key={`${to} ${i}`}>
          {i === 0 && (
            <th scope="row" rowSpan={lines.length}>
              {baseName(one.receipt_path)}
              {one.replaced && <span class="quiet"> replaced by a newer result</span>}
              <br />
              <span class="quiet">asked {moment(one.asked_at)}</span>
              {mayRetry(one) && (
                <div class="orders">
                  <Retry id={one.id} done={again} />
                </div>
              )}
            </th>
          )}
          <td>{to}</td>
          <td>
            <Badge state={state} tone={DELIVERY_TONES[state] ?? "calm"} />{" "}
            <span class="quiet">{what}</span>
          </td>
          <td class="words">{reason ?? ""}</td>
        </tr>
      ))}
    </>
  );
}

function DeliveriesCard({ data, again }: { data: DeliveryList; again: () => void }) {
  const { deliveries, hidden } = data;
  return (
    <Card title="Deliveries" aside={<Many of={deliveries} />} wide>
      {deliveries.length === 0 ? (
        <p class="quiet">Nothing waits, and nothing was set aside.</p>
      ) : (
        <Table label="Deliveries" stacks head={["Result", "To", "State", "Cause"]}>
          {deliveries.map((one) => (
            <DeliveryRows key={`${one.id} ${one.receipt_path}`} one={one} again={again} />
          ))}
        </Table>
      )}
      {hidden > 0 && (
        <p class="quiet">
          {counted(hidden, "more result")} of other subjects, or in folders that this token does not
          reach: a token with the claim admin shows them.
        </p>
      )}
    </Card>
  );
}

function Came({ senders }: { senders: Polled<Senders> }) {
  const seen = senders.data !== undefined;
  const list = (state: Received["state"]) =>
    seen ? asked("/gateway/received", { state, limit: SHOWN }) : null;
  const waiting = usePoll<{ received: Received[] }>(list("waiting"), () => LOOK_MS);
  const unused = usePoll<{ received: Received[] }>(list("unused"), () => LOOK_MS);
  const fault = [senders, waiting, unused].find((one) => one.fault !== undefined)?.fault;
  return (
    <>
      {fault !== undefined && !isNotMine(fault) && <FaultNote fault={fault} />}
      {senders.fault?.code === "path_not_allowed" && (
        <p class="note">
          What came in is shown to tokens of the subject <code>gateway</code>, and to those with the
          claim <code>admin</code>.
        </p>
      )}
      {senders.data !== undefined && <SendersCard data={senders.data} />}
      {waiting.data !== undefined && <WaitingCard waiting={waiting.data.received} />}
      {unused.data !== undefined && <UnusedCard unused={unused.data.received} />}
    </>
  );
}

export function GatewayView() {
  const senders = usePoll<Senders>("/gateway/senders", () => LOOK_MS);
  const deliveries = usePoll<DeliveryList>(asked("/deliveries", { limit: SHOWN }), () => LOOK_MS);
  const isLoading = senders.data === undefined && senders.fault === undefined;
  return (
    <>
      <h1>Gateway</h1>
      {isLoading && <p class="quiet">Loading…</p>}
      <div class="grid">
        <Came senders={senders} />
        {deliveries.fault !== undefined && !isNotMine(deliveries.fault) && (
          <FaultNote fault={deliveries.fault} />
        )}
        {deliveries.data !== undefined && (
          <DeliveriesCard data={deliveries.data} again={deliveries.again} />
        )}
      </div>
    </>
  );
}
