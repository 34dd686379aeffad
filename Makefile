# Two commands set the project up: `make demo` and `make test`. `make help` lists the rest.
# Needs Python 3.11 or later, make, git and a C compiler; everything else goes into .venv.

SHELL  := /bin/sh
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps

# Code that is checked for types strictly; folders that do not exist yet are left out.
TYPED  := pellucid $(wildcard examples benchmarks docs/generate.py)
CODE   := pellucid tests $(wildcard examples benchmarks docs/*.py)
# What `make bench` compares with, in an environment of its own. PyPI's torch for Linux brings CUDA's
# libraries along; PIP_FIND_LINKS with a folder that has a CPU wheel does without them.
PEERS  := .venv-peers
PEER_PACKAGES := torch==2.13.0 jax==0.10.2 tinygrad==0.14.0 threadpoolctl==3.8.0
# Test processes: `make test WORKERS=0` runs in one process, which is easier to debug.
WORKERS ?= auto

.DEFAULT_GOAL := help
.PHONY: help demo test lint format types layers pytest doctest docs bench bench-peers clean distclean
.DELETE_ON_ERROR:

help:  ## list the commands
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: $(STAMPS)/demo  ## install the package and train a classifier on real digits
	@$(BIN)/python examples/digits.py

# The steps run one after the other, the quick ones first, whatever -j says.
test: $(STAMPS)/test  ## install the test tools and run every check
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory layers
	@$(MAKE) --no-print-directory doctest
	@$(MAKE) --no-print-directory pytest
	@echo "all checks passed"

lint: $(STAMPS)/test  ## check format and style
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)

format: $(STAMPS)/test  ## rewrite the code in the project's format
	$(BIN)/ruff check --fix-only $(CODE)
	$(BIN)/ruff format $(CODE)

types: $(STAMPS)/test  ## check types, strictly
	$(BIN)/mypy $(TYPED)

layers: $(STAMPS)/test  ## check who imports whom
	$(BIN)/lint-imports

doctest: $(STAMPS)/test  ## run the examples in the docstrings
	$(BIN)/pytest -q --doctest-modules -n $(WORKERS) pellucid

pytest: $(STAMPS)/test  ## run the tests
	$(BIN)/pytest -q -n $(WORKERS) tests

docs: $(STAMPS)/docs  ## build the documentation into site/
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --config-file build/mkdocs.yml
	@echo "documentation: site/index.html"

bench: $(STAMPS)/demo  ## measure times against other libraries; ARGS='--only matmul --threads 1'
	$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(PEERS)/stamp  ## install PyTorch, JAX and tinygrad for `make bench`, apart from .venv
	@command -v clang >/dev/null || echo "tinygrad compiles with clang, which is missing: apt-get install clang"

clean:  ## remove what the tools and the build wrote
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find pellucid tests examples benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean  ## also remove the virtual environment
	rm -rf $(VENV) $(PEERS)

# --- the environment: a stamp for each set of requirements, so that a second run installs nothing ---

$(STAMPS)/venv:
	@test -n "$(PYTHON)" || { echo "Pellucid needs Python 3.11 or later: install it, or run make PYTHON=/path/to/python"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) || { echo "python -m venv failed; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@mkdir -p $(STAMPS) && touch $@

$(PEERS)/stamp: Makefile $(STAMPS)/venv
	@echo "installing $(PEER_PACKAGES) into $(PEERS)"
	@$(BIN)/python -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check $(PEER_PACKAGES)
	@touch $@

$(STAMPS)/demo $(STAMPS)/test $(STAMPS)/docs: $(STAMPS)/%: pyproject.toml $(STAMPS)/venv
	@echo "installing pellucid and its $* requirements into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@
