"""One image through Radserve without a shared folder, with Python's standard library alone.

    RADSERVE_URL=http://HOST:8500 RADSERVE_TOKEN=... python3 remote.py IMAGE INPUT_FOLDER OUTPUT_FOLDER HERE

Sends IMAGE into the server's INPUT_FOLDER, has it analysed, and fetches the results from OUTPUT_FOLDER into HERE. The
server has to allow it: RADSERVE_FILES_BY_HTTP=upload,download.
"""

import hashlib
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request

URL = os.environ.get("RADSERVE_URL", "http://127.0.0.1:8500")


def call(method, page, body=None, headers=None):
    """The bytes of an answer. Raises RuntimeError with the server's own code and message."""
    request = urllib.request.Request(
        URL + page, data=body, method=method, headers={"Authorization": os.environ["RADSERVE_TOKEN"], **(headers or {})}
    )
    try:
        with urllib.request.urlopen(request, timeout=330) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        told = json.load(error)
        raise RuntimeError(f"{told['error']}: {told['message']} ({told['request_id']})") from None


def files(**query):
    return "/files?" + urllib.parse.urlencode(query)


if __name__ == "__main__":
    image, input_folder, output_folder, here = sys.argv[1:5]
    there = f"{input_folder}/{os.path.basename(image)}"
    with open(image, "rb") as file:
        data = file.read()
    try:
        # With its hash, so that what arrived is what was sent
        call("PUT", files(path=there, sha256=hashlib.sha256(data).hexdigest()), data)
        request = json.dumps({"input_image_path": there, "output_folder_path": output_folder}).encode()
        answer = json.loads(call("POST", "/single_inference", request, {"Content-Type": "application/json"}))
        outputs = [(output["path"], output["sha256"]) for model in answer["models"] for output in model["outputs"]]
        for path, sha256 in [*outputs, (answer["receipt_path"], None)]:
            result = call("GET", files(path=path))
            if sha256 not in (None, hashlib.sha256(result).hexdigest()):
                raise RuntimeError(f"{path} changed on its way")
            with open(os.path.join(here, os.path.basename(path)), "wb") as file:
                file.write(result)
            print(os.path.basename(path))
    except RuntimeError as error:
        sys.exit(str(error))
