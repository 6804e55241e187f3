/**
 * A request of STOW-RS takes the memory of a piece of one object, and of the names of the others,
 * also where each is refused.
 */
import { once } from "node:events";
import http from "node:http";
import t from "tap";
import { sampleTree } from "../../soak/usage.js";
import { gatewayPlace, object, startGateway } from "../../support/gateway.js";
import { issueToken } from "../../support/server.js";
import { bodyOf, STOW_BOUNDARY, STOW_TYPE, type StowAnswer } from "../../support/stow.js";

t.setTimeout(120_000);

const OBJECTS = 8_000;
/** Read at least to find who an object is, of each. */
const BEGINNING_KIB = 64;

await t.test("objects that are refused leave their names alone", async (t) => {
  const { place } = gatewayPlace(t, { dicom: undefined });
  const { server } = await startGateway(t, place, false);
  const held = () => sampleTree(server.process.pid!, 0).memory;
  const query = object(8, { SOPClassUID: "1.2.840.10008.5.1.4.1.2.2.1" });
  const [part] = bodyOf([Buffer.concat([query.file, Buffer.alloc(2 * BEGINNING_KIB * 1024)])])
    .toString("latin1")
    .split(`--${STOW_BOUNDARY}--`);
  const bytes = Buffer.from(part ?? "", "latin1");
  const request = http.request(`${server.url}/dicomweb/studies`, {
    method: "POST",
    headers: {
      Authorization: await issueToken(place, "--subject", "viewer"),
      "Content-Type": STOW_TYPE,
    },
  });
  const answered = once(request, "response") as Promise<[http.IncomingMessage]>;
  const send = async (count: number) => {
    for (let i = 0; i < count; i += 1) if (!request.write(bytes)) await once(request, "drain");
  };
  await send(100);
  const before = held();
  await send(OBJECTS);
  const taken = held() - before;
  request.end(`--${STOW_BOUNDARY}--\r\n`);
  const [answer] = await answered;
  const text = Buffer.concat((await answer.toArray()) as Buffer[]).toString();
  t.equal(answer.statusCode, 409);
  t.equal((JSON.parse(text) as StowAnswer)["00081198"]?.Value?.length, OBJECTS + 100);
  const kept = (OBJECTS * BEGINNING_KIB) / 1024;
  t.comment(`${taken.toFixed()} MiB more; the beginnings of all are ${kept} MiB`);
  t.ok(taken < (kept * 3) / 4, "the beginnings are not kept");
});
