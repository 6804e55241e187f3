/** The list of results, and one of them with the way to the next. */
import { useContext, useState } from "preact/hooks";
import type { z } from "zod";
import type { listedSchema, Row } from "../src/results/list/list.js";
import type { Overview } from "../src/server/overview.js";
import { asked, usePoll } from "./api.js";
import { baseName, moment } from "./format.js";
import { Look } from "./look.js";
import { Allowed, Badge, FaultNote, FoundBy, NoPictures, Pager, Table } from "./parts.js";

type Listed = z.infer<typeof listedSchema>;

const LOOK_MS = 10_000;
const PAGE = 50;
const NOTHING = {
  text: "",
  patient: "",
  model: "",
  finding: "",
  modality: "",
  status: "",
  from: "",
  to: "",
};
type Filters = typeof NOTHING;

/**
 * What the list showed last: who comes back finds it so, and a result knows its neighbours. The
 * address of a result is its place in it, since a browser keeps addresses, and a path may hold a
 * name.
 */
const last: { filters: Filters; cursors: string[]; rows: Row[] } = {
  filters: NOTHING,
  cursors: [],
  rows: [],
};

const linkTo = (place: number): string => `#/results/${place + 1}`;

const nameOf = ({ receipt }: Row): string => baseName(receipt).replace(/\.json$/, "");

const FIELDS: [name: keyof Filters, label: string, type: "search" | "date"][] = [
  ["text", "Path or UID", "search"],
  ["patient", "Patient ID", "search"],
  ["finding", "Finding", "search"],
  ["modality", "Modality", "search"],
  ["from", "From", "date"],
  ["to", "To", "date"],
];

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

function List({ overview }: { overview: Overview | undefined }) {
  const [filters, setFilters] = useState(last.filters);
  const [cursors, setCursors] = useState(last.cursors);
  Object.assign(last, { filters, cursors });
  const given = Object.fromEntries(
    Object.entries(filters).filter(([, value]) => value.trim() !== ""),
  );
  const page = asked("/results/list", { ...given, limit: PAGE, cursor: cursors.at(-1) });
  const { data, fault } = usePoll<Listed>(page, () => (cursors.length === 0 ? LOOK_MS : null));
  if (data !== undefined) last.rows = data.results;
  return (
    <>
      <h1>Results</h1>
      <Filter
        filters={filters}
        models={overview?.models.map(({ name }) => name) ?? []}
        choose={(chosen) => {
          setFilters(chosen);
          setCursors([]);
        }}
      />
      {fault !== undefined && <FaultNote fault={fault} />}
      {data === undefined && fault === undefined && <p class="quiet">Loading…</p>}
      {data?.results.length === 0 && (
        <div class="empty">
          <p>{Object.keys(given).length === 0 ? "No result yet." : "No result matches."}</p>
        </div>
      )}
      {data !== undefined && data.results.length > 0 && (
        <Table label="Results" stacks head={["Written", "Image", "Modality", "Found", "Status"]}>
          {data.results.map((row, place) => (
            <tr key={row.receipt}>
              <td class="figure">{moment(row.at)}</td>
              <th scope="row" class="path">
                <a href={linkTo(place)} title={row.receipt}>
                  {nameOf(row)}
                </a>
              </th>
              <td data-label="Modality ">{row.modality ?? "–"}</td>
              <td>{row.trust.trusted ? <FoundBy models={row.models} /> : "not trusted"}</td>
              <td>
                {row.trust.trusted ? (
                  <Badge state={row.status} />
                ) : (
                  <Badge state="not_trusted" tone="bad" />
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
      <Pager cursors={cursors} next={data?.next_cursor ?? null} go={setCursors} />
    </>
  );
}

function One({ row, place }: { row: Row; place: number }) {
  const [input, give] = useState(row.input);
  const [typed, type] = useState("");
  return (
    <>
      <p class="back">
        <a href="#/results">All results</a>
        {place > 0 && <a href={linkTo(place - 1)}>Previous result</a>}
        {place + 1 < last.rows.length && <a href={linkTo(place + 1)}>Next result</a>}
      </p>
      <h1 class="path">{nameOf(row)}</h1>
      {input === undefined ? (
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
        <Look receiptPath={row.receipt} inputPath={input} />
      )}
    </>
  );
}

export function ResultsView({ hash, overview }: { hash: string; overview: Overview | undefined }) {
  const looks = useContext(Allowed).includes("view");
  const place = Number(/^#\/results\/(\d{1,4})$/.exec(hash)?.[1] ?? 0) - 1;
  const row = last.rows[place];
  if (overview === undefined) return <p class="quiet">Loading…</p>;
  if (!looks)
    return (
      <>
        <h1>Results</h1>
        <NoPictures />
      </>
    );
  return row === undefined ? (
    <List overview={overview} />
  ) : (
    <One key={row.receipt} row={row} place={place} />
  );
}
