# `make demo` and `make test` build their own virtual environment; nothing else has to be there but Python and make.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint clean

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

lint: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright

clean:
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache
