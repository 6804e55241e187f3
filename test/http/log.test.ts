/**
 * What the log says of requests: the error and the models of every refusal, the address, and
 * nothing of a patient.
 */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { CT, dicomFile, imageAttributes } from "../support/dicom.js";
import { ADDON, needs } from "../support/needs.js";
import { makePlace, root, startServer } from "../support/server.js";

t.test("the log of requests", { skip: needs(ADDON) }, async (t) => {
  const place = makePlace({ RADSERVE_MODELS_DIR: path.join(root, "models") });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const planted = "Planted^Name";
  const ask = async (
    name: string,
    attributes: object,
    more: object = {},
    headers: Record<string, string> = {},
  ) => {
    const file = path.join(place.input, `${planted}-${name}.dcm`);
    const described = imageAttributes({
      SOPClassUID: CT,
      Modality: "CT",
      PatientName: planted,
      PatientID: planted,
      ...attributes,
    });
    writeFileSync(file, dicomFile({ attributes: described, pixels: new Uint8Array(16).fill(9) }));
    await server.post(
      "/single_inference",
      { input_image_path: file, output_folder_path: place.output, outputs: ["json"], ...more },
      { "X-Request-Id": name, ...headers },
    );
    return server.logged((line) => line["request_id"] === name && line.msg === "request");
  };
  const refused = { name: "ct-tissue", status: "not_accepted" };

  t.match(await ask("refused", {}), {
    status: 422,
    error: "no_model_accepts",
    address: /127\.0\.0\.1$/,
    models: [{ name: "burned-in-text" }, { ...refused, reasons: ["units_not_accepted"] }],
  });
  const rescaled = { RescaleSlope: "1", RescaleIntercept: "100000" };
  t.match(await ask("suspect", rescaled), {
    status: 422,
    error: "decode_suspect",
    models: [{ name: "ct-tissue", status: "failed", error: "decode_suspect" }],
  });
  t.match(await ask("right", { RescaleSlope: "1", RescaleIntercept: "0" }), {
    status: 200,
    models: [
      { name: "burned-in-text", status: "not_accepted" },
      { name: "ct-tissue", status: "succeeded" },
    ],
  });
  t.match(await ask("unknown", {}, { models: ["none"] }), {
    status: 404,
    error: "model_not_found",
  });

  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const traced = await ask(
    "traced",
    { RescaleSlope: "1", RescaleIntercept: "1" },
    {},
    { traceparent },
  );
  t.match(traced, { status: 200, traceparent });
  const receipt = readFileSync(path.join(place.output, `${planted}-traced.dcm.json`), "utf8");
  t.match(JSON.parse(receipt), { timings: { request_id: "traced", traceparent } });
  const other = await ask("other", {}, {}, { traceparent: `${traceparent}-more` });
  t.notOk("traceparent" in other, "what is none is passed over");
  t.notMatch(JSON.stringify(server.log), /Planted/, "no name, neither of a patient nor of a file");
});
