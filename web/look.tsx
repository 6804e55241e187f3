/** A result with its image: the picture, what was found, and everything that the receipt says. */
import { useContext, useRef, useState } from "preact/hooks";
import { stepText } from "../src/images/step-text.js";
import type { FoundResult } from "../src/features/viewer/endpoints.js";
import type { Whose } from "../src/features/viewer/list/whose.js";
import type { Receipt } from "../src/results/receipt/receipt.js";
import type { Trust } from "../src/results/receipt/seal.js";
import type { ResultMarks, Shown, Verification } from "../src/features/viewer/messages.js";
import { asked, call, judge, saveFile, useLoaded, type Fault } from "./api.js";
import { baseName, bytes, dayOf, words } from "./format.js";
import { Onward } from "./onward.js";
import { Again, Allowed, Badge, Card, Copy, FaultNote, Table, type Tone } from "./parts.js";
import { firstSeen, ModelResult, type Seen } from "./result.js";
import {
  hasBoxes,
  hasMasks,
  marksOf,
  NO_MARKS,
  overlayOf,
  Stage,
  usePng,
  type Overlay,
} from "./stage.js";
import type { Go, Paths, Spot } from "./viewer.js";

type Model = Receipt["models"][number];

const WHY: Readonly<Record<Extract<Trust, { trusted: false }>["why"], string>> = {
  no_mac: "It has no signature: an older Radserve wrote it, or somebody else.",
  wrong_mac: "It was changed or renamed after it was written.",
  unknown_key: "Another installation wrote it, or its key was removed.",
  no_receipt: "The file is not a receipt any more.",
};

/** In place of findings that may be anybody's. */
export function NotTrusted({ trust }: { trust: Extract<Trust, { trusted: false }> }) {
  return (
    <p class="note bad wide" role="alert">
      <strong>This result cannot be trusted.</strong> {WHY[trust.why]} Nothing of it is shown. Send
      the image again, or have it checked and signed on the server: <code>radserve adopt</code>.
    </p>
  );
}

function Steps({ title, steps }: { title: string; steps: Receipt["transforms"] }) {
  if (steps.length === 0) return null;
  return (
    <details>
      <summary>{title}</summary>
      <ol>
        {steps.map((step, i) => (
          <li key={i}>{stepText(step)}</li>
        ))}
      </ol>
    </details>
  );
}

function Files({ receipt, paths }: { receipt: Receipt; paths: Paths }) {
  const gives = useContext(Allowed).includes("download");
  const [fault, setFault] = useState<Fault>();
  const folder = paths.receiptPath.slice(0, -baseName(paths.receiptPath).length);
  const files = [
    {
      path: baseName(paths.receiptPath),
      media_type: "application/json",
      bytes: undefined,
      meant: { mac: paths.mac },
    },
    ...receipt.models
      .flatMap(({ outputs }) => outputs)
      .map((file) => ({ ...file, meant: { sha256: file.sha256 } })),
  ];
  const save = async ({ path, meant }: (typeof files)[number]) => {
    setFault(undefined);
    try {
      await saveFile(folder + path, meant);
    } catch (thrown) {
      setFault(judge(thrown));
    }
  };
  return (
    <Card title="Files" wide>
      {fault !== undefined && <FaultNote fault={fault} />}
      <ul class="files">
        {files.map((file) => (
          <li key={file.path}>
            <code>{file.path}</code>{" "}
            <span class="quiet">
              {file.media_type}
              {file.bytes !== undefined && `, ${bytes(file.bytes)}`}
            </span>{" "}
            {gives && (
              <button type="button" class="small" onClick={() => void save(file)}>
                Save<span class="unseen"> {file.path}</span>
              </button>
            )}{" "}
            <Copy text={folder + file.path} what={`the path of ${file.path}`} />
          </li>
        ))}
      </ul>
    </Card>
  );
}

const VERDICTS: Readonly<Record<Verification["checks"][number]["verdict"], Tone>> = {
  ok: "good",
  differs: "bad",
  missing: "bad",
  not_replayed: "warn",
  unsigned: "warn",
  known_fault: "warn",
};

function Verify({ paths }: { paths: Paths }) {
  const [busy, setBusy] = useState(false);
  const [fault, setFault] = useState<Fault>();
  const [found, setFound] = useState<Verification>();
  const verify = async () => {
    setBusy(true);
    setFault(undefined);
    try {
      const page = asked("/results/verification", {
        id: paths.id,
        mac: paths.mac,
        input_id: paths.inputId,
      });
      setFound(await call<Verification>("GET", page, { patient: true }));
    } catch (thrown) {
      setFault(judge(thrown));
    }
    setBusy(false);
  };
  return (
    <Card title="Verify this result" wide>
      <p>Every file is compared with the receipt, and the models compute the result again.</p>
      <div class="orders">
        <button type="button" disabled={busy} onClick={() => void verify()}>
          {busy ? "Recomputing…" : "Verify"}
        </button>
      </div>
      <div aria-live="polite">
        {fault !== undefined && <FaultNote fault={fault} />}
        {found !== undefined && (
          <>
            <p class={found.equal ? "note" : "note bad"}>
              {found.equal
                ? "Verified: every file and every replayed result is equal."
                : "Not verified: something differs, is missing or cannot be replayed."}
            </p>
            <Table label="Checks" stacks head={["What", "Verdict", "Why"]}>
              {found.checks.map(({ what, verdict, detail }, i) => (
                <tr key={i}>
                  <th scope="row" class="path">
                    {what}
                  </th>
                  <td>
                    <Badge state={verdict} tone={VERDICTS[verdict]} />
                  </td>
                  <td>{detail}</td>
                </tr>
              ))}
            </Table>
          </>
        )}
      </div>
    </Card>
  );
}

/** The result of a model for one frame, and for the whole. */
const onFrame = (model: Model, frame: number): Model => ({
  ...model,
  findings: model.findings.filter((one) => one.frame === undefined || one.frame === frame),
  measurements: model.measurements.filter((one) => one.frame === undefined || one.frame === frame),
});

/** The picture that a model wrote, which shows what it found where the stage cannot. */
function Written({ paths, model }: { paths: Paths; model: Model }) {
  const isAlone = !hasMasks(model) && !hasBoxes(model);
  const isThere = model.outputs.some(({ media_type: type }) => type === "image/png");
  const [open, setOpen] = useState(isAlone);
  const { url, fault } = usePng(
    open && isThere
      ? asked("/results/picture", {
          id: paths.id,
          mac: paths.mac,
          input_id: paths.inputId,
          model: model.name,
        })
      : null,
  );
  if (!isThere) return null;
  return (
    <details open={open} onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>The picture that {model.name} wrote</summary>
      {fault !== undefined && <FaultNote fault={fault} />}
      {url !== undefined && (
        <img class="written" src={url} alt={`The picture that ${model.name} wrote`} />
      )}
    </details>
  );
}

/** Whose the result is, as the image said it when it was analysed. */
function Identity({ whose }: { whose: Whose | undefined }) {
  if (whose === undefined)
    return (
      <p class="whose quiet">
        The list does not know the patient. The corners of the picture say what the image says.
      </p>
    );
  const { patient_name, patient_id, study_date, description, accession } = whose;
  const parts = [
    dayOf(study_date) ?? "no study date",
    description,
    accession === undefined ? undefined : `accession ${accession}`,
  ].filter((part) => part !== undefined);
  return (
    <p class="whose">
      <strong>
        {[...new Set([patient_name, patient_id])].filter((part) => part !== undefined).join(", ") ||
          "The image names no patient"}
      </strong>{" "}
      <span class="quiet">{parts.join(" · ")}</span>
    </p>
  );
}

/**
 * The names and paths of a result, which is asked for by one of them; `again` asks anew, and what
 * is shown meanwhile of the result goes.
 */
export function useFound(question: {
  id?: string;
  receipt_path?: string;
  input_path?: string | undefined;
}) {
  const [round, setRound] = useState(0);
  const found = useLoaded(`${round} ${JSON.stringify(question)}`, (signal) =>
    call<FoundResult>("POST", "/results/find", { body: question, signal }),
  );
  return { ...found, again: () => setRound((n) => n + 1) };
}

/** A result that was written down somewhere, whose place a newer one may have taken since. */
interface Meant {
  /** `finished_at` of its receipt; summaries of jobs of earlier versions do not have it. */
  finishedAt: string | undefined;
  /** SHA-256 of its files. */
  files: readonly string[];
}

/** A result whose paths are known. */
export function LookAt({
  meant,
  ...paths
}: Pick<Paths, "receiptPath" | "inputPath"> & { meant: Meant }) {
  const { receiptPath, inputPath } = paths;
  const question = { receipt_path: receiptPath, input_path: inputPath };
  const { data, fault, busy, again } = useFound(question);
  if (fault !== undefined) return <FaultNote fault={fault} />;
  if (data?.input_id === undefined || busy) return <p class="quiet">Loading…</p>;
  return (
    <Again.Provider value={again}>
      <Look {...paths} id={data.id} inputId={data.input_id} whose={data.whose} meant={meant} />
    </Again.Provider>
  );
}

type Looked = Omit<Paths, "mac"> & {
  whose: Whose | undefined;
  meant?: Meant | undefined;
};

/** Whether a receipt is of the result that is meant. */
function isOf({ models, timings }: Receipt, { finishedAt, files }: Meant): boolean {
  if (finishedAt !== undefined) return timings.finished_at === finishedAt;
  const now = models.flatMap(({ outputs }) => outputs.map(({ sha256 }) => sha256));
  return now.toSorted().join() === files.toSorted().join();
}

/** The slice that has most of what was found, of what only its segmentation knows. */
async function fullestOf(
  { id, mac }: Paths,
  { model, label }: Extract<Seen, { label: string }>,
  signal?: AbortSignal,
): Promise<number> {
  const page = asked("/results/marks", { id, mac, model, fullest: label });
  const { frame } = await call<ResultMarks>("GET", page, { signal });
  return frame ?? 1;
}

/**
 * Opens at what was found, with the marks of the model that found it. Where that is not to be had,
 * the first slice is shown, and the reason where its marks would be.
 */
function useFirst(
  paths: Paths,
  receipt: Shown | undefined,
): { frame: number; model?: string } | undefined {
  const seen = receipt?.trust.trusted === true ? firstSeen(receipt.models) : undefined;
  const asks = seen !== undefined && "label" in seen ? seen : undefined;
  const { data, fault } = useLoaded(
    asks === undefined ? null : `${paths.id} ${asks.model} ${asks.label}`,
    async (signal) => asks && fullestOf(paths, asks, signal),
  );
  if (seen === undefined) return { frame: 1 };
  const frame = "frame" in seen ? seen.frame : fault === undefined ? data : 1;
  return frame === undefined ? undefined : { frame, model: seen.model };
}

export function Look({ whose, meant, ...named }: Looked) {
  const page = asked("/results", { id: named.id });
  const {
    data: receipt,
    fault,
    busy,
  } = useLoaded(page, (signal) => call<Shown>("GET", page, { signal }));
  const [place, setPlace] = useState<Spot>();
  const [chosen, choose] = useState<Overlay>();
  const [one, setOne] = useState(false);
  const [unseen, setUnseen] = useState<Fault>();
  const paths: Paths = {
    ...named,
    mac: receipt?.trust.trusted === true ? receipt.mac?.hmac_sha256 : undefined,
  };
  const first = useFirst(paths, busy ? undefined : receipt);
  /** What was asked for last: an answer that comes after it changes nothing. */
  const wanted = useRef(0);
  if (fault !== undefined) return <FaultNote fault={fault} />;
  if (receipt === undefined || busy) return <p class="quiet">Loading…</p>;
  if (!receipt.trust.trusted)
    return (
      <section class="grid wide" aria-label="What was found">
        <NotTrusted trust={receipt.trust} />
        <Verify paths={paths} />
      </section>
    );
  if (first === undefined) return <p class="quiet">Loading…</p>;
  const { frames, rows, columns } = receipt.source;
  const middle = (side: number) => Math.ceil(side / 2);
  const start = { across: undefined, row: middle(rows), column: middle(columns) };
  const here = place ?? { ...start, frame: first.frame };
  const { models } = receipt;
  const marksOfModel = (of?: string) => marksOf(models.find(({ name }) => name === of));
  const overlay = chosen ?? marksOfModel(first.model) ?? overlayOf(models) ?? NO_MARKS;
  const go: Go = (to) => {
    wanted.current += 1;
    setPlace((before) => ({ ...here, ...before, ...to }));
  };
  const many = frames > 1;
  const part = receipt.source.slices === undefined ? "frame" : "slice";
  const show = async (where: Seen) => {
    setUnseen(undefined);
    const mine = (wanted.current += 1);
    try {
      const frame = "frame" in where ? where.frame : await fullestOf(paths, where);
      if (wanted.current !== mine) return;
      go({ across: undefined, frame });
      document.querySelector<HTMLElement>(".stage")?.focus();
    } catch (thrown) {
      const fault = judge(thrown);
      if (wanted.current === mine) setUnseen(fault);
    }
  };
  return (
    <section class="grid wide" aria-label="What was found">
      {meant !== undefined && !isOf(receipt, meant) && (
        <p class="note warn wide" role="alert">
          <strong>Replaced by a newer result.</strong> What was found before is not there any more.
        </p>
      )}
      <Identity whose={whose} />
      <Stage
        paths={paths}
        whose={whose}
        receipt={receipt}
        place={here}
        go={go}
        overlay={overlay}
        draw={choose}
        find={(model, label) => void show({ model, label })}
      />
      {unseen !== undefined && <FaultNote fault={unseen} />}
      {receipt.warnings.map(({ code, message }) => (
        <p key={code + message} class="note warn wide">
          <strong>{words(code)}</strong> {message}
        </p>
      ))}
      {many && (
        <label class="stat wide">
          <input
            type="checkbox"
            checked={one}
            onChange={({ currentTarget }) => setOne(currentTarget.checked)}
          />
          Findings of this {part} alone
        </label>
      )}
      {models.map((model) => (
        <ModelResult
          key={model.name}
          model={many && one ? onFrame(model, here.frame) : model}
          part={part}
          files={false}
          show={
            many
              ? (where) => {
                  // The marks of another model could be taken for this finding
                  choose((now) => marksOfModel(where.model) ?? now);
                  void show(where);
                }
              : undefined
          }
        >
          <Written paths={paths} model={model} />
          <Steps
            title="From the file to the model, step by step"
            steps={[...receipt.transforms, ...model.transforms]}
          />
          <Steps title="From the model's numbers to findings" steps={model.decoding ?? []} />
        </ModelResult>
      ))}
      <Onward receipt={receipt} />
      <Files receipt={receipt} paths={paths} />
      <Verify paths={paths} />
    </section>
  );
}
