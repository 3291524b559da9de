# Everything a fresh clone needs: `make demo` and `make test` set up .venv by themselves, with the
# versions in requirements/lock.txt.

PYTHON ?= python3
BIN := .venv/bin
LOCK := requirements/lock.txt
# Errors are shown; warnings about a machine's own settings of pip are not.
INSTALL := -m pip --disable-pip-version-check install -qq

.PHONY: demo test test-avx2 test-cluster test-latest test-oldest docs lock chromium milvus install clean

demo: .venv/demo.stamp
	$(BIN)/pseudoquery demo
	@command -v pseudoquery >/dev/null || echo "For your shell to find the command, first: source $(BIN)/activate"

# The type check is part of this run alone: it depends on the types that a version of a library has.
test: .venv/test.stamp chromium
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -n 2
	TRITON_INTERPRET=1 $(BIN)/pytest -n 2 tests/method/test_kmeans_gpu.py tests/search/test_gpu_*.py

# As on a processor that has AVX2 and neither AVX-512 nor VNNI. OpenVINO's release build can't be
# limited (openvinotoolkit/openvino#38257), so its tests are left out.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
  OPENBLAS_CORETYPE=Haswell FAISS_SIMD_LEVEL=AVX2 NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL" \
  PSEUDOQUERY_KERNEL=avx2
test-avx2: .venv/test.stamp
	$(AVX2) $(BIN)/pytest -n 2 -k "not openvino" --deselect tests/bench/test_bench.py::test_encode \
	  --ignore tests/docs --ignore tests/benchmarks

# On engines for several machines, which the tests start on loopback: three Ray nodes; all tests on a
# milvus-lite, the contract and the kills also on the real Milvus server. A file starts its engine once.
test-cluster: .venv/test.stamp milvus
	$(BIN)/pytest -n 2 --dist loadfile -m cluster
	MILVUS=server $(BIN)/pytest -n 2 --dist loadfile -m cluster \
	  tests/cluster/test_milvus_crash.py tests/cluster/test_contract.py

# The suite on the newest and on the oldest versions that pyproject.toml allows, in environments of
# their own. What they find, narrows or widens the ranges.
test-latest test-oldest: test-%: chromium
	$(PYTHON) requirements/lock.py $(if $(filter oldest,$*),--oldest) > .venv-$*.txt
	$(PYTHON) -m venv --clear .venv-$*
	.venv-$*/bin/python $(INSTALL) --upgrade pip
	.venv-$*/bin/python $(INSTALL) --requirement .venv-$*.txt
	.venv-$*/bin/python $(INSTALL) --no-deps --no-build-isolation --editable .
	PSEUDOQUERY_LOCK=.venv-$*.txt .venv-$*/bin/pytest -n 2

# The documentation, into site/: open site/index.html. Links and anchors are checked.
docs: .venv/test.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Choose the newest versions anew; then run the tests, and commit what has changed.
lock:
	$(PYTHON) requirements/lock.py > $(LOCK).new
	mv $(LOCK).new $(LOCK)

# The server 2.3.5 needs an environment of its own. Where it can't be installed its tests are skipped.
milvus:
	@$(MAKE) --no-print-directory .venv-milvus/server.stamp || \
	  echo "Milvus 2.3.5 can't be installed here, so it is not tested."

.venv-milvus/server.stamp:
	$(PYTHON) -m venv .venv-milvus
	.venv-milvus/bin/python $(INSTALL) --no-deps milvus==2.3.5
	.venv-milvus/bin/python -c "import milvus; milvus._initialize_data_files('.venv-milvus')"
	touch $@

# The page is tested in Debian's Chromium. Where it can't be installed those tests are skipped.
APT := $(if $(filter 0,$(shell id -u)),,sudo -n) env DEBIAN_FRONTEND=noninteractive apt-get -qq
chromium:
	@command -v chromium >/dev/null || { \
	  echo "Installing Chromium, in which the page is tested."; \
	  { $(APT) update && $(APT) install --yes --no-install-recommends chromium fonts-liberation; } >/dev/null; \
	} || echo "Chromium can't be installed here, so the page is not tested in a browser."

install: .venv/demo.stamp

.venv/pip.stamp: $(LOCK)
	@echo "Making a virtual environment in .venv."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python $(INSTALL) --constraint $(LOCK) --upgrade pip setuptools
	@touch $@

.venv/demo.stamp: pyproject.toml $(wildcard pseudoquery/native/*.[ch]) .venv/pip.stamp
	@echo "Installing pseudoquery and the libraries it needs, with the versions in $(LOCK). This takes a minute or more."
	@$(BIN)/python $(INSTALL) --constraint $(LOCK) --no-build-isolation --editable .
	@$(BIN)/python -c "import pseudoquery.native.kernels" 2>/dev/null || \
	  echo "The C kernels can't be compiled here, so numpy does their work: slower, with the same results."
	@touch $@

.venv/test.stamp: .venv/demo.stamp
	@echo "Installing what the tests need."
	@$(BIN)/python $(INSTALL) --requirement $(LOCK)
	@$(BIN)/python $(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

clean:
	rm -rf .venv .venv-* site demo-index demo-index-single
