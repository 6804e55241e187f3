"""Radserve as the system under test of MLCommons' load generator. `sut.py SETTINGS` runs one scenario and prints a line of
JSON: what the generator's summary says. What is measured with it is no MLPerf result.

SETTINGS is JSON: `scenario` (SingleStream, Server, Offline), `way` ("http", or "bulk" for Offline), `port`, `token`,
`inputs` (paths), `output` (a folder), `outputs` (kinds of results), `threads` (connections), `seconds`, `queries` (at
least), `qps` (expected, or wanted by Server), `latency_ms` (of 99 % of Server's queries), `logs` (a folder).
"""

import array
import http.client
import json
import os
import queue
import sys
import threading
import time

import mlperf_loadgen as loadgen

SETTINGS = json.loads(sys.argv[1])
HEADERS = {"Authorization": SETTINGS["token"], "Content-Type": "application/json"}
#: Items that one bulk request may have.
MOST_ITEMS = 10_000
LOOK_SECONDS = 0.05


def connect():
    return http.client.HTTPConnection("127.0.0.1", SETTINGS["port"])


def ask(connection, method, page, body=None):
    connection.request(method, page, None if body is None else json.dumps(body), HEADERS)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


class Samples:
    """Paths of samples. Each time that a sample comes its results get a folder of their own, so that none is there before."""

    def __init__(self):
        self.times = [0] * len(SETTINGS["inputs"])
        self.lock = threading.Lock()

    def request(self, index):
        with self.lock:
            number = self.times[index]
            self.times[index] += 1
        folder = os.path.join(SETTINGS["output"], str(number))
        return {"input_image_path": SETTINGS["inputs"][index], "output_folder_path": folder}


SAMPLES = Samples()
WRONG = []


def complete(ids):
    """Tells the generator that samples are done. It wants a place in memory of each answer; only their times matter here."""
    answer = array.array("B", [0])
    address, _ = answer.buffer_info()
    loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(each, address, 1) for each in ids])


class Requests:
    """Single requests over connections that stay open, a thread each."""

    def __init__(self):
        self.waiting = queue.SimpleQueue()
        for _ in range(SETTINGS["threads"]):
            threading.Thread(target=self.work, daemon=True).start()

    def issue(self, samples):
        for sample in samples:
            # The generator's own object is gone when this function returns
            self.waiting.put((sample.id, sample.index))

    def work(self):
        connection = connect()
        while True:
            id_, index = self.waiting.get()
            try:
                body = {**SAMPLES.request(index), "outputs": SETTINGS["outputs"]}
                status, said = ask(connection, "POST", "/single_inference", body)
                if status != 200 or said.get("status") != "completed":
                    WRONG.append(f"{status} {said}")
            except (OSError, http.client.HTTPException, ValueError) as error:
                WRONG.append(repr(error))
                connection = connect()
            complete([id_])


class Bulk:
    """
    All samples of a query as bulk jobs of as many items as one may have. The thread that tells the generator of them stays,
    because the generator reads what a thread told it after the thread may have ended.
    """

    def __init__(self):
        self.waiting = queue.SimpleQueue()
        threading.Thread(target=self.work, daemon=True).start()

    def issue(self, samples):
        self.waiting.put([(sample.id, sample.index) for sample in samples])

    def work(self):
        while True:
            self.query(self.waiting.get())

    def query(self, samples):
        connection = connect()
        for first in range(0, len(samples), MOST_ITEMS):
            part = samples[first : first + MOST_ITEMS]
            try:
                self.job(connection, part)
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                WRONG.append(repr(error))
            complete([id_ for id_, _ in part])

    def job(self, connection, part):
        body = {"items": [SAMPLES.request(index) for _, index in part], "outputs": SETTINGS["outputs"]}
        status, said = ask(connection, "POST", "/bulk_inference", body)
        if status != 202:
            WRONG.append(f"{status} {said}")
            return
        page = f'/bulk_inference/{said["job_id"]}'
        while True:
            _, job = ask(connection, "GET", page)
            if job["state"] in ("completed", "cancelled"):
                break
            time.sleep(LOOK_SECONDS)
        if job["counts"]["succeeded"] != len(part):
            WRONG.append(json.dumps(job["counts"]))


def test_settings():
    settings = loadgen.TestSettings()
    settings.scenario = getattr(loadgen.TestScenario, SETTINGS["scenario"])
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.min_duration_ms = int(SETTINGS["seconds"] * 1000)
    settings.min_query_count = SETTINGS["queries"]
    settings.offline_expected_qps = SETTINGS["qps"]
    settings.server_target_qps = SETTINGS["qps"]
    settings.server_target_latency_ns = int(SETTINGS["latency_ms"] * 1e6)
    settings.single_stream_expected_latency_ns = int(1e9 / SETTINGS["qps"])
    return settings


def summary(folder):
    """What stands in the generator's summary as `name : value`."""
    with open(os.path.join(folder, "mlperf_log_summary.txt")) as file:
        pairs = (line.split(":", 1) for line in file if ":" in line)
        return {name.strip(): value.strip() for name, value in pairs}


def main():
    os.makedirs(SETTINGS["logs"], exist_ok=True)
    log = loadgen.LogSettings()
    log.log_output.outdir = SETTINGS["logs"]
    log.log_output.copy_summary_to_stdout = False
    log.enable_trace = False
    system = Bulk() if SETTINGS["way"] == "bulk" else Requests()
    sut = loadgen.ConstructSUT(system.issue, lambda: None)
    count = len(SETTINGS["inputs"])
    # The samples are paths: there is nothing to load
    library = loadgen.ConstructQSL(count, count, lambda _: None, lambda _: None)
    loadgen.StartTestWithLogSettings(sut, library, test_settings(), log)
    loadgen.DestroyQSL(library)
    loadgen.DestroySUT(sut)
    print(json.dumps({"summary": summary(SETTINGS["logs"]), "wrong": len(WRONG), "first_wrong": (WRONG or [""])[0][:300]}))


main()
