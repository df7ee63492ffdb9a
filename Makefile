# Two commands do everything on a fresh machine: `make demo` and `make test`.
VENV   := .venv
PYTHON := $(VENV)/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Some images forbid bytecode files; the tests start hundreds of processes, which then compile all they import.
export PYTHONDONTWRITEBYTECODE :=

# Three workers keep two cores busy: tests wait for processes and browsers a third of their time.
WORKERS := 3

.PHONY: help demo browser services test test-fast test-full check format bench bench-large docs site dist screenshots clean

help:            ## list the targets
	@grep -E '^[a-z-]+: .*##' Makefile | sed 's/:.*##/  —/'

demo: $(VENV)/.run          ## record an agent, kill it, see what happened
	$(PYTHON) examples/demo/demo.py

test: $(VENV)/.dev browser  ## the tests that CI runs; PYTEST="..." for more options
	$(PYTHON) -m pytest -n $(WORKERS) -m "not full" $(PYTEST)

test-fast: $(VENV)/.dev browser  ## the quick tests
	$(PYTHON) -m pytest -n $(WORKERS) -m "not slow and not full" $(PYTEST)

test-full: $(VENV)/.dev browser services  ## everything, also what takes minutes; lists what could not run, and why
	$(PYTHON) -m pytest -n $(WORKERS) -rs $(PYTEST)

check: $(VENV)/.dev         ## format, lint, types (Python and web/), import contracts, docs and their site
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports --no-logo
	$(PYTHON) tools/web.py check
	$(PYTHON) docs/generate.py --check
	$(VENV)/bin/zensical build --strict --clean -f mkdocs.yml

format: $(VENV)/.dev        ## format everything: Python and web/
	$(PYTHON) -m ruff format .
	$(PYTHON) tools/web.py format

bench: $(VENV)/.bench browser       ## measure, beside the floor and the peers; writes bench/RESULTS.md
	$(PYTHON) -m bench

# Each call adds a million spans to both stores, so ten calls make ten million.
LARGE := /var/tmp/vestige-large
bench-large: $(VENV)/.dev   ## add a million spans to a large store of each engine, time every command
	for engine in sqlite clickhouse; do $(PYTHON) -m bench.large_stores $(LARGE) --engine $$engine --spans 1000000 --seconds 3600 --questions || exit 1; done
	$(PYTHON) -m bench.large_stores $(LARGE) --table

site: $(VENV)/.dev          ## build the documentation into build/site
	$(VENV)/bin/zensical build --strict --clean -f mkdocs.yml

dist: $(VENV)/.dist         ## build sdist and wheel, check them in a fresh environment
	$(PYTHON) tools/dist.py

docs: $(VENV)/.dev          ## regenerate the reference pages
	$(PYTHON) docs/generate.py

screenshots: $(VENV)/.dev browser  ## retake the pictures of the viewer: docs/images
	$(PYTHON) docs/screenshots.py

clean:           ## remove environments and build results
	rm -rf .venv* build dist

# Tests of the viewer use the browser of Debian.
browser:
	@test -x /usr/bin/chromium || { apt-get update -q && apt-get install -yq --no-install-recommends chromium; }

# Tests of task queues start a Redis server of their own.
services:
	@command -v redis-server >/dev/null || { apt-get update -q && apt-get install -yq --no-install-recommends redis-server; }

# A Debian python3 may come without venv; everything else comes from the package index.
$(VENV)/.made:
	python3 -m venv $(VENV) || { apt-get update -q && apt-get install -yq python3-venv && python3 -m venv --clear $(VENV); }
	$(PYTHON) -m pip install -q -U pip
	touch $@

$(VENV)/.run: $(VENV)/.made pyproject.toml hatch_build.py $(shell find web -type f -not -path '*/node_modules/*' 2>/dev/null)
	$(PYTHON) -m pip install -q -e .
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PYTHON) -m pip install -q --group test --group check
	touch $@

$(VENV)/.dist: $(VENV)/.made
	$(PYTHON) -m pip install -q --group dist
	touch $@

$(VENV)/.bench: $(VENV)/.run
	$(PYTHON) -m pip install -q --group bench
	touch $@
