# Every verb works on a clean clone, in any order: the stamps create .venv and install what the verb needs.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
DEV_STAMP := $(VENV)/.ready-dev
CLUSTER_STAMP := $(VENV)/.ready-cluster

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-cluster lint type docs results verify lock gpu bench docker clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv and install rlmem into it

demo: $(STAMP) ## Train FFM with PPO until it solves repeat_previous (minutes)
	$(BIN)/rlmem train memory=ffm algo=ppo env=repeat_previous

test: $(STAMP) ## Run the fast tests, on all cores (4 minutes on two)
	$(BIN)/python -m pytest -n auto --dist worksteal

test-slow: $(STAMP) ## Run the slow tests, on all cores: whole products, long runs, learning
	$(BIN)/python -m pytest -m slow -n auto --dist worksteal --timeout 3600

test-cluster: $(CLUSTER_STAMP) ## Run the tests of joblib, submitit and Ray (a quarter of an hour; installs them)
	$(BIN)/python -m pytest -m cluster

lint: $(DEV_STAMP) ## Check style and format of the code and of the Dockerfiles
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/hadolint docker/Dockerfile.cpu docker/Dockerfile.cuda

type: $(DEV_STAMP) ## Check types
	$(BIN)/mypy
	MYPYPATH=docs/site $(BIN)/mypy docs/site

docs: $(STAMP) ## Build the site into build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict -f docs/site/mkdocs.yml

results: $(STAMP) ## Write RESULTS.md, its pictures, the checksums, and the counts and rankings in other documents anew
	$(BIN)/rlmem report results --markdown RESULTS.md
	$(BIN)/python docs/site/counted.py

verify: $(STAMP) ## Compare all that is published in results with its checksums and numbers
	$(BIN)/rlmem verify-results

lock: $(STAMP) ## Write requirements.lock anew from pyproject.toml and constraints.txt (needs a package index)
	$(BIN)/python -m pip install -q --disable-pip-version-check uv
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.10 --all-extras -c constraints.txt \
		--generate-hashes --no-emit-index-url --custom-compile-command "make lock" -q -o requirements.lock

gpu: ## Test and measure rlmem on a GPU, into benchmarks/gpu (with .venv if it is there, else with PYTHON)
	$(or $(wildcard $(BIN)/python),$(PYTHON)) benchmarks/gpu/run.py $(PARTS) $(if $(JSON),--json $(JSON)) $(if $(DRY),--dry)

bench: $(DEV_STAMP) ## Measure training speed beside sb3-contrib
	$(BIN)/rlmem bench train

docker: ## Build the CPU image rlmem:cpu
	@docker info >/dev/null 2>&1 || { echo "make docker: no Docker engine answers (docker info fails); install or start one, then try again" >&2; exit 1; }
	docker build -f docker/Dockerfile.cpu -t rlmem:cpu .

clean: ## Delete .venv, caches and builds; runs/ stays
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find rlmem envs tests -name __pycache__ -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v < (3, 14) else "rlmem needs Python 3.10 to 3.13, but $(PYTHON) is %d.%d; try make PYTHON=python3.11" % v)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[test]"
	@touch $@

$(DEV_STAMP): $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

$(CLUSTER_STAMP): $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[cluster,ray]"
	@touch $@
