# Two commands do everything on a machine with Python >= 3.11, pip and make:
#   make reproduce   set up, run all experiments in a quick form on built-in data, print verdicts, write a page
#   make test        set up, then lint, types and all tests

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: reproduce test bench clean

reproduce: $(VENV)/.experiments,torch
	$(BIN)/sqhn reproduce all --quick --out out

test: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

bench: $(VENV)/.dev
	$(BIN)/sqhn bench

$(VENV)/.experiments,torch $(VENV)/.dev: $(VENV)/.%: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$*]'
	touch $@

clean:
	rm -rf $(VENV) out .mypy_cache .numba_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -exec rm -rf {} +
