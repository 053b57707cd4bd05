# Everything a newcomer needs, each target complete from a fresh clone. `make help` lists them.
BUILD ?= build/release
JOBS ?= $(shell nproc)
# ccache takes part where precompiled headers are used only if it is told that this is fine.
export CCACHE_SLOPPINESS := pch_defines,time_macros
STAMP := build/.setup-done
TOOLCHAIN := build/.toolchain-ready
KJV := build/data/kjv.txt
REMAT := $(BUILD)/app/remat

.PHONY: help setup configure build demo test quick docs package wheel clean format

help:  ## What there is to make
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/make \1\t\2/' | expand -t 16

setup: $(STAMP)  ## Install what is missing: Debian packages; LibTorch and a solver for tests into .venv
# The folder is part of the rule: a .venv that was deleted is made anew.
$(STAMP): scripts/setup tests/python/requirements.txt $(if $(wildcard .venv),,missing-venv) | $(TOOLCHAIN)
	@scripts/setup
	@touch $@
# What the demo does without takes minutes to install.
$(TOOLCHAIN): scripts/setup $(if $(wildcard .venv),,missing-venv)
	@scripts/setup --build
	@mkdir -p build && touch $@
.PHONY: missing-venv
missing-venv:

# Without all that is installed for tests, CMake says that these will not run.
configure: $(if $(filter-out demo,$(MAKECMDGOALS)),$(STAMP),$(TOOLCHAIN))
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release --log-level=WARNING > /dev/null

build: configure  ## Compile everything into build/release
	@cmake --build $(BUILD) -j $(JOBS)

# The command alone: the tests and benchmarks would keep a newcomer waiting.
$(REMAT): configure
	@cmake --build $(BUILD) -j $(JOBS) --target remat_command

$(KJV): scripts/kjv | $(TOOLCHAIN)
	@scripts/kjv $@

demo: $(REMAT) $(KJV)  ## Train a GPT of 25 M parameters twice, plain and in 40% of its memory; compare every bit
	@$(REMAT) compare --model gpt --data $(KJV) --budget 40% --batch 16 --steps 10 $(DEMO_ARGS)

# Two tests at a time would otherwise burn both cores waiting for each other's threads.
test: build  ## Run every test
	@OMP_WAIT_POLICY=passive ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

quick: build  ## Run the quick tests
	@OMP_WAIT_POLICY=passive ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) -L quick

docs:  ## Build the documents as a site, build/docs/html/index.html; any warning is an error
	@scripts/docs

package: configure  ## Make Debian packages of the command and of the C++ library, in build/packages
	@cmake --build $(BUILD) -j $(JOBS) --target remat_packaged
	@cpack --config $(BUILD)/CPackConfig.cmake -B build/packages > /dev/null
	@rm -rf build/packages/_CPack_Packages; ls build/packages/*.deb

wheel: $(STAMP)  ## Make a wheel of the Python package for the torch in .venv, in build/wheels
	@scripts/wheel

clean:  ## Delete build/ (.venv stays)
	@rm -rf build

# Without a .clang-format there is no style to apply: then nothing is changed.
format:  ## Format every C++ file
	@git ls-files '*.cpp' '*.h' | xargs clang-format -i --style=file --fallback-style=none

# ---- For those who change remat: see CONTRIBUTING.md, and CMakePresets.json for what each configuration is. ----

.PHONY: dev asan ubsan tsan plan plan-only tidy long gpu cuda cuda-simulated bench table bench-table
dev:   ## Build and test with symbols and warnings as errors, in build/dev
asan:  ## Test under AddressSanitizer, in build/asan
ubsan: ## Test under UndefinedBehaviorSanitizer, in build/ubsan
tsan:  ## Test under ThreadSanitizer, in build/tsan
dev asan ubsan tsan: $(STAMP)
	@cmake --preset $@ --log-level=WARNING > /dev/null
	@cmake --build --preset $@ -j $(JOBS)
	@ctest --preset $@

plan: plan-only  ## Build and test planning and reports without torch (seconds)
plan-only:
	@cmake --preset $@ --log-level=WARNING > /dev/null
	@cmake --build --preset $@ -j $(JOBS)
	@ctest --preset $@

tidy: $(STAMP)  ## Run clang-tidy on the libraries and the command
	@command -v clang-tidy > /dev/null || { echo "tidy: clang-tidy is missing; install the package clang-tidy" >&2; exit 1; }
	@cmake --preset $@ --log-level=WARNING > /dev/null
	@cmake --build --preset $@ -j $(JOBS)

long: build  ## Run 24 models in turn for 10,000 steps, with failures (tests/python/long_run.py)
	@REMAT_LONG_RUNS=1 PYTHONPATH=$(BUILD)/python OMP_WAIT_POLICY=passive \
	  .venv/bin/python -m pytest -q -s -p no:cacheprovider tests/python/long_run_test.py

cuda: cuda-simulated  ## Run tests/cuda on a simulated CUDA runtime: make cuda VENV=(one whose torch has CUDA)
cuda-simulated:
	@scripts/cuda-simulated $(or $(VENV),$(error which virtual environment? make cuda-simulated VENV=/path))

gpu:   ## Make a bundle that tests and measures on a machine with a GPU: build/gpu/remat-gpu.tar.gz
	@scripts/gpu

bench: build  ## Measure time and memory against plain, into bench/results (about two hours)
	@.venv/bin/python bench/run.py --build $(BUILD)

table: bench-table  ## Put the newest measurements into docs/measured.md and README.md
bench-table:
	@bench/readme_table.py
