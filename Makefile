# Two commands do all set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
FLOOR  ?= .venv-floor
CORE   := tests/estimators tests/flow tests/rows tests/storage tests/test_adapt.py tests/test_bad_input.py tests/test_eraser.py \
          tests/test_floor.py tests/test_invariants.py tests/test_rbig.py tests/test_sklearn.py
ATTACKS ?= 20000
SEED   ?= 0
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-floor test-slow fuzz lint format bench clean help

help:
	@echo "make demo       fit, erase and make counterfactuals on the data that ship with the package"
	@echo "make test       lint, types and the test suite"
	@echo "make test-floor the core tests with the oldest release of each core dependency (floor.txt)"
	@echo "make test-slow  the tests that take minutes"
	@echo "make fuzz       20,000 attacks on model files; ATTACKS=1000 SEED=7 for others"
	@echo "make bench      speed, as ratios to the bare matrix product and to other implementations"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[report]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.demo

# scikit-learn 1.6 is older than pytest 9 and the newer releases of polars.
$(FLOOR)/.floor: pyproject.toml floor.txt
	$(PYTHON) -m venv $(FLOOR)
	$(FLOOR)/bin/python -m pip install --quiet --disable-pip-version-check -c floor.txt -e . 'pytest<9' pytest-xdist \
	    matplotlib pandas 'polars<1.20' safetensors
	@touch $@

$(VENV)/.bench: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[test]'
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/mute demo --output demo

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow" --durations=15

test-floor: $(FLOOR)/.floor
	$(FLOOR)/bin/python -m pytest -n 2 --dist worksteal -m "not slow" --ignore tests/rows/test_sources_memory.py $(CORE)

test-slow: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist worksteal -m slow

fuzz: $(VENV)/.dev
	$(BIN)/python tests/attack.py $(ATTACKS) --seed $(SEED)

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/round_trip.py
	$(BIN)/python benchmarks/rivals.py
	$(BIN)/python benchmarks/distill.py speed
	$(BIN)/python benchmarks/distill.py faithful
	$(BIN)/python benchmarks/audit.py
	$(BIN)/python benchmarks/shrinkage.py
	$(BIN)/python benchmarks/large_fit.py
	$(BIN)/python benchmarks/out_of_core.py
	$(BIN)/python benchmarks/torch_engine.py

clean:
	rm -rf $(VENV) $(FLOOR) demo .pytest_cache .mypy_cache .ruff_cache
