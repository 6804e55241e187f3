"""Volumes that scipy.ndimage.zoom resampled as TotalSegmentator does it, and labels back.

python reference.py FOLDER            the cases that are stored (scipy 1.17.1)
python reference.py FOLDER SEED       cases of random sides, spacings and sides of the patient
"""

import json
import sys
from pathlib import Path

import numpy as np
from scipy import ndimage

# Axes of NIfTI: x to the right, y to the front, z to the head
AXES = {"R": 0, "L": 0, "A": 1, "P": 1, "S": 2, "I": 2}
# Logits of three classes: background, then two that exclude each other
WEIGHTS = np.array([0, 1, 2])
BIASES = np.array([0, -300, -1100])


def scanned(volume, letters):
    """A volume with the axes x, y, z as slices, rows and columns that grow to these sides."""
    turned = volume.transpose([AXES[letter] for letter in letters])
    return turned[tuple(slice(None, None, -1 if letter in "LPI" else 1) for letter in letters)]


def reference(random, sides, spacing, letters, slope, border, target=1.5):
    stored = random.integers(0, 1600, sides).astype(np.uint16)
    if border:
        inner = tuple(slice(border, -border) for _ in range(3))
        framed = np.zeros_like(stored)
        framed[inner] = stored[inner]
        stored = framed
    values = stored.astype(np.float64) * slope
    own = np.array(spacing, np.float32)
    wanted = np.array([target] * 3)
    resampled = values
    if not np.array_equal(own, wanted):
        resampled = ndimage.zoom(values, own / wanted, mode="nearest", order=1).astype(np.int32).astype(np.float64)
    filled = np.nonzero(resampled if resampled.any() else np.ones_like(resampled))
    box = tuple(slice(axis.min(), axis.max() + 1) for axis in filled)
    labels = np.zeros(resampled.shape)
    labels[box] = np.argmax(WEIGHTS[:, None] * resampled[box].reshape(1, -1) + BIASES[:, None], 0).reshape(
        resampled[box].shape
    )
    back = ndimage.zoom(labels, np.array(sides) / np.array(labels.shape), mode="nearest", order=0)
    assert back.shape == tuple(sides)
    given = {"letters": letters, "spacing": [spacing[AXES[letter]] for letter in letters], "slope": slope}
    return given, {
        "volume": scanned(stored, letters),
        "tensor": resampled[box].transpose(2, 1, 0).astype(np.float32),
        "labels": scanned(back, letters).astype(np.uint8),
    }


CASES = [
    ((13, 11, 6), (0.8, 0.83, 3), "SPL", 1, 0),
    # The last voxel rounds beyond the end, on the way there and on the way back
    ((8, 26, 9), (4.875, 12 / 26, 1.5), "SPL", 1, 0),
    ((7, 6, 5), (1.5, 1.5, 1.5), "SPL", 0.5, 0),
    ((12, 9, 10), (0.9, 1.1, 2.5), "RIA", 0.5, 2),
]


def random_cases(random):
    for _ in range(40):
        letters = [random.choice(list(pair)) for pair in ("LR", "AP", "IS")]
        random.shuffle(letters)
        sides = tuple(int(side) for side in random.integers(4, 24, 3))
        spacing = tuple(float(mm) for mm in random.uniform(0.6, 4, 3))
        yield sides, spacing, "".join(letters), float(random.choice([0.5, 1])), int(random.integers(0, 2))


def main(folder, seed=None):
    random = np.random.default_rng(4 if seed is None else int(seed))
    cases = CASES if seed is None else random_cases(random)
    given = []
    for number, case in enumerate(cases):
        facts, arrays = reference(random, *case)
        given.append(facts)
        for name, array in arrays.items():
            np.save(Path(folder) / f"{number}-{name}.npy", np.ascontiguousarray(array))
    (Path(folder) / "cases.json").write_text(json.dumps(given, indent=2) + "\n")


main(*sys.argv[1:])
