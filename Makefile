# Regard from a fresh clone, with nothing but Python >= 3.11 and make.
#   PYTHON=python3.12  the interpreter to build .venv with
#   UV=1               use uv instead of venv and pip
#   ARGS="-k mask"     more arguments for pytest, or for what takes the screenshots

PYTHON ?= python3
UV ?=
ARGS ?=
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
comma := ,
SETTINGS := pyproject.toml requirements/cpu-torch.txt requirements/run.txt

.PHONY: help run test test-fast test-all check format clean web screenshots

help:
	@echo "make run          set up if needed, then: regard studio (Ctrl-C ends it)"
	@echo "make test-fast    two minutes of tests: no browser, no other process"
	@echo "make test         the tests before a change goes in, in ten minutes"
	@echo "make test-all     all tests: also notebooks, whole chapters, Ray, wheels, runs that are killed"
	@echo "make check        ruff, mypy, import-linter, the page's types and style"
	@echo "make format       let ruff and Biome rewrite the sources"
	@echo "make web          build the studio's page if its sources have changed"
	@echo "make screenshots  take the pictures of the studio in docs/ again"
	@echo "make clean        remove caches and builds (.venv stays)"

# A page that cannot be built must not keep anyone from the rest: the studio says what is missing.
run: $(VENV)/ready-to-run
	@$(BIN)/python web/build.py --quiet || true
	@$(BIN)/python -m regard studio

web: $(VENV)/ready-to-run
	@$(BIN)/python web/build.py

screenshots: $(VENV)/ready-to-test web
	$(BIN)/python web/screenshots.py $(ARGS)

# What each tier holds is decided in tests/tiers.py.
# One thread a worker: two workers that each start a thread per core only wait for each other.
test: $(VENV)/ready-to-test
	@$(BIN)/python web/build.py --quiet || true
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(ARGS)

test-fast: $(VENV)/ready-to-test
	@$(BIN)/python web/build.py --quiet || true
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m fast $(ARGS)

test-all: $(VENV)/ready-to-test
	@$(BIN)/python web/build.py --quiet || true
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow" --durations=50 $(ARGS)

check: $(VENV)/ready-to-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m regard.verbs.stub --check
	$(BIN)/python web/build.py --check

format: $(VENV)/ready-to-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python web/build.py --format

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# A stamp is touched after all else has worked, so whatever was interrupted is simply done again.
$(VENV)/ready-to-run: $(SETTINGS)
	$(call install,run,.)
	@touch $@

# What suffices for the tests suffices to run.
$(VENV)/ready-to-test: $(SETTINGS) requirements/dev.txt
	$(call install,dev,.[dev$(comma)checkpoints])
	@touch $@ $(VENV)/ready-to-run

# First what a list has with hashes, and no other file; then Regard itself and torch, of which the index decides which
# file it is: its version is fixed, its hash is not. What a system needs besides comes with them.
# An existing .venv is kept if its pip works; `python -m venv` completes one that was left half made.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	    { echo "Python 3.11 or newer is needed, and $(PYTHON) is not: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "setting up $(VENV), once (torch is a large download) ..." >&2
	$(if $(UV),$(call with_uv,$(1),$(2)),$(call with_pip,$(1),$(2)))
endef

define with_pip
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes --no-deps -r requirements/$(1).txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-build-isolation -c requirements/cpu-torch.txt -e '$(2)'
endef

define with_uv
	@command -v uv >/dev/null || \
	    { echo "UV=1 was given, and uv is not installed: leave UV=1 out, or install uv" >&2; exit 1; }
	@$(BIN)/python -c '' 2>/dev/null || uv venv --quiet --python '$(PYTHON)' $(VENV)
	@uv pip install --quiet --python $(BIN)/python --require-hashes --no-deps -r requirements/$(1).txt
	@uv pip install --quiet --python $(BIN)/python --no-build-isolation -c requirements/cpu-torch.txt -e '$(2)'
endef
