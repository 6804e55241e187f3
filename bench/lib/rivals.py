"""The other side of `bench pixels`: one JSON request a line on stdin, one JSON answer a line on stdout.

Everything runs on one thread. Every library is optional; `hello` says which are there.
"""

import importlib
import json
import os
import resource
import subprocess
import sys
import time

LIBRARIES = {}
for _name in ("numpy", "cv2", "gdcm", "openjpeg", "imagecodecs", "jpeg_ls"):
    try:
        LIBRARIES[_name] = importlib.import_module(_name)
    except ImportError:
        pass

np = LIBRARIES.get("numpy")
cv2 = LIBRARIES.get("cv2")
if cv2 is not None:
    cv2.setNumThreads(1)


def timed(work, repeats, prepared=None, clock=time.perf_counter):
    """Milliseconds of each call, and what the last one gave; `prepared` makes its argument, unmeasured."""
    times = []
    result = None
    for _ in range(repeats):
        arguments = () if prepared is None else (prepared(),)
        began = clock()
        result = work(*arguments)
        times.append((clock() - began) * 1000)
    return times, result


def source(request):
    key = request["path"]
    if key not in SOURCES:
        shape = (request["rows"], request["columns"])
        if request["samples"] > 1:
            shape += (request["samples"],)
        SOURCES[key] = np.fromfile(key, dtype=request["dtype"]).reshape(shape)
    return SOURCES[key]


SOURCES = {}


def gray(request, image):
    """Rescale and normalisation are one multiplication and one addition each, in place."""
    size = (request["width"], request["height"])
    slope, intercept = np.float32(request["slope"]), np.float32(request["intercept"])
    mean, factor = np.float32(request["mean"][0]), np.float32(1 / request["std"][0])

    def resize_first():
        x = cv2.resize(image, size, interpolation=cv2.INTER_AREA).astype(np.float32)
        x *= slope
        x += intercept
        x -= mean
        x *= factor
        return x

    def float_first():
        x = image.astype(np.float32)
        x *= slope
        x += intercept
        x = cv2.resize(x, size, interpolation=cv2.INTER_AREA)
        x -= mean
        x *= factor
        return x

    def float_resize_first():
        x = cv2.resize(image.astype(np.float32), size, interpolation=cv2.INTER_AREA)
        x *= slope
        x += intercept
        x -= mean
        x *= factor
        return x

    return {
        "resize as integers": resize_first,
        "rescale as float": float_first,
        "resize as float": float_resize_first,
    }


def colour(request, image):
    size = (request["width"], request["height"])
    mean = np.array(request["mean"], np.float32)
    factor = 1 / np.array(request["std"], np.float32)

    def planes(x):
        x -= mean
        x *= factor
        return np.ascontiguousarray(x.transpose(2, 0, 1))

    def resize_first():
        return planes(cv2.resize(image, size, interpolation=cv2.INTER_AREA).astype(np.float32))

    def resize_float():
        return planes(cv2.resize(image.astype(np.float32), size, interpolation=cv2.INTER_AREA))

    def split():
        x = cv2.split(cv2.resize(image, size, interpolation=cv2.INTER_AREA))
        out = np.empty((3, size[1], size[0]), np.float32)
        for c in range(3):
            np.subtract(x[c], mean[c], out=out[c])
            out[c] *= factor[c]
        return out

    return {"resize as integers": resize_first, "resize as float": resize_float, "split into planes": split}


def prepare(request):
    image = source(request)
    variants = (gray if request["samples"] == 1 else colour)(request, image)
    times = {}
    for name, work in variants.items():
        times[name], result = timed(work, request["repeats"])
        # The variant that keeps fractions is the one to agree with
        if "float" in name and request.get("out"):
            result.astype(np.float32).tofile(request["out"])
    return {"times": times}


def gdcm_decode(path):
    """A reader keeps what it has decoded, so each repetition reads anew; reading is not measured."""
    gdcm = LIBRARIES["gdcm"]

    def prepared():
        reader = gdcm.ImageReader()
        reader.SetFileName(path)
        if not reader.Read():
            raise ValueError("GDCM does not read it")
        change = gdcm.ImageChangeTransferSyntax()
        change.SetTransferSyntax(gdcm.TransferSyntax(gdcm.TransferSyntax.ExplicitVRLittleEndian))
        change.SetInput(reader.GetImage())
        # The reader goes along because it owns the image
        return reader, change

    def work(state):
        if not state[1].Change():
            raise ValueError("GDCM does not decode it")

    return prepared, work


def codec_decoders(request):
    """Decoders of a codestream in memory, by the name they go by in the table."""
    frames = []
    for path in request["frames"]:
        with open(path, "rb") as file:
            frames.append(file.read())
    kind = request["kind"]
    found = {}

    def each(decode):
        def work():
            for frame in frames:
                decode(frame)

        return work

    ic = LIBRARIES.get("imagecodecs")
    if kind in ("jpeg2000", "htj2k"):
        if "openjpeg" in LIBRARIES:
            decode_opj = LIBRARIES["openjpeg"].decode_pixel_data
            found["OpenJPEG (pylibjpeg)"] = each(lambda f: decode_opj(f, version=2))
        if ic is not None:
            found["OpenJPEG (imagecodecs)"] = each(lambda f: ic.jpeg2k_decode(f, numthreads=1))
    if kind == "htj2k" and ic is not None and hasattr(ic, "htj2k_decode"):
        found["OpenJPH (imagecodecs)"] = each(ic.htj2k_decode)
    if kind == "jpeg-ls":
        if "jpeg_ls" in LIBRARIES:
            found["CharLS (pyjpegls)"] = each(LIBRARIES["jpeg_ls"].decode_pixel_data)
        if ic is not None:
            found["CharLS (imagecodecs)"] = each(ic.jpegls_decode)
    if kind == "jpeg" and ic is not None:
        found["libjpeg-turbo (imagecodecs)"] = each(ic.jpeg_decode)
    return found


DCMTK = {"jpeg": ["dcmdjpeg", "+cn"], "jpeg-ls": ["dcmdjpls"], "rle": ["dcmdrle"]}


def processor_seconds(*command):
    """Processor time of a whole process; None where it fails or is not there."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        status = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    except OSError:
        return None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used if status == 0 else None


def dcmtk(request):
    """DCMTK's program, less what its dcmconv needs to read and write the decoded object; colour as coded."""
    command = DCMTK.get(request["kind"])
    if command is None:
        return []
    decoded = os.path.join(request["scratch"], "dcmtk.dcm")
    times = []
    for _ in range(min(3, request["repeats"])):
        whole = processor_seconds(*command, request["path"], decoded)
        rest = processor_seconds("dcmconv", decoded, os.path.join(request["scratch"], "copy.dcm"))
        # Below a millisecond the difference of two processes says nothing
        if whole is not None and rest is not None and whole - rest > 0.001:
            times.append((whole - rest) * 1000)
    return times


def decode(request):
    decoders = {name: (work, None) for name, work in codec_decoders(request).items()}
    if "gdcm" in LIBRARIES:
        prepared, work = gdcm_decode(request["path"])
        decoders["GDCM"] = (work, prepared)
    times, refused = {}, {}
    for name, (work, prepared) in decoders.items():
        try:
            times[name], _ = timed(work, request["repeats"], prepared, time.process_time)
        except Exception as error:  # whatever a library raises: it is left out and said so
            refused[name] = str(error)[:100]
    programs = dcmtk(request)
    if programs:
        times["DCMTK"] = programs
    return {"times": times, "refused": refused}


def hello(_):
    return {name: str(getattr(module, "__version__", "")) for name, module in LIBRARIES.items()}


COMMANDS = {"hello": hello, "prepare": prepare, "decode": decode}

for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps(COMMANDS[asked["command"]](asked)), flush=True)
