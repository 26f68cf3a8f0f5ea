# Every target makes its own environment first; make and one of these Pythons are all it needs.
PYTHONS := 3.11 3.12 3.10 3.13
PYENV := $${PYENV_ROOT:-$$HOME/.pyenv}/versions
# $(call find,VERSIONS,NAMES): the first Python that starts, has one of these versions and can make environments
find = $(shell for p in $(foreach v,$(1),python$(v) $(PYENV)/$(v).*/bin/python) $(2); do \
	"$$p" -c "import ensurepip, sys; sys.exit('%d.%d' % sys.version_info[:2] not in '$(1)'.split())" 2>/dev/null \
	&& command -v "$$p" && break; done)
PYTHON ?= $(call find,$(PYTHONS),python3 python)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TOOLS := .venv-tools
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check -c constraints.txt
# vantage6 4 runs on Python 3.10 to 3.12, vantage6 5 on 3.13
VANTAGE6 = vantage6-$$($(BIN)/python -c "import sys; print(4 + (sys.version_info >= (3, 13)))")
# vantage6 5 without torch: so it is tested quickly. Methods with torch are tested on the Python of the other tests, on
# which vantage6 5 runs although it does not say so; `make test PYTHON=python3.13` tests all on 3.13.
PYTHON_V5 ?= $(call find,3.13,python3)
VENV_V5 := .venv-v5
STAMP_V5 := $(VENV_V5)/.installed
TESTS_V5 ?= tests/five tests/base tests/central tests/conformance tests/data tests/messages tests/node tests/operator \
	tests/privacy $(wildcard $(patsubst %,tests/methods/test_%*.py,cox gbdt glm km pca))
VENV_V5_TORCH := .venv-v5-torch
STAMP_V5_TORCH := $(VENV_V5_TORCH)/.installed
DATA ?= data
WORKERS ?= auto
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet  # without the theme's notice about MkDocs 2

.DEFAULT_GOAL := demo
.PHONY: demo test test-network test-all test-newest test-oldest test-v5 test-v5-torch network-v5 test-processors test-rules \
	coverage test-long lint \
	docs data bench peers images images-v5 requirements network wheel version hooks clean

$(VENV)/pyvenv.cfg:
	@"$(PYTHON)" -c "import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))" 2>/dev/null || { echo "$(if \
	    $(PYTHON),$(PYTHON) cannot be used,no usable Python was found): Python 3.10, 3.11, 3.12 or 3.13 with venv is needed;" \
	    "get one (Debian: apt install python3-venv; macOS: brew install python@3.12; anywhere: uv python install 3.12)," \
	    "then run: make $(or $(firstword $(MAKECMDGOALS)),demo) PYTHON=PATH" >&2; exit 2; }
	"$(PYTHON)" -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	@echo "Installing vantage6, numpy, pandas, scikit-learn and what else the commands need into $(VENV): 0.7 GB, about a minute." >&2
	$(BIN)/python $(PIP_INSTALL) -e ".[$(VANTAGE6),cli]"
	@touch $@

$(STAMP): $(VENV)/.demo
	@echo "Installing torch and what tests, benchmarks and documentation need into $(VENV): 5.6 GB with PyPI's torch for Linux," \
	    "2 GB with a CPU build (PIP_EXTRA_INDEX_URL may name an index that has one); a few minutes." >&2
	$(BIN)/python $(PIP_INSTALL) -e ".[$(VANTAGE6),torch,cli,bench,docs,test,lint]"
	@touch $@

demo: $(VENV)/.demo  ## five mock hospitals: federated, centralized, and each alone
	$(BIN)/v6-federated demo

test: $(STAMP)  ## the tests, on all processors or WORKERS=N; without those on a real network, unless REQUIRE_DOCKER=1
	@echo "The tests take about a quarter of an hour on two processors."
	$(PYTEST)

test-network: $(STAMP)  ## the tests on a real network, which need Docker; tests/network/conftest.py cleans up
	@echo "The tests on a real network build Docker images and take about half an hour; Ctrl-C removes what they started."
	REQUIRE_DOCKER=1 $(PYTEST) tests/network

test-all: test test-network  ## all tests

# tools that need none of the project's packages: import-linter does not go together with vantage6 5
$(TOOLS)/.installed: constraints.txt | $(VENV)/pyvenv.cfg
	$(BIN)/python -m venv $(TOOLS)
	$(TOOLS)/bin/python $(PIP_INSTALL) import-linter uv
	@touch $@

# The package as pip installs it, in an environment of its own, with the newest version of everything that it accepts, or
# the oldest. TESTS_WHEEL="FILE ..." runs a part of the tests; tests/test_installed.py reaches every module and method.
TESTS_WHEEL ?= tests
PYTHON_newest ?= $(call find,3.12,python3)
PYTHON_oldest ?= $(call find,3.10,python3)
test-newest test-oldest: test-%: $(TOOLS)/.installed
	@test -n "$(PYTHON_$*)" || { echo "no Python $(if $(filter newest,$*),3.12,3.10) here; name one: make $@ PYTHON_$*=PATH" >&2; exit 2; }
	@echo "Installing the package and the $* versions of what it needs into .venv-$*: 5 GB."
	rm -rf build .venv-$*
	"$(PYTHON_$*)" -m venv .venv-$*
	$(TOOLS)/bin/uv build --quiet --wheel --out-dir .venv-$*/dist .
	$(TOOLS)/bin/uv pip install --quiet --python .venv-$*/bin/python -r pyproject.toml \
	    $(if $(filter oldest,$*),--resolution lowest-direct) $(addprefix --extra ,vantage6-4 torch cli bench test)
	$(TOOLS)/bin/uv pip install --quiet --no-deps --python .venv-$*/bin/python .venv-$*/dist/*.whl
	env -u PYTHONDONTWRITEBYTECODE .venv-$*/bin/python -m pytest -n $(WORKERS) --dist loadgroup $(TESTS_WHEEL)

$(STAMP_V5): pyproject.toml constraints.txt
	@test -n "$(PYTHON_V5)" || { echo "no python3.13 here; name one: make $(MAKECMDGOALS) PYTHON_V5=PATH" >&2; exit 2; }
	$(PYTHON_V5) -m venv $(VENV_V5)
	$(VENV_V5)/bin/python $(PIP_INSTALL) -e ".[vantage6-5,cli,bench,test]"
	touch $@

test-v5: $(STAMP_V5)  ## on vantage6 5 with Python 3.13: the methods without torch, and what all methods share
	$(VENV_V5)/bin/python -m pytest -n $(WORKERS) --dist loadgroup $(TESTS_V5)

network-v5: $(STAMP_V5)  ## the tests on a real network of vantage6 5, which need Docker
	REQUIRE_DOCKER=1 $(VENV_V5)/bin/python -m pytest -n 1 --dist loadgroup tests/network

$(STAMP_V5_TORCH): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV_V5_TORCH)
	$(VENV_V5_TORCH)/bin/python $(PIP_INSTALL) -e ".[vantage6-4,torch,cli,test]"
	$(VENV_V5_TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --ignore-requires-python --no-deps \
	    $$(sed -n "s/; python_version >= .3.13.$$//p" constraints.txt | grep "^vantage6-")
	$(VENV_V5_TORCH)/bin/python $(PIP_INSTALL) httpx python-keycloak
	touch $@

test-v5-torch: $(STAMP_V5_TORCH)  ## on vantage6 5: the methods with torch
	$(VENV_V5_TORCH)/bin/python -m pytest -n $(WORKERS) --dist loadgroup tests/methods tests/models

test-rules: $(STAMP)  ## deletes each refusal and each threshold of what runs at a hospital, of which each must make a test fail; hours
	$(BIN)/python tests/rules.py $(RULES)

coverage: $(STAMP)  ## the tests, and which lines they run; takes twice as long
	$(PYTEST) --cov

test-long: $(STAMP)  ## what takes long: tests marked so, 1000 federations, 200 schedules of faults a method, 3000 messages, 20,000 pairs of files, 10^8 roundings
	$(PYTEST) -m long
	COVERAGE_FEDERATIONS=1000 $(PYTEST) tests/workbench/reporting/test_intervals.py
	FAULT_SCHEDULES=200 $(PYTEST) tests/methods -k faults
	MUTATED_PAYLOADS=3000 $(PYTEST) tests/messages/test_mutated_payloads.py
	FILE_PAIRS=20000 $(PYTEST) tests/privacy/test_pairs_of_files.py
	ENCODER_DRAWS=100000000 $(PYTEST) tests/privacy/secagg/test_secagg_encoding.py -k moment

FOUND = $(BIN)/python -c "import numpy; print(*numpy.show_config(mode='dicts')['SIMD Extensions']['found'], sep='\n')"
test-processors: $(STAMP)  ## the tests as if this processor were older: without AVX, and with AVX2 at most; takes twice as long
	NPY_DISABLE_CPU_FEATURES="$$($(FOUND))" OPENBLAS_CORETYPE=Nehalem \
	    ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE $(PYTEST) --ignore=tests/network
	NPY_DISABLE_CPU_FEATURES="$$($(FOUND) | grep AVX512)" OPENBLAS_CORETYPE=Zen \
	    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2 $(PYTEST) --ignore=tests/network

lint: $(STAMP) $(TOOLS)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=algorithms $(TOOLS)/bin/lint-imports
	$(BIN)/mypy
	for platform in win32 darwin; do $(BIN)/mypy --platform $$platform --cache-dir .mypy_cache/$$platform algorithms || exit 1; done
	$(SITE)

docs: $(STAMP)  ## the documentation, in site/
	$(SITE)

data: $(STAMP)  ## the data of all benchmarks from their homes
	$(BIN)/python -m benchmarks download --data $(DATA)

bench: $(STAMP)  ## reduced benchmarks of all documents, anew: make bench DATA=FOLDER, with mnist.npz, ...
	rm -rf runs/bench
	$(BIN)/python -m benchmarks all --data $(DATA) --out runs/bench

peers:  ## environments of pfl-research and Flower, beside which `python -m benchmarks speed` measures
	for peer in "pfl pfl[pytorch]==0.6.0" "flower flwr[simulation]==1.42.0"; do set -- $$peer; \
	    $(PYTHON) -m venv .venv-$$1 && .venv-$$1/bin/python -m pip install --quiet --disable-pip-version-check \
	        "$$2" torch==2.13.0 || exit 1; \
	done

images: $(VENV)/.demo  ## the Docker images of all methods; BASE=python@sha256:DIGEST sets what they begin with, PUSH=REGISTRY pushes
	$(BIN)/python docker/build.py $(if $(BASE),--python $(BASE)) $(if $(PUSH),--push $(PUSH))

NAMES_V5 ?= $(addprefix v6-,cox gbdt glm km pca)
images-v5: $(STAMP_V5)  ## the images for vantage6 5 of the methods without torch, or of NAMES_V5; PUSH=REGISTRY pushes them
	$(VENV_V5)/bin/python docker/build.py $(NAMES_V5) $(if $(PUSH),--push $(PUSH))

# What images install, with hashes. torch, whose wheels differ by index, and what CUDA's need are left out (docker/Dockerfile).
requirements: $(TOOLS)/.installed  ## docker/requirements/ from pyproject.toml and constraints.txt; UPGRADE=--upgrade takes what is newest
	for kind in numpy torch; do \
	    extra="--extra $$kind" file="docker/requirements/$$kind.txt"; test $$kind != numpy || extra=; \
	    echo vantage6-algorithm-tools \
	    | $(TOOLS)/bin/uv pip compile --quiet $(UPGRADE) pyproject.toml - $$extra --constraints constraints.txt --generate-hashes \
	        --universal --python-version 3.10 --no-annotate --custom-compile-command "make requirements" -o $$file \
	    && awk '/^[^ ]/ {keep = !/^(torch|triton|cuda-|nvidia-)/} keep' $$file > $$file.kept && mv $$file.kept $$file \
	    || exit 1; \
	done
	$(TOOLS)/bin/uv pip compile --quiet docker/infrastructure.constraints.txt --no-deps --generate-hashes --python-version 3.10 \
	    --no-annotate --custom-compile-command "make requirements" -o docker/infrastructure.requirements.txt
	$(TOOLS)/bin/uv pip compile --quiet docker/five/constraints.txt --no-deps --generate-hashes --python-version 3.13 \
	    --no-annotate --custom-compile-command "make requirements" -o docker/five/requirements.txt

network: images  ## a real vantage6 network of three nodes on this machine
	$(BIN)/v6-federated network up --nodes 3 --data digits --partition iid

wheel: $(VENV)/.demo  ## the package for pip, in dist/
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

version: $(VENV)/.demo
	@$(BIN)/python -c "from v6_federated.base.version import __version__; print(__version__)"

hooks: $(STAMP) $(TOOLS)/.installed  ## the checks of make lint before each commit
	$(BIN)/pre-commit install

clean:
	rm -rf $(VENV) .venv-* build site *.egg-info algorithms/*.egg-info runs/bench
