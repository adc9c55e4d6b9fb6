# The front door. CMake does the work; `make help` lists what there is.
BUILD := build
JOBS := $(shell nproc)
PYTEST := /usr/bin/python3 -m pytest -q -p no:cacheprovider

.PHONY: all run test quick unit blackbox meta lint fmt asan tsan clang bench docs install clean help

all: $(BUILD)/build.ninja ## Release build: build/hapax, build/libhapax.so
	@cmake --build $(BUILD)

$(BUILD)/build.ninja:
	@dev/deps build
	@cmake --preset release >/dev/null

run: all ## Everything set up, the gateway in front of a sample shop; TO=URL for your own API
	@dev/run $(TO)

test: ## Everything set up and every test; what CI calls
	@dev/deps test
	@$(MAKE) --no-print-directory all quick blackbox clang asan tsan

quick: all unit meta ## Unit and meta tests, under 30 s

unit: all
	@ctest --test-dir $(BUILD) -L unit -j $(JOBS) --output-on-failure --no-tests=error

meta: all
	@$(PYTEST) tests/meta

blackbox: all ## The real binary against real servers
	@HAPAX_BUILD=$(CURDIR)/$(BUILD) $(PYTEST) -n $(JOBS) tests/blackbox

lint: all ## clang-tidy, shellcheck where present, formatting
	@dev/lint

fmt: ## Format every C file
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format -i

clang: ## Build with clang, too: its warnings count
	@dev/deps test
	@cmake --preset clang >/dev/null && cmake --build build/clang

asan tsan: ## The whole suite under AddressSanitizer + UBSan, or ThreadSanitizer
	@dev/deps test
	@cmake --preset $@ >/dev/null && cmake --build build/$@
	@dev/sanitized $@

bench: all ## Speed beside nginx, in one run; see docs/BENCHMARKS.md
	@dev/deps bench
	@bench/run

docs: all ## Regenerate docs/CONFIG.md, man pages and shell completion
	@dev/docs

install: all
	@cmake --install $(BUILD)

clean:
	@rm -rf $(BUILD)

help:
	@grep -hE '^[a-z ]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16
