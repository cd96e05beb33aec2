# Both commands make the environment first, and find it there the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run gpu test lint docs dist clean
run: $(READY)
	$(BIN)/python -m collage_evo run configs/quickstart.yaml --overwrite

# The libraries that the plug-in for NVIDIA GPUs uses, some gigabytes of them.
gpu: $(READY)
	$(BIN)/python -m pip install --editable 'plugins/cuda[tvm,torch,cudnn,tensorrt]'

# Two at a time, whole files: more would disturb each other's measurements until they are taken again and again.
# The tests start hundreds of processes: where Python may not keep what it has compiled, each would compile anew.
test: lint
	@$(BIN)/python -m compileall -q collage_evo plugins tests
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

# The documents as a site. Sphinx reads docs/conf.py; each warning, such as a link that leads nowhere, is an error.
docs: $(VENV)/.docs
	$(BIN)/sphinx-build --quiet --fail-on-warning --fresh-env -c docs . build/docs
	@echo "the site is build/docs: open build/docs/index.html, or copy the folder to any host of static files"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/sizes.py

# What a release uploads: source distributions and wheels of the package and of the plug-ins that need no compiler.
dist: $(READY)
	rm -rf dist
	for source in . plugins/lanes plugins/cuda; do $(BIN)/python -m build --no-isolation --outdir dist $$source || exit 1; done
	$(BIN)/python -m twine check --strict dist/*

# What pip says counts only where it fails: its warnings are about a machine's settings, pages of them on some.
LOG := $(VENV)/pip.log
OR_SAY_WHY := > $(LOG) 2>&1 || { cat $(LOG) >&2; exit 1; }

# pnnx asks for PyTorch, but its converter of ONNX files does not use it: installed without dependencies.
$(READY): pyproject.toml plugins/lanes/pyproject.toml plugins/cuda/pyproject.toml requirements/pnnx.txt
	$(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV), which takes minutes the first time"
	@$(BIN)/python -m pip install --upgrade pip $(OR_SAY_WHY)
	@$(BIN)/python -m pip install --editable '.[cpu,dev]' $(OR_SAY_WHY)
	@$(BIN)/python -m pip install --editable plugins/lanes $(OR_SAY_WHY)
	@$(BIN)/python -m pip install --editable plugins/cuda $(OR_SAY_WHY)
	@$(BIN)/python -m pip install --no-deps --requirement requirements/pnnx.txt $(OR_SAY_WHY)
	touch $(READY)

# Not the libraries that models run in: the site needs none.
$(VENV)/.docs: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --editable '.[docs]' $(OR_SAY_WHY)
	touch $(VENV)/.docs

clean:
	rm -rf $(VENV) runs build dist
