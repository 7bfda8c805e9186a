# Two commands take a fresh clone to a working broker and to green tests:
#   make demo    make test
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST ?= $(BIN)/pytest

# Tests start hundreds of Python processes. Without files of bytecode each of them compiles the broker again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo docs pipeline containers check test verify nightly lint ruff mypy imports quick-tests tests coverage bench compat crash fuzz simulate clusters transactions compaction rebalances rounds kraft-rounds sanitize wheels clean

$(STAMP): pyproject.toml hatch_build.py $(wildcard protocol/speedups/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(STAMP)

# The demo needs a client and its records only, not the gigabyte of packages that the tests need.
demo: $(VENV)/.demo
	$(BIN)/barnabas demo

$(VENV)/.demo: pyproject.toml hatch_build.py $(wildcard protocol/speedups/*)
	test -f $(STAMP) || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --upgrade pip \
		&& $(BIN)/python -m pip install --quiet --editable '.[demo]'; }
	touch $(VENV)/.demo

# The documentation as a site with search, in build/site; a broken link is an error. No network is needed.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/site/index.html; with search: $(BIN)/mkdocs serve"

pipeline: $(STAMP)
	$(BIN)/barnabas spark pipeline

# Runs the compose files for real and checks what they promise; without a container engine it says so and fails.
containers: $(STAMP)
	$(BIN)/python docker/check

lint: ruff mypy imports

ruff: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

mypy: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

# Lint and types next to the unit tests of the protocol and the storage engine, in at most 90 seconds on two cores. mypy
# runs on one core. The tests that crash the storage engine at every step take half a minute and run in `make test`.
check: $(STAMP)
	$(MAKE) -j 2 lint quick-tests

QUICK := $(wildcard tests/test_architecture.py tests/test_language.py tests/test_kafka_names.py) tests/protocol tests/storage

quick-tests: $(STAMP)
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not verify and not nightly and not java' $(QUICK) \
		--ignore-glob='*/test_crash_*'

test: $(STAMP)
	$(MAKE) -j 2 lint tests

tests: $(STAMP)
	$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -m 'not verify and not nightly'

# Branch coverage of the product, with a floor. Processes that tests start are not measured. It takes twice as long as
# the tests without measurement, so CI runs it at night.
coverage: $(STAMP)
	mkdir -p build
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not verify and not nightly and not java' --cov \
		--cov-report=term:skip-covered --cov-fail-under=$${FLOOR:-91}

verify: $(STAMP)
	$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -m 'verify and not nightly'

# More of these shows: other versions and mechanisms, and long procedures.
nightly: $(STAMP)
	$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -m nightly

# The long shows. MINUTES bounds them, ROUNDS the kills of `crash` and the faults of `rounds` and `kraft-rounds`; FIRST is
# the seed to begin with.
simulate: $(STAMP)
	$(BIN)/python -m soak.sim --seeds 100000 --first $${FIRST:-0} --minutes $${MINUTES:-30}

clusters: $(STAMP)
	mkdir -p build
	$(BIN)/python -m soak.sim.cluster --seeds 5000 --minutes $${MINUTES:-60} --jobs 0 --progress build/clusters.json
	$(BIN)/python -m soak.sim.kraft --seeds 5000 --minutes $${MINUTES:-60} --jobs 0 --progress build/kraft.json
	$(BIN)/python -m soak.sim.share_groups --seeds 5000 --minutes $${MINUTES:-60} --jobs 0 --progress build/share-groups.json
	$(BIN)/python -m soak.sim.streams_groups --seeds 5000 --minutes $${MINUTES:-60} --jobs 0 --progress build/streams-groups.json

transactions: $(STAMP)
	mkdir -p build
	$(BIN)/python -m soak.sim.transactions --transactions 1000000 --minutes $${MINUTES:-60} --jobs 0 --progress build/transactions.json

crash: $(STAMP)
	BARNABAS_KILL_ROUNDS=$${ROUNDS:-200} $(BIN)/pytest -m verify tests/crash tests/storage/test_crash_points.py

fuzz: $(STAMP)
	$(BIN)/python -m soak.hostile --frames 1000000 --minutes $${MINUTES:-20} $${KIND:+--kind $$KIND}

compaction: $(STAMP)
	$(BIN)/python -m soak.cleaning --examples 100000 --minutes $${MINUTES:-60} --first $${FIRST:-0}

rebalances: $(STAMP)
	$(BIN)/python -m soak.groups --rebalances 100000 --minutes $${MINUTES:-60} --first $${FIRST:-0}

rounds: $(STAMP)
	$(BIN)/python -m soak.cluster --rounds $${ROUNDS:-100} --first $${FIRST:-0} --minutes $${MINUTES:-60}

kraft-rounds: $(STAMP)
	$(BIN)/python -m soak.kraft --rounds $${ROUNDS:-100} --first $${FIRST:-0} --minutes $${MINUTES:-60}

# AddressSanitizer and UndefinedBehaviorSanitizer over the compiled code: tests, then a mutation fuzz of MINUTES.
sanitize: $(STAMP)
	$(BIN)/python -m soak.sanitize --minutes $${MINUTES:-10} --first $${FIRST:-0}

bench: $(STAMP)
	mkdir -p build
	$(BIN)/python -m bench --rounds 5 --seconds 3 --warmup 3 --json build/bench.json
	$(BIN)/python -m bench --report build/bench.json --markdown docs/reference/benchmarks.md \
	  --plot docs/reference/growth.svg --overview docs/performance.svg

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
