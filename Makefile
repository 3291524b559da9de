# Everything a fresh clone needs: `make demo` and `make test` set up .venv by themselves.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-cluster chromium install clean

demo: .venv/demo.stamp
	$(BIN)/pseudoquery demo

test: .venv/test.stamp chromium
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -n 2

# On engines for several machines, which the tests start on loopback.
test-cluster: .venv/test.stamp
	$(BIN)/pytest -n 2 -m cluster

# The page is tested in Debian's Chromium. Where it can't be installed those tests are skipped.
APT := $(if $(filter 0,$(shell id -u)),,sudo -n) env DEBIAN_FRONTEND=noninteractive apt-get --quiet
chromium:
	@command -v chromium >/dev/null || \
	  { $(APT) update && $(APT) install --yes --no-install-recommends chromium fonts-liberation; } || \
	  echo "Chromium can't be installed here, so the page is not tested in a browser."

install: .venv/demo.stamp

.venv/bin/pip:
	$(PYTHON) -m venv .venv

# The constraints keep pip from choosing a build of torch with gigabytes of CUDA libraries.
.venv/demo.stamp: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/test.stamp: .venv/demo.stamp
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv demo-index demo-index-single
