# Everything a fresh clone needs: `make demo` and `make test` set up .venv by themselves.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test install clean

demo: .venv/demo.stamp
	$(BIN)/pseudoquery demo

test: .venv/test.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -n 2

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
