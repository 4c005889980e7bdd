"""The README and the pages of docs: every program runs as printed, every command and every link leads somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from sqhn import Level
from sqhn.cli import app
from sqhn.data.dataset import NAMES
from sqhn.level import Options
from sqhn.paper.experiments.catalogue import EXPERIMENTS
from tests.helpers import cluster

ROOT = Path(__file__).parents[1]
README, DOCS = ROOT / "README.md", ROOT / "docs"
PAGES = [README, *sorted(DOCS.glob("*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """Something printed between fences."""

    place: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(f"{page.relative_to(ROOT)}:{text[: match.start(2)].count(chr(10)) + 1}", match[1], match[2])
        for match in FENCED.finditer(text)
    ]


def prose(page: Path) -> str:
    """A page without what is between fences."""
    return FENCED.sub("", page.read_text())


def inline(page: Path) -> list[str]:
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(page))]


def commands(page: Path) -> list[list[str]]:
    """Every line of every shell, and every command within a sentence."""
    lines = [line for block in blocks(page) if block.language == "sh" for line in block.text.splitlines()]
    lines += [code for code in inline(page) if re.match(r"(sqhn|make|pip) ", code)]
    return [shlex.split(line, comments=True) for line in lines]


ALL = [block for page in PAGES for block in blocks(page)]
PROGRAMS = [pytest.param(block, id=block.place) for block in ALL if block.language == "python"]
COMMANDS = [pytest.param(words, id=shlex.join(words)) for page in PAGES for words in commands(page)]
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


# -- programs --------------------------------------------------------------------------------------------------------


def expected(program: str) -> list[str]:
    """What the comments behind its prints say that a program prints."""
    return [line.split("  # ")[1] for line in program.splitlines() if line.startswith("print(")]


def check_needs(program: str) -> None:
    """Skip a program that needs what is not here."""
    if "cuda" in program or re.search(r"\btorch\b|MHN|PCN", program):
        torch = pytest.importorskip("torch")
        if "cuda" in program and not torch.cuda.is_available():
            pytest.skip("it needs a GPU")


def test_all_that_is_fenced_is_a_program_or_a_shell() -> None:
    assert {block.language for block in ALL} == {"python", "sh"}


@pytest.mark.parametrize("block", PROGRAMS)
def test_programs_print_what_they_say(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_needs(block.text)
    monkeypatch.chdir(tmp_path)
    with cluster() if '"ray"' in block.text else nullcontext():
        exec(compile(block.text, block.place, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.splitlines() == expected(block.text)


def test_the_first_program_needs_no_extra() -> None:
    extras = ["torch", "scipy", "sklearn", "skimage", "mlxtend", "matplotlib", "joblib", "pooch", "threadpoolctl"]
    first = next(block.text for block in blocks(README) if block.language == "python")
    program = f"import sys; sys.modules.update(dict.fromkeys({extras}))\n{first}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected(first)


# -- commands --------------------------------------------------------------------------------------------------------


ALONE: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def options_of(command: Any) -> set[str]:
    return {"--help"} | {word for parameter in command.params for word in (*parameter.opts, *parameter.secondary_opts)}


def find(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words begin with, and the words that follow it."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        assert words, f"{command.name} is not all of a command"
        assert words[0] in command.commands, f"there is no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_are_real(words: list[str]) -> None:
    match words:
        case ["sqhn", "COMMAND", "--help"]:
            pass
        case ["sqhn", *rest]:
            command, rest = find(rest)
            assert {word.split("=")[0] for word in rest if word.startswith("--")} <= options_of(command)
            named = set(rest[: next((n for n, word in enumerate(rest) if word.startswith("-")), len(rest))])
            known = {"reproduce": {*EXPERIMENTS, "all"}, "get": {*NAMES}}
            assert named <= known.get(command.name, named)
        case ["make", target]:
            assert target in re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split()
        case ["pip", "install", *rest]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            assert set(re.findall(r"\w+", "".join(re.findall(r"\.\[(.*)\]", rest[-1])))) <= set(extras)
            assert rest[-1].startswith(".")
            assert all((ROOT / file).is_file() for flag, file in pairwise(rest) if flag == "-c")
        case _:
            pytest.fail(f"what is {words}?")


@EVERY_PAGE
def test_options_within_sentences_are_real(page: Path) -> None:
    known = [options_of(command) for command in ALONE.values()]
    for option in {option for code in inline(page) for option in re.findall(r"--[a-z-]+", code)}:
        assert any(option in options for options in known), option


def test_commands_on_own_data_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), np.uint8)
    for name in ("photos", "damaged", "new"):
        Path(name).mkdir()
        for n, pixels in enumerate(x):
            Image.fromarray(pixels).save(f"{name}/{n}.png")
    np.save("more.npy", 255 - x)
    Image.fromarray(np.tile(np.repeat(np.array([255, 0], np.uint8), 16), (32, 1))).save("mask.png")
    shell = [shlex.split(line, comments=True) for line in blocks(DOCS / "command-line.md")[0].text.splitlines()]
    printed = []
    for words in shell:
        assert words[0] == "sqhn"
        result = CliRunner().invoke(app, words[1:])
        assert result.exit_code == 0, result.output
        printed.append(result.stdout)
    assert "10 of 1,000 neurons after 10 samples" in printed[1]
    assert "5 old, 0 new" in printed[4]
    for n, pixels in enumerate(x):
        np.testing.assert_array_equal(np.asarray(Image.open(f"restored/{n}.png")), pixels)


# -- what pages name -------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@EVERY_PAGE
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_listed() -> None:
    listed = re.findall(r"^- \[.*?\]\((.*?)\)", (DOCS / "README.md").read_text(), re.MULTILINE)
    there = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert sorted(listed) == sorted(there | {"reproduction/README.md"})


@pytest.mark.parametrize(
    ("heading", "kind", "more"),
    [("Of a level", Level, set()), ("Of a network", Options, {"device", "shards", "folder"})],
)
def test_the_options_are_those_that_there_are(heading: str, kind: type, more: set[str]) -> None:
    section = (DOCS / "options.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == {f.name for f in fields(kind)} | more
    for hint in get_type_hints(kind).values():
        assert all(f'"{word}"' in section for word in get_args(hint) if isinstance(word, str))


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_what_is_said_about_the_code_is_there(name: str) -> None:
    """Links lead somewhere, and files and folders that are named exist."""
    page, package = ROOT / name, ROOT / "src" / "sqhn"
    for link in re.findall(r"\]\(([^)#]+)\)", prose(page)):
        assert (ROOT / link).exists(), link
    paths = [code for code in inline(page) if re.fullmatch(r"[\w./-]+(\.py|\.md|/)", code)]
    assert len(paths) > 5
    for path in paths:
        places = (ROOT / path, package / path, package / "banks" / path, package / "banks" / "cpu" / path)
        assert any(place.exists() for place in places), path
