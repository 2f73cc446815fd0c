# Needs Python 3.11 or newer and nothing else: what the targets use is installed into $(VENV), and again only when a requirements file changes.

VENV ?= .venv
JOBS ?= 2
ARGS ?=
LOCK_FLAGS ?=
# The last word is `true` because GNU make throws the answer away when the status is 127, as for a name that is not there.
PYTHON ?= $(shell for name in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done; true)

BIN := $(VENV)/bin
PY := $(BIN)/python
INSTALL := $(BIN)/uv pip install --quiet --python $(PY)
SYNC := $(BIN)/uv pip sync --quiet --python $(PY)
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header $(LOCK_FLAGS)
NPM := PATH="$(abspath $(BIN)):$$PATH" npm --prefix tests/node

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test check lint types format golden transcripts docs bench soak lock setup clean

help: ## list these targets
	@sed -n 's/^\([a-z]*\):.*## /\1|/p' $(firstword $(MAKEFILE_LIST)) | while IFS='|' read -r name text; do printf 'make %-11s %s\n' "$$name" "$$text"; done

run: $(VENV)/.run ## start the gateway on 127.0.0.1:8787 (ARGS="--config FILE", as for toolrelay serve)
	@exec $(BIN)/toolrelay serve $(ARGS)

test: setup ## run all tests (ARGS="tests/wires -k chunk" for some of them)
	$(PY) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

check: ## all that CI runs: lint, types, test
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory test

lint: $(VENV)/.dev ## ruff's rules and format, and the rules of who may import what
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.dev ## mypy, strict, over src, tests and bench
	$(BIN)/mypy

format: $(VENV)/.dev ## let ruff format the code and mend what it can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

golden: setup ## write the golden frames anew: look at the difference before you commit it
	$(PY) tests/golden/regenerate.py $(ARGS)

transcripts: setup ## record the exchanges of tests/transcripts anew (ARGS="hermes codex.calls": of some models): look at the difference
	$(PY) tests/transcripts/record.py $(ARGS)

docs: $(VENV)/.dev ## write the tables in docs/ from the code
	$(PY) docs/make_tables.py

bench: $(VENV)/.dev ## measure the gateway's cost per request and per chunk, the dialects' per delta, and what is added to Codex (ARGS: only the gateway's)
	$(PY) bench/run.py $(ARGS)
	@$(if $(ARGS),,$(PY) bench/dialects.py --peers && $(PY) bench/codex.py)

soak: $(VENV)/.dev ## run 2,000 turns through Codex and watch the memory
	$(PY) bench/codex.py --only memory --turns 2000 $(ARGS)

lock: $(VENV)/.dev ## compile pyproject.toml and package.json into the locks (LOCK_FLAGS=--upgrade for newer versions)
	$(COMPILE) pyproject.toml --group dev --output-file requirements/dev.txt
	$(COMPILE) pyproject.toml --group build --constraints requirements/dev.txt --output-file requirements/run.txt
	$(COMPILE) --group pyproject.toml:installer --constraints requirements/dev.txt --output-file requirements/uv.txt
	$(NPM) install --package-lock-only
	$(PY) tests/node/without_funding.py
	$(PY) -m pytest tests/test_repository.py -k lock

setup: $(VENV)/.dev tests/node/node_modules/.installed ## install what the other targets need, and run nothing

clean: ## remove all that these targets made, the virtual environment too
	rm -rf $(VENV) tests/node/node_modules dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.uv: requirements/uv.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and no python3 on the PATH is; PYTHON=/path/to/python names another" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

$(VENV)/.run: $(VENV)/.uv requirements/run.txt pyproject.toml
	$(INSTALL) --compile-bytecode --require-hashes -r requirements/run.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

# The run set is part of the dev set, in the same versions: `make run` after `make test` finds everything in its place.
$(VENV)/.dev: $(VENV)/.uv requirements/dev.txt requirements/run.txt pyproject.toml
	$(SYNC) --compile-bytecode --require-hashes requirements/dev.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $(VENV)/.run $@

tests/node/node_modules/.installed: $(VENV)/.dev tests/node/package.json tests/node/package-lock.json tests/node/.npmrc
	$(NPM) ci
	@touch $@
