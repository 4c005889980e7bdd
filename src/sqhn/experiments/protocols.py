"""What the experiments do: each protocol takes plain settings and a seed and returns plain results.

A seed spawns one generator for each role, so that every memory of an experiment meets the same pictures in the same
order, and the same corruptions of them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.data import load
from sqhn.data.corruptions import CORRUPTIONS, white_noise
from sqhn.data.streams import (
    TRANSFORMS,
    class_incremental,
    domain_incremental,
    iid,
    mixed_domains,
    noisy_samples,
    unit,
)
from sqhn.experiments.memories import build, tree
from sqhn.memory import Memory
from sqhn.metrics import encoding_floor, recall_accuracy, recall_error, recognition_accuracy, singletons
from sqhn.reference import ReferenceSQHN

__all__ = [
    "Protocol",
    "emergence",
    "energies",
    "examples",
    "memorize",
    "noisy_encoding",
    "occlusions",
    "online",
    "picture",
    "pictures_of",
    "recognition",
    "theorem_1",
    "theorem_2",
]

Pictures = NDArray[np.float32]
Settings = Mapping[str, Any]
Results = dict[str, Any]
Protocol = Callable[[Settings, int], Results]


def generator(seed: int, *role: object) -> np.random.Generator:
    """The random numbers of one role, say "data" or the noise of a test."""
    return np.random.default_rng([seed, *" ".join(map(str, role)).encode()])


def pool(name: str, split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures and labels of a data set; "val" is "train" where there is no other, "train+val" is all there is."""
    splits = load(name).splits
    if split == "train+val":
        parts = [splits[part] for part in ("train", "val") if part in splits]
        return np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])
    part = splits["train" if split == "val" and "val" not in splits else split]
    return part.x, part.y


def picture(x: Pictures) -> dict[str, Any]:
    """Pictures as plain data for a record."""
    values = np.round(np.clip(x, 0, 1) * 255).astype(np.uint8)
    return {"shape": list(values.shape), "uint8": base64.b64encode(values.tobytes()).decode()}


def pictures_of(plain: Mapping[str, Any]) -> NDArray[np.uint8]:
    """The inverse of `picture`."""
    return np.frombuffer(base64.b64decode(plain["uint8"]), np.uint8).reshape(plain["shape"])


# -- memorize a batch, recall it from spoiled pictures (Table 1, robustness by depth) --------------------------------


def memorize(settings: Settings, seed: int) -> Results:
    """Memorize `length` pictures at once; recall all of them from every corruption."""
    stored = iid(pool(settings["data"][0], settings["split"])[0], settings["length"], generator(seed, "data"))
    memory = loaded(settings, stored, seed)
    rows = []
    for kind, level in settings["corruptions"]:
        spoil = CORRUPTIONS[kind]
        x, observed = spoil(stored, level, generator(seed, kind, level), shared=settings["shared"])
        recalled = memory.recall(x, observed).x
        error = recall_error(recalled, stored)
        row = {"kind": kind, "level": level, "accuracy": recall_accuracy(error, settings["threshold"])}
        row["mse"] = row["mse_all"] = float(error.mean())
        if observed is not None:
            row["mse"] = float(recall_error(recalled, stored, ~observed).mean())
            row["mse_visible"] = float(recall_error(recalled, stored, observed).mean())
        rows.append(row)
    return {"stored": len(stored), "rows": rows}


def loaded(settings: Settings, stored: Pictures, seed: int) -> Memory:
    """A memory with all of a batch in it: an SQHN with room for exactly that, or one that stores what it is shown."""
    if settings["memory"]["kind"] == "sqhn":
        network = tree(stored.shape[1:], {**settings["memory"], "capacity": len(stored)})
        network.memorize(stored)
        return network
    memory: Memory = made(settings, stored.shape[1:], seed)
    memory.learn(stored)
    return memory


def made(settings: Settings, shape: tuple[int, ...], seed: int) -> Any:
    """The memory that a job names, on the device it runs on."""
    return build(shape, settings["memory"], seed, settings.get("device", "cpu"))


def examples(settings: Settings, seed: int) -> Results:
    """Memorize the first pictures of a set and look at what is recalled of some of them; the first is kept to show."""
    stored = unit(pool(settings["data"][0], settings["split"])[0][: settings["length"]])
    memory = loaded(settings, stored, seed)
    asked = stored[: settings["draws"]]
    given, found, rows = [], [], []
    for kind, level in settings["corruptions"]:
        x, observed = CORRUPTIONS[kind](asked, level, generator(seed, kind, level))
        recalled = memory.recall(x, observed).x
        good = recall_error(recalled, asked) <= settings["threshold"]
        rows.append({"kind": kind, "level": level, "recalled": good.tolist()})
        given.append(x[0] if observed is None else np.where(observed[0], x[0], np.float32(0.5)))
        found.append(recalled[0])
    return {"rows": rows, "pictures": {"given": picture(np.stack(given)), "found": picture(np.stack(found))}}


def occlusions(settings: Settings, seed: int) -> Results:
    """One picture behind one rectangle in three fills: what the occlusions look like."""
    x = iid(pool(settings["data"][0], settings["split"])[0], 1, generator(seed, "data"))
    shown = [x[0]]
    for fill in settings["fills"]:  # the rectangle is drawn first: the same for all
        shown.append(CORRUPTIONS[fill](x, settings["level"], generator(seed, "rectangle"))[0][0])
    return {"pictures": {"given": picture(np.stack(shown))}}


# -- learn a stream, recall all of it so far -------------------------------------------------------------------------


def stream(settings: Settings, seed: int) -> Pictures:
    """The pictures in the order of their arrival."""
    order, length, rng = settings["order"], settings["length"], generator(seed, "data")
    sources = [pool(name, "train") for name in settings["data"]]
    if order == "iid":
        return iid(sources[0][0], length, rng)
    if order == "class":
        return class_incremental(*sources[0], length, rng)
    arrange = domain_incremental if order == "domain" else mixed_domains
    return arrange([x for x, _ in sources], settings["transforms"], length, rng)


def tested_at(length: int, every: int) -> list[int]:
    """Steps after which a memory is tested, counted from 0."""
    return list(range(0, length, every))


def taught(memory: Memory, x: Pictures, every: int) -> Any:
    """Teach a stream; yields at every test point the step and all pictures so far."""
    done = 0
    for t in tested_at(len(x), every):
        memory.learn(x[done : t + 1])
        done = t + 1
        yield t, x[:done]


def online(settings: Settings, seed: int) -> Results:
    """Learn a stream; at every test point recall all pictures so far, as they were and with noise."""
    x = stream(settings, seed)
    memory = made(settings, x.shape[1:], seed)
    unseen = unit(pool(settings["data"][0], "test")[0][: settings["tests"]]) if settings["tests"] else None
    noise = generator(seed, "noise")
    names = ["t", "accuracy", "mse", *(["noisy_accuracy", "noisy_mse"] if settings["sigma"] else [])]
    curves: dict[str, list[Any]] = {name: [] for name in [*names, *(["test_mse"] if unseen is not None else [])]}
    for t, so_far in taught(memory, x, settings["every"]):
        curves["t"].append(t)
        error = recall_error(memory.recall(so_far).x, so_far)
        curves["accuracy"].append(recall_accuracy(error, settings["threshold"]))
        curves["mse"].append(float(error.mean()))
        if settings["sigma"]:
            error = recall_error(memory.recall(white_noise(so_far, settings["sigma"], noise)[0]).x, so_far)
            curves["noisy_accuracy"].append(recall_accuracy(error, settings["threshold"]))
            curves["noisy_mse"].append(float(error.mean()))
        if unseen is not None:
            curves["test_mse"].append(float(recall_error(memory.recall(unseen).x, unseen).mean()))
    results: Results = {"length": len(x), "curves": curves}
    if settings["show"] and seed == 0:
        some = so_far[np.linspace(0, len(so_far) - 1, settings["show"]).astype(int)]
        spoiled = white_noise(some, settings["sigma"], generator(seed, "show"))[0]
        results["pictures"] = {
            "learned": picture(some),
            "given": picture(spoiled),
            "found": picture(memory.recall(spoiled).x),
        }
    return results


# -- several noisy samples of every picture --------------------------------------------------------------------------


def noisy_encoding(settings: Settings, seed: int) -> Results:
    """Learn pictures from noisy samples only; then show the clean pictures and see what was stored of them."""
    scale, shift = settings["squeeze"]
    x = np.float32(scale) * iid(pool(settings["data"][0], "train")[0], settings["length"], generator(seed, "data"))
    x = x + np.float32(shift)
    memory = made(settings, x.shape[1:], seed)
    rng = generator(seed, "samples", settings["noise"])
    how = (settings["noise"], settings["sigma"], rng, settings["ema"])
    for one in x:
        samples = noisy_samples(one[None], settings["samples"], *how)[0]
        if settings["hold"]:
            memory.learn(samples, hold=True)
        elif settings["paired"]:  # one sample is the input, another the target
            memory.learn(noisy_samples(one[None], settings["samples"], *how[:3], False)[0], target=samples)
        else:
            memory.learn(samples)
    error = recall_error(memory.recall(x).x, x)
    results: Results = {
        "accuracy": recall_accuracy(error, settings["threshold"]),
        "mse": float(error.mean()),
        "floor": encoding_floor(x, settings["samples"], settings["noise"], settings["sigma"]),
    }
    if settings["show"] and seed == 0:
        results["pictures"] = show_encoding(settings, x[:4])
    return results


def show_encoding(settings: Settings, x: Pictures) -> Results:
    """What is stored of a few pictures after some numbers of samples."""
    samples = noisy_samples(x, max(settings["show"]), settings["noise"], settings["sigma"], generator(0, "show"), False)
    rows = [x, samples[:, 0]]
    for count in settings["show"]:
        memory = tree(x.shape[1:], settings["memory"])
        for views in samples[:, :count]:
            memory.learn(views, hold=True)
        rows.append(memory.recall(x).x)
    return {"rows": picture(np.stack(rows)), "counts": list(settings["show"])}


# -- old or new ------------------------------------------------------------------------------------------------------


def recognition(settings: Settings, seed: int) -> Results:
    """Learn a stream; at every test point judge all pictures so far, and as many new ones of two kinds."""
    name, other = settings["data"]
    drawn = iid(pool(name, "train")[0], settings["pretrain"] + settings["length"], generator(seed, "data"))
    before, x = drawn[: settings["pretrain"]], drawn[settings["pretrain"] :]
    memory = made(settings, x.shape[1:], seed)
    if len(before):
        memory.pretrain(before)
    groups = {
        "old": x,
        "new": unit(pool(name, "test")[0][: len(x)]),
        "other": TRANSFORMS[settings["transform"]](unit(pool(other, "test")[0][: len(x)])),
    }
    sigma = settings["sigma"]
    shown = {
        kind: white_noise(group, sigma, generator(seed, "noise", kind))[0] if sigma else group
        for kind, group in groups.items()
    }
    curves: dict[str, list[Any]] = {"t": [], "accuracy": []}
    done = 0
    for t in tested_at(len(x), settings["every"]):
        memory.learn(x[done : t + 1], **({"root_only": True} if len(before) else {}))
        done = t + 1
        curves["t"].append(t)
        shares = {}
        for kind, group in groups.items():
            old = float(np.mean(memory.recognize(shown[kind][:done]).old))
            shares[kind] = old if kind == "old" else 1 - old
            error = recall_error(memory.recall(group[:done]).x, group[:done])
            measured = {"share": shares[kind], "mse": float(error.mean()), "mse_std": float(error.std())}
            for measure, value in measured.items():
                curves.setdefault(f"{kind}_{measure}", []).append(value)
        curves["accuracy"].append(recognition_accuracy(shares["old"], shares["new"], shares["other"]))
    return {"length": len(x), "new": len(groups["new"]), "other": len(groups["other"]), "curves": curves}


# -- energy, growth, theorems ----------------------------------------------------------------------------------------


def energies(settings: Settings, seed: int) -> Results:
    """Learn online; the energy of random states, of each way to infer, and of its maximum."""
    rng = generator(seed, "data")
    learned = iid(pool(settings["data"][0], settings["split"])[0], settings["length"], rng)
    memory = tree(learned.shape[1:], settings["memory"])
    memory.learn(learned)
    cells = {"train": learned}
    if settings["tests"]:
        cells["test"] = iid(pool(settings["data"][0], settings["test_split"])[0], settings["tests"], rng)
    reference = ReferenceSQHN.of(memory)
    sweeps = settings["sweeps"]
    results: Results = {}
    for cell, x in cells.items():
        states = generator(seed, "states", cell)
        exact = memory.energy(x, inference="exact")
        paper = memory.energy(x)
        results[cell] = {
            "random": float(np.mean([reference.energy(one, reference.random(states)) for one in x])),
            "feedforward": float(memory.energy(x, inference="feedforward").mean()),
            "paper": float(paper.mean()),
            "repeated": float(np.mean([reference.energy(one, reference.infer(one, sweeps=sweeps)) for one in x])),
            "exact": float(exact.mean()),
            "least_gain": float((exact - paper).min()),
            "ratio": float((paper / exact).mean()),
        }
    return {"grown": len(memory), "cells": results}


def emergence(settings: Settings, seed: int) -> Results:
    """Learn online; how many neurons each level has grown, and how large a step they take."""
    x = iid(pool(settings["data"][0], settings["split"])[0], settings["length"], generator(seed, "data"))
    memory = tree(x.shape[1:], settings["memory"])
    t, neurons, steps = [], [], []
    for now, _ in taught(memory, x, settings["every"]):
        t.append(now)
        neurons.append([float(bank.grown.mean()) for bank in memory.banks])
        steps.append(
            [float(np.mean([np.mean(1 / c[:G]) for c, G in zip(bank.neurons.c, bank.grown)])) for bank in memory.banks]
        )
    return {"length": len(x), "curves": {"t": t, "neurons": neurons, "step": steps}}


def theorem_1(settings: Settings, seed: int) -> Results:
    """Learn as many distinct pictures as there are neurons; the largest error of recalling one of them."""
    length = settings["memory"]["capacity"]
    x = iid(pool(settings["data"][0], "train")[0], length, generator(seed, "data"))
    memory = tree(x.shape[1:], settings["memory"])
    memory.learn(x)
    return {"stored": len(x), "grown": len(memory), "worst": float(recall_error(memory.recall(x).x, x).max())}


def theorem_2(settings: Settings, seed: int) -> Results:
    """The urn: every step hits one of `capacity` slots at random; how many were never hit."""
    capacity, steps, rng = settings["capacity"], settings["length"], generator(seed, "urn")
    every = settings["every"]
    t = np.arange(0, steps + 1, every)
    left = np.zeros(len(t))
    for _ in range(settings["trials"]):
        hits = rng.integers(capacity, size=steps)
        first = np.full(capacity, steps + 1)
        np.minimum.at(first, hits, np.arange(1, steps + 1))
        left += (first[None, :] > t[:, None]).sum(axis=1) / settings["trials"]
    return {"curves": {"t": t.tolist(), "left": left.tolist(), "expected": singletons(capacity, t).tolist()}}
