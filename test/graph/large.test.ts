/** Tensors of more than 2 GiB, in and out. */
import t from "tap";
import { onnxModel } from "../../scripts/lib/onnx-model.js";
import { createEngine } from "../../src/graph/index.js";
import { refusedBy } from "../support/engine-errors.js";

/** More bytes than a number of 31 bits counts. */
const LENGTH = 2 ** 31 + 5;

t.test("tensors of more than 2 GiB", async (t) => {
  const engine = createEngine();
  t.teardown(() => engine.close());
  await using model = await engine.load(
    onnxModel({
      name: "large",
      inputs: [{ name: "x", dtype: "uint8", shape: ["n"] }],
      outputs: [
        { name: "last", dtype: "uint8", shape: [2] },
        { name: "y", dtype: "uint8", shape: ["n"] },
      ],
      initializers: [{ name: "at", dtype: "int64", shape: [2], data: [2 ** 31, LENGTH - 1] }],
      nodes: [
        { op: "Gather", inputs: ["x", "at"], outputs: ["last"] },
        { op: "Identity", inputs: ["x"], outputs: ["y"] },
      ],
    }),
  );
  const data = new Uint8Array(LENGTH);
  data.set([7], 2 ** 31);
  data.set([9], LENGTH - 1);
  const x = { shape: [LENGTH], data };
  t.same((await model.run({ x }, { outputs: ["last"] })).last?.data, Uint8Array.of(7, 9));
  const { y } = await model.run({ x }, { outputs: ["y"] });
  t.equal(y?.data.length, LENGTH);
  t.same([y?.data[2 ** 31], y?.data[LENGTH - 1], y?.data[0]], [7, 9, 0]);
  const error = await refusedBy(model.run({ x: { shape: [2 ** 31], data } }));
  t.match(error, { code: "bad_request", found: `${LENGTH}` }, "one that does not fit is refused");
});
