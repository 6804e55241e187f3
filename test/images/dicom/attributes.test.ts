import t from "tap";
import { textDecoder } from "../../../src/images/dicom/charset.js";
import { readImage } from "../../../src/images/read-image.js";
import {
  BIG_ENDIAN,
  dicomFile,
  EXPLICIT,
  imageAttributes,
  IMPLICIT,
  Typed,
} from "../../support/dicom.js";

const pixels = Buffer.alloc(16);

t.test("values of every kind in every encoding", async (t) => {
  for (const transferSyntax of [IMPLICIT, EXPLICIT, BIG_ENDIAN]) {
    const file = dicomFile({
      transferSyntax,
      attributes: imageAttributes({
        ImageType: "ORIGINAL\\PRIMARY\\AXIAL ",
        InstanceNumber: "12",
        PixelSpacing: "0.5\\ 0.25",
        PatientComments: "a \\ b",
        AcquisitionMatrix: [1, 2, 3, 65535],
        TableTopVerticalPosition: 1.5,
        ReferencedFrameNumber: "",
        SimpleFrameList: [7, 70000],
      }),
      pixels,
    });
    const { attributes } = await readImage(file);
    t.strictSame(
      attributes!.strings("ImageType"),
      ["ORIGINAL", "PRIMARY", "AXIAL"],
      transferSyntax,
    );
    t.equal(attributes!.number("InstanceNumber"), 12, transferSyntax);
    t.strictSame(attributes!.numbers("PixelSpacing"), [0.5, 0.25], transferSyntax);
    t.strictSame(attributes!.strings("PatientComments"), ["a \\ b"], transferSyntax);
    t.strictSame(attributes!.numbers("AcquisitionMatrix"), [1, 2, 3, 65535], transferSyntax);
    t.equal(attributes!.number("TableTopVerticalPosition"), 1.5, transferSyntax);
    t.strictSame(attributes!.numbers("SimpleFrameList"), [7, 70000], transferSyntax);
    t.strictSame(attributes!.strings("ReferencedFrameNumber"), [], transferSyntax);
    t.equal(attributes!.string("ReferencedFrameNumber"), undefined, transferSyntax);
    t.equal(attributes!.strings("StudyID"), undefined, transferSyntax);
    t.ok(attributes!.has("Rows"));
    t.notOk(attributes!.has("StudyID"));
    t.notOk(attributes!.has("NoSuchKeyword"));
  }
});

t.test("a text that no name or description is as long as is refused", async (t) => {
  const attributes = imageAttributes({
    SpecificCharacterSet: "\\ISO 2022 IR 87",
    PatientID: "\x1b".repeat(2_000_000),
    StudyDescription: "\x1b$B\x46\x7c\x1b(B".repeat(100_000),
  });
  const image = await readImage(dicomFile({ transferSyntax: IMPLICIT, attributes, pixels }));
  t.throws(() => image.attributes!.string("PatientID"), {
    code: "corrupt_image",
    message: /at most 1048576 bytes of text in PatientID.*found 2000000/,
  });
  t.equal(image.attributes!.string("StudyDescription"), "日".repeat(100_000));
});

t.test("a weight and a size of 0 are none", async (t) => {
  const attributes = imageAttributes({
    PatientWeight: "0",
    PatientSize: "0.0",
    PatientAge: "000Y",
  });
  const image = await readImage(dicomFile({ attributes, pixels }));
  t.equal(image.attributes!.number("PatientWeight"), undefined);
  t.equal(image.attributes!.number("PatientSize"), undefined);
  t.equal(image.attributes!.string("PatientAge"), "000Y");
});

t.test("US or SS follows Pixel Representation, whatever the VR says", async (t) => {
  for (const [pixelRepresentation, expected] of [
    [0, 63536],
    [1, -2000],
  ] as const) {
    const image = await readImage(
      dicomFile({
        attributes: imageAttributes({
          PixelRepresentation: pixelRepresentation,
          PixelPaddingValue: new Typed("US", 63536),
        }),
        pixels,
      }),
    );
    t.equal(image.attributes!.number("PixelPaddingValue"), expected);
  }
});

const JAPANESE =
  "Yamada^Tarou=\x1b$B;3ED\x1b(B^\x1b$BB@O:\x1b(B=\x1b$B$d$^$@\x1b(B^\x1b$B$?$m$&\x1b(B";

t.test("character sets (the examples of PS3.5 annexes H to K)", (t) => {
  const cases: [string, string[], Uint8Array, string][] = [
    ["default", [], Buffer.from("Adams^John"), "Adams^John"],
    ["Latin-1", ["ISO_IR 100"], Buffer.from("Buc^J\xe9r\xf4me", "latin1"), "Buc^Jérôme"],
    ["Cyrillic", ["ISO_IR 144"], Buffer.from("bbeedadce3e0d3", "hex"), "Люкмург"],
    ["Greek", ["ISO_IR 126"], Buffer.from("c4e9", "hex"), "Δι"],
    ["UTF-8", ["ISO_IR 192"], Buffer.from("Wang^小东"), "Wang^小东"],
    ["GB18030 with a backslash byte", ["GB18030"], Buffer.from("815c2d", "hex"), "乗-"],
    [
      "Japanese",
      ["", "ISO 2022 IR 87"],
      Buffer.from(JAPANESE, "latin1"),
      "Yamada^Tarou=山田^太郎=やまだ^たろう",
    ],
    [
      "Korean",
      ["", "ISO 2022 IR 149"],
      Buffer.from(
        "Hong^Gildong=\x1b$)C\xfb\xf3^\x1b$)C\xd1\xce\xd4\xd7=\x1b$)C\xc8\xab^\x1b$)C\xb1\xe6\xb5\xbf",
        "latin1",
      ),
      "Hong^Gildong=洪^吉洞=홍^길동",
    ],
    ["half-width katakana", ["ISO_IR 13"], Buffer.from("d4cfc0dec0db", "hex"), "ﾔﾏﾀﾞﾀﾛ"],
    ["unknown term", ["ISO_IR 999"], Buffer.from("a\xe9", "latin1"), "a\ufffd"],
  ];
  for (const [name, terms, bytes, expected] of cases)
    t.equal(textDecoder(terms)(bytes, "PN"), expected, name);
  t.end();
});

t.test("sets are reset at the delimiters of the VR alone (PS3.5 section 6.1.2.5.3)", (t) => {
  const cyrillic = textDecoder(["ISO 2022 IR 100", "ISO 2022 IR 144"]);
  const korean = textDecoder(["", "ISO 2022 IR 149"]);
  const text = (said: string) => Buffer.from(said, "latin1");
  for (const vr of ["LO", "SH", "LT", "UT"]) {
    t.equal(cyrillic(text("\x1b-L\xb6=\xb6^\xb6"), vr), "Ж=Ж^Ж", vr);
    t.equal(korean(text("\x1b$)C\xfb\xf3^\xfb\xf3"), vr), "洪^洪", vr);
  }
  t.equal(cyrillic(text("\x1b-L\xb6=\xb6^\x1b-L\xb6"), "PN"), "Ж=¶^Ж");
  for (const delimiter of ["\t", "\n", "\f", "\r"])
    t.equal(cyrillic(text(`\x1b-L\xb6${delimiter}\xb6`), "LT"), `Ж${delimiter}¶`);
  t.equal(cyrillic(text("\x1b-L\xb6\\\xb6"), "LO"), "Ж\\¶", "between values");
  t.equal(cyrillic(text("\x1b-L\xb6\\\xb6"), "LT"), "Ж\\Ж", "within the only value");
  t.end();
});

t.test("multi-valued character set in a file, inherited by items", async (t) => {
  const name = Buffer.concat([
    Buffer.from(JAPANESE, "latin1"),
    Buffer.from(JAPANESE.length % 2 ? " " : ""),
  ]);
  const image = await readImage(
    dicomFile({
      attributes: imageAttributes({
        SpecificCharacterSet: "\\ISO 2022 IR 87",
        PatientName: new Typed("PN", name),
        ReferencedImageSequence: [{ PatientName: new Typed("PN", name) }],
      }),
      pixels,
    }),
  );
  const expected = "Yamada^Tarou=山田^太郎=やまだ^たろう";
  t.equal(image.attributes!.string("PatientName"), expected);
  t.equal(
    image.attributes!.sequence("ReferencedImageSequence")![0]!.string("PatientName"),
    expected,
  );
});
