"""What the bench tells the script, as JSON in PEER: `model` (path of the ONNX file), `kind` ("tissue", "scores", "frames" of a cine, or
"volume", whose path is the folder of a series), `labels` (with codes and colours), `side` (of the network's input, for
scores and frames), `all` (write PNG, SR, SEG and SC too) and `same` (hash, sync and rename as Radserve does).
"""

import json
import os

SETTINGS = json.loads(os.environ["PEER"])
LABELS = SETTINGS["labels"]
