"""One image through Radserve, with Python's standard library alone.

    RADSERVE_URL=http://HOST:8500 RADSERVE_TOKEN=... python3 infer.py IMAGE OUTPUT_FOLDER

It waits and tries again where the server says so, and prints what each model found.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request


def infer(image, folder, tries=5):
    """The answer of POST /single_inference. Raises RuntimeError with the server's own code and message."""
    request = urllib.request.Request(
        os.environ.get("RADSERVE_URL", "http://127.0.0.1:8500") + "/single_inference",
        data=json.dumps({"input_image_path": image, "output_folder_path": folder}).encode(),
        headers={"Authorization": os.environ["RADSERVE_TOKEN"], "Content-Type": "application/json"},
    )
    while True:
        try:
            with urllib.request.urlopen(request, timeout=330) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            # Repeating a POST is always safe. Without Retry-After waiting does not help.
            wait = error.headers.get("Retry-After")
            tries -= 1
            if wait is None or tries == 0:
                told = json.load(error)
                raise RuntimeError(f"{told['error']}: {told['message']} ({told['request_id']})") from None
            time.sleep(int(wait))


if __name__ == "__main__":
    try:
        result = infer(*sys.argv[1:3])
    except RuntimeError as error:
        sys.exit(str(error))
    for model in result["models"]:
        present = [finding["label"] for finding in model["findings"] if finding["present"]]
        found = ", ".join(present) or "nothing found"
        print(f"{model['name']} {model['status']}" + (f": {found}" if model["status"] == "succeeded" else ""))
    print(result["receipt_path"])
