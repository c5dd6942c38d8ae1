# What you can do with co2, from a fresh clone on a fresh Debian 12. Every target sees to what it needs: packages that
# are missing are installed (scripts/setup), the build is configured and brought up to date (scripts/build).
#
# ARGS reaches the program that a target runs:   make train ARGS="--workers 4 --strategy ddp"
#                                                make test ARGS="-R sync"
# CO2_NO_PACKAGES=1 leaves the system's packages alone, where they come another way than by apt-get.
# CO2_PYTHON=/path/to/python names a Python whose torch is used instead of installing one into .venv.
ARGS ?=
PREFIX ?= /usr/local
SOURCES = $(shell git ls-files '*.h' '*.cc')
# Two at a time, but for those that measure how long something takes, which are RUN_SERIAL.
CTEST = ctest --parallel 2 --output-on-failure --no-tests=error --timeout 900

.DEFAULT_GOAL := help
.PHONY: help setup build train test test-torch test-kill bench results asan tsan fuzz format tidy install clean

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

setup: ## install what is missing: Debian packages, and torch in .venv
	@scripts/setup

build: setup ## build the program, build/co2, and the library
	@scripts/build release co2 co2_program

train: build ## train a small GPT on the workers of this machine (two minutes)
	build/co2 train $(ARGS)

test: ## build everything and run all tests
	@scripts/setup --tests
	@scripts/build release
	cd build && $(CTEST) $(ARGS)

# Not in CI: the ordinary torch is 3 GB.
test-torch: ## test with another torch, end to end, in an environment of its own: TORCH=2.15.0
	@scripts/test_torch $(TORCH)

test-kill: ## kill a run at KILLS (50) random moments, and see that it goes on to the same bytes each time
	@scripts/setup --tests
	@scripts/build release co2_program
	cd build && CO2_KILLS=$(or $(KILLS),50) $(CTEST) -R cli_resume $(ARGS)

bench: setup ## run the benchmarks
	@scripts/build release
	scripts/bench $(ARGS)

results: build ## make docs/results.md and its pictures from the results of studies
	@scripts/results

asan: ## run the unit tests with the address and undefined-behaviour sanitizers
	@scripts/setup --tests
	@scripts/build asan unit_tests
	cd build-asan && ../scripts/sanitized $(CTEST) -L unit $(ARGS)

tsan: ## run the unit tests with the thread sanitizer
	@scripts/setup --tests
	@scripts/build tsan unit_tests
	cd build-tsan && ../scripts/sanitized $(CTEST) -L unit $(ARGS)

fuzz: ## feed the readers of files with nonsense, FUZZ_SECONDS (60) for each of them
	@scripts/setup --tools
	scripts/fuzz $(ARGS)

format: ## format all sources in place
	@scripts/setup --tools
	clang-format -i $(SOURCES)

tidy: ## look for mistakes with clang-tidy (several minutes)
	@scripts/setup --tools
	@scripts/build dev
	scripts/tidy $(ARGS)

# Builds nothing: as root it would leave files in the build that you could no longer replace.
install: ## install library, headers and program, after make build, under PREFIX (/usr/local)
	@test -x build/co2 || { echo "co2: there is nothing to install yet; first, as yourself: make build" >&2; exit 1; }
	cmake --install build --prefix "$(PREFIX)"

clean: ## remove what was built; .venv* and runs stay
	rm -rf build build-dev build-asan build-tsan build-fuzz build-torch-*
