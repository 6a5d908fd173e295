# make demo   what aikido is for, on this machine        ARGS="--json FILE"
#             as root: with hosts and a slow link between them, for a moment
# make test   C++ and Python tests                       ARGS="-k ddp" goes to pytest
# make docs   user documentation, in build/docs/index.html
# make stubs  types of the native module, aikido_torch/_C.pyi
# make wheel  a wheel in dist/, for environments with the same torch and Python
# make lint   what pre-commit runs
# make clean  removes .venv and build
# make help   this text
# demo and test set everything up, given Python 3.11+ with venv and a C++20 compiler,
# and skip what is done. TORCH="torch==2.13.*" builds against another torch, PYTHON=...
# with another interpreter.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo test docs stubs wheel lint clean help core-build core-test python-test

TORCH ?= torch==2.15.0
WHEELS ?= dist
CXX_USED = $(if $(filter default,$(origin CXX)),c++,$(CXX))
BIN := .venv/bin
DONE := .venv/done
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

SOURCES := $(shell find csrc cuda -type f 2>/dev/null) CMakeLists.txt setup.py \
           pyproject.toml

# What is downloaded comes while the core compiles, which does not need it.
demo: $(DONE)/tools
	$(MAKE) -j 2 $(DONE)/core $(TORCH_DONE)
	$(MAKE) $(if $(wildcard $(DONE)/native),$(DONE)/native,$(DONE)/lean)
	$(BIN)/python benchmarks/demo.py $(ARGS)

test: $(DONE)/tools
	$(MAKE) -j 2 core-build $(DONE)/test
	$(MAKE) core-test python-test docs

# Imports the package, whose docstrings and settings are part of the pages.
docs: $(DONE)/native $(DONE)/docs
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs
	@echo "make: the pages begin at build/docs/index.html"

stubs: $(DONE)/native $(DONE)/test
	PYTHONPATH=tests/python $(BIN)/python -m rules.stub

# Compiles only what the editable installation has not compiled yet.
wheel: $(TORCH_DONE)
	$(BIN)/pip wheel --no-build-isolation --no-deps --wheel-dir $(WHEELS) .

core-build: $(DONE)/tools $(DONE)/catch2 $(DONE)/ccache
	$(BIN)/cmake -G Ninja -S . -B build/core -DCMAKE_CXX_COMPILER=$(CXX_USED) \
	  -DAIKIDO_TORCH=OFF -DAIKIDO_TESTS=ON -DAIKIDO_BENCHMARKS=ON
	$(BIN)/cmake --build build/core --target all check_headers

core-test: core-build
	$(BIN)/ctest --test-dir build/core --output-on-failure -j 2

python-test: $(DONE)/native $(DONE)/test $(DONE)/docs core-test
	$(BIN)/python -m pytest --part=beside -n 2 --dist worksteal $(ARGS)
	$(BIN)/python -m pytest --part=waiting -n 2 --dist worksteal $(ARGS)
	$(BIN)/python -m pytest --part=alone $(ARGS)

lint: $(DONE)/native
	$(BIN)/pip install --quiet --no-build-isolation --editable ".[test,dev]"
	$(BIN)/pre-commit run --all-files

clean:
	rm -rf .venv build aikido_torch/_C.*.so *.egg-info

help:
	@sed -n 's/^# \?//p;/^SHELL/q' Makefile

# ---- Set-up, each step once -----------------------------------------------------------
$(DONE)/venv:
	@say() { echo "make: $$*" >&2; exit 1; }; \
	$(CXX_USED) --version >/dev/null 2>&1 || say "no C++ compiler ($(CXX_USED));" \
	  "install g++ 12 or newer (Debian: apt-get install g++), or set CXX."; \
	printf '%s\n' '#include <compare>' '#if !defined(__clang__) && __GNUC__ < 12' \
	  '#error old' '#endif' | \
	  $(CXX_USED) -std=c++20 -x c++ -fsyntax-only - 2>/dev/null || \
	  say "$(CXX_USED) is too old; C++20 is needed: g++ 12 or clang 14, or newer."; \
	for name in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	  if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then python=$$name; break; fi; \
	done; \
	[ -n "$${python:-}" ] || say "no Python 3.11 or newer; install one or set PYTHON."; \
	$$python -c 'import venv, ensurepip' 2>/dev/null || \
	  say "$$python has no venv module (Debian: apt-get install python3-venv)."; \
	$$python -c 'import os, sys, sysconfig as s; \
	  sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))' || \
	  say "$$python has no Python.h (Debian: apt-get install python3-dev)."; \
	$$python -m venv .venv
	mkdir -p $(DONE)
	touch $@

$(DONE)/tools: $(DONE)/venv
	$(BIN)/pip install --no-compile "setuptools>=64" wheel "cmake>=3.22" ninja
	touch $@

# What an extra of pyproject.toml lists, one a line.
extra = $(BIN)/python -c 'import sys, tomllib; \
  project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
  print(*project["optional-dependencies"][sys.argv[1]], sep="\n")'

# A different TORCH is a different step. Most of torch is never imported, and what is
# imported is compiled then: pip would spend half a minute on all of it.
TORCH_DONE := $(DONE)/$(shell printf %s '$(TORCH)' | tr -c 'a-zA-Z0-9.' _)
$(TORCH_DONE): $(DONE)/tools
	@echo "make: installing $(TORCH), which may take some minutes"
	@$(watched); $(extra) demo | \
	  $(BIN)/pip install --no-compile "$(TORCH)" --requirement /dev/stdin
	rm -f $(DONE)/torch* $(DONE)/native $(DONE)/lean $(DONE)/test $(DONE)/docs
	touch "$@"

# The core, where setup.py will build the extension: torch is not there yet.
$(DONE)/core: $(DONE)/tools $(SOURCES)
	@minor=$$(sed -nE 's/^torch==([0-9]+\.[0-9]+).*/\1/p' <<< "$(TORCH)"); \
	if [ -n "$$minor" ] && [ ! -e $(DONE)/native ]; then \
	  tag=$$($(BIN)/python -c 'import sys; print(sys.implementation.cache_tag)'); \
	  echo "make: compiling the core while torch comes"; \
	  $(BIN)/cmake -G Ninja -S . -B "build/$$tag-torch$$minor" \
	    -DAIKIDO_TORCH=OFF -DAIKIDO_CUDA=OFF -DAIKIDO_TESTS=OFF; \
	  $(BIN)/cmake --build "build/$$tag-torch$$minor" --target aikido_core; \
	fi
	touch $@

# On a machine without a device of NVIDIA, the demo alone does without its kernels: they
# would take a sixth of the time that it takes.
AIKIDO_CUDA ?= $(if $(filter %/lean,$@),$(if $(wildcard /dev/nvidiactl),,OFF))

$(DONE)/native $(DONE)/lean: $(TORCH_DONE) $(SOURCES)
	@echo "make: compiling the extension, which may take some minutes"
	@$(watched); AIKIDO_CUDA=$(AIKIDO_CUDA) \
	  $(BIN)/pip install --no-compile --no-build-isolation --editable .
	touch $@

$(DONE)/test $(DONE)/docs: $(TORCH_DONE) pyproject.toml
	@$(watched); $(extra) $(@F) | \
	  $(BIN)/pip install --no-compile --requirement /dev/stdin
	touch $@

# Says every 10 s that the command behind it is at work, and ends with it.
watched = (while sleep 10 >/dev/null 2>&1; do \
    echo "make: $$SECONDS s, .venv holds $$(du -sh .venv | cut -f 1)"; done) & \
  trap "kill $$!" EXIT

# The tests and the extension share a core, which is compiled once with it. Not needed.
$(DONE)/ccache: $(DONE)/catch2
	@if ! command -v ccache >/dev/null && [ "$$(id -u)" = 0 ] && \
	  command -v apt-get >/dev/null; then apt-get install -y -q ccache || true; fi
	touch $@

$(DONE)/catch2: $(DONE)/venv
	@found() { for file in catch.hpp \
	  catch_all.hpp; do echo "#include <catch2/$$file>" | $(CXX_USED) -std=c++20 \
	  -x c++ -E - >/dev/null 2>&1 && return 0; done; return 1; }; \
	if ! found && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get install -y -q catch2 || { apt-get update -q && \
	  apt-get install -y -q catch2; } || true; \
	fi; \
	found || { echo "make: the C++ tests need Catch2 2.13 or 3; install it (Debian:" \
	  "apt-get install catch2, Fedora: catch-devel)." >&2; exit 1; }
	touch $@
