"""The script without HTTP, over a folder with a process for each core. Prints its figures as a line of JSON.

`folder.py INPUT OUTPUT SECONDS PROCESSES`: takes the files of INPUT again and again, each pass into a folder of its own.
"""

import json
import multiprocessing
import os
import sys
import time

import work


def one(names):
    began = time.perf_counter()
    work.infer(*names)
    return time.perf_counter() - began


def tasks(source, target, until):
    files = sorted(os.listdir(source))
    number = 0
    # One image is done however little time there is
    given = False
    while True:
        folder = os.path.join(target, str(number))
        os.makedirs(folder)
        for name in files:
            if given and time.monotonic() >= until:
                return
            given = True
            yield os.path.join(source, name), folder
        number += 1


def cpu():
    own, others = os.times(), os.times()
    return own.user + own.system + others.children_user + others.children_system


def main():
    if work.ALL:
        # Before the measured time, and once for all processes, which are forks of this one
        import objects  # noqa: F401
    source, target, seconds, processes = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    before = cpu()
    began = time.monotonic()
    latencies = []
    # imap would take all tasks at once: the semaphore lets each process have one more waiting
    room = multiprocessing.Semaphore(2 * processes)

    def bounded():
        for task in tasks(source, target, began + seconds):
            room.acquire()
            yield task

    with multiprocessing.Pool(processes) as pool:
        for latency in pool.imap_unordered(one, bounded()):
            room.release()
            latencies.append(latency)
        pool.close()
        pool.join()
    elapsed = time.monotonic() - began
    latencies.sort()
    print(
        json.dumps(
            {
                "images": len(latencies),
                "seconds": elapsed,
                "cpu": cpu() - before,
                "p50": latencies[len(latencies) // 2] * 1000,
                "p99": latencies[int(len(latencies) * 0.99)] * 1000,
            }
        )
    )


main()
