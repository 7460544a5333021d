# Needs only python3 (3.11 or newer) and make; everything else goes into .venv.
PYTHON ?= python3
ENGINE ?= local
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
TORCH := $(VENV)/.torch

.PHONY: help setup demo test collect lint bench soak docs cluster-tools clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

setup: $(STAMP)  ## create .venv with Fairlead and the tools for working on it

# An editable install compiles nothing, so that each start would where Python writes no bytecode.
$(STAMP): pyproject.toml hatch_build.py src/fairlead/_compiled.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Fairlead needs Python 3.11 or newer; try make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	$(BIN)/python -m compileall -q src
	@touch $@

# Only the tests train with PyTorch.
$(TORCH): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group torch
	@touch $@

demo: setup  ## compare policies in a report, then run a small live cluster
	$(BIN)/fairlead compare --policies max-min,max-min:agnostic,fifo,isolated \
		--kind continuous-multiple --loads 2,2.5,3 --seeds 2 --jobs 150 --tenants 3 \
		--out out/demo
	$(BIN)/fairlead demo --engine $(ENGINE)
	@echo "Open out/demo/report.html in a browser."

lint: setup  ## style, language, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/language/check.py
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/oxlint --deny-warnings --ignore-pattern '**/vendor/**' src/fairlead/server/web
	$(BIN)/python -m tools.web.message_types
	DENO_DIR=$(VENV)/deno $(BIN)/deno check --quiet --no-lock --config tools/web/deno.json src/fairlead/server/web/static/app.js

test: cluster-tools $(TORCH)  ## everything CI checks
	$(MAKE) --no-print-directory --jobs=2 --output-sync lint docs collect
	$(BIN)/python -m pytest -n 4

# Beside mypy, on the second core, so that no worker has to rewrite the tests' assertions.
collect: $(STAMP)
	@$(BIN)/python -m pytest --collect-only > $(VENV)/collected || (cat $(VENV)/collected && exit 1)

cluster-tools:  ## as root on Debian: install Slurm, PostgreSQL and Chromium for the tests, where missing
	@tests/cluster-tools.sh

bench: setup  ## speed against cvxpy, of whole simulations and a live server; fails outside benchmarks/ranges.toml
	$(BIN)/python -m benchmarks.solver
	$(BIN)/python -m benchmarks.policies
	$(BIN)/python -m benchmarks.insight
	$(BIN)/python -m benchmarks.simulation
	$(BIN)/python -m benchmarks.tuning
	$(BIN)/python -m benchmarks.live
	$(BIN)/python -m benchmarks.web
	$(BIN)/python -m benchmarks.fidelity
	$(BIN)/python -m benchmarks.estimate

soak: setup  ## 600 kills of real processes, then 100,000 seeds of faults; over an hour on two cores
	$(BIN)/python -m benchmarks.kills --kills 250
	$(BIN)/python -m benchmarks.kills --kills 250 --database postgresql
	$(BIN)/python -m benchmarks.kills --kills 100 --copies
	$(BIN)/python -m benchmarks.soak --seeds 100000

docs: setup  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:  ## remove everything that was built
	rm -rf $(VENV) site out dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
