# make setup | train | test | test-browser | test-slow | campaign | bench; ARGS passes flags on, EXTRAS=bench adds the peers we measure against
PYTHON ?= python3
EXTRAS ?=
ARGS ?=
MINUTES ?= 60
SEED ?= 1
VENV := .venv
BIN := $(VENV)/bin
PONG := --recipe pong
# what says in ARGS that something else is to be trained
OTHER := $(foreach flag,config recipe env env.id model algo,--$(flag) --$(flag)=%)
EMPTY :=
COMMA := ,
INSTALL := tensorboard,dev$(if $(EXTRAS),$(COMMA)$(EXTRAS),$(EMPTY))
STAMP := $(VENV)/.installed-$(subst $(COMMA),-,$(INSTALL))

.PHONY: setup train test check unit-parts unit-runs test-browser test-slow slow-parts slow-faults campaign format bench chromium

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Redline needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(INSTALL)]'
	touch $@

train: setup
	$(BIN)/redline train $(if $(filter $(OTHER),$(ARGS)),,$(PONG)) $(ARGS)

# two at a time, all in one with ARGS: most tests leave the second core alone; the shortest comes last and fills what the others leave
test: setup
ifeq ($(strip $(ARGS)),)
	$(MAKE) --jobs 2 --no-print-directory unit-runs unit-parts check
else
	$(BIN)/pytest $(ARGS)
	$(MAKE) --no-print-directory check
endif

check: setup
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/mypy benchmarks/*.py
	$(BIN)/lint-imports
	$(BIN)/python benchmarks/tables.py --check

unit-parts: setup
	$(BIN)/pytest --ignore tests/runtime --ignore tests/cli

unit-runs: setup
	$(BIN)/pytest tests/runtime tests/cli

test-browser: setup chromium
	$(BIN)/pytest -m browser tests/browser $(ARGS)

# Debian's, where nobody has installed one and we may
chromium:
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium; \
	else \
		echo 'make test-browser needs Chromium: sudo apt-get install chromium' >&2; exit 1; \
	fi

# two at a time here too: half of the minutes is waiting for what was killed; with Ray, whose tests need root too
test-slow:
	$(MAKE) --no-print-directory setup EXTRAS=ray
ifeq ($(strip $(ARGS)),)
	$(MAKE) --jobs 2 --no-print-directory slow-parts slow-faults
else
	$(BIN)/pytest -m slow --timeout 3600 $(ARGS)
endif

slow-parts: setup
	$(BIN)/pytest -m slow --timeout 3600 --ignore tests/slow

slow-faults: setup
	$(BIN)/pytest -m slow --timeout 3600 tests/slow

# goes on where the last one of this seed and version ended
campaign: setup
	$(BIN)/python benchmarks/campaign.py --minutes $(MINUTES) --seed $(SEED) --rows campaign-$(SEED).jsonl $(ARGS)

format: setup
	$(BIN)/ruff format src tests benchmarks
	$(BIN)/ruff check --fix src tests benchmarks

bench:
	$(MAKE) setup EXTRAS=bench
	$(BIN)/python benchmarks/speed.py $(or $(ARGS),dqn --against sb3)
