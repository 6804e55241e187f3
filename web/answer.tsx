/** What a single request was answered: its result with its images, where they may be looked at. */
import type { Answer } from "../src/results/receipt/receipt.js";
import { useContext } from "preact/hooks";
import { LookAt } from "./look.js";
import { baseName, milliseconds, words } from "./format.js";
import { Allowed, Badge, Card, Copy, Deliveries, NoPictures } from "./parts.js";
import { ModelResult } from "./result.js";

export function Result({ answer }: { answer: Answer }) {
  const { total } = answer.timings_ms;
  const looks = useContext(Allowed).includes("view");
  return (
    <section class="grid result" aria-label="Result">
      <Card title={baseName(answer.input_image_path)} aside={<Badge state={answer.status} />} wide>
        <p>
          {answer.reused ? "This result existed already and was reused." : "The result is written."}
          {total !== undefined && ` It took ${milliseconds(total)}.`}
        </p>
        {answer.warnings.map(({ code, message }) => (
          <p key={code + message} class="note warn">
            <strong>{words(code)}</strong> {message}
          </p>
        ))}
        {!looks && <Deliveries deliveries={answer.deliveries} />}
        <p>
          Receipt <code>{answer.receipt_path}</code>{" "}
          <Copy text={answer.receipt_path} what="the path of the receipt" />
        </p>
      </Card>
      {looks ? (
        <LookAt
          key={answer.request_id}
          receiptPath={answer.receipt_path}
          inputPath={answer.input_image_path}
          meant={{ finishedAt: answer.finished_at, files: [] }}
        />
      ) : (
        <>
          <NoPictures />
          {answer.models.map((model) => (
            <ModelResult key={model.name} model={model} />
          ))}
        </>
      )}
    </section>
  );
}
