# `make table1` and `make test` do all the set-up themselves: .venv is built when it is missing or older than the lock.
# PYTHON names the interpreter to build it with (3.11 or newer), EXTRAS the kind of faiss: gpu,dev on a CUDA machine.
PYTHON ?= python3
EXTRAS ?= cpu,dev
BIN := .venv/bin
READY := .venv/.built-from-lock
# Containers often set it; every process would then compile torch and transformers anew, which is half of a verb's time.
unexport PYTHONDONTWRITEBYTECODE

# Tests run side by side, one thread each: more threads would only wait for each other. Files keep their order, in which
# the slowest come first.
.PHONY: table1 test lint types

# The queue trains what is missing, side by side; the door then finds all recorded, and shows it.
table1: $(READY)
	@$(BIN)/python -m repro launch table1 --on local --retry
	$(BIN)/python -m repro.table1

test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# Extras that are typed, and are not those that .venv was built with, are installed into it.
ifneq ($(origin EXTRAS),file)
ifneq ($(EXTRAS),$(shell cat $(READY) 2>/dev/null))
.PHONY: $(READY)
endif
endif

# The lock only constrains: pip asks each package what it needs, so that whichever torch is found (a CPU build, PyPI's own
# with CUDA, one installed before) brings its own libraries.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; name another with make PYTHON=python3.12")'
	@echo 'Installing what requirements.lock names into .venv, torch among it: a minute, or a few over a slow network.'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c requirements.lock -e '.[$(EXTRAS)]'
	@echo '$(EXTRAS)' >$(READY)
