# Everything a newcomer needs, each target complete from a fresh clone. `make help` lists them.
BUILD ?= build/release
JOBS ?= $(shell nproc)
STAMP := build/.setup-done
KJV := build/data/kjv.txt
REMAT := $(BUILD)/cli/remat

.PHONY: help setup build demo test quick clean format

help:  ## What there is to make
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/make \1\t\2/' | expand -t 16

setup: $(STAMP)  ## Install what is missing: Debian packages, and LibTorch into .venv
# The folder is part of the rule: a .venv that was deleted is made anew.
$(STAMP): scripts/setup $(if $(wildcard .venv),,missing-venv)
	@scripts/setup
	@mkdir -p build && touch $@
.PHONY: missing-venv
missing-venv:

build: $(STAMP)  ## Compile everything into build/release
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release --log-level=WARNING > /dev/null
	@cmake --build $(BUILD) -j $(JOBS)

$(KJV): scripts/kjv | $(STAMP)
	@scripts/kjv $@

demo: build $(KJV)  ## Train a GPT twice, plain and in 40% of its memory, and compare every bit (about 4 minutes)
	@$(REMAT) compare --model gpt --data $(KJV) --budget 40% $(DEMO_ARGS)

# Two tests at a time would otherwise burn both cores waiting for each other's threads.
test: build  ## Run every test
	@OMP_WAIT_POLICY=passive ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

quick: build  ## Run the quick tests
	@OMP_WAIT_POLICY=passive ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) -L quick

clean:  ## Delete build/ (.venv stays)
	@rm -rf build

# Without a .clang-format there is no style to apply: then nothing is changed.
format:  ## Format every C++ file
	@git ls-files '*.cpp' '*.h' | xargs clang-format -i --style=file --fallback-style=none
