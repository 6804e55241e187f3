"""The node cases of the onnx package, as files: `python onnx_nodes.py FOLDER`.

FOLDER/cases.json has a list of cases: name, model (a file), inputs and outputs by name, each with
type, shape, and the place of its bytes in FOLDER/data.bin, or, of text, its texts. Cases with
sequences and optional values have `other`, the kind of value that is no tensor.
"""

import json
import os
import sys
import warnings

import numpy as np

warnings.simplefilter("ignore")
np.seterr(all="ignore")

import onnx  # noqa: E402
from onnx import numpy_helper  # noqa: E402
from onnx.backend.test.case.node import collect_testcases  # noqa: E402

NAMES = {
    "FLOAT": "float32", "DOUBLE": "float64", "FLOAT8E4M3FN": "float8e4m3fn", "FLOAT8E4M3FNUZ": "float8e4m3fnuz",
    "FLOAT8E5M2": "float8e5m2", "FLOAT8E5M2FNUZ": "float8e5m2fnuz", "FLOAT8E8M0": "float8e8m0",
    "FLOAT4E2M1": "float4e2m1",
}


def name_of(element: int) -> str:
    word = onnx.TensorProto.DataType.Name(element)
    return NAMES.get(word, word.lower())


def other_kind(values) -> str | None:
    for value in values:
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            return kind.removesuffix("_type")
    return None


def main(folder: str) -> None:
    cases = []
    with open(os.path.join(folder, "data.bin"), "wb") as data:

        def tensor(array, value):
            element = value.type.tensor_type.elem_type
            proto = array if isinstance(array, onnx.TensorProto) else numpy_helper.from_array(np.asarray(array), value.name)
            said = {"name": value.name, "type": name_of(element), "shape": list(proto.dims)}
            if element == onnx.TensorProto.STRING:
                said["texts"] = [text.decode() for text in proto.string_data]
                return said
            if proto.data_type != element:
                raise ValueError(f"{value.name} is {name_of(proto.data_type)}")
            raw = proto.raw_data
            if not raw and np.prod(proto.dims) != 0:
                raw = numpy_helper.from_array(numpy_helper.to_array(proto)).raw_data
            said["at"], said["bytes"] = data.tell(), len(raw)
            data.write(raw)
            return said

        for case in collect_testcases(None):
            graph = case.model.graph
            entry = {"name": case.name, "rtol": case.rtol, "atol": case.atol}
            entry["model"] = f"{case.name}.onnx"
            entry["other"] = other_kind([*graph.input, *graph.output])
            onnx.save(case.model, os.path.join(folder, entry["model"]))
            if entry["other"] is None:
                try:
                    inputs, outputs = case.data_sets[0]
                    entry["inputs"] = [tensor(a, v) for a, v in zip(inputs, graph.input)]
                    entry["outputs"] = [tensor(a, v) for a, v in zip(outputs, graph.output)]
                except (TypeError, ValueError, AttributeError) as error:
                    entry["unsaid"] = str(error)
            cases.append(entry)
    with open(os.path.join(folder, "cases.json"), "w") as out:
        json.dump(cases, out)


main(sys.argv[1])
