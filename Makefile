# Both commands make the environment first, and find it there the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test lint clean
run: $(READY)
	$(BIN)/python -m collage_evo run configs/quickstart.yaml --overwrite

test: $(READY)
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# pnnx asks for PyTorch, but its converter of ONNX files does not use it: installed without dependencies.
$(READY): pyproject.toml requirements/pnnx.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[cpu,dev]'
	$(BIN)/python -m pip install --quiet --no-deps --requirement requirements/pnnx.txt
	touch $(READY)

clean:
	rm -rf $(VENV) runs
