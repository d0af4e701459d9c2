# The few commands of a working day; CI runs the same ones. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
TESTBED ?= local
# CI on a shared machine: an end-to-end test that failed is tried once more, and the summary names it (RETRY=1).
AGAIN := $(if $(RETRY),--reruns 1,)

.PHONY: help setup demo test engines e2e lint bench coverage mutants verify clean

help: ## List these targets
	@awk -F':.*## ' '/^[a-z0-9]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make the checkout ready: uv if absent, packages, a Chromium
	@scripts/setup

demo: setup ## Bring a farm up here, break it twice, show what held, take it down
	@scripts/demo

test: setup ## Unit and component tests (a few minutes, no container engine)
	$(BIN)/pytest

engines: setup ## Tests on the container engines that answer here, docker and podman
	$(BIN)/pytest -m engine tests/farmctl/images -rs

e2e: setup ## Every scenario and real clients on a real testbed (TESTBED=local or kind; ARGS=--keep-cluster)
	$(BIN)/pytest e2e --testbed $(TESTBED) $(AGAIN) -vv -r fEsR --durations 15 $(ARGS)

lint: setup ## Format, lint, types, import arrows, dependencies, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	for part in proxy agent wire; do (cd $$part && ../$(BIN)/deptry .) || exit 1; done
	$(BIN)/codespell
	$(BIN)/zizmor --offline --quiet .github/workflows action.yml
	@if command -v go >/dev/null; then go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12; \
	else echo "actionlint skipped: it needs Go"; fi

bench: setup ## Measure against HAProxy and a bare Chrome; writes docs/performance.json and .md
	$(BIN)/farmctl bench --out docs/performance.json
	$(BIN)/farmctl bench --docs docs/performance.json

coverage: setup ## Branch coverage of the proxy by its tests (a few minutes), not below what it was
	@mkdir -p build
	$(BIN)/coverage run -m pytest tests/proxy tests/wire
	$(BIN)/coverage report

mutants: setup ## Put small faults into the code and see that tests notice (an hour; ARGS="core --most 0")
	$(BIN)/python scripts/mutants.py $(ARGS)

verify: lint test e2e ## Lint, tests, the local scenarios with real Chromium; .ci/run adds the kind testbed

clean: ## Take a running farm down and remove what was built here
	-@[ ! -x $(BIN)/farmctl ] || $(BIN)/farmctl down
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
