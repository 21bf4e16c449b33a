# Fresh machine: Python 3.11 or newer, make and git are enough. Everything is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two workers that keep to neighbouring tests, so that what a module or a session starts is started rarely.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo test test-full control-plane programs flux browser postgres chaos lint bench crds clean

demo: $(VENV)/.base
	$(BIN)/muster demo

test: $(VENV)/.dev
	$(PYTEST) -m "not full"

# Lints and builds two at a time; packages one after the other, because apt has one lock.
test-full: $(VENV)/.full
	$(MAKE) browser postgres
	$(MAKE) -j2 lint control-plane programs
	$(PYTEST) -m full
	$(MAKE) bench BENCH_FLAGS=--quick

# A real kube-apiserver and its kin, built once into a cache; without Go it says so and the tests count what did not run.
control-plane: $(VENV)/.dev
	$(BIN)/python -m tests.controlplane.binaries

# The real helm, helmfile and OCI registry, built the same way.
programs: $(VENV)/.dev
	$(BIN)/python -m tests.programs.sources deployers

# The controllers of Flux. Not part of test-full, because they take long; their tests run wherever they were built.
flux: $(VENV)/.dev
	$(BIN)/python -m tests.programs.sources flux

# The browser in which reports are looked at. Where this cannot install it, their test says what is missing.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	  echo "There is no chromium and it cannot be installed here: install the package chromium for the test of reports."

# The database server of the history's tests, from Debian's package. Where it cannot be had, their last line says so.
postgres:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql >/dev/null; } || \
	  echo "There is no PostgreSQL and it cannot be installed here: install the package postgresql for the test of history."

# Seeded chaos on a virtual clock: SEEDS=N for a long run, SEED=K to play one again.
SEEDS ?= 40
chaos: $(VENV)/.dev
	$(BIN)/python -m tests.chaos --seeds $(SEEDS) $(if $(SEED),--seed $(SEED))

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file $(BENCH_FLAGS); done

crds: $(VENV)/.dev
	$(BIN)/python -m muster.resources.crd deploy/crds
	$(BIN)/python -m muster.resources.crd deploy/chart/files/crds

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis

# The version test comes first: an old Python fails in the middle of the installation with a puzzling message.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Muster needs Python 3.11 or newer; name one with: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.base

$(VENV)/.full: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,full]'
	@touch $@
