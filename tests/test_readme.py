"""The README and the pages of docs: programs print their comments; commands, options, links and file names exist."""

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
from sqhn.model.inference import INFERENCES
from sqhn.paper.experiments.catalogue import EXPERIMENTS
from tests.helpers import cluster

ROOT = Path(__file__).parents[1]
README, DOCS = ROOT / "README.md", ROOT / "docs"
PAGES = [README, *sorted(DOCS.glob("*.md"))]
DEVELOPMENT = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page."""

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
    """A page without its fenced blocks."""
    return FENCED.sub("", page.read_text())


def inline(page: Path) -> list[str]:
    """The code within sentences."""
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(page))]


def commands(page: Path) -> list[list[str]]:
    """Every line of shell blocks, and every command within a sentence."""
    lines = [line for block in blocks(page) if block.language == "sh" for line in block.text.splitlines()]
    lines += [code for code in inline(page) if re.match(r"(sqhn|make|pip) ", code)]
    return [shlex.split(line, comments=True) for line in lines]


ALL = [block for page in PAGES for block in blocks(page)]
PROGRAMS = [pytest.param(block, id=block.place) for block in ALL if block.language == "python"]
COMMANDS = [pytest.param(words, id=shlex.join(words)) for page in PAGES for words in commands(page)]
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


# -- programs --------------------------------------------------------------------------------------------------------


def expected(program: str) -> list[str]:
    """The expected output of a program: the comments after its top-level prints."""
    return [line.split("  # ")[1] for line in program.splitlines() if line.startswith("print(")]


def check_needs(program: str) -> None:
    """Skip a program whose package or GPU is missing."""
    if "online_fdr" in program:
        pytest.importorskip("online_fdr")
    if "cuda" in program or re.search(r"\btorch\b|MHN|PCN", program):
        torch = pytest.importorskip("torch")
        if "cuda" in program and not torch.cuda.is_available():
            pytest.skip("needs a GPU")


def test_fenced_blocks_are_python_or_shell() -> None:
    assert {block.language for block in ALL} == {"python", "sh"}


@pytest.mark.parametrize("block", PROGRAMS)
def test_programs_print_their_comments(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_needs(block.text)
    monkeypatch.chdir(tmp_path)
    with cluster() if '"ray"' in block.text else nullcontext():
        exec(compile(block.text, block.place, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.splitlines() == expected(block.text)


def test_first_program_needs_no_extra() -> None:
    extras = ["torch", "scipy", "sklearn", "skimage", "mlxtend", "matplotlib", "joblib", "pooch"]
    first = next(block.text for block in blocks(README) if block.language == "python")
    program = f"import sys; sys.modules.update(dict.fromkeys({extras}))\n{first}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected(first)


# -- commands --------------------------------------------------------------------------------------------------------


SUBCOMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def options_of(command: Any) -> set[str]:
    return {"--help"} | {word for parameter in command.params for word in (*parameter.opts, *parameter.secondary_opts)}


def find(words: list[str]) -> tuple[Any, list[str]]:
    """The command at the beginning of a line, and the remaining words."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        assert words, f"{command.name} needs a subcommand"
        assert words[0] in command.commands, f"there is no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_exist(words: list[str]) -> None:
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
            tested = {re.split(r"\W*[><=]", one)[0] for one in extras["dev"]}  # other packages that a page names
            assert rest[-1].startswith(".") or rest[-1] in tested
            assert all((ROOT / file).is_file() for flag, file in pairwise(rest) if flag == "-c")
        case _:
            pytest.fail(f"unknown command: {words}")


@EVERY_PAGE
def test_options_within_sentences_exist(page: Path) -> None:
    known = [options_of(command) for command in SUBCOMMANDS.values()]
    for option in {option for code in inline(page) for option in re.findall(r"--[a-z-]+", code)}:
        assert any(option in options for options in known), option


def test_commands_for_own_data_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).integers(0, 256, (20, 64, 64, 3), np.uint8)
    for name in ("photos", "damaged", "new"):
        Path(name).mkdir()
        for n, pixels in enumerate(x):
            Image.fromarray(pixels).save(f"{name}/{n}.png")
    np.save("more.npy", 255 - x)
    Image.fromarray(np.tile(np.repeat(np.array([255, 0], np.uint8), 32), (64, 1))).save("mask.png")
    shell = [shlex.split(line, comments=True) for line in blocks(DOCS / "command-line.md")[0].text.splitlines()]
    printed = []
    for words in shell:
        assert words[0] == "sqhn"
        result = CliRunner().invoke(app, words[1:])
        assert result.exit_code == 0, result.output
        printed.append(result.stdout)
    assert "40 of 1,000 neurons after 40 samples" in printed[1]
    assert "20 old, 0 new" in printed[4]
    for n, pixels in enumerate(x):
        np.testing.assert_array_equal(np.asarray(Image.open(f"restored/{n}.png")), pixels)


# -- links, options, files -------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The names of a page's headings in links."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *DEVELOPMENT], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_exist(page: Path) -> None:
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
    pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert sorted(listed) == sorted(pages | {"reproduction/README.md"})


def test_every_example_is_listed_with_its_extras() -> None:
    imports = {
        "experiments": r"sqhn\.data|matplotlib",
        "sklearn": r"sklearn",
        "river": r"river",
        "online-fdr": r"online_fdr",
    }
    row = r"^\| \[(.*?)\]\(\.\./examples/(.*?)\) \| .*? \|(.*)\|$"
    rows = re.findall(row, (DOCS / "examples.md").read_text(), re.MULTILINE)
    assert sorted(path for _, path, _ in rows) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))
    for name, path, needs in rows:
        assert name == path
        program = (ROOT / "examples" / path).read_text()
        modules = "\n".join(re.findall(r"^ *(?:from|import) (.*)", program, re.MULTILINE))
        used = {extra for extra, module in imports.items() if re.search(rf"^({module})\b", modules, re.MULTILINE)}
        assert {extra for extra in imports if re.search(rf"[`\[]{extra}[`\]]", needs)} == used, name


@pytest.mark.parametrize(
    ("heading", "kind", "more"),
    [("Level options", Level, set()), ("Memory options", Options, {"device", "shards", "folder"})],
)
def test_option_tables_are_complete(heading: str, kind: type, more: set[str]) -> None:
    section = (DOCS / "options.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == {f.name for f in fields(kind)} | more
    for hint in get_type_hints(kind).values():
        assert all(f'"{word}"' in section for word in get_args(hint) if isinstance(word, str))


@pytest.mark.parametrize("page", DEVELOPMENT, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    package = ROOT / "src" / "sqhn"
    named = [code for code in inline(page) if re.fullmatch(r"[\w./-]+(\.py|\.md|/)", code)]
    assert len(named) > 5
    for path in named:
        folders = (ROOT, package, *(folder for folder in package.iterdir() if folder.is_dir()))
        assert any((folder / path).exists() for folder in folders), path


def test_rules_of_recall_are_listed() -> None:
    for page, heading in (("using.md", "Rules of recall"), ("options.md", "Rules of recall")):
        section = (DOCS / page).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
        assert re.findall(r'^\| "(\w+)"', section, re.MULTILINE) == ["paper", "evidence", "exact", "feedforward"]
    assert set(INFERENCES) == {"paper", "evidence", "exact", "feedforward"}


def test_layers_list_every_module() -> None:
    section = (ROOT / "ARCHITECTURE.md").read_text().partition("## Layers\n")[2].partition("\nInside")[0]
    listed = [
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(.*?)`", row)
    ]
    modules = {path.name + "/" * path.is_dir() for path in (ROOT / "src" / "sqhn").iterdir()}
    assert sorted(listed) == sorted(modules - {"__init__.py", "__pycache__/", "py.typed"})
