"""A PACS by pynetdicom: C-STORE, C-GET, C-MOVE and Storage Commitment, whose reports come over an association of its own.

Arguments: its port, the folder of its objects, the port to which it calls back, and its fault: none, lies (it says SUCCESS
and stores nothing), or disk (the folder is full). Prints "ready" when it listens, and ends with its standard input.
"""

import os
import sys
import threading

import pydicom
from pynetdicom import AE, ALL_TRANSFER_SYNTAXES, AllStoragePresentationContexts, build_context, build_role, evt
from pynetdicom.sop_class import (
    StorageCommitmentPushModel,
    StudyRootQueryRetrieveInformationModelGet,
    StudyRootQueryRetrieveInformationModelMove,
)

port, folder, back, fault = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
LABEL_MAP = "1.2.840.10008.5.1.4.1.1.66.7"


def path_of(uid):
    return os.path.join(folder, uid + ".dcm")


def store(event):
    if fault == "disk":
        return 0xA700
    if fault != "lies":
        with open(path_of(event.request.AffectedSOPInstanceUID), "wb") as file:
            file.write(event.encoded_dataset())
    return 0x0000


def asked(event):
    path = path_of(event.identifier.SOPInstanceUID)
    return [pydicom.dcmread(path)] if os.path.exists(path) else []


def get(event):
    found = asked(event)
    yield len(found)
    for one in found:
        yield 0xFF00, one


def move(event):
    found = asked(event)
    contexts = [build_context(one.SOPClassUID, one.file_meta.TransferSyntaxUID) for one in found]
    yield "127.0.0.1", back, {"contexts": contexts or [build_context(LABEL_MAP)]}
    yield from get(event)


def report(action, requestor):
    event_type = 1
    answer = pydicom.Dataset()
    answer.TransactionUID = action.TransactionUID
    stored, failed = [], []
    for item in action.ReferencedSOPSequence:
        if os.path.exists(path_of(item.ReferencedSOPInstanceUID)):
            stored.append(item)
        else:
            item.FailureReason = 0x0112
            failed.append(item)
            event_type = 2
    if stored:
        answer.ReferencedSOPSequence = stored
    if failed:
        answer.FailedSOPSequence = failed
    caller = AE(ae_title="PYNET")
    caller.add_requested_context(StorageCommitmentPushModel)
    role = build_role(StorageCommitmentPushModel, scp_role=True)
    association = caller.associate("127.0.0.1", back, ae_title=requestor, ext_neg=[role])
    association.send_n_event_report(answer, event_type, StorageCommitmentPushModel, "1.2.840.10008.1.20.1.1")
    association.release()


def action(event):
    requestor = event.assoc.requestor.ae_title
    threading.Thread(target=report, args=(event.action_information, requestor)).start()
    return 0x0000, None


peer = AE(ae_title="PYNET")
storage = [context.abstract_syntax for context in AllStoragePresentationContexts]
for uid in dict.fromkeys([*storage, LABEL_MAP]):
    peer.add_supported_context(uid, ALL_TRANSFER_SYNTAXES, scu_role=True, scp_role=True)
for uid in (
    StudyRootQueryRetrieveInformationModelGet,
    StudyRootQueryRetrieveInformationModelMove,
    StorageCommitmentPushModel,
):
    peer.add_supported_context(uid)
handlers = [
    (evt.EVT_C_STORE, store),
    (evt.EVT_C_GET, get),
    (evt.EVT_C_MOVE, move),
    (evt.EVT_N_ACTION, action),
]
server = peer.start_server(("127.0.0.1", port), block=False, evt_handlers=handlers)
print("ready", flush=True)
sys.stdin.read()
server.shutdown()
