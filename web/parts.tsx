/** Small parts that several views share. */
import { createContext, type ComponentChildren } from "preact";
import { useContext, useState } from "preact/hooks";
import type { Fault } from "./api.js";
import type { DeliveryInAnswer } from "../src/results/receipt/receipt.js";
import { count, words } from "./format.js";
import type { Steady } from "./steady.js";

/** The uses of files over HTTP that the server's settings allow. */
export const Allowed = createContext<readonly string[]>([]);

/** Loads the result that is shown from the beginning; undefined where none is shown. */
export const Again = createContext<(() => void) | undefined>(undefined);

export type Tone = "good" | "warn" | "bad" | "calm" | "busy";

export const TONES: Readonly<Record<string, Tone>> = {
  ready: "good",
  completed: "good",
  succeeded: "good",
  partial: "warn",
  paused: "warn",
  running: "busy",
  scanning: "busy",
  failed: "bad",
};

/** A state in a word, with a colour that only repeats it. */
export function Badge({ state, tone = TONES[state] ?? "calm" }: { state: string; tone?: Tone }) {
  return <span class={`badge ${tone}`}>{words(state)}</span>;
}

export function Card({
  title,
  aside,
  children,
  wide = false,
}: {
  title: string;
  aside?: ComponentChildren;
  children: ComponentChildren;
  wide?: boolean;
}) {
  return (
    <section class={wide ? "card wide" : "card"}>
      <header>
        <h2>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}

/** A bar of how much of something is taken, or done. */
export function Meter({
  label,
  part,
  all,
  text,
  tone = "calm",
}: {
  label: string;
  part: number;
  all: number;
  text: string;
  tone?: Tone;
}) {
  return (
    <div class="meter">
      <div class="meter-text">
        <span>{label}</span>
        <span class="figure">{text}</span>
      </div>
      <progress
        class={tone}
        max={Math.max(all, 1)}
        value={Math.min(part, all)}
        aria-label={`${label}: ${text}`}
      />
    </div>
  );
}

/** An error of the server: what it is, and what to do, in its own words. */
export function FaultNote({ fault }: { fault: Fault }) {
  const reasons = reasonsOf(fault.details);
  const again = useContext(Again);
  return (
    <div class="note bad" role="alert">
      <strong>{fault.status === 0 ? "No connection" : words(fault.code)}</strong>
      <p>
        {fault.message}
        {fault.isAskedAgain && " The page tries again every few seconds."}
      </p>
      {reasons.length > 0 && (
        <ul>
          {reasons.map((reason) => (
            <li key={reason}>{reason}</li>
          ))}
        </ul>
      )}
      {again !== undefined && fault.details?.["reason"] === "replaced" && (
        <button type="button" onClick={again}>
          Show the new result
        </button>
      )}
      {fault.requestId !== undefined && <p class="quiet">Request {fault.requestId}</p>}
    </div>
  );
}

interface Refusing {
  name: string;
  reasons?: { message: string }[];
}

/** Why each model refuses an image. */
function reasonsOf(details: Record<string, unknown> | undefined): string[] {
  const models = details?.["models"];
  if (!Array.isArray(models)) return [];
  return (models as Refusing[]).flatMap(({ name, reasons = [] }) =>
    reasons.map(({ message }) => `${name}: ${message}`),
  );
}

export function Copy({ text, what }: { text: string; what: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  // A page that came over plain HTTP from another machine has no clipboard
  if (!window.isSecureContext) return null;
  return (
    <button type="button" class="small" onClick={() => void copy()} aria-label={`Copy ${what}`}>
      {done ? "Copied" : "Copy"}
    </button>
  );
}

export function Facts({ rows }: { rows: [name: string, value: ComponentChildren][] }) {
  return (
    <dl class="facts">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A table that scrolls sideways by itself where it is too wide, also by keys. */
export function Table({
  label,
  head,
  children,
  stacks = false,
}: {
  label: string;
  head: string[];
  children: ComponentChildren;
  /** In a narrow window its cells stand below each other. */
  stacks?: boolean;
}) {
  return (
    <div class={stacks ? "scroll stacks" : "scroll"} tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {head.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

const AS_IT_SHOULD = ["waiting", "sent", "accepted", "proven"];

/** Where the objects of a result are, in a line for each destination and state. */
export function Deliveries({
  deliveries = [],
}: {
  deliveries?: readonly DeliveryInAnswer[] | undefined;
}) {
  const lines = new Map<string, DeliveryInAnswer[]>();
  for (const one of deliveries) {
    const key = `${one.destination} ${one.state}`;
    lines.set(key, [...(lines.get(key) ?? []), one]);
  }
  return (
    <>
      {[...lines].map(([key, objects]) => {
        const { destination = "", state = "waiting", reason } = objects[0] ?? {};
        return (
          <p key={key} class={AS_IT_SHOULD.includes(state) ? "quiet" : "note warn"}>
            {destination}: {objects.length} {words(state)}
            {reason !== undefined && ` (${reason})`}
          </p>
        );
      })}
    </>
  );
}

/** Goes through pages by their cursors, forth and back. */
export function Pager({
  cursors,
  next,
  go,
}: {
  cursors: string[];
  next: string | null;
  go: (cursors: string[]) => void;
}) {
  if (cursors.length === 0 && next === null) return null;
  return (
    <nav class="pager" aria-label="Pages">
      <button
        type="button"
        disabled={cursors.length === 0}
        onClick={() => go(cursors.slice(0, -1))}
      >
        Previous
      </button>
      <span class="quiet">Page {cursors.length + 1}</span>
      <button
        type="button"
        disabled={next === null}
        onClick={() => next !== null && go([...cursors, next])}
      >
        Next
      </button>
    </nav>
  );
}

/** That a list has changed: it is shown so when somebody asks for it. */
export function Renew({ of: { changed, renew } }: { of: Steady<unknown> }) {
  return (
    <div class="renew" role="status">
      {changed !== undefined && (
        <button type="button" onClick={renew}>
          {changed === 0 ? "The list has changed: show it" : `Show ${count(changed)} more`}
        </button>
      )}
    </div>
  );
}

/** What would let the page show results with their images. */
export function NoPictures() {
  return (
    <p class="note">
      This server does not show pictures. The setting <code>RADSERVE_FILES_BY_HTTP=view</code>{" "}
      allows results with their images.
    </p>
  );
}

interface Finder {
  name: string;
  status: string;
  shadow?: true | undefined;
  /** Absent where an earlier version did not note it. */
  found?: readonly string[] | undefined;
}

const MOST_SHOWN = 50;

const shortList = (labels: readonly string[]): string =>
  labels.length <= MOST_SHOWN
    ? labels.join(", ")
    : `${labels.slice(0, MOST_SHOWN).join(", ")}, and more`;

/** What models found in an image, a line for each that took it. */
export function FoundBy({ models }: { models: readonly Finder[] }) {
  return (
    <>
      {models.flatMap(({ name, status, shadow, found }) =>
        status === "not_accepted"
          ? []
          : [
              <div key={name}>
                <span class="quiet">
                  {name}
                  {shadow === true && " (shadow)"}
                  {(status === "failed" || found !== undefined) && ":"}
                </span>{" "}
                {status === "failed"
                  ? "failed"
                  : found?.length === 0
                    ? "nothing found"
                    : found && shortList(found)}
              </div>,
            ],
      )}
    </>
  );
}
