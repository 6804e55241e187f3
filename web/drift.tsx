/** How models do from week to week, and which changes are beyond what chance gives. */
import { useContext, useState } from "preact/hooks";
import type { DriftView } from "../src/features/drift/messages.js";
import { call, useLoaded } from "./api.js";
import { count, milliseconds, percent, words } from "./format.js";
import { Allowed, Badge, Card, FaultNote, Table } from "./parts.js";

type Change = DriftView["changes"][number];
type Line = DriftView["lines"][number];

const LINES_SHOWN = 20;

const modelOf = ({ model, version, shadow }: Pick<Change, "model" | "version" | "shadow">) =>
  `${model} ${version}${shadow ? " (shadow)" : ""}`;
const small = (p: number) => (p < 0.0001 ? "< 0.0001" : p.toFixed(4));

function valueOf({ measure }: Change, value: number): string {
  return measure === "score" ? value.toFixed(3) : percent(value, 1);
}

const TESTS: Readonly<Record<Change["test"], string>> = {
  "Mann-Whitney": "Mann-Whitney, of ranks of scores",
  Fisher: "Fisher, of shares",
};

function Changes({ changes }: { changes: readonly Change[] }) {
  return (
    <Table
      label="Changes"
      stacks
      head={["Change", "Model", "Scanner", "Before", "Last week", "Studies", "Test", "Adjusted p"]}
    >
      {changes.map((one, i) => (
        <tr key={i}>
          <th scope="row">
            {words(one.measure)}
            {one.label !== undefined && ` of ${one.label}`}{" "}
            {one.marked && <Badge state="changed" tone="warn" />}
          </th>
          <td>{modelOf(one)}</td>
          <td>{one.scanner}</td>
          <td class="figure" data-label="Before ">
            {valueOf(one, one.before)}
          </td>
          <td class="figure" data-label="Last week ">
            {valueOf(one, one.now)}
          </td>
          <td class="figure" data-label="Studies ">
            {count(one.studies_before)}, {count(one.studies_now)}
          </td>
          <td>{TESTS[one.test]}</td>
          <td class="figure" data-label="Adjusted p ">
            {small(one.q)}
          </td>
        </tr>
      ))}
    </Table>
  );
}

function Weeks({ line }: { line: Line }) {
  const name = `${modelOf(line)} on ${line.scanner}`;
  return (
    <Card title={name} wide>
      <Table
        label={`Weeks of ${name}`}
        stacks
        head={[
          "Week of",
          "Studies",
          "Refused",
          "Failed",
          "With caveats",
          "Time",
          "Found in studies (median score)",
        ]}
      >
        {line.weeks.map((week) => (
          <tr key={week.monday}>
            <th scope="row" class="figure">
              {week.monday}
            </th>
            <td class="figure" data-label="Studies ">
              {count(week.studies)}
            </td>
            <td class="figure" data-label="Refused ">
              {count(week.refused)}
            </td>
            <td class="figure" data-label="Failed ">
              {count(week.failed)}
            </td>
            <td class="figure" data-label="With caveats ">
              {count(week.caveats)}
            </td>
            <td class="figure" data-label="Time ">
              {week.work_ms === null ? "–" : milliseconds(week.work_ms)}
            </td>
            <td>
              {week.labels
                .map(({ label, found, median_score: score }) =>
                  score === null ? `${label} ${found}` : `${label} ${found} (${score.toFixed(2)})`,
                )
                .join(", ")}
            </td>
          </tr>
        ))}
      </Table>
    </Card>
  );
}

function Shadow({ drift: { shadow } }: { drift: DriftView }) {
  if (shadow.length === 0) return null;
  return (
    <Card title="Shadow against active, image by image" wide>
      <Table
        label="Shadow against active"
        stacks
        head={[
          "Label",
          "Shadow",
          "Active",
          "Both",
          "Neither",
          "Only shadow",
          "Only active",
          "Adjusted p (McNemar)",
        ]}
      >
        {shadow.map((pair, i) => (
          <tr key={i}>
            <th scope="row">
              {pair.label} {pair.marked && <Badge state="differs" tone="warn" />}
            </th>
            <td>{pair.shadow}</td>
            <td>{pair.active}</td>
            {(
              [
                ["Both", pair.both],
                ["Neither", pair.neither],
                ["Only shadow", pair.onlyShadow],
                ["Only active", pair.onlyActive],
              ] as const
            ).map(([name, images]) => (
              <td key={name} class="figure" data-label={`${name} `}>
                {count(images)}
              </td>
            ))}
            <td class="figure" data-label="Adjusted p ">
              {small(pair.q)}
            </td>
          </tr>
        ))}
      </Table>
    </Card>
  );
}

function Found({ drift }: { drift: DriftView }) {
  const marked = drift.changes.filter((one) => one.marked);
  const [all, setAll] = useState(false);
  const shown = all ? drift.changes : marked;
  return (
    <>
      <section class={marked.length > 0 ? "verdict warn" : "verdict"} aria-label="Verdict">
        <h2>
          {marked.length > 0
            ? `${count(marked.length)} of ${count(drift.tested)} comparisons are beyond chance`
            : drift.tested === 0
              ? "Nothing could be compared yet"
              : "No change beyond chance"}
        </h2>
        <p>
          {count(drift.receipts)} receipts.
          {drift.untrusted > 0 &&
            ` ${count(drift.untrusted)} more are not trusted and left out.`}{" "}
          The last week is compared with the weeks before, for each model, version and scanner.
          {!drift.whole &&
            " There are more receipts than are read at once, or a folder of results is away: the others are not counted."}
          {drift.tested === 0 &&
            ` It takes ${drift.fewest_studies} studies in the last week, and as many before, of one model and scanner.`}
        </p>
      </section>
      {drift.changes.length > 0 && (
        <Card
          title={all ? "All comparisons" : "Changes beyond chance"}
          aside={
            <button type="button" class="small" aria-pressed={all} onClick={() => setAll(!all)}>
              Show all {count(drift.changes.length)}
            </button>
          }
          wide
        >
          {shown.length === 0 ? <p class="quiet">None.</p> : <Changes changes={shown} />}
        </Card>
      )}
      <Shadow drift={drift} />
      {drift.lines.slice(0, LINES_SHOWN).map((line) => (
        <Weeks key={`${modelOf(line)} ${line.scanner}`} line={line} />
      ))}
      {drift.lines.length > LINES_SHOWN && (
        <p class="quiet">
          {count(drift.lines.length - LINES_SHOWN)} more: `radserve drift` lists all.
        </p>
      )}
      <p class="quiet">
        Marked: an adjusted p of at most {drift.false_marks} (Benjamini-Hochberg over all
        comparisons), so that of all marks about that share is expected to be false. A study counts
        once. Times are not tested: a busy server is slow too. From receipts alone; no image is
        read.
      </p>
    </>
  );
}

export function DriftPage() {
  const looks = useContext(Allowed).includes("view");
  const [round, setRound] = useState(1);
  const { data, fault, busy } = useLoaded(looks ? `drift ${round}` : null, (signal) =>
    call<DriftView>("GET", "/drift", { signal, patient: true }),
  );
  return (
    <>
      <div class="job-line">
        <h1>Models over time</h1>
        {looks && (
          <button type="button" disabled={busy} onClick={() => setRound(round + 1)}>
            {busy ? "Reading receipts…" : "Refresh"}
          </button>
        )}
      </div>
      {!looks && (
        <p>
          This server does not show results. The setting <code>RADSERVE_FILES_BY_HTTP=view</code>{" "}
          allows it. On the server, <code>radserve drift</code> says the same.
        </p>
      )}
      {fault !== undefined && <FaultNote fault={fault} />}
      {data !== undefined && <Found drift={data} />}
    </>
  );
}
