"""Memories and data of users in the experiments, and the benchmark of damage."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from sqhn import Recalled, Written
from sqhn.cli import app
from sqhn.data.corruptions import DAMAGES
from sqhn.paper.experiments import records
from sqhn.paper.experiments.case import DEFAULT, jobs_of
from sqhn.paper.experiments.catalogue import EXPERIMENTS
from sqhn.paper.experiments.damage import by_kind, is_nearest, shares
from sqhn.paper.experiments.own import SourceError, own_memory
from sqhn.paper.experiments.results import Results
from sqhn.paper.report.tables import comparison
from sqhn.paper.report.verdicts import judge
from sqhn.sizes import array_bytes
from sqhn.testing import check_memory

PAGE = (Path(__file__).parents[3] / "docs" / "compare.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
X = np.random.default_rng(0).random((6, 4, 4)).astype(np.float32)
ANSWER = Recalled(X, np.arange(6), np.zeros(6))

Use = Callable[[str], str]


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Use:
    """Write a module into the current folder, an empty one; returns its name, a new one for every test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    name = re.sub(r"\W", "_", f"own_{request.node.name}")

    def write(text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def sqhn(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def images(path: str, count: int, *shape: int, seed: int = 0) -> str:
    """A file of random images."""
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 256, (count, *shape), np.uint8), np.arange(count) % 5
    np.savez(path, x_train=x, y_train=y, x_test=255 - x, y_test=y)
    return path


def rows(folder: str, model: str) -> list[Any]:
    """The results of a model, in order of the settings and seeds."""
    found = [one for one in records.read(Path(folder)).values() if one["settings"]["model"] == model]
    return [one["results"]["rows"] for one in sorted(found, key=lambda one: (one["settings"]["set"], one["seed"]))]


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_memory_of_the_page_passes_all_checks(use: Use) -> None:
    source = use(PROGRAMS[0])
    memory = replace(own_memory(f"{source}:MyMemory"), capacity=8)
    report = check_memory(lambda: memory.build((4, 4)).memory, (4, 4))  # type: ignore[attr-defined]
    assert {"batches", "recognize", "missing values"} <= set(report.passed)


def test_the_memory_of_the_page_in_an_experiment(use: Use) -> None:
    source = f"{use(PROGRAMS[0])}:MyMemory"
    data = images("my.npz", 30, 16, 16, 3)
    result = sqhn("reproduce", "AC-B", "--memory", source, "--data", data, "--quick", "--seeds", "1", "--jobs", "1")
    assert result.exit_code == 0, result.output
    assert [row["accuracy"] for row in rows("out", source)[0] if row["level"] == 0] == [1.0] * 4
    assert source in (Path("out") / "index.html").read_text()
    assert "Memories of your own" in (Path("out") / "README.md").read_text()


# -- beside the other models -------------------------------------------------------------------------------------------

STORES = PROGRAMS[1] + "\nfrom sqhn import SQHN\n"


def euclidean(source: str) -> str:
    return source.replace("abs(stored - one)", "((stored - one) ** 2)")


def test_the_same_model_has_the_same_rows(use: Use) -> None:
    """A function that finds the nearest sample is the store NN, and SQHN is the model SQHN L1."""
    name = use(euclidean(STORES))
    data = images("my.npz", 120, 8, 8)
    own = [f"{name}:nearest", f"{name}:SQHN"]
    result = sqhn(
        "reproduce", "AC-B", "--data", data, "--quick", "--seeds", "2", "--jobs", "1",
        *(word for source in own for word in ("--memory", source)),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert len(rows("out", own[0])) == 2
    assert rows("out", own[0]) == rows("out", "NN")
    assert rows("out", own[1]) == rows("out", "SQHN L1")
    found = Results(records.read(Path("out")).values())
    assert {record["settings"]["model"] for record in found.own.records} == set(own)
    table = {row[0]: row[1:] for row in comparison(found, "AC-B", apart=False)}
    assert table[own[0]] == table["NN"]
    with_own, without = ([str(one.findings) for one in judge(some)] for some in (found, found.declared))
    assert with_own == without
    assert sqhn("report", "out").exit_code == 0
    # the records of memories do not stand in the way of another run
    more = sqhn("reproduce", "AC-B", "--data", data, "--quick", "--seeds", "2", "--jobs", "1")
    assert more.exit_code == 0, more.output


def test_a_changed_memory_runs_again(use: Use) -> None:
    name = use(STORES)
    command = ["reproduce", "AC-B", "--data", images("my.npz", 40, 8, 8), "--quick", "--seeds", "1", "--jobs", "1"]
    assert sqhn(*command, "--memory", f"{name}:nearest").exit_code == 0
    before = records.read(Path("out"))
    use(STORES + "# another version\n")
    result = sqhn(*command, "--memory", f"{name}:nearest")
    assert result.exit_code == 0
    assert f"{name}:nearest has changed" in result.output
    after = records.read(Path("out"))
    assert len(after) == len(before)
    assert len(set(after) & set(before)) == len(before) - len(rows("out", f"{name}:nearest"))


def test_other_contents_of_a_file_are_other_data(use: Use) -> None:
    use("")
    command = ["reproduce", "AC-B", "--data", images("my.npz", 40, 8, 8), "--quick", "--seeds", "1", "--jobs", "1"]
    assert sqhn(*command).exit_code == 0
    images("my.npz", 41, 8, 8)
    result = sqhn(*command)
    assert result.exit_code == 1
    assert "choose another --out" in result.output


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_memories_run_where_a_store_is_compared(name: str, use: Use) -> None:
    own = own_memory(f"{use(STORES)}:SQHN")
    jobs = list(jobs_of(EXPERIMENTS[name], seeds=1, memories=[own]))
    stores = {(job.case.set, job.case.size) for job in jobs if job.case.model.startswith("NN")}
    assert {(job.case.set, job.case.size) for job in jobs if job.case.model == own.source} == stores
    plain = [job for job in jobs if job.case.model != own.source]
    assert plain == list(jobs_of(EXPERIMENTS[name], seeds=1))
    named = PAGE.partition("capacity: in ")[2].partition(".")[0]
    assert bool(stores) == (name in re.findall(r"[A-Z0-9]+-?[A-Z0-9]*", named))


# -- data in a file ----------------------------------------------------------------------------------------------------


def test_a_file_replaces_the_data_sets_of_its_shape(use: Use) -> None:
    use("")
    jobs = list(jobs_of(EXPERIMENTS["OC-L1"], (DEFAULT,), seeds=1, data=images("my.npz", 40, 28, 28)))
    assert {job.case.set for job in jobs} == {"OCI-E", "ODI-M", "ON-E", "ON-M"}
    assert {name for job in jobs for name in job.case.data} == {"my.npz"}
    color = list(jobs_of(EXPERIMENTS["X-DMG"], (DEFAULT,), seeds=1, data=images("color.npz", 40, 32, 32, 3)))
    assert {job.case.set for job in color} == {"cifar10"}
    digits = list(jobs_of(EXPERIMENTS["X-DMG"], (DEFAULT,), seeds=1, data="my.npz"))
    assert {job.case.set for job in digits} == {"mnist"}  # the same cases as those of Fashion-MNIST
    assert len(digits) == 9


def test_trees_that_do_not_fit_are_left_out(use: Use) -> None:
    use("")
    command = ["reproduce", "AC-B", "--data", images("my.npz", 20, 9, 9), "--quick", "--seeds", "1", "--jobs", "1"]
    result = sqhn(*command)
    assert result.exit_code == 0, result.output
    assert "AC-B: left out, since their patches do not fit the samples of my.npz: SQHN L2, SQHN L3" in " ".join(
        result.output.split()
    )
    assert "AC-B: my.npz has 20 training samples, fewer than the 100 of this experiment" in " ".join(
        result.output.split()
    )
    assert "verdicts agree" not in result.output  # none is judged without the trees
    assert {one["settings"]["model"] for one in records.read(Path("out")).values()} == {"SQHN L1", "NN"}
    assert "on other data than the paper's" in Path("out/README.md").read_text()


@pytest.mark.parametrize("data", ["mnist", "my.npy", ""])
def test_other_words_for_data_are_refused(data: str, use: Use) -> None:
    use("")
    result = sqhn("reproduce", "AC-B", "--data", data)
    assert result.exit_code == 2
    assert "builtin, paper or an .npz file" in " ".join(result.output.replace("│", "").split())
    assert not Path("out").exists()


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("MyMemory", "MODULE:NAME, such as my_module:MyMemory; got 'MyMemory'"),
        ("no_such_module:MyMemory", "there is no module no_such_module in"),
        ("{}:Nobody", "has no class or function Nobody"),
        ("{}:number", "has no class or function number"),
        ("{}:one", r"takes neither .* it takes \(x\)"),
    ],
)
def test_sources_that_are_refused(source: str, message: str, use: Use) -> None:
    name = use("number = 3\ndef one(x): ...\n")
    with pytest.raises(SourceError, match=message):
        own_memory(source.format(name))
    assert sqhn("reproduce", "AC-B", "--memory", source.format(name)).exit_code == 2
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("text", "message"), [("import no_such_package", "imports no_such_package"), ("1 / 0", "raised ZeroDivisionError")]
)
def test_modules_that_cannot_be_imported(text: str, message: str, use: Use) -> None:
    with pytest.raises(SourceError, match=message):
        own_memory(f"{use(text)}:MyMemory")


def test_experiments_without_stores_are_refused(use: Use) -> None:
    result = sqhn("reproduce", "S-EN", "--memory", f"{use(STORES)}:SQHN")
    assert result.exit_code == 2
    assert "memories of your own have no place in S-EN" in " ".join(result.output.replace("│", "").split())


class Answers:
    """A memory with given answers."""

    def __init__(self, shape: tuple[int, ...], capacity: int) -> None: ...

    def learn(self, x: Any) -> Any:
        return Written(np.arange(len(x)), np.ones(len(x), bool), np.zeros(len(x)), np.arange(len(x)) + 1)

    def recall(self, x: Any, observed: Any = None) -> Any:
        return self.answer  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            tuple(ANSWER),
            r"recall\(float32 array of shape \(6, 4, 4\)\): expected Recalled\(x, index, score\); got a tuple",
        ),
        (None, "expected Recalled.*got a NoneType"),
        (ANSWER._replace(x=X[:5]), r"x should be a float32 array of shape \(6, 4, 4\); got .* \(5, 4, 4\)"),
        (ANSWER._replace(x=X.astype(float)), "x should be a float32 array .* got float64 array"),
        (ANSWER._replace(index=list(range(6))), r"index should be an array of int of shape \(6,\); got list"),
        (ANSWER._replace(index=np.zeros(6)), "index should be an array of int .* got float64 array"),
        (ANSWER._replace(score=np.zeros(6, np.float32)), "score should be an array of float64 .* got float32 array"),
        (ANSWER._replace(score=np.zeros((6, 1))), r"score should be .* got float64 array of shape \(6, 1\)"),
    ],
)
def test_answers_of_the_wrong_form_are_named(answer: Any, message: str) -> None:
    memory = own_memory(f"{__name__}:Answers").build((4, 4))
    memory.learn(X)
    memory.memory.answer = ANSWER  # type: ignore[attr-defined]
    assert memory.recall(X) is ANSWER
    memory.memory.answer = answer  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match=message):
        memory.recall(X)


def test_missing_methods_are_named() -> None:
    memory = own_memory(f"{__name__}:Answers").build((4, 4))
    with pytest.raises(TypeError, match="Answers has no method recognize; it is a Answers"):
        memory.recognize(X)
    with pytest.raises(TypeError, match="no method learn; it is a tuple"):
        own_memory(f"{__name__}:makes_nothing").build((4, 4))


def makes_nothing(shape: Any, capacity: int) -> Any:
    return ()


def test_samples_are_read_only() -> None:
    class Writes(Answers):
        def learn(self, x: Any) -> Any:
            x[:] = 0

    globals()["Writes"] = Writes
    x = X.copy()
    with pytest.raises(ValueError, match="read-only"):
        own_memory(f"{__name__}:Writes").build((4, 4)).learn(x)
    np.testing.assert_array_equal(x, X)


def first(stored: NDArray[Any], given: NDArray[Any]) -> Any:
    return np.zeros(len(given), int)


def beyond(stored: NDArray[Any], given: NDArray[Any]) -> Any:
    return np.full(len(given), len(stored))


def fractions(stored: NDArray[Any], given: NDArray[Any]) -> Any:
    return np.zeros(len(given))


@pytest.mark.parametrize(
    ("name", "message"), [("beyond", "integers from 0 to 5; got 6 to 6"), ("fractions", r"got float64 of shape \(6,\)")]
)
def test_indices_that_are_none(name: str, message: str) -> None:
    store = _store(name, 6)
    store.learn(X)
    with pytest.raises(ValueError, match=message):
        store.recall(X)


def _store(name: str, capacity: int) -> Any:
    return replace(own_memory(f"{__name__}:{name}"), capacity=capacity).build((4, 4))


def test_a_store_keeps_the_latest_samples() -> None:
    store = _store("first", 4)
    assert store.learn(X).index.tolist() == [-1, -1, 0, 1, 2, 3]
    found = store.recall(X)
    np.testing.assert_array_equal(found.x, np.repeat(X[2:3], 6, axis=0))
    np.testing.assert_allclose(found.score, -np.square(X - X[2]).mean(axis=(1, 2)), rtol=1e-6)
    assert store.learn(X[:1]).step.tolist() == [7]


def test_modules_and_functions_of_a_memory_are_not_counted() -> None:
    class Holds:
        def __init__(self) -> None:
            self.x, self.np, self.f = np.zeros(10), np, np.dot

    assert array_bytes(Holds()) == 80


# -- damage ------------------------------------------------------------------------------------------------------------


def test_found_is_nearest_to_the_original() -> None:
    stored = X.copy()
    stored[5] = stored[4]  # a copy
    recalled = stored[[0, 2, 2, 3, 5, 4]]
    assert is_nearest(recalled, stored, stored).tolist() == [True, False, True, True, True, True]
    assert not is_nearest(np.full_like(X, np.nan), X, X).any()
    gray = is_nearest(np.full_like(X, 0.5), X, X)  # a constant answer is nearest to one of them
    assert gray.sum() == 1


def test_the_benchmark(use: Use) -> None:
    """The nearest sample of a function is that of NN; a constant answer finds about one in so many samples."""
    name = use(euclidean(STORES) + "def same(stored, given): return [0] * len(given)\n")
    own = [f"{name}:nearest", f"{name}:same"]
    result = sqhn("damage", *own, "--data", images("my.npz", 160, 8, 8), "--quick", "--jobs", "1", "--out", "d")
    assert result.exit_code == 0, result.output
    written = json.loads(Path("d/damage.json").read_text())
    assert (written["stored"], written["questions"], written["seeds"]) == (100, 20, 1)
    assert [(row["kind"], row["level"]) for row in written["damages"]] == [tuple(one) for one in DAMAGES]
    models = [*own, "SQHN L1", "SQHN L1, evidence", "NN"]
    for row in written["damages"]:
        assert set(row["found"]) >= set(models)
        assert row["found"][own[0]] == row["found"]["NN"]
        assert row["found"][own[1]] <= 1 / 20
    mean = np.mean([row["found"]["NN"] for row in written["damages"]])
    assert written["found"]["all"]["NN"] == pytest.approx(mean)
    assert Path("d/damage.png").stat().st_size > 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[0] for line in lines if line and line[0] in ("blurred", "shifted", "all")] == [
        "blurred",
        "shifted",
        "all",
    ]


def test_shares_are_means() -> None:
    damages = [["noise", 0.2], ["noise", 0.4], ["darker", 0.5]]
    found = {("noise", 0.2): (1.0, 0.5), ("noise", 0.4): (0.5, 0.5), ("darker", 0.5): (0.0, 1.0)}
    handmade = [
        {
            "experiment": "X-DMG", "seed": seed, "readings": ["default", "code"],
            "settings": {"model": "NN", "set": "cifar10", "damages": damages},
            "results": {"rows": [{"kind": k, "level": n, "found": found[k, n][seed]} for k, n in found]},
        }
        for seed in (0, 1)
    ]  # fmt: skip
    measured = shares(Results(handmade))
    assert measured == {("noise", 0.2): {"NN": 0.75}, ("noise", 0.4): {"NN": 0.5}, ("darker", 0.5): {"NN": 0.5}}
    assert by_kind(measured) == {"noise": {"NN": 0.625}, "darker": {"NN": 0.5}, "all": {"NN": 1.75 / 3}}


def test_too_few_samples_and_unknown_sets_are_named(use: Use) -> None:
    name = use(STORES)
    result = sqhn("damage", f"{name}:nearest", "--data", images("my.npz", 50, 8, 8), "--quick", "--jobs", "1")
    assert result.exit_code == 1
    assert "my.npz has 50 samples; more than 100 are needed" in " ".join(result.output.split())
    result = sqhn("damage", f"{name}:nearest", "--set", "mnost")
    assert result.exit_code == 2
    assert "unknown data set 'mnost'" in result.output
    result = sqhn("damage", f"{name}:nearest", "--set", "mnist", "--quick")
    assert result.exit_code == 2
    assert "--quick has no form for mnist" in result.output
    result = sqhn("damage", f"{name}:nearest", "--set", "mnist", "--data", "my.npz")
    assert result.exit_code == 2
    assert "--set is for the paper's data sets, not for my.npz" in result.output


# -- said before a run -------------------------------------------------------------------------------------------------


def test_undecidable_claims_are_named_before_the_run(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    use("")

    def run(*_: object) -> Any:
        raise OSError("here the run begins")

    monkeypatch.setattr("sqhn.paper.experiments.runner.run", run)
    said = " ".join(sqhn("reproduce", "T1-MOD", "--quick").output.split())
    assert "a quick run cannot decide T1.5, T1.6, T1.7, T1.8, T1.9, T1.10" in said.partition("here the run begins")[0]
    assert "only together with T1-HIGH: T1.1, T1.2, T1.3, T1.4" in said.partition("here the run begins")[0]
    both = " ".join(sqhn("reproduce", "T1-MOD", "T1-HIGH").output.split())
    assert both == "here the run begins"
    assert "left out, without a quick form: S-CST" in " ".join(sqhn("reproduce", "--quick").output.split())
