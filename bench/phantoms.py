"""Phantoms with five organs, and a network that is trained on them in minutes: the task `trained` of bench/body.py.

An organ is an ellipsoid with a density of its own in soft tissue. All parts have one trunk, and a head each; all are trained
together. As each of TotalSegmentator's networks, a head knows its own labels and calls all others background.
"""

import sys
import time

import nnunet
import numpy as np
import torch
from nnunetv2.utilities.get_network_from_plans import get_network_from_plans
from scipy import ndimage
from torch.nn import functional

# Slices, rows and columns of the CT that the pipelines are given
SIDES = [80, 144, 144]
NETWORK = dict(patch=[32, 32, 32], features=[16, 32, 64], convolutions=1)
INTENSITY = dict(nnunet.INTENSITY, mean=55.5, std=300.0, percentile_00_5=-1000.0, percentile_99_5=1300.0)
# HU of the organs in turn, one of each part
DENSITIES = [-850, 350, -420, 680, 1050]
TISSUE, NOISE, BLUR_MM = 20, 12, 0.8
RADII_MM, ORGANS_A_LITRE = (8, 20), 50
# Rods of air and of bone: InstanceNormalization measures densities against them. As a window is two distances wide, each
# has as much of them
RODS, RODS_APART_MM, ROD_MM = (-1000, 1300), 24, 4
# Of what it is trained on
SPACING, VOLUMES, SIDE = [1.5] * 3, 24, 72
STEPS, BATCH, RATE = 300, 2, 5e-3


def drawn(seed, sides, spacing):
    """HU, float32, and the number of the organ in each voxel, 0 for none. Spacing in mm of slices, rows, columns."""
    rng = np.random.default_rng(seed)
    sides, spacing = np.asarray(sides), np.asarray(spacing, float)
    organs = np.zeros(sides, np.uint8)
    for _ in range(round(np.prod(sides * spacing) / 1e6 * ORGANS_A_LITRE)):
        radii, centre = rng.uniform(*RADII_MM, 3), rng.uniform(0, sides * spacing)
        low = np.maximum(0, (centre - radii) / spacing).astype(int)
        high = np.minimum(sides, np.ceil((centre + radii) / spacing).astype(int) + 1)
        at = np.meshgrid(*(np.arange(l, h) * s for l, h, s in zip(low, high, spacing)), indexing="ij", sparse=True)
        inside = sum(((a - c) / r) ** 2 for a, c, r in zip(at, centre, radii)) < 1
        place = organs[tuple(slice(l, h) for l, h in zip(low, high))]
        if not place[inside].any():
            place[inside] = rng.integers(1, len(DENSITIES) + 1)
    rows, columns = (np.arange(side) * mm for side, mm in zip(sides[1:], spacing[1:]))
    rods = []
    for shift in (0, RODS_APART_MM / 2):
        away = [(at + shift) % RODS_APART_MM - RODS_APART_MM / 2 for at in (rows, columns)]
        rods.append(np.hypot(away[0][:, None], away[1][None]) < ROD_MM)
    organs[:, rods[0] | rods[1]] = 0
    values = np.array([TISSUE, *DENSITIES], np.float32)[organs]
    for rod, density in zip(rods, RODS):
        values[:, rod] = density
    values = ndimage.gaussian_filter(values, BLUR_MM / spacing)
    return (values + rng.normal(0, NOISE, sides)).astype(np.float32), organs


def named(labels):
    """The names of the organs in turn: the first of each part's labels."""
    return [part[0] for part in labels]


def network_of(outputs):
    case = dict(NETWORK, configurations={"3d_fullres": SPACING})
    made = nnunet.configuration_of("3d_fullres", case)["architecture"]
    kind, options, imports = made["network_class_name"], made["arch_kwargs"], made["_kw_requires_import"]
    return get_network_from_plans(kind, options, imports, 1, outputs, deep_supervision=False)


def normalised(values):
    low, high = INTENSITY["percentile_00_5"], INTENSITY["percentile_99_5"]
    return torch.from_numpy((np.clip(values, low, high) - INTENSITY["mean"]) / INTENSITY["std"])


def lay_bins(network, seen):
    """Where the first layer begins: bins of density. Learnt from nothing, they take longer than all the rest."""
    first = network.encoder.stages[0][0].convs[0]
    one = torch.tensor([1.0, 2.0, 1.0])
    smooth = torch.einsum("i,j,k->ijk", one, one, one) / 64
    blurred = functional.conv3d(seen[None, None], smooth[None, None])
    edges = (torch.linspace(-950, 1200, len(first.conv.weight)) - INTENSITY["mean"]) / INTENSITY["std"]
    with torch.no_grad():
        first.conv.weight.copy_(smooth.expand_as(first.conv.weight))
        first.norm.bias.copy_((blurred.mean() - edges) / blurred.std())


def patches(pool):
    """A batch of windows at any place of any volume: values, and the number of the organ in each voxel."""
    patch, taken = NETWORK["patch"][0], []
    for volume in torch.randint(len(pool), (BATCH,)):
        window = tuple(slice(at, at + patch) for at in torch.randint(SIDE - patch + 1, (3,)).tolist())
        taken.append([one[window] for one in pool[volume]])
    values, organs = (torch.stack(parts) for parts in zip(*taken))
    return values[:, None], organs


def loss_of(logits, wanted):
    """nnU-Net's: cross entropy, and the Dice of each label over the batch, here of all heads. `logits`: heads side by side."""
    out = logits.unflatten(1, (len(DENSITIES), 2)).transpose(0, 1)
    entropy = functional.cross_entropy(out.flatten(0, 1), wanted.flatten(0, 1))
    found, true = out.softmax(2), functional.one_hot(wanted, 2).movedim(-1, 2)
    over = (1, 3, 4, 5)
    dice = (2 * (found * true).sum(over) + 1) / (found.sum(over) + true.sum(over) + 1)
    return entropy + 1 - dice.mean()


def trained():
    """The weights of a trunk, and of a head for each part: weight and bias of background and organ."""
    torch.manual_seed(1)
    began = time.perf_counter()
    # What each head calls background and each organ
    called = functional.pad(torch.eye(len(DENSITIES), dtype=torch.int64), (1, 0))
    pool = [drawn(100 + i, [SIDE] * 3, SPACING) for i in range(VOLUMES)]
    pool = [(normalised(values), torch.from_numpy(found.astype(np.int64))) for values, found in pool]
    network = network_of(2 * len(DENSITIES))
    lay_bins(network, pool[0][0])
    solver = torch.optim.Adam(network.parameters(), RATE)
    rate = torch.optim.lr_scheduler.OneCycleLR(solver, RATE, STEPS)
    for step in range(STEPS):
        values, found = patches(pool)
        loss = loss_of(network(values), called[:, found])
        solver.zero_grad()
        loss.backward()
        solver.step()
        rate.step()
        if step % 20 == 19:
            print(f"step {step + 1}, {time.perf_counter() - began:.0f} s: loss {loss.item():.3f}", file=sys.stderr)
    weights, last = network.state_dict(), network.decoder.seg_layers[-1]
    heads = zip(last.weight.detach().split(2), last.bias.detach().split(2))
    return {name: value for name, value in weights.items() if ".seg_layers." not in name}, list(heads)


def fill(network, trunk, head):
    """Writes a part: labels that no organ has are never the highest."""
    network.load_state_dict(trunk, strict=False)
    last = network.decoder.seg_layers[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.fill_(-20)
        for its, learned in zip((last.weight, last.bias), head):
            its[: len(learned)] = learned
