/** The list of results, and one of them with the way to the next. */
import { useContext, useState } from "preact/hooks";
import type { ListedRow } from "../src/features/viewer/list/list.js";
import type { Overview } from "../src/server/overview.js";
import { usePoll } from "./api.js";
import { baseName, moment } from "./format.js";
import { Look, useFound } from "./look.js";
import { Allowed, Badge, FaultNote, FoundBy, NoPictures, Pager, Table } from "./parts.js";

type Named = ListedRow & { id?: string };
interface Listed {
  results: Named[];
  next_cursor: string | null;
}

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
 * address of a result is its opaque name: a path may hold a person's, and a place in a list that
 * changes would show another patient to who comes back.
 */
const last: { filters: Filters; cursors: string[]; rows: Named[] } = {
  filters: NOTHING,
  cursors: [],
  rows: [],
};

const linkTo = ({ id = "" }: Named): string => `#/results/${id}`;

const nameOf = (receipt: string): string => baseName(receipt).replace(/\.json$/, "");

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
  const question = JSON.stringify({ ...given, limit: PAGE, cursor: cursors.at(-1) });
  const pause = () => (cursors.length === 0 ? LOOK_MS : null);
  const { data, fault } = usePoll<Listed>("/results/search", pause, question);
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
          {data.results.map((row) => (
            <tr key={row.receipt}>
              <td class="figure">{moment(row.at)}</td>
              <th scope="row" class="path">
                {row.id === undefined ? (
                  nameOf(row.receipt)
                ) : (
                  <a href={linkTo(row)} title={row.receipt}>
                    {nameOf(row.receipt)}
                  </a>
                )}
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

function One({ id }: { id: string }) {
  const [input, give] = useState<string>();
  const [typed, type] = useState("");
  const { data: found, fault, busy } = useFound({ id, input_path: input });
  const place = last.rows.findIndex((row) => row.id === id);
  const [before, after] = [last.rows[place - 1], place < 0 ? undefined : last.rows[place + 1]];
  return (
    <>
      <p class="back">
        <a href="#/results">All results</a>
        {before !== undefined && <a href={linkTo(before)}>Previous result</a>}
        {after !== undefined && <a href={linkTo(after)}>Next result</a>}
      </p>
      <h1 class="path">{found === undefined ? "Result" : nameOf(found.receipt_path)}</h1>
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
        <Look
          id={found.id}
          inputId={found.input_id}
          receiptPath={found.receipt_path}
          inputPath={found.input_path}
        />
      )}
    </>
  );
}

export function ResultsView({ hash, overview }: { hash: string; overview: Overview | undefined }) {
  const looks = useContext(Allowed).includes("view");
  const id = /^#\/results\/([\w-]+)$/.exec(hash)?.[1];
  if (overview === undefined) return <p class="quiet">Loading…</p>;
  if (!looks)
    return (
      <>
        <h1>Results</h1>
        <NoPictures />
      </>
    );
  return id === undefined ? <List overview={overview} /> : <One key={id} id={id} />;
}
