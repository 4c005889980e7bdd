# Two commands do everything on a machine with Python >= 3.11, pip and make:
#   make reproduce   install, run all experiments in a quick form on built-in data, print verdicts, write a page
#   make test        install, then run lint, types, all tests, the tests of the kernels with every index checked,
#                    those of a GPU in Triton's interpreter, and those of plain NumPy without Numba
# Two more take longer:
#   make fuzz        thousands of random histories of a memory, compared with the reference
#   make soak        kills hundreds of Ray workers while memories are in use

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: reproduce test lint types tests checked-tests interpreted-tests plain-tests fuzz soak bench clean

reproduce: $(VENV)/.experiments,torch
	$(BIN)/sqhn reproduce all --quick --out out

test: $(VENV)/.dev
	+$(MAKE) --no-print-directory -j2 lint types tests checked-tests interpreted-tests plain-tests

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/sp-repo-review --show err .

types: $(VENV)/.dev
	$(BIN)/mypy

tests: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

checked-tests: $(VENV)/.dev
	OMP_NUM_THREADS=1 NUMBA_BOUNDSCHECK=1 $(BIN)/python -m pytest tests/conformance --ignore=tests/conformance/test_verbs.py -k "not any_story and not plain"

interpreted-tests: $(VENV)/.dev  # in a process of its own: Triton decides at import whether to interpret or to compile
	OMP_NUM_THREADS=1 TRITON_INTERPRET=1 $(BIN)/python -m pytest tests/cuda/test_smoke.py tests/cuda/test_rule.py tests/cuda/test_devices.py

plain-tests: $(VENV)/.dev  # as if Numba were not installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -p tests.without_numba tests/conformance -k plain

fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz 10 500

soak: $(VENV)/.dev
	$(BIN)/python -m tests.soak 200

bench: $(VENV)/.dev
	$(BIN)/sqhn bench

$(VENV)/.experiments,torch $(VENV)/.dev: $(VENV)/.%: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$*]'
	touch $@

clean:
	rm -rf $(VENV) out .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -exec rm -rf {} +
