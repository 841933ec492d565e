PYTHON ?= python3
PYTEST_ARGS ?=
VENV := .venv
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.demo-ready
NATIVE := lrpe/native/.built

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast gpu-test lint bench native native-check dist clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(if $(wildcard $(READY)),$(READY),$(DEMO_READY)) ## train small models of nine methods, print the table, write a page
	$(VENV)/bin/lrpe demo

test: export OMP_NUM_THREADS := 1
test: $(READY) $(NATIVE) ## run the tests on all cores (PYTEST_ARGS="-k name" selects some)
	$(VENV)/bin/python -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

test-fast: export OMP_NUM_THREADS := 1
test-fast: $(READY) $(NATIVE) ## run one fast case of every test, in about a minute, while editing
	$(VENV)/bin/python -m pytest -n auto --dist worksteal --fast $(PYTEST_ARGS)

gpu-test: export TRITON_F32_DEFAULT := ieee # exact products of float32, which the contract compares
gpu-test: $(READY) $(NATIVE) ## with a CUDA GPU: test the fla engine there, then time attention and training
	$(VENV)/bin/python -c 'import lrpe, sys; s = lrpe.engines.status()["fla"]; sys.exit(None if s == "ready" else f"fla: {s}")'
	$(VENV)/bin/python -m pytest -k fla tests/attention/engines/test_contract.py tests/attention/engines/test_fla.py
	$(VENV)/bin/lrpe bench attention --device cuda
	$(VENV)/bin/lrpe bench train --device cuda

lint: $(READY) ## ruff check, ruff format --check, pyright
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright

$(NATIVE): $(READY) $(wildcard lrpe/native/*.cpp lrpe/native/*.h) lrpe/native/build.py
	$(VENV)/bin/python lrpe/native/build.py
	@touch $@

native-check: $(READY) ## run the native engine under AddressSanitizer and UBSan: random shapes, strides and values
	$(VENV)/bin/python tests/native/check.py

native: $(NATIVE) ## compile the native engine again, if its sources have changed

dist: $(READY) ## build sdist and wheel, and try both in an empty environment without a compiler
	$(VENV)/bin/python tests/packages/check.py

bench: $(READY) ## time the encodings and other libraries' versions of them
	$(VENV)/bin/lrpe bench encoding

define CHECK_PYTHON
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
  echo "lrpe needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo not there)." >&2; \
  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
endef

# A stamp is removed first and written last, so that an interrupted install is repeated.
$(READY): pyproject.toml constraints.txt
	$(CHECK_PYTHON)
	@rm -f $@
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -c constraints.txt -e '.[dev]'
	@touch $@

# What the demo needs, without the tools for tests, documentation and lint.
$(DEMO_READY): pyproject.toml constraints.txt
	$(CHECK_PYTHON)
	@rm -f $@
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -c constraints.txt -e '.[cli,train,report]'
	@touch $@

clean: ## remove .venv, caches and built packages (never runs/)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find lrpe tests -type d -name __pycache__ -prune -exec rm -rf {} +
