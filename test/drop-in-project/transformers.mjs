/** transformers.js as its users write it, with a model from a folder. */
import { env, pipeline } from "@huggingface/transformers";

env.localModelPath = process.argv[2] ?? "";
env.allowRemoteModels = false;
const extract = await pipeline("feature-extraction", "tiny", { dtype: "fp32" });
const texts = ["the heart is normal", "no fracture of the left hand"];
const { dims, data } = await extract(texts, { pooling: "mean", normalize: true });
await extract.dispose();
console.log(JSON.stringify({ outputs: [{ name: "features", dims, data: [...data] }] }));
