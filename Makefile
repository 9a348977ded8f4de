# Each target first sets up what it needs in .venv: Python 3.11+, git and make are enough.
# PYTHON=/path/to/python3 chooses the interpreter; ARGS="..." is handed on to pytest.

python := .venv/bin/python

# Tests start the program some hundred times: compiling it each time takes a quarter of a second.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart test test-all lint lint-types lint-sql lint-format lint-style format pages site \
	lock bench faults clean runtime dev

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile | while IFS='	' read -r name text; do \
		printf '  make %-12s %s\n' "$$name" "$$text"; \
	done

quickstart: runtime ## Build the database, run the main job and print its results
	@.venv/bin/warehouse quickstart

test: dev ## Run the tests, without the long ones (ARGS="-k schema -x" to choose)
	@$(python) -m pytest -n auto --dist worksteal -m "not long" $(ARGS)

test-all: dev ## Run every test, the long ones as well
	@$(python) -m pytest -n auto --dist worksteal $(ARGS)

lint: dev ## Check formatting, style, types and SQL
	@$(MAKE) --no-print-directory --keep-going lint-types lint-sql lint-format lint-style

lint-types: dev
	$(python) -m mypy

lint-sql: dev
	$(python) -m sqlfluff lint sql

lint-format: dev
	$(python) -m ruff format --check .

lint-style: dev
	$(python) -m ruff check .

format: dev ## Format Python and SQL, and correct style
	@$(python) -m ruff check --fix-only .
	@$(python) -m ruff format .
	@$(python) -m sqlfluff fix sql

pages: dev ## Make the generated pages and pictures anew (ARGS="columns.md tour.md" to choose)
	@$(python) -m docs.build.pages $(ARGS)

site: dev ## Build docs/ as a site in site/ that is read and searched without a server
	@.ci/environment docs
	@NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build --strict --quiet
	@echo "site/index.html"

lock: dev ## Resolve requirements-dev.lock anew (needs uv)
	@{ sed -n '/^#/p' requirements-dev.lock; \
		uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra dev \
			--upgrade --no-header --no-annotate pyproject.toml; } > requirements-dev.lock.new
	@mv requirements-dev.lock.new requirements-dev.lock

bench: dev ## Measure start-up, sweeps and queries, and write docs/speed.md (BENCH=large: 100 M rows)
	@$(python) -m benchmarks

faults: dev ## Kill, fill and damage at random, and check that nothing is lost (ARGS="--trials 20")
	@$(python) -m tests.faults $(ARGS)

clean: ## Remove .venv, caches and build output; databases are kept
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

runtime:
	@.ci/environment runtime

dev:
	@.ci/environment dev
