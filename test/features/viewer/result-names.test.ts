/** Results asked for by their opaque names, and what stays of paths in addresses. */
import path from "node:path";
import t from "tap";
import { bulkOf, ctPlace, writeSlice } from "../../support/bulk.js";
import { ADDON, needs } from "../../support/needs.js";
import { issueToken, startServer } from "../../support/server.js";

t.test("a name shows what the path shows", { skip: needs(ADDON) }, async (t) => {
  const place = ctPlace({ RADSERVE_FILES_BY_HTTP: "view,download,upload" });
  const input = path.join(place.input, "a.dcm");
  writeSlice(input, 1, { PatientID: "4711" });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const { send } = bulkOf(server);
  const asked = { input_image_path: input, output_folder_path: place.output };
  t.equal((await server.post("/single_inference", asked)).status, 200);
  const receipt = path.join(place.output, "a.dcm.json");
  const search = await send("POST", "/results/search", { patient: "4711" });
  const [row] = (search.body as { results?: { id: string; input_id: string }[] }).results ?? [];
  t.ok(row, "found by a patient in a body");
  const { id = "", input_id: inputId = "" } = row ?? {};
  t.match(await send("POST", "/results/find", { receipt_path: receipt }), {
    status: 200,
    body: { id, input_id: inputId, receipt_path: receipt, input_path: input },
  });
  const get = async (page: string, query: Record<string, string>, token = server.token) => {
    const url = `${server.url}${page}?${new URLSearchParams(query).toString()}`;
    const answer = await fetch(url, { headers: { Authorization: token } });
    const deprecated = answer.headers.get("Deprecation");
    return { status: answer.status, deprecated, text: await answer.text() };
  };
  for (const page of ["", "/picture", "/frame", "/verification"]) {
    const byInput: Record<string, string> = page === "" ? {} : { input_path: input };
    const old = await get(`/results${page}`, { path: receipt, ...byInput });
    t.match(old, { status: 200, deprecated: "@1795824000" }, page);
    t.same(await get(`/results${page}`, { id }), { ...old, deprecated: null }, page);
    if (page !== "")
      t.equal((await get(`/results${page}`, { id, input_id: inputId })).text, old.text, page);
    t.equal((await get(`/results${page}`, { id, path: receipt })).status, 400, "both");
    t.equal((await get(`/results${page}`, {})).status, 400, "neither");
    t.equal((await get(`/results${page}`, { id: inputId })).status, 404, "a name of an image");
  }
  const narrow = await issueToken(place, "--output-root", path.join(place.output, "other"));
  for (const page of ["", "/picture"])
    t.equal((await get(`/results${page}`, { id }, narrow)).status, 403, "out of reach");
  t.match(await get("/results/list", { patient: "4711" }), { deprecated: "@1795824000" });
  t.match(await get("/results/list", { status: "completed" }), { deprecated: null });
  const file = await fetch(`${server.url}/files`, {
    headers: { Authorization: server.token, "Radserve-Path": encodeURIComponent(receipt) },
  });
  t.equal(file.status, 200);
  const key = path.join(place.output, ".radserve-results/names.key");
  t.equal((await get("/files", { path: key })).status, 404, "the key is given to nobody");
});
