/** A folder as transformers.js loads one, with random weights: words, vectors, and one layer. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { int, onnxModel } from "../../scripts/lib/onnx-model.js";

const WIDTH = 16;
const SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
const WORDS = [..."the heart is normal no fracture of left".split(" "), "ha", "##nd"];
const VOCABULARY = [...SPECIAL, ...WORDS];

/** Numbers between -1 and 1 that look like chance. */
const weights = (name: string, rows: number) => ({
  name,
  dtype: "float32" as const,
  shape: [rows, WIDTH],
  data: Array.from({ length: rows * WIDTH }, (_, i) => Math.sin(i * i + name.length)),
});

const words = (name: string) => ({ name, dtype: "int64" as const, shape: ["batch", "words"] });

const network = () =>
  onnxModel({
    name: "tiny",
    inputs: ["input_ids", "attention_mask", "token_type_ids"].map(words),
    outputs: [{ name: "last_hidden_state", dtype: "float32", shape: ["batch", "words", WIDTH] }],
    initializers: [
      weights("vectors", VOCABULARY.length),
      weights("kinds", 2),
      weights("layer", WIDTH),
      { name: "last", dtype: "int64", shape: [1], data: [-1] },
    ],
    nodes: [
      { op: "Gather", inputs: ["vectors", "input_ids"], outputs: ["of_words"] },
      { op: "Gather", inputs: ["kinds", "token_type_ids"], outputs: ["of_kinds"] },
      { op: "Add", inputs: ["of_words", "of_kinds"], outputs: ["sums"] },
      { op: "MatMul", inputs: ["sums", "layer"], outputs: ["products"] },
      { op: "Tanh", inputs: ["products"], outputs: ["hidden"] },
      {
        op: "Cast",
        inputs: ["attention_mask"],
        outputs: ["mask"],
        attributes: { to: int(1) },
      },
      { op: "Unsqueeze", inputs: ["mask", "last"], outputs: ["column"] },
      { op: "Mul", inputs: ["hidden", "column"], outputs: ["last_hidden_state"] },
    ],
  });

const special = (name: string) => ({
  SpecialToken: { id: name, type_id: 0 },
});

const tokenizer = {
  version: "1.0",
  truncation: null,
  padding: null,
  added_tokens: SPECIAL.map((content, id) => ({
    id,
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  })),
  normalizer: {
    type: "BertNormalizer",
    clean_text: true,
    handle_chinese_chars: true,
    strip_accents: null,
    lowercase: true,
  },
  pre_tokenizer: { type: "BertPreTokenizer" },
  post_processor: {
    type: "TemplateProcessing",
    single: [special("[CLS]"), { Sequence: { id: "A", type_id: 0 } }, special("[SEP]")],
    pair: [special("[CLS]"), { Sequence: { id: "A", type_id: 0 } }, special("[SEP]")],
    special_tokens: Object.fromEntries(
      ["[CLS]", "[SEP]"].map((id) => [id, { id, ids: [SPECIAL.indexOf(id)], tokens: [id] }]),
    ),
  },
  decoder: { type: "WordPiece", prefix: "##", cleanup: true },
  model: {
    type: "WordPiece",
    unk_token: "[UNK]",
    continuing_subword_prefix: "##",
    max_input_chars_per_word: 100,
    vocab: Object.fromEntries(VOCABULARY.map((word, id) => [word, id])),
  },
};

/** Writes `tiny` into a folder of models. */
export function writeTinyTransformer(models: string): void {
  const folder = join(models, "tiny");
  mkdirSync(join(folder, "onnx"), { recursive: true });
  const files = {
    "config.json": { model_type: "bert", architectures: ["BertModel"], hidden_size: WIDTH },
    "tokenizer.json": tokenizer,
    "tokenizer_config.json": {
      tokenizer_class: "BertTokenizer",
      model_max_length: 64,
      pad_token: "[PAD]",
      unk_token: "[UNK]",
      cls_token: "[CLS]",
      sep_token: "[SEP]",
      mask_token: "[MASK]",
    },
  };
  for (const [name, content] of Object.entries(files))
    writeFileSync(join(folder, name), JSON.stringify(content));
  writeFileSync(join(folder, "onnx/model.onnx"), network());
}
