"""Makes measurements.json: segments with the measurements that IBSI and pyradiomics give for them.

IBSI's digital phantom, its values and their tolerances are those of the reference manual (Zwanenburg et al. 2016,
arXiv:1612.07003, chapter "Reference data sets" and the tables of each feature). The other cases are measured by
pyradiomics 3.0.1, which differs from IBSI in its kurtosis: it is 3 for a normal distribution.

    python -m venv venv && venv/bin/pip install "numpy<2" SimpleITK pywavelets pykwalify six setuptools versioneer
    venv/bin/pip install --no-build-isolation pyradiomics==3.0.1
    venv/bin/python test/reference/measurements/measurements.py
"""
import json
import logging
import pathlib

import numpy as np
import radiomics
import SimpleITK as sitk
from radiomics import firstorder, shape

logging.disable(logging.CRITICAL)

X = 0  # Outside the segment; its value does not count
PHANTOM = [
    [[1, 4, 4, 1, 1], [1, 4, 6, 1, 1], [4, 1, 6, 4, 1], [4, 4, 6, 4, 1]],
    [[1, 4, 4, 1, 1], [1, 1, 6, 1, 1], [X, 1, 3, 1, 1], [4, 4, 6, 1, 1]],
    [[1, 4, 4, X, X], [1, 1, 1, 1, 1], [1, 1, X, 1, 1], [1, 1, 6, 1, 1]],
    [[1, 4, 4, X, X], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 6, 1, 1]],
]
# Value, and how far another implementation may be from it: the tolerance, or the last digit that is given
IBSI = {
    "mean": [2.15, 0.005], "variance": [3.05, 0.005], "skewness": [1.08, 0.005], "kurtosis": [-0.355, 0.0005],
    "median": [1, 0], "minimum": [1, 0], "p10": [1, 0], "p90": [4, 0], "maximum": [6, 0], "iqr": [3, 0], "range": [5, 0],
    "energy": [567, 0], "rms": [2.77, 0.005], "entropy": [1.27, 0.005], "uniformity": [0.512, 0.0005],
    "surface": [388, 3], "diameter_3d": [13.1, 0.1], "volume": [592, 4],
}


def measured(values, mask, spacing, width):
    """By pyradiomics, with the names of a manifest; spacing of slices, rows and columns."""
    image, segment = sitk.GetImageFromArray(values), sitk.GetImageFromArray(mask.astype(np.uint8))
    for each in (image, segment):
        each.SetSpacing([float(mm) for mm in spacing[::-1]])
    first = firstorder.RadiomicsFirstOrder(image, segment, binWidth=width)
    form = shape.RadiomicsShape(image, segment)
    first.enableAllFeatures()
    form.enableAllFeatures()
    f, s = first.execute(), form.execute()
    inside = values[mask]
    return {
        "mean": f["Mean"], "sd": float(f["Variance"]) ** 0.5, "minimum": f["Minimum"], "maximum": f["Maximum"],
        "median": f["Median"], "p10": f["10Percentile"], "p90": f["90Percentile"], "iqr": f["InterquartileRange"],
        **{f"p{part}": np.percentile(inside, part) for part in (5, 25, 75, 95)},
        "range": f["Range"], "skewness": f["Skewness"], "kurtosis": f["Kurtosis"] - 3, "energy": f["Energy"],
        "rms": f["RootMeanSquared"], "entropy": f["Entropy"], "uniformity": f["Uniformity"],
        "surface": s["SurfaceArea"], "diameter_3d": s["Maximum3DDiameter"],
        "diameter_in_plane": s["Maximum2DDiameterSlice"], "volume": s["VoxelVolume"],
    }


def case(name, values, mask, spacing, width, **more):
    found = {key: float(value) for key, value in measured(values, mask, spacing, width).items()}
    return {"name": name, "shape": list(values.shape), "spacing": spacing, "bin_width": width,
            "values": values.ravel().tolist(), "mask": "".join("01"[int(v)] for v in mask.ravel()),
            "pyradiomics": found, **more}


def cases():
    phantom = np.array(PHANTOM, np.int16)
    yield case("ibsi", phantom, phantom != X, [2, 2, 2], 1, ibsi=IBSI)
    random = np.random.default_rng(20261127)
    z, y, x = np.indices((9, 12, 14))
    ball = ((z - 4) / 3.4) ** 2 + ((y - 6) / 4.6) ** 2 + ((x - 6) / 5.7) ** 2 <= 1
    noise = random.normal(-20, 60, ball.shape).round().astype(np.int16)
    yield case("ellipsoid", noise, ball, [3, 0.8, 0.7], 25)
    # Parts that touch along edges and at corners alone, as far as the sides of the image
    grains = random.random((6, 8, 9)) < 0.4
    yield case("grains", random.integers(-1000, 1500, grains.shape, np.int16), grains, [2.5, 1.1, 0.9], 25)
    flat = np.zeros((4, 7, 8), bool)
    flat[2, 1:5, 2:7] = True
    flat[2, 3, 5] = False
    yield case("one slice", random.integers(0, 90, flat.shape, np.int16), flat, [5, 0.5, 0.6], 10)


print("pyradiomics", radiomics.__version__)
target = pathlib.Path(__file__).with_suffix(".json")
target.write_text("[\n" + ",\n".join(json.dumps(one, separators=(",", ":")) for one in cases()) + "\n]\n")
print(target, target.stat().st_size)
