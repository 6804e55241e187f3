"""The script behind Triton Inference Server, as PyTriton brings it: its Python backend alone, and so the script's own work
in two callables; Triton has no tokens and knows no roots. `triton.py PORT` serves the model `single_inference`.
"""

import json
import sys

import numpy as np
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig
from tritonclient.utils import InferenceServerException

import work

INSTANCES = 2
#: One callable waits a second, and no longer, for the other to be ready: a busy machine needs more than one try.
TRIES = 5

def text(request, name):
    return request.data[name].item().decode()


def infer(requests):
    receipts = (work.infer(text(request, "input_image_path"), text(request, "output_folder_path")) for request in requests)
    return [{"receipt": np.array([json.dumps(receipt).encode()])} for receipt in receipts]


def serve():
    config = TritonConfig(http_address="127.0.0.1", http_port=int(sys.argv[1]), allow_grpc=False, allow_metrics=False)
    with Triton(config=config) as triton:
        triton.bind(
            model_name="single_inference",
            infer_func=[infer] * INSTANCES,
            inputs=[
                Tensor(name="input_image_path", dtype=bytes, shape=(1,)),
                Tensor(name="output_folder_path", dtype=bytes, shape=(1,)),
            ],
            outputs=[Tensor(name="receipt", dtype=bytes, shape=(1,))],
            config=ModelConfig(batching=False),
        )
        triton.serve()


def main():
    for left in reversed(range(TRIES)):
        try:
            return serve()
        except InferenceServerException:
            if left == 0:
                raise


# PyTriton starts processes that import this file again
if __name__ == "__main__":
    main()
