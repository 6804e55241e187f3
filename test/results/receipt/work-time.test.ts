import t from "tap";
import { workTime } from "../../../src/results/receipt/observed.js";
import { receiptOf } from "../../support/receipts.js";

t.test("the work on an image is its steps, without waiting, and none counts twice", (t) => {
  const { timings } = receiptOf({ week: 0, study: 1, score: 1 });
  const milliseconds = {
    read: 3,
    infer: 100,
    queue: 20,
    prepare: 10,
    run: 50,
    postprocess: 15,
    commit: 4,
  };
  t.equal(workTime({ timings: { ...timings, milliseconds } }), 87);
  t.equal(workTime({ timings: { ...timings, milliseconds: { infer: 5 } } }), 5);
  t.end();
});
