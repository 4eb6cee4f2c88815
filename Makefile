# Everything a developer needs. `make check` is all that CI does.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
ARGS ?=

.PHONY: help up test check format bench clean

help: ## What there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

up: $(STAMP) ## Start everything: PostgreSQL, API, scheduler and a worker
	@$(BIN)/rota up $(ARGS)

test: $(DEV_STAMP) ## Run the tests
	$(BIN)/pytest -n 2 --dist loadfile $(ARGS)

check: $(DEV_STAMP) ## Format check, lint, types, import direction, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist loadfile

format: $(DEV_STAMP) ## Put every file into our form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## How many jobs go through, and how late they begin; `rota bench --help` has more
	$(BIN)/rota bench throughput $(ARGS)
	$(BIN)/rota bench steady --rate 10000
	$(BIN)/rota bench burst

clean: ## Remove what was built (not your data)
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(DEV_STAMP): $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ $(STAMP)
