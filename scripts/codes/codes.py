"""Writes models/codes.json: coded concepts of PS3.16 context groups, for labels of models (`radserve models codes`).

Facts alone (code value, scheme, meaning, and the groups that they are in), as pydicom has them from the standard:
python scripts/codes/codes.py > models/codes.json, with pydicom 3.0.2.
"""

import json

import pydicom
from pydicom.sr._cid_dict import name_for_cid
from pydicom.sr._concepts_dict import concepts

# What is found: anatomy, findings of chest and breast, segments, pathology, complications, laterality.
GROUPS = [4, 244, 3700, 4031, 6014, 6015, 6016, 6030, 6054, 6062, 6102, 6104, 6105, 7151, 8134, 12248]
# The tables of CID 7151 and the category (CID 7150) of the segments in each.
CATEGORIES = {
    7191: ["85756007", "Tissue"],
    7192: ["91723000", "Anatomical Structure"],
    7193: ["260787004", "Physical object"],
    7194: ["49755003", "Morphologically Abnormal Structure"],
    7195: ["246464006", "Function"],
    7196: ["309825002", "Spatial and Relational Concept"],
}
known = {code: meaning for v in concepts["SCT"].values() for code, (meaning, cids) in v.items() if 7150 in cids}
for value, meaning in CATEGORIES.values():
    assert known.get(value, "").lower() == meaning.lower(), (value, known.get(value))

codes = {}
for scheme in ("SCT", "DCM"):
    for spellings in concepts[scheme].values():
        for value, (meaning, cids) in spellings.items():
            if not set(cids) & set(GROUPS):
                continue
            categories = sorted({CATEGORIES[cid][0] for cid in cids if cid in CATEGORIES})
            codes[scheme, value, meaning] = [value, scheme, meaning, *categories]

rows = sorted(codes.values(), key=lambda row: (row[2].lower(), row[1], row[0]))
lines = ",\n".join("    " + json.dumps(row) for row in rows)
groups = ", ".join(f"{cid} {name_for_cid[cid]}" for cid in GROUPS)
categories = ",\n".join(f'    "{v}": {json.dumps([v, "SCT", m])}' for v, m in CATEGORIES.values())
print(f"""{{
  "source": "PS3.16 context groups {groups}; by pydicom {pydicom.__version__}",
  "categories": {{
{categories}
  }},
  "codes": [
{lines}
  ]
}}""")
