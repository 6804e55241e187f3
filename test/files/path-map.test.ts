import t from "tap";
import { translateIn } from "../../src/files/path-map.js";

t.test("clients' names of folders", (t) => {
  const map = [
    { from: "\\\\pacs\\share\\", to: "/mnt/share" },
    { from: "\\\\pacs\\share\\ct", to: "/mnt/ct/" },
    { from: "/Volumes/images", to: "/srv/images" },
    { from: "Z:", to: "/z" },
  ];
  const cases: [string, string][] = [
    ["\\\\pacs\\share\\a\\b.dcm", "/mnt/share/a/b.dcm"],
    ["\\\\PACS\\Share\\CT\\b.dcm", "/mnt/ct/b.dcm"],
    ["\\\\pacs\\share", "/mnt/share"],
    ["\\\\pacs\\shared\\a", "\\\\pacs\\shared\\a"],
    ["/Volumes/images/x", "/srv/images/x"],
    ["/volumes/images/x", "/volumes/images/x"],
    ["z:\\x\\y", "/z/x/y"],
    ["\\\\pacs\\share\\..\\..\\etc", "/mnt/share/../../etc"],
  ];
  for (const [given, here] of cases) t.equal(translateIn(given, map).path, here, given);
  t.equal(
    translateIn("\\\\pacs\\share\\a", map).back("/mnt/share/a/x.json"),
    "\\\\pacs\\share\\a\\x.json",
  );
  t.equal(
    translateIn("/Volumes/images/a", map).back("/srv/images/a/x.json"),
    "/Volumes/images/a/x.json",
  );
  t.equal(translateIn("/Volumes/images/a", map).back("/srv/imagesque"), "/srv/imagesque");
  t.end();
});
