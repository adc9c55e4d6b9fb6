# The front door. CMake does the work; `make help` lists what there is.
BUILD := build
JOBS := $(shell nproc)
PYTEST := /usr/bin/python3 -m pytest -q -p no:cacheprovider

.PHONY: all run ready test quick unit blackbox meta model sim lint fmt asan tsan clang fuzz bench docs install clean help

all: $(BUILD)/build.ninja ## Release build: build/hapax, build/libhapax.so
	@cmake --build $(BUILD)

$(BUILD)/build.ninja:
	@dev/deps build
	@echo "configuring"
	@cmake --preset release >/dev/null

ready:
	@dev/deps test

run: $(BUILD)/build.ninja ## Everything set up, the gateway in front of a sample shop; TO=URL for your own API
	@cmake --build $(BUILD) --target hapax
	@dev/run $(TO)

test: ready ## Everything set up and every test; what CI calls
	@$(MAKE) --no-print-directory all quick postgres model sim blackbox drill crash clang asan tsan
	@$(MAKE) --no-print-directory ha KILLS=1
	@$(MAKE) --no-print-directory fault PLACES=12
	@$(MAKE) --no-print-directory soak MIN=0.6

quick: unit meta ## Unit and meta tests, under 30 s

unit: ready all
	@ctest --test-dir $(BUILD) -L unit -j $(JOBS) --output-on-failure --no-tests=error

.PHONY: postgres
postgres: ready all ## The store on PostgreSQL, beside a server of its own
	@ctest --test-dir $(BUILD) -L postgres -j $(JOBS) --output-on-failure --no-tests=error
	@HAPAX_BUILD=$(CURDIR)/$(BUILD) $(PYTEST) -n $(JOBS) tests/postgres

meta: ready all
	@$(PYTEST) tests/meta

blackbox: ready all ## The real binary against real servers
	@HAPAX_BUILD=$(CURDIR)/$(BUILD) $(PYTEST) -n $(JOBS) tests/blackbox

.PHONY: drill
drill: ready all ## `hapax drill` against servers that are wrong on purpose, each in one way
	@HAPAX_BUILD=$(CURDIR)/$(BUILD) $(PYTEST) -n $(JOBS) tests/drill

.PHONY: drill-others
drill-others: all ## `hapax drill` against libraries from npm over Redis; into docs/DRILL.md
	@dev/deps bench
	@HAPAX_BUILD=$(CURDIR)/$(BUILD) tests/drill/others.py --into docs/DRILL.md

model: ready ## The protocol of claims, every state of it, with spin
	@tests/model/check $(BUILD)/model

.PHONY: crash
crash: ready all ## Kill the gateway under load and cut its power, again and again: ROUNDS=200 SEED=… POWER=1 (cuts only) STORE=postgres KEEP=1
	@HAPAX_BUILD=$(CURDIR)/$(BUILD) $(PYTEST) -n $(JOBS) tests/crash
	@HAPAX_BUILD=$(CURDIR)/$(BUILD) tests/crash/crash.py $(if $(ROUNDS),--rounds $(ROUNDS)) \
	    $(if $(SEED),--seed $(SEED)) $(if $(POWER),--power) $(if $(filter postgres,$(STORE)),--postgres) \
	    $(if $(KEEP),--keep)

.PHONY: ha
ha: ready all ## Kill the primary of a PostgreSQL cluster (Patroni, etcd, HAProxy) under load: KILLS=5 SEED=… KEEP=1
	@HAPAX_BUILD=$(CURDIR)/$(BUILD) /usr/bin/python3 tests/ha/ha.py $(if $(KILLS),--kills $(KILLS)) \
	    $(if $(SEED),--seed $(SEED)) $(if $(KEEP),--keep)

.PHONY: fault
fault: ready all ## Fail every allocation and file operation in turn; PLACES=n: only about n of each sweep
	@HAPAX_FAULT_PLACES=$(PLACES) ctest --test-dir $(BUILD) -L fault -j $(JOBS) --output-on-failure --no-tests=error

sim: all ## Engines on one store, seed by seed: SEEDS=10000, or SEED=n for one with its trace
	@$(BUILD)/tests/sim/sim $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),10000))

lint: all ## clang-tidy, shellcheck where present, formatting
	@dev/lint

fmt: ## Format every C file
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format -i

clang: ready ## Build with clang, too: its warnings count
	@cmake --preset clang >/dev/null && cmake --build build/clang

.PHONY: race soak
race: ready ## A minute of mixed load on the ThreadSanitizer build; a part of tsan
	@cmake --preset tsan >/dev/null && cmake --build build/tsan --target hapax
	@dev/sanitized race

MIN ?= 1
soak: ready all ## Mixed load with kills and restarts for MIN=1 minutes: does anything grow?
	@HAPAX_BUILD=$(CURDIR)/$(BUILD) /usr/bin/python3 tests/soak/soak.py --minutes $(MIN)

asan tsan: ready ## The whole suite under AddressSanitizer + UBSan, or ThreadSanitizer
	@cmake --preset $@ >/dev/null && cmake --build build/$@
	@dev/sanitized $@

fuzz: ready ## Fuzz one target: T=target [S=seconds]; without T, list them
	@dev/fuzz $(T) $(S)

bench: all ## Speed beside nginx and Redis, in one run: ONLY=all SECONDS=5 ROUNDS=3 STORE=postgres; see docs/BENCHMARKS.md
	@dev/deps bench
	@bench/run $(if $(STORE),--store $(STORE)) $(if $(ONLY),--only $(ONLY)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(ROUNDS),--rounds $(ROUNDS))

docs: all ## Regenerate docs/CONFIG.md, man pages and shell completion
	@dev/docs

install: $(BUILD)/build.ninja ## To /usr/local, or below DESTDIR=
	@cmake --build $(BUILD) --target hapax hapax_shared
	@cmake --install $(BUILD)

clean:
	@rm -rf $(BUILD)

help:
	@grep -hE '^[a-z -]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16
