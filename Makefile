# Every target makes its own .venv first; Python 3.11 and make are all it needs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DATA ?= data

.PHONY: demo test lint data bench images network clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[torch,lightgbm,cli,test,lint]"
	touch $@

demo: $(STAMP)  ## five mock hospitals: federated, centralized, and each alone
	$(BIN)/v6-federated demo

test: $(STAMP)  ## all tests; those on a real network are skipped where there is no Docker
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

data: $(STAMP)  ## MNIST, Fashion-MNIST, Shakespeare and Golub from their homes
	$(BIN)/python -m benchmarks download --data $(DATA)

bench: $(STAMP)  ## reduced benchmarks of all documents, anew: make bench DATA=FOLDER, with mnist.npz, ...
	rm -rf runs/bench
	$(BIN)/python -m benchmarks all --data $(DATA) --out runs/bench

images: $(STAMP)  ## the Docker images of all methods
	$(BIN)/python docker/build.py

network: $(STAMP) images  ## a real vantage6 network of three nodes on this machine
	$(BIN)/v6-federated network up --nodes 3 --data digits --split iid

clean:
	rm -rf $(VENV) build *.egg-info algorithms/*.egg-info runs/bench
