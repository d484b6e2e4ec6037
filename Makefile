# Two commands need nothing but Python 3.11+ and Java 17+: `make demo` and `make test`.

# Where it is set, each process that a test starts would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A file's tests run one after the other, and three files beside each other on two processors,
# of which one waits for brokers and Spark: tests/support/distribution.py.
AT_ONCE ?= -n 3 --dist loadfile --no-loadscope-reorder
# Of these folders nothing is in `make test`.
ELSEWHERE = --ignore tests/cdc --ignore tests/deploy
# A file of these starts up to six servers.
CDC_AT_ONCE ?= -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: help setup demo prepared test test-long test-full cdc-jars test-cdc deploy-tools test-deploy test-release test-cluster docs distributions check sanitized lint format types audit bench chaos clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml $(wildcard compiled/*.pyx compiled/*.pxd)
	@$(PYTHON) -c 'import sys; sys.exit("ikebana needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0] + "; name another one with make PYTHON=...") if sys.version_info < (3, 11) else None'
	@echo "making $(VENV): fetching what pyproject.toml names, some 600 MB the first time"
	$(PYTHON) -m venv $(VENV)
	@# Python compiles what is imported; to compile all of it would take half a minute.
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile --editable '.[dev]'
	@touch $(STAMP)

setup: $(STAMP)  ## Make the virtual environment in .venv

demo: $(STAMP)  ## Run the main job on a year of flights and check the result
	@$(BIN)/ikebana demo

# What starts Spark often starts it from an archive of its classes, with half the CPU time.
$(VENV)/.prepared: $(STAMP)
	$(BIN)/ikebana prepare || true
	@touch $@

prepared: $(VENV)/.prepared

test: $(VENV)/.prepared  ## Run the tests, with an embedded broker and Spark
	$(BIN)/python -m pytest $(AT_ONCE) $(ELSEWHERE) -m "not cdc and not deploy and not full and not long"

# 2/3 is the second of three parts.  To collect the other files takes a minute.
PART ?= 1/1

test-long: $(VENV)/.prepared  ## Run whole lives of pipelines, with faults and edits, and browsers
	$(BIN)/python -m pytest $(AT_ONCE) -m "long and not full" --part $(PART) $$(grep -rl 'mark\.long' tests --include='test_*.py' | sort)

test-full: $(VENV)/.prepared  ## Run those that take minutes: every fault, every example
	IKEBANA_HYPOTHESIS=$${IKEBANA_HYPOTHESIS:-usual} $(BIN)/python -m pytest $(AT_ONCE) -m "full and not cdc and not deploy" --part $(PART) $$(grep -rl 'mark\.full' tests --include='test_*.py' | sort)

cdc-jars: $(STAMP)  # What test-cdc would fetch otherwise, 540 MB
	PYTHONPATH=tests $(BIN)/python -m cdc

test-cdc: $(VENV)/.prepared  ## Run those with real databases, producers and a registry, where they are installed
	$(BIN)/python -m pytest $(CDC_AT_ONCE) -m cdc tests/cdc tests/kafka/test_registry.py

$(VENV)/.deploy: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[deploy]'
	@touch $@

deploy-tools: $(VENV)/.deploy  ## Build Helm, a Kubernetes control plane and an object store, once; needs Go, 20 minutes
	$(BIN)/python tests/deploy/tools.py all

test-deploy: $(VENV)/.deploy  ## Test image and chart, and on a real API server if there is one
	$(BIN)/python tests/deploy/tools.py chart
	$(BIN)/python -m pytest $(AT_ONCE) -m "deploy and not cluster and not full" tests/deploy

test-release: $(VENV)/.deploy  ## Build wheel and source distribution, and install each into an empty environment
	$(BIN)/python -m pytest -m "deploy and full" tests/deploy

test-cluster: deploy-tools  ## Run the demo pipeline on a cluster whose pods are lost; needs root
	$(BIN)/python -m pytest -s -m cluster tests/deploy

lint: $(STAMP)  ## Lint and check the format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)  ## Check types
	$(BIN)/mypy

docs: $(STAMP)  ## Build the documentation site in build/docs; a link that leads nowhere is an error
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs/site docs build/docs
	@echo "build/docs/index.html"

# A wheel for each Python that is named, such as PYTHONS="python3.11 python3.12 python3.13".
PYTHONS ?= $(BIN)/python

distributions: $(VENV)/.deploy  ## Build wheels and source distribution in dist, and try each in an empty environment
	$(BIN)/python deploy/distributions.py dist $(PYTHONS)

check: lint types test  ## Lint, types and tests; CI runs test-long, test-cdc and test-deploy as well

audit: $(STAMP)  ## Look the image's packages up among known vulnerabilities; needs pypi.org
	@test -x $(VENV)/audit/bin/pip-audit || ($(PYTHON) -m venv $(VENV)/audit && $(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1)
	@$(BIN)/python deploy/audit.py $(VENV)/audit/bin/pip-audit

bench: $(STAMP)  ## Measure the main job, pushdown, and kernels; about 40 minutes
	$(BIN)/python bench/upsert.py
	$(BIN)/python bench/pushdown.py
	$(BIN)/python bench/keyed.py

chaos: $(STAMP)  ## Bring about faults of every class, in each time domain, and judge
	PYTHONPATH=tests $(BIN)/python -m chaos scenarios --seeds 1-2 --report build/chaos.jsonl

# Where a loop in C reads or writes what is not its own, this says so.
sanitized: $(STAMP)  ## Run the tests of the compiled code under GCC's sanitizers of memory and of undefined behaviour
	rm -rf build/sanitized
	CFLAGS="-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined" \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --target build/sanitized .
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" PYTHONMALLOC=malloc \
	  ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=build/sanitized:tests \
	  $(BIN)/python -m pytest -q -p no:cacheprovider tests/property/test_compiled_*.py

clean:  ## Remove what the above made
	rm -rf $(VENV) build dist docs/reference .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
