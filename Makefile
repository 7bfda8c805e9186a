# Two commands take a fresh clone to a working broker and to green tests:
#   make demo    make test
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo pipeline containers test verify lint bench compat crash fuzz simulate clusters transactions compaction rebalances rounds wheels clean

$(STAMP): pyproject.toml hatch_build.py $(wildcard protocol/speedups/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/barnabas demo

pipeline: $(STAMP)
	$(BIN)/barnabas spark pipeline

# Runs the compose files for real and checks what they promise; without a container engine it says so and fails.
containers: $(STAMP)
	$(BIN)/python docker/check

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(STAMP) lint
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not verify'

verify: $(STAMP)
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m verify

# The long shows. MINUTES bounds them, ROUNDS the kills of `crash` and the faults of `rounds`; FIRST is the seed to begin with.
simulate: $(STAMP)
	$(BIN)/python -m tests.sim --seeds 100000 --first $${FIRST:-0} --minutes $${MINUTES:-30}

clusters: $(STAMP)
	mkdir -p build
	$(BIN)/python -m tests.sim.cluster --seeds 5000 --minutes $${MINUTES:-60} --jobs 0 --progress build/clusters.json

transactions: $(STAMP)
	mkdir -p build
	$(BIN)/python -m tests.sim.transactions --transactions 1000000 --minutes $${MINUTES:-60} --jobs 0 --progress build/transactions.json

crash: $(STAMP)
	BARNABAS_KILL_ROUNDS=$${ROUNDS:-200} $(BIN)/pytest -m verify tests/crash tests/storage/test_crash_points.py

fuzz: $(STAMP)
	$(BIN)/python -m tests.hostile --frames 1000000 --minutes $${MINUTES:-20} $${WHO:+--who $$WHO}

compaction: $(STAMP)
	$(BIN)/python -m tests.cleaning --examples 100000 --minutes $${MINUTES:-60} --first $${FIRST:-0}

rebalances: $(STAMP)
	$(BIN)/python -m tests.server.coordinator.group --rebalances 100000 --minutes $${MINUTES:-60} --first $${FIRST:-0}

rounds: $(STAMP)
	$(BIN)/python -m tests.cluster --rounds $${ROUNDS:-100} --first $${FIRST:-0} --minutes $${MINUTES:-60}

bench: $(STAMP)
	mkdir -p build
	$(BIN)/python -m tests.bench --rounds 5 --seconds 3 --warmup 3 --json build/bench.json
	$(BIN)/python -m tests.bench --report build/bench.json --markdown docs/performance.md --plot docs/performance.svg

compat: $(STAMP)
	BARNABAS_WRITE_REPORT=1 $(BIN)/pytest tests/compat

# An sdist, and wheels with compiled code for Python 3.11 and later: glibc 2.17 and musl, x86_64 and arm64. Zig is the
# compiler, a package like others, and compiles for all of them. BARNABAS_REPOSITORY makes links in the README whole.
WHEELS := x86_64-linux-gnu.2.17=manylinux_2_17_x86_64 aarch64-linux-gnu.2.17=manylinux_2_17_aarch64 \
	x86_64-linux-musl=musllinux_1_2_x86_64 aarch64-linux-musl=musllinux_1_2_aarch64

wheels: $(STAMP)
	rm -rf dist
	$(BIN)/python -m pip install --quiet 'ziglang>=0.17'
	$(BIN)/python -m hatchling build -t sdist
	set -e; for wheel in $(WHEELS); do \
		CC="$(abspath $(BIN))/python -m ziglang cc -target $${wheel%=*} -s" \
		BARNABAS_WHEEL_PLATFORM=$${wheel#*=} $(BIN)/python -m hatchling build -t wheel; done

clean:
	rm -rf $(VENV) .cache build dist .hypothesis .mypy_cache .ruff_cache .import_linter_cache
