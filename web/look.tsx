/** A result with its image: the picture, what was found, and everything that the receipt says. */
import { useContext, useState } from "preact/hooks";
import { stepText } from "../src/images/step-text.js";
import type { Receipt } from "../src/results/receipt/receipt.js";
import type { Trust } from "../src/results/receipt/seal.js";
import type { ResultMarks, Verification } from "../src/features/viewer/messages.js";
import { asked, call, judge, saveFile, useLoaded, type Fault } from "./api.js";
import { baseName, bytes, words } from "./format.js";
import { Allowed, Badge, Card, Copy, FaultNote, Table, type Tone } from "./parts.js";
import { ModelResult, type Seen } from "./result.js";
import { hasBoxes, hasMasks, Stage, usePng } from "./stage.js";
import type { Go, Paths, Spot } from "./viewer.js";

type Model = Receipt["models"][number];
/** The answer of GET /results. */
type Shown = Receipt & { trust: Trust };

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
    { path: baseName(paths.receiptPath), media_type: "application/json", bytes: undefined },
    ...receipt.models.flatMap(({ outputs }) => outputs),
  ];
  const save = async (path: string) => {
    setFault(undefined);
    try {
      await saveFile(folder + path);
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
              <button type="button" class="small" onClick={() => void save(file.path)}>
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

interface FoundResult {
  id: string;
  input_id?: string;
  receipt_path: string;
  input_path?: string;
}

/** The names and paths of a result, which is asked for by one of them. */
export function useFound(question: {
  id?: string;
  receipt_path?: string;
  input_path?: string | undefined;
}) {
  return useLoaded(JSON.stringify(question), (signal) =>
    call<FoundResult>("POST", "/results/find", { body: question, signal }),
  );
}

/** A result whose paths are known. */
export function LookAt(paths: Pick<Paths, "receiptPath" | "inputPath">) {
  const { receiptPath, inputPath } = paths;
  const question = { receipt_path: receiptPath, input_path: inputPath };
  const { data, fault, busy } = useFound(question);
  if (fault !== undefined) return <FaultNote fault={fault} />;
  if (data?.input_id === undefined || busy) return <p class="quiet">Loading…</p>;
  return <Look {...paths} id={data.id} inputId={data.input_id} />;
}

export function Look(paths: Paths) {
  const page = asked("/results", { id: paths.id });
  const {
    data: receipt,
    fault,
    busy,
  } = useLoaded(page, (signal) => call<Shown>("GET", page, { signal }));
  const [place, setPlace] = useState<Spot>();
  const [one, setOne] = useState(false);
  const [unseen, setUnseen] = useState<Fault>();
  if (fault !== undefined) return <FaultNote fault={fault} />;
  if (receipt === undefined || busy) return <p class="quiet">Loading…</p>;
  if (!receipt.trust.trusted)
    return (
      <section class="grid wide" aria-label="What was found">
        <NotTrusted trust={receipt.trust} />
        <Verify paths={paths} />
      </section>
    );
  const { frames, rows, columns } = receipt.source;
  const middle = (side: number) => Math.ceil(side / 2);
  const here = place ?? { across: undefined, frame: 1, row: middle(rows), column: middle(columns) };
  const go: Go = (to) => setPlace((before) => ({ ...here, ...before, ...to }));
  const many = frames > 1;
  const part = receipt.source.slices === undefined ? "frame" : "slice";
  const show = async (where: Seen) => {
    setUnseen(undefined);
    try {
      const { frame } =
        "frame" in where
          ? where
          : await call<ResultMarks>(
              "GET",
              asked("/results/marks", {
                id: paths.id,
                model: where.model,
                fullest: where.label,
              }),
            );
      go({ across: undefined, frame: frame ?? 1 });
      document.querySelector<HTMLElement>(".stage")?.focus();
    } catch (thrown) {
      setUnseen(judge(thrown));
    }
  };
  return (
    <section class="grid wide" aria-label="What was found">
      <Stage paths={paths} receipt={receipt} place={here} go={go} />
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
      {receipt.models.map((model) => (
        <ModelResult
          key={model.name}
          model={many && one ? onFrame(model, here.frame) : model}
          part={part}
          files={false}
          show={many ? (where) => void show(where) : undefined}
        >
          <Written paths={paths} model={model} />
          <Steps
            title="From the file to the model, step by step"
            steps={[...receipt.transforms, ...model.transforms]}
          />
          <Steps title="From the model's numbers to findings" steps={model.decoding ?? []} />
        </ModelResult>
      ))}
      <Files receipt={receipt} paths={paths} />
      <Verify paths={paths} />
    </section>
  );
}
