"""Sends DICOM files by pynetdicom, each with its own transfer syntax, over one association for each.

Arguments: the port, and files. Prints a line of JSON for each file: its name, and the status (null: no context was
accepted).
"""

import json
import os
import sys

import pydicom
from pynetdicom import AE

port, *files = sys.argv[1:]
for file in files:
    meta = pydicom.dcmread(file, stop_before_pixels=True).file_meta
    ae = AE(ae_title="ANY")
    ae.add_requested_context(meta.MediaStorageSOPClassUID, meta.TransferSyntaxUID)
    association = ae.associate("127.0.0.1", int(port), ae_title="RADSERVE")
    status = None
    if association.is_established:
        status = association.send_c_store(file).get("Status")
        association.release()
    print(json.dumps({"file": os.path.basename(file), "status": status}))
