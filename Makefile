# Everything runs in .venv, which is made once; a stamp for each step tells when to do it again.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DB := qdrant_data

PIP := $(BIN)/python -m pip
INSTALL := $(PIP) install --constraint constraints.txt
# Comparisons with transformers need the dependency group "reference", which brings torch.
QUICK := not slow and not server and not reference
# Files of tests run side by side; the tests of a file share what they set up.
PYTEST := $(BIN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist loadfile \
	--cov --cov-report=term

.PHONY: help venv lint test test-all demo bench fast clean

help: ## list these targets
	@awk -F ': .*## ' '/^[a-z-]+: .*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(VENV)/.installed ## make .venv and install corral into it

lint: $(VENV)/.lint ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: $(VENV)/.test ## the test suite with its branch coverage gate, in some minutes
	$(PYTEST) -m "$(QUICK)" $(ARGS)

test-all: $(VENV)/.test ## also the slow tests, new random examples, and the server at QDRANT_URL
	$(PYTEST) --hypothesis-profile=searching $(ARGS)

demo: $(VENV)/.installed ## ingest examples/docs into ./qdrant_data and search it three times
	$(BIN)/corral model pull minilm
	$(BIN)/ingest examples/docs --sink qdrant --path $(DB) --collection demo --model minilm
	$(BIN)/corral search "when are the sheep shorn?" --path $(DB) --collection demo -k 3
	$(BIN)/corral search "how many volts does the fence need?" --path $(DB) --collection demo -k 3
	$(BIN)/corral search "Wie schützt man Schafe vor dem Wolf?" --path $(DB) --collection demo -k 3

bench: $(VENV)/.bench ## speed and memory beside the peers that are installed, on this machine
	$(BIN)/python benchmarks/run.py --out benchmarks/results $(ARGS)

fast: $(VENV)/.installed ## build llama.cpp anew with MKL, on x86-64 Linux, in some ten minutes
	$(BIN)/python -m corral.fast

clean: ## remove .venv, the demo's collection and what tools left
	rm -rf $(VENV) $(DB) build dist htmlcov .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Dependency groups (PEP 735) need pip 25.1; what venv brings may be older.
$(VENV)/.pip: constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "corral needs Python 3.11 or newer; name one with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip
	@touch $@

$(VENV)/.installed: $(VENV)/.pip pyproject.toml
	@echo "Installing. Where pip has no wheel of llama-cpp-python it compiles llama.cpp:"
	@echo "4 to 9 minutes on two cores, in which pip prints nothing unless PIP_VERBOSE=1 is set."
	$(INSTALL) --editable '.[code,hub,langchain,readers]'
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	$(INSTALL) --group test
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(INSTALL) --group bench
	@touch $@

$(VENV)/.lint: $(VENV)/.installed
	$(INSTALL) --group lint
	@touch $@
