/** What can be tried of the gateway's file without a patient: rules, destinations, a change. */
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import path from "node:path";
import t, { type Test } from "tap";
import {
  associate,
  gatewayPlace,
  jobsOnce,
  object,
  send,
  startGateway,
} from "../../support/gateway.js";
import { root } from "../../support/server.js";
import { dicomPeer } from "../../support/store-peer.js";
import { until } from "../../support/until.js";

/** A command beside the peers of this process. */
async function command(environment: Record<string, string>, ...words: string[]) {
  const child = spawn(process.execPath, [path.join(root, "dist/src/main.js"), ...words], {
    env: { ...process.env, ...environment },
  });
  let text = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (piece: string) => (text += piece));
  const [status] = (await once(child, "close")) as [number];
  return { status, text };
}

const of = (series: string, description: string, z = 1) =>
  object(z, {
    SeriesInstanceUID: series,
    SOPInstanceUID: `${series}.${z}`,
    SeriesDescription: description,
  }).file;

await t.test("rules are tried with files, and destinations are called", async (t) => {
  const pacs = await dicomPeer(t);
  const web = createServer((request, response) => {
    response.statusCode = request.url === "/dicom-web/studies?limit=1" ? 204 : 404;
    response.end();
  }).listen(0, "127.0.0.1");
  await once(web, "listening");
  t.teardown(() => web.close());
  const { port } = web.address() as AddressInfo;
  const at = (more: object) => ({ type: "dicom", host: "127.0.0.1", called_ae: "PACS", ...more });
  const when = (contains: string) => [
    { tag: "SeriesDescription", contains: [contains], if_absent: "refuse" },
  ];
  const { place } = gatewayPlace(t, {
    dicom: { port: 0, ae_title: ["RADSERVE", "URGENT"] },
    rules: [
      { name: "urgent", called: ["URGENT"], output_folder: "OUT" },
      {
        name: "chest",
        from: ["ct1"],
        when: when("chest"),
        output_folder: "OUT",
        models: ["ct-tissue"],
      },
      { name: "head", when: when("head"), images: { min: 2 }, output_folder: "OUT" },
    ],
    destinations: {
      pacs: at({ port: pacs.port }),
      web: { type: "stow", url: `http://127.0.0.1:${port}/dicom-web` },
      elsewhere: { type: "stow", url: `http://127.0.0.1:${port}/nothing` },
      away: at({ port: 1 }),
    },
  });
  const folder = path.join(place.directory, "some");
  mkdirSync(folder);
  writeFileSync(path.join(folder, "a.dcm"), of("1.2.3.1", "CHEST 1.0"));
  writeFileSync(path.join(folder, "b.dcm"), of("1.2.3.2", "Head"));
  writeFileSync(path.join(folder, "c.txt"), "no object");
  const tried = await command(place.environment, "gateway", "try", folder);
  t.equal(tried.status, 1, tried.text);
  t.match(tried.text, /urgent: no\. It is for what calls URGENT; found RADSERVE/);
  t.match(
    tried.text,
    /1\.2\.3\.1: 1 object, 1 image .*\n.*\n {2}chest: yes, a job of the series.* ct-tissue/,
  );
  t.match(tried.text, /chest: no\. Expected SeriesDescription to contain chest; found "Head"/);
  t.match(tried.text, /head: no\. Expected at least 2 images; found 1/);
  t.match(tried.text, /Left out: 1 file/);
  const one = ["gateway", "try", path.join(folder, "a.dcm")];
  t.equal((await command(place.environment, ...one, "--from", "ct1")).status, 0);
  const urgent = await command(place.environment, ...one, "--called", "URGENT");
  t.match(urgent, { status: 0, text: /urgent: yes/ });
  const other = await command(place.environment, ...one, "--from", "stow-x");
  t.match(other, { status: 1, text: /chest: no\. It is for ct1; found stow-x/ });
  const echoed = await command(place.environment, "gateway", "echo");
  t.equal(echoed.status, 1, echoed.text);
  t.match(echoed.text, /^pacs +ok +PACS /m);
  t.match(echoed.text, /^web +ok +it answers a query with 204/m);
  t.match(echoed.text, /^elsewhere +failed +it answers 404: url is not a DICOMweb service/m);
  t.match(echoed.text, /^away +failed +.*ECONNREFUSED/m);
  t.match(await command(place.environment, "gateway", "echo", "web"), { status: 0 });
  const doctor = await command(place.environment, "doctor");
  t.match(doctor.text, /destination away: .*ECONNREFUSED/);
  t.match(doctor.text, /destination web: it answers a query with 204/);
});

await t.test("a changed file counts after SIGHUP, and a wrong one is told", async (t: Test) => {
  const never = [{ tag: "Modality", in: ["MR"], if_absent: "refuse" }];
  const { place, results, file } = gatewayPlace(t);
  const change = (more: object) => {
    const before = JSON.parse(readFileSync(file, "utf8")) as object;
    writeFileSync(file, JSON.stringify({ ...before, ...more }));
  };
  const rule = { name: "all", quiet: "1s", output_folder: results };
  change({ rules: [{ ...rule, when: never }] });
  const gateway = await startGateway(t, place);
  await send(gateway.port(), [object(1)]);
  await gateway.server.logged(({ msg }) => msg.startsWith("no rule takes"));
  const hangUp = () => gateway.server.process.kill("SIGHUP");
  const conditions = async () => {
    const { body } = await gateway.send("GET", "/health/ready");
    return JSON.stringify(body["conditions"] ?? []);
  };
  change({ rules: [{ ...rule, deliver: ["pacs"] }] });
  hangUp();
  await until("the file is refused", async () => /gateway_file_refused/.test(await conditions()));
  change({ rules: [rule], peers: { ct2: { ae_title: "CT ONE" } } });
  hangUp();
  const [job] = await jobsOnce(gateway, 1);
  t.match((await gateway.ended(job!.job_id)).counts, { succeeded: 1 });
  await until("no file is refused", async () => !/gateway_file_refused/.test(await conditions()));
  await send(gateway.port(), [object(2)]);
  await jobsOnce(gateway, 2);
  const ended = await gateway.server.told(({ msg }) => msg === "association ended", 2);
  t.match(
    ended.map(({ peer }) => String(peer)),
    ["ct1", "ct2"],
  );
  const destinations = { pacs: { type: "stow", url: "http://127.0.0.1/dicom-web" } };
  change({ rules: [], peers: {}, dicom: undefined, destinations });
  hangUp();
  const [later] = await gateway.server.told(({ msg }) => msg.startsWith("changes of the gateway"));
  const fields = ["destinations", "dicom.port", "dicom.host", "dicom.associations", "rules"];
  t.strictSame(later?.["fields"], fields);
  await t.rejects(associate(gateway.port()), { message: /ECONNRESET|closed/ }, "nobody is let in");
});
