"""Phantoms with a few dozen organs, and a network that is trained on them: the task `trained` of bench/body.py.

An organ is an ellipsoid with a density of its own in soft tissue. All parts have one trunk, whose first layer is laid by hand,
and a head each that is trained: as each of TotalSegmentator's networks, it knows its own labels and calls all others background.

Not good yet: Dice with what was drawn is 0.03, as the regression over features that lie close together does not come to its end.
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
NETWORK = dict(patch=[64, 64, 64], features=[16, 16, 32], convolutions=1)
INTENSITY = dict(nnunet.INTENSITY, mean=55.5, std=300.0, percentile_00_5=-1000.0, percentile_99_5=1300.0)
PARTS, ORGANS_A_PART = 5, 4
ORGANS = PARTS * ORGANS_A_PART
TISSUE, NOISE, BLUR_MM = 20, 12, 0.8
# HU of the organs in turn, those of a part beside each other
DENSITIES = [*range(-900, -80, 90), *range(120, 1200, 105)][:ORGANS]
RADII_MM, ORGANS_A_LITRE = (6, 22), 54
# Rods of air and of bone, a distance apart: InstanceNormalization measures densities against them
RODS, RODS_APART_MM, ROD_MM = (-1000, 1300), 32, 6
# Of what it is trained on
SPACING, VOLUMES, SIDE = [1.5] * 3, 16, 64
# Voxels of each organ, and of none, that the heads are fitted to in each volume
FITTED, FITTED_NONE = 150, 4000


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
            place[inside] = rng.integers(1, ORGANS + 1)
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
    return [name for part in labels for name in part[:ORGANS_A_PART]]


def network_of(outputs):
    case = dict(NETWORK, configurations={"3d_fullres": SPACING})
    made = nnunet.configuration_of("3d_fullres", case)["architecture"]
    kind, options, imports = made["network_class_name"], made["arch_kwargs"], made["_kw_requires_import"]
    return get_network_from_plans(kind, options, imports, 1, outputs, deep_supervision=False)


def normalised(values):
    low, high = INTENSITY["percentile_00_5"], INTENSITY["percentile_99_5"]
    return torch.from_numpy((np.clip(values, low, high) - INTENSITY["mean"]) / INTENSITY["std"])


def lay_trunk(network, seen):
    """Bins of density for the first layer: learnt from nothing, they took longer than all the rest. The last layer sees them."""
    first, last = network.encoder.stages[0][0].convs[0], network.decoder.stages[-1].convs[0]
    one = torch.tensor([1.0, 2.0, 1.0])
    smooth = torch.einsum("i,j,k->ijk", one, one, one) / 64
    bins = len(first.conv.weight)
    with torch.no_grad():
        first.conv.weight.copy_(smooth.expand_as(first.conv.weight))
        blurred = functional.conv3d(seen[None, None], smooth[None, None])
        edges = torch.linspace(-950, 1200, bins)
        first.norm.bias.copy_(-((edges - INTENSITY["mean"]) / INTENSITY["std"] - blurred.mean()) / blurred.std())
        last.conv.weight.mul_(0.1)
        # Above 0 the rectifier lets all through
        last.norm.bias.fill_(10)
        for channel in range(bins):
            last.conv.weight[channel, bins + channel, 1, 1, 1] += 1


def fit_heads(network, pool, called):
    """Logistic regression over what the last layer is given, by L-BFGS."""
    last, given, wanted = network.decoder.seg_layers[-1], [], []
    hook = last.register_forward_hook(lambda _, arguments, __: given.append(arguments[0][0].flatten(1).T))
    for volume, (values, found) in enumerate(pool):
        with torch.no_grad():
            network(values[None, None])
        found = found.flatten()
        places = [torch.nonzero(found == organ)[:, 0] for organ in torch.unique(found)]
        kept = torch.cat([at[torch.randperm(len(at))[: FITTED if found[at[0]] else FITTED_NONE]] for at in places])
        given[volume] = given[volume][kept]
        wanted.append(found[kept])
    hook.remove()
    features, answers = torch.cat(given), called[:, torch.cat(wanted)].T
    weight = last.weight.detach().flatten(1).clone().requires_grad_()
    bias = torch.zeros(len(weight), requires_grad=True)
    solver = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss_of():
        solver.zero_grad()
        out = (features @ weight.T + bias).view(-1, PARTS, ORGANS_A_PART + 1)
        loss = functional.cross_entropy(out.flatten(0, 1), answers.flatten())
        loss.backward()
        return loss

    solver.step(loss_of)
    print(f"heads: loss {loss_of().item():.3f}", file=sys.stderr)
    with torch.no_grad():
        last.weight.copy_(weight.view_as(last.weight))
        last.bias.copy_(bias)


def trained():
    """The weights of a trunk, and of a head for each part: weight and bias of ORGANS_A_PART + 1 channels."""
    torch.manual_seed(1)
    # So that each run gives the same weights
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    began = time.process_time()
    width = ORGANS_A_PART + 1
    # What each head calls each organ
    organs = torch.arange(ORGANS + 1)
    called = torch.stack([torch.where((organs - 1) // ORGANS_A_PART == p, (organs - 1) % ORGANS_A_PART + 1, 0) for p in range(PARTS)])
    called[:, 0] = 0
    pool = [drawn(100 + i, [SIDE] * 3, SPACING) for i in range(VOLUMES)]
    pool = [(normalised(values), torch.from_numpy(found.astype(np.int64))) for values, found in pool]
    network = network_of(PARTS * width)
    lay_trunk(network, pool[0][0])
    fit_heads(network, pool, called)
    print(f"trained in {time.process_time() - began:.0f} s", file=sys.stderr)
    torch.set_num_threads(threads)
    weights, last = network.state_dict(), network.decoder.seg_layers[-1]
    heads = zip(last.weight.detach().split(width), last.bias.detach().split(width))
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
