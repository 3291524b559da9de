# Everything a fresh clone needs: `make demo` and `make test` set up .venv by themselves.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-cluster chromium milvus install clean

demo: .venv/demo.stamp
	$(BIN)/pseudoquery demo
	@command -v pseudoquery >/dev/null || echo "For your shell to find the command, first: source $(BIN)/activate"

test: .venv/test.stamp chromium
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -n 2
	TRITON_INTERPRET=1 $(BIN)/pytest -n 2 tests/method/test_kmeans_gpu.py tests/search/test_gpu_*.py

# On engines for several machines, which the tests start on loopback: three Ray nodes; all tests on a
# milvus-lite, the contract and the kills also on the real Milvus server. A file starts its engine once.
test-cluster: .venv/test.stamp milvus
	$(BIN)/pytest -n 2 --dist loadfile -m cluster
	MILVUS=server $(BIN)/pytest -n 2 --dist loadfile -m cluster \
	  tests/cluster/test_milvus_crash.py tests/cluster/test_contract.py

# The server 2.3.5 needs an environment of its own. Where it can't be installed its tests are skipped.
milvus:
	@$(MAKE) --no-print-directory .venv-milvus/server.stamp || \
	  echo "Milvus 2.3.5 can't be installed here, so it is not tested."

.venv-milvus/server.stamp:
	$(PYTHON) -m venv .venv-milvus
	.venv-milvus/bin/pip install --quiet --no-deps milvus==2.3.5
	.venv-milvus/bin/python -c "import milvus; milvus._initialize_data_files('.venv-milvus')"
	touch $@

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
	rm -rf .venv .venv-milvus demo-index demo-index-single
