/** The list of results, and one of them with the way to the next. */
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import type { FoundResult, ResultList } from "../src/features/viewer/endpoints.js";
import type { Overview } from "../src/server/overview.js";
import { Fault, faultOfPage, onLeave, session, usePoll } from "./api.js";
import { FailedView, Kinds } from "./failed.js";
import { baseName, counted, dayOf, folderName, moment, timeZone } from "./format.js";
import { Look, useFound } from "./look.js";
import {
  Again,
  Allowed,
  Badge,
  FaultNote,
  FoundBy,
  NoPictures,
  Pager,
  Renew,
  Table,
} from "./parts.js";
import { useSteady } from "./steady.js";
import { useTitle } from "./title.js";

type Named = ResultList["results"][number];

const LOOK_MS = 10_000;
const PAGE = 50;
const NOTHING = {
  text: "",
  patient: "",
  accession: "",
  model: "",
  finding: "",
  modality: "",
  status: "",
  from: "",
  to: "",
};
type Filters = typeof NOTHING;

/** A list as it was shown: what was looked for, and which page of it. */
interface Place {
  filters: Filters;
  cursors: string[];
}

const FIRST: Place = { filters: NOTHING, cursors: [] };

/**
 * The lists that this tab has shown, by the entries of its history, and the last of them: who comes
 * back finds it so, and a result knows its neighbours. In memory alone, because browsers keep
 * addresses and what stands in their history, and a PatientID is nobody's business there.
 */
const shown: { places: Map<number, Place>; last: Place; rows: readonly Named[] } = {
  places: new Map(),
  last: FIRST,
  rows: [],
};
// What one person looked for is not the next one's
onLeave(() => {
  shown.places.clear();
  Object.assign(shown, { last: FIRST, rows: [] });
});

/** The number by which this entry of the history finds its list again. */
function entryNumber(): number {
  const { list } = (history.state ?? {}) as { list?: number };
  if (typeof list === "number") return list;
  const next = Date.now() + Math.random();
  history.replaceState({ list: next }, "");
  return next;
}

const linkTo = ({ id = "" }: Pick<Named, "id">): string => `#/results/${id}`;

const nameOf = (receipt: string): string => baseName(receipt).replace(/\.json$/, "");

const FIELDS: [name: keyof Filters, label: string, type: "search" | "date"][] = [
  ["patient", "Patient ID", "search"],
  ["accession", "Accession number", "search"],
  ["text", "Path or UID", "search"],
  ["finding", "Finding", "search"],
  ["modality", "Modality", "search"],
  ["from", "From", "date"],
  ["to", "To", "date"],
];

/** Midnight of a day where the reader is, so many days later. */
function midnight(day: string, later: number): string {
  const [year = 0, month = 1, date = 1] = day.split("-").map(Number);
  return new Date(year, month - 1, date + later).toISOString();
}

/** What the server is asked for: days are those of the reader. */
function questionOf({ filters, cursors }: Place): Record<string, unknown> {
  const given = Object.fromEntries(
    Object.entries(filters).flatMap(([name, value]) => {
      const text = value.trim();
      if (text === "") return [];
      if (name === "from") return [[name, midnight(text, 0)]];
      if (name === "to") return [[name, midnight(text, 1)]];
      return [[name, name === "modality" ? text.toUpperCase() : text]];
    }),
  );
  return { ...given, limit: PAGE, cursor: cursors.at(-1) };
}

const isEmpty = (filters: Filters): boolean =>
  Object.values(filters).every((value) => value.trim() === "");

function Filter({
  filters,
  choose,
  models,
}: {
  filters: Filters;
  choose: (filters: Filters) => void;
  models: string[];
}) {
  const [typed, type] = useState(filters);
  const set = (name: keyof Filters, value: string) => type({ ...typed, [name]: value });
  return (
    <form
      class="card filters"
      role="search"
      aria-label="Results"
      onSubmit={(event) => {
        event.preventDefault();
        choose(typed);
      }}
    >
      {FIELDS.map(([name, label, type]) => {
        const field = {
          value: typed[name],
          autocomplete: "off",
          onInput: ({ currentTarget }: { currentTarget: HTMLInputElement }) =>
            set(name, currentTarget.value),
        };
        return (
          <label key={name}>
            {label}
            {type === "date" ? (
              <input type="date" {...field} />
            ) : (
              <input type="search" {...field} />
            )}
          </label>
        );
      })}
      <label>
        Model
        <select
          value={typed.model}
          onChange={({ currentTarget }) => set("model", currentTarget.value)}
        >
          <option value="">any</option>
          {models.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <label>
        Status
        <select
          value={typed.status}
          onChange={({ currentTarget }) => set("status", currentTarget.value)}
        >
          <option value="">any</option>
          <option value="completed">Completed</option>
          <option value="partial">Partial</option>
        </select>
      </label>
      <div class="orders">
        <button type="submit" class="primary">
          Show
        </button>
        <button
          type="button"
          onClick={() => {
            type(NOTHING);
            choose(NOTHING);
          }}
        >
          Clear
        </button>
      </div>
    </form>
  );
}

/** Why a result that is there may not be found: nobody may take that for its absence. */
function NothingFound({ filters }: { filters: Filters }) {
  if (isEmpty(filters))
    return (
      <div class="empty">
        <p>No result yet.</p>
      </div>
    );
  const byPerson = filters.patient.trim() !== "" || filters.accession.trim() !== "";
  return (
    <div class="empty">
      <p>No result matches.</p>
      {filters.finding.trim() !== "" && (
        <p class="quiet">A finding is found by its whole label, in upper or lower case.</p>
      )}
      {byPerson && (
        <p class="quiet">
          The whole number is compared, in upper or lower case. Results of Radserve 0.6, of radserve
          infer and of images without patients cannot be found by it, nor results outside the
          folders of this token. Failed requests have <a href="#/results/failed">a list</a> of their
          own.
        </p>
      )}
    </div>
  );
}

/** What a list lacks: nobody may take it for all. */
function Lacking({ unreadable_results: results, unreadable_lists: lists }: ResultList) {
  if (results + lists === 0) return null;
  return (
    <p class="note warn" role="alert">
      {results > 0 && `${counted(results, "result")} cannot be read now. `}
      {lists > 0 && "A folder of results is away, or its list cannot be read."}
    </p>
  );
}

function Row({ row }: { row: Named }) {
  const { whose, trust } = row;
  const study = [dayOf(whose?.study_date), whose?.description].filter((part) => part !== undefined);
  return (
    <tr>
      <td data-label="Patient ">
        {whose?.patient_name ?? whose?.patient_id ?? <span class="quiet">not known</span>}
        {whose?.patient_name !== undefined && whose.patient_id !== undefined && (
          <div class="quiet">{whose.patient_id}</div>
        )}
      </td>
      <td data-label="Study ">
        {study.length === 0
          ? "–"
          : study.map((part, i) => (
              <div key={part} class={i === 0 ? "figure" : "quiet"}>
                {part}
              </div>
            ))}
      </td>
      <th scope="row" class="path">
        {row.id === undefined ? (
          nameOf(row.receipt)
        ) : (
          <a href={linkTo(row)} title={row.receipt}>
            {nameOf(row.receipt)}
          </a>
        )}
        <div class="quiet">{folderName(row.receipt)}</div>
      </th>
      <td data-label="Modality ">{row.modality ?? "–"}</td>
      <td>{trust.trusted ? <FoundBy models={row.models} /> : "not trusted"}</td>
      <td>
        {trust.trusted ? <Badge state={row.status} /> : <Badge state="not_trusted" tone="bad" />}
      </td>
      <td class="figure" data-label="Written ">
        {moment(row.at)}
      </td>
    </tr>
  );
}

function List({ overview, first }: { overview: Overview; first: Partial<Filters> }) {
  const [entry] = useState(entryNumber);
  const [place, setPlace] = useState<Place>(() =>
    Object.keys(first).length > 0
      ? { filters: { ...NOTHING, ...first }, cursors: [] }
      : (shown.places.get(entry) ?? shown.last),
  );
  shown.places.set(entry, place);
  shown.last = place;
  const { filters, cursors } = place;
  const question = JSON.stringify(questionOf(place));
  const pause = () => (cursors.length === 0 ? LOOK_MS : null);
  const { data, fault, again } = usePoll<ResultList>("/results/search", pause, { question });
  const list = useSteady(question, data?.results, ({ receipt }) => receipt);
  if (list !== undefined) shown.rows = list.rows;
  return (
    <>
      <h1>Results</h1>
      <Kinds now="written" />
      <Filter
        key={entry}
        filters={filters}
        models={overview.models.map(({ name }) => name)}
        choose={(chosen) => {
          setPlace({ filters: chosen, cursors: [] });
          list?.renewNext();
          again();
        }}
      />
      {fault !== undefined && <FaultNote fault={fault} />}
      {data === undefined && fault === undefined && <p class="quiet">Loading…</p>}
      {data !== undefined && <Lacking {...data} />}
      {data?.results.length === 0 && <NothingFound filters={filters} />}
      {list !== undefined && <Renew of={list} />}
      {list !== undefined && list.rows.length > 0 && (
        <Table
          label="Results"
          stacks
          head={["Patient", "Study", "Image", "Modality", "Found", "Status", "Written"]}
        >
          {list.rows.map((row) => (
            <Row key={row.receipt} row={row} />
          ))}
        </Table>
      )}
      <Pager
        cursors={cursors}
        next={data?.next_cursor ?? null}
        go={(to) => setPlace({ filters, cursors: to })}
      />
      <p class="quiet">Times and days are those of your time zone, {timeZone()}.</p>
    </>
  );
}

/**
 * What the tab and the history of the browser are called by: enough to tell two tabs apart, and
 * nothing of a person, because browsers keep it.
 */
const titleOf = ({ modality, whose, written_at }: FoundResult): string =>
  [
    [modality, dayOf(whose?.study_date)].filter((part) => part !== undefined).join(" of "),
    written_at === undefined ? "" : `result of ${moment(written_at)}`,
  ]
    .filter((part) => part !== "")
    .join(", ") || "Result";

function One({ id }: { id: string }) {
  const [input, give] = useState<string>();
  const [typed, type] = useState("");
  const { data: found, fault, busy, again } = useFound({ id, input_path: input });
  const place = shown.rows.findIndex((row) => row.id === id);
  const [before, after] = [shown.rows[place - 1], place < 0 ? undefined : shown.rows[place + 1]];
  useTitle(
    fault !== undefined
      ? "A result that is not shown"
      : found === undefined
        ? "Result"
        : titleOf(found),
  );
  return (
    <>
      <p class="back">
        <a href="#/results">All results</a>
        {before !== undefined && <a href={linkTo(before)}>Previous result</a>}
        {after !== undefined && <a href={linkTo(after)}>Next result</a>}
      </p>
      <h1 class="path">
        {found !== undefined
          ? nameOf(found.receipt_path)
          : fault === undefined
            ? "Result"
            : "This result is not shown"}
      </h1>
      {fault !== undefined ? (
        <FaultNote fault={fault} />
      ) : found === undefined || busy ? (
        <p class="quiet">Loading…</p>
      ) : found.input_id === undefined || found.input_path === undefined ? (
        <form
          class="card"
          onSubmit={(event) => {
            event.preventDefault();
            give(typed);
          }}
        >
          <p>The list has no path for the image of this result.</p>
          <label>
            Path of the image or folder
            <input
              required
              value={typed}
              onInput={({ currentTarget }) => type(currentTarget.value)}
            />
          </label>
          <button type="submit" class="primary">
            Show
          </button>
        </form>
      ) : (
        <Again.Provider value={again}>
          <Look
            id={found.id}
            inputId={found.input_id}
            receiptPath={found.receipt_path}
            inputPath={found.input_path}
            whose={found.whose}
          />
        </Again.Provider>
      )}
    </>
  );
}

/** What a link of another program asks for: a study by its UID, or an accession number. */
interface AskedFor {
  study?: string;
  accession?: string;
}

const ASKED: readonly string[] = ["study", "accession"] satisfies (keyof AskedFor)[];

/** What an address asks for; a fault where it is something that no link can. */
function askedIn(hash: string): AskedFor | Fault | undefined {
  const query = /^#\/results\?(.*)$/.exec(hash)?.[1];
  if (query === undefined) return undefined;
  // Templates of a RIS leave parameters empty, and pad values with spaces
  const given = [...new URLSearchParams(query)]
    .map(([name, value]) => [name, value.trim()] as const)
    .filter(([, value]) => value !== "");
  const names = given.map(([name]) => name);
  const wrong = names.find((name, i) => !ASKED.includes(name) || names.indexOf(name) !== i);
  if (wrong === undefined && given.length > 0) return Object.fromEntries(given);
  const found = wrong === undefined ? "nothing" : `"${wrong}"`;
  return faultOfPage(
    `Expected a link that asks by study or accession, each at most once; found ${found}. Search for the result below.`,
  );
}

/**
 * The only result of what a link asks for is shown at once; of several, of none yet, or where some
 * cannot be read now, the list is shown. A result that comes later appears in the list, and does
 * not open by itself.
 */
function Linked({ asked, overview }: { asked: AskedFor; overview: Overview }) {
  const question = JSON.stringify({ ...asked, limit: 2 });
  const isThere = (found: ResultList | undefined) => (found?.results.length ?? 0) > 0;
  const { data, fault } = usePoll<ResultList>(
    "/results/search",
    (found) => (isThere(found) ? null : LOOK_MS),
    { question },
  );
  const answered = useRef<ResultList>(undefined);
  answered.current ??= data;
  const [only, another] = answered.current?.results ?? [];
  const { unreadable_results: unread = 0, unreadable_lists: away = 0 } = answered.current ?? {};
  const id = another === undefined && unread + away === 0 ? only?.id : undefined;
  useEffect(() => {
    if (id !== undefined) location.replace(linkTo({ id }));
  }, [id]);
  if (data === undefined && fault !== undefined) return <FaultNote fault={fault} />;
  if (data === undefined || id !== undefined) return <p class="quiet">Loading…</p>;
  const first: Partial<Filters> = {
    ...(asked.study === undefined ? {} : { text: asked.study }),
    ...(asked.accession === undefined ? {} : { accession: asked.accession }),
  };
  return (
    <>
      {!isThere(data) && (
        <p class="note warn" role="alert">
          There is no result of what the link asks for that this token may see.
        </p>
      )}
      <List overview={overview} first={first} />
    </>
  );
}

/**
 * A link may name a patient's accession number: it leaves the address as soon as it is read, and
 * the history of this tab with it.
 * @param hash the address that was opened last
 * @param times how many addresses were opened
 */
function useAsked(hash: string, times: number): AskedFor | Fault | undefined {
  const asked = askedIn(hash);
  useEffect(() => {
    if (asked === undefined) return;
    const leave = () => history.replaceState(history.state, "", "#/results");
    // Whoever reloads the page to sign in still finds what the link asks for
    if (session.isOver) return session.onResume(leave);
    leave();
    return undefined;
  }, [times]);
  return asked;
}

export function ResultsView({
  hash,
  times,
  overview,
}: {
  hash: string;
  times: number;
  overview: Overview | undefined;
}) {
  const looks = useContext(Allowed).includes("view");
  const asked = useAsked(hash, times);
  const id = /^#\/results\/([\w-]+)$/.exec(hash)?.[1];
  if (overview === undefined) return <p class="quiet">Loading…</p>;
  if (id === "failed") return <FailedView />;
  if (!looks)
    return (
      <>
        <h1>Results</h1>
        <Kinds now="written" />
        <NoPictures />
      </>
    );
  if (id !== undefined) return <One key={id} id={id} />;
  if (asked instanceof Fault)
    return (
      <>
        <FaultNote fault={asked} />
        <List overview={overview} first={{}} />
      </>
    );
  if (asked !== undefined) return <Linked key={times} asked={asked} overview={overview} />;
  return <List overview={overview} first={{}} />;
}
