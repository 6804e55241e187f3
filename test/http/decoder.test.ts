/** Decoder processes of a server: none is left when it stops, however it ends. */
import { writeFileSync } from "node:fs";
import path from "node:path";
import sharp from "sharp";
import t from "tap";
import { CONFINE, needs } from "../support/needs.js";
import { commandOf, decodersOf } from "../support/processes.js";
import { makePlace, startServer } from "../support/server.js";
import { until } from "../support/until.js";

t.test("decoder processes end with their server", { skip: needs(CONFINE) }, async (t) => {
  const place = makePlace();
  t.teardown(() => place.remove());
  const create = { width: 8, height: 8, channels: 3, background: "grey" } as const;
  const image = path.join(place.input, "grey.png");
  writeFileSync(image, await sharp({ create }).png().toBuffer());
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const ask = () =>
    server.post("/single_inference", { input_image_path: image, output_folder_path: place.output });
  const first = server.servingPid();

  // No model is there, which is told only after the picture was read
  t.match(await (await ask()).json(), { error: "no_model_accepts" });
  const [decoder = 0] = decodersOf(first);
  t.ok(decoder > 0);
  process.kill(first, "SIGKILL");
  await until("the decoder process has gone", () =>
    Promise.resolve(commandOf(decoder) === undefined),
  );
  // By then the client knows, too, that the connection of before has ended
  await server.logged(({ msg }) => /the serving process ended/.test(msg));

  t.match(await (await ask()).json(), { error: "no_model_accepts" });
  const [second = 0] = decodersOf(server.servingPid());
  t.ok(second > 0);
  t.equal(await server.stop(), 0);
  t.equal(commandOf(second), undefined, "it has gone before the server has");
});
