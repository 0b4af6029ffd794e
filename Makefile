# `make table1` and `make test` build .venv if it is missing or older than the lock file.
# PYTHON is the interpreter to build it with (3.11 or newer). EXTRAS chooses faiss: set it to gpu,dev on a CUDA machine.
# Its default is what .venv was built with.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.built-from-lock
BUILT := $(shell cat $(READY) 2>/dev/null)
EXTRAS ?= $(if $(BUILT),$(BUILT),cpu,dev)
# Containers often set it. Every process would then compile torch and transformers again, half of a command's time.
unexport PYTHONDONTWRITEBYTECODE

# Two test processes run in parallel with one thread each, because more threads would only wait for each other.
# The order of files is kept, because the slowest come first.
.PHONY: table1 test test-all lint types pages

# The local queue executes the missing runs in parallel. The artefact module then shows the table from their records.
table1: $(READY)
	@$(BIN)/python -m repro launch table1 --retry
	$(BIN)/python -m repro.table1

test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Also the tests that take minutes: every artefact at smoke, a recipe in a copy of the project, training from a wheel.
test-all: export SLOW = 1
test-all: test

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

pages: $(READY)
	$(BIN)/python -m repro check --write --dry-run

# If EXTRAS differs from what .venv was built with, install it. The packages of faiss hold the same module, so the other
# one is removed first.
ifneq ($(EXTRAS),$(BUILT))
.PHONY: $(READY)
endif

# The lock file is used as constraints only. Requirements come from the packages themselves, so each build of torch (CPU,
# CUDA, or one that is already installed) brings the libraries that it needs.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is required, this is " + sys.version.split()[0] + ": choose another with make PYTHON=python3.12")'
	@echo 'Installing the versions of requirements.lock, including torch, into .venv. This takes one to five minutes.'
	$(PYTHON) -m venv .venv
	@rm -f $(READY)
	$(if $(filter-out $(EXTRAS),$(BUILT)),$(BIN)/python -m pip uninstall --yes -qq --disable-pip-version-check faiss-cpu faiss-gpu)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c requirements.lock -e '.[$(EXTRAS)]'
	@echo '$(EXTRAS)' >$(READY)
