# Every target makes its own .venv first; Python 3.11 and make are all it needs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# vantage6 5 asks for Python 3.13, for which torch has no wheel for CPUs: there, methods without torch are tested. Methods
# with torch are tested on the Python of the other tests, on which vantage6 5 runs although it does not say so.
PYTHON_V5 ?= $(shell for p in python3.13 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.13.*/bin/python3.13; do \
	"$$p" -c "" 2>/dev/null && command -v "$$p" && break; done)
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

.PHONY: demo test test-v5 test-v5-torch network-v5 coverage test-long lint docs data bench peers images images-v5 requirements network wheel version hooks clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[vantage6-4,torch,cli,bench,docs,test,lint]"
	touch $@

demo: $(STAMP)  ## five mock hospitals: federated, centralized, and each alone
	$(BIN)/v6-federated demo

test: $(STAMP)  ## the tests, on all processors or WORKERS=N; those on a real network are skipped where there is no Docker
	$(PYTEST)

$(STAMP_V5): pyproject.toml constraints.txt
	@test -n "$(PYTHON_V5)" || { echo "no python3.13 here; name one: make $(MAKECMDGOALS) PYTHON_V5=PATH" >&2; exit 2; }
	$(PYTHON_V5) -m venv $(VENV_V5)
	$(VENV_V5)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[vantage6-5,cli,bench,test]"
	touch $@

test-v5: $(STAMP_V5)  ## on vantage6 5 with Python 3.13: the methods without torch, and what all methods share
	$(VENV_V5)/bin/python -m pytest -n $(WORKERS) --dist loadgroup $(TESTS_V5)

network-v5: $(STAMP_V5)  ## the tests on a real network of vantage6 5, which need Docker
	REQUIRE_DOCKER=1 $(VENV_V5)/bin/python -m pytest -n 1 --dist loadgroup tests/network

$(STAMP_V5_TORCH): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV_V5_TORCH)
	$(VENV_V5_TORCH)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[vantage6-4,torch,cli,test]"
	$(VENV_V5_TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --ignore-requires-python --no-deps \
	    $$(sed -n "s/; python_version >= .3.13.$$//p" constraints.txt | grep "^vantage6-")
	$(VENV_V5_TORCH)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt httpx python-keycloak
	touch $@

test-v5-torch: $(STAMP_V5_TORCH)  ## on vantage6 5: the methods with torch
	$(VENV_V5_TORCH)/bin/python -m pytest -n $(WORKERS) --dist loadgroup tests/methods tests/models

coverage: $(STAMP)  ## the tests, and which lines they run; takes twice as long
	$(PYTEST) --cov

test-long: $(STAMP)  ## what takes long: tests marked so, 1000 federations, 200 schedules of faults a method, 3000 changed messages
	$(PYTEST) -m long
	COVERAGE_FEDERATIONS=1000 $(PYTEST) tests/workbench/reporting/test_intervals.py
	FAULT_SCHEDULES=200 $(PYTEST) tests/methods -k faults
	MUTATED_PAYLOADS=3000 $(PYTEST) tests/messages/test_mutated_payloads.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
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

images: $(STAMP)  ## the Docker images of all methods; BASE=python@sha256:DIGEST sets what they begin with, PUSH=REGISTRY pushes
	$(BIN)/python docker/build.py $(if $(BASE),--python $(BASE)) $(if $(PUSH),--push $(PUSH))

NAMES_V5 ?= $(addprefix v6-,cox gbdt glm km pca)
images-v5: $(STAMP_V5)  ## the images for vantage6 5 of the methods without torch, or of NAMES_V5; PUSH=REGISTRY pushes them
	$(VENV_V5)/bin/python docker/build.py $(NAMES_V5) $(if $(PUSH),--push $(PUSH))

# What images install, with hashes. torch, whose wheels differ by index, and what CUDA's need are left out (docker/Dockerfile).
requirements: $(STAMP)  ## docker/requirements/ from pyproject.toml and constraints.txt; UPGRADE=--upgrade takes what is newest
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	for kind in numpy torch; do \
	    extra="--extra $$kind" file="docker/requirements/$$kind.txt"; test $$kind != numpy || extra=; \
	    echo vantage6-algorithm-tools \
	    | $(BIN)/uv pip compile --quiet $(UPGRADE) pyproject.toml - $$extra --constraints constraints.txt --generate-hashes \
	        --universal --python-version 3.10 --no-annotate --custom-compile-command "make requirements" -o $$file \
	    && awk '/^[^ ]/ {keep = !/^(torch|triton|cuda-|nvidia-)/} keep' $$file > $$file.kept && mv $$file.kept $$file \
	    || exit 1; \
	done
	$(BIN)/uv pip compile --quiet docker/infrastructure.constraints.txt --no-deps --generate-hashes --python-version 3.10 \
	    --no-annotate --custom-compile-command "make requirements" -o docker/infrastructure.requirements.txt
	$(BIN)/uv pip compile --quiet docker/five/constraints.txt --no-deps --generate-hashes --python-version 3.13 \
	    --no-annotate --custom-compile-command "make requirements" -o docker/five/requirements.txt

network: $(STAMP) images  ## a real vantage6 network of three nodes on this machine
	$(BIN)/v6-federated network up --nodes 3 --data digits --partition iid

wheel: $(STAMP)  ## the package for pip, in dist/
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

version: $(STAMP)
	@$(BIN)/python -c "from v6_federated.base.version import __version__; print(__version__)"

hooks: $(STAMP)  ## the checks of make lint before each commit
	$(BIN)/pre-commit install

clean:
	rm -rf $(VENV) build site *.egg-info algorithms/*.egg-info runs/bench
