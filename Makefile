# Every target sets itself up in .venv on a fresh machine with Python 3.11, Java 17, Maven and make.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ONLY ?=

.PHONY: help run test check types bench abuse faults sim setup clean

help:
	@echo "make run     see a broker work end to end"
	@echo "make test    check the code and run every test"
	@echo "make check   ruff, mypy, import contracts only"
	@echo "make types   regenerate the message types after a change to a table in wire/schema"
	@echo "make bench   compare with Apache Kafka (ONLY=B1,B3 runs a part)"
	@echo "make sim     simulate clusters in which things go wrong, for ten minutes (MINUTES=60 for longer)"
	@echo "make abuse   damage and abuse a broker, and measure the effect on healthy clients (ONLY=bomb runs a part)"
	@echo "make faults  inflict faults on a cluster under load, and judge what became of it (ONLY=leader-kills,pause runs a part)"

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml setup.py $(shell find src -name 'kernel.py' -o -name '*.pxd')
	@PYTHON="$(PYTHON)" ./scripts/prerequisites.sh python
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing tidelog and its test tools into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[test,bench,spark,schema]"
	@$(BIN)/python -m compileall -q src
	@touch $@

check: setup
	$(BIN)/ruff check src tests bench examples
	$(BIN)/ruff format --check src tests bench examples
	$(BIN)/mypy
	$(BIN)/lint-imports

types: setup
	@$(BIN)/python -m tidelog.wire.stub

test: check
	@./scripts/prerequisites.sh java
	@./scripts/prerequisites.sh maven
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not long" $(PYTEST_ARGS)
	$(if $(PYTEST_ARGS),,$(BIN)/python -m pytest --broker=cluster -m replicated tests/compat)
	$(if $(PYTEST_ARGS),,$(BIN)/python -m pytest -n 2 --layout=shared -m layouts tests/log tests/api tests/client tests/compat tests/cluster)

run: setup
	@./scripts/prerequisites.sh java
	@$(BIN)/python -m examples.run

bench: setup
	@./scripts/prerequisites.sh java
	@./scripts/prerequisites.sh maven
	@$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY))

# For as long as it is told: make sim MINUTES=60
sim: setup
	@$(BIN)/tidelog sim --minutes $(or $(MINUTES),10)

# Both run, whatever the first one finds.
abuse: setup
	@failed=0; \
	$(BIN)/python -m tests.faults.abuse_soak $(if $(ONLY),--only "$(ONLY)") || failed=1; \
	$(if $(ONLY),,$(BIN)/python -m tests.faults.damage_soak || failed=1;) \
	exit $$failed

faults: setup
	@./scripts/prerequisites.sh java
	@$(BIN)/python -m tests.faults.cluster_faults $(if $(ONLY),--only "$(ONLY)")

clean:
	rm -rf $(VENV) build .cache .mypy_cache .ruff_cache .pytest_cache
