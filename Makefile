# Everything a fresh Linux machine with Python >= 3.11 and make needs. `make` alone lists the targets.
#
#   PYTHON=python3.12      the interpreter to use, with an environment of its own, .venv-python3.12 (default: the first
#                          of python3, python3.13, 3.12, 3.11 that is >= 3.11, in .venv); "newest" is the newest there is
#   TORCH_BACKEND=cpu      torch's small build without CUDA (also cu130, rocm..., as uv names them)
#   KAFKA_BOOTSTRAP_SERVERS=host:port   use this broker instead of starting one
#   MUTANTS="stream_engine.decision.gate.*"      the functions that `make mutants` changes (default: all that pyproject.toml names)
#   PYTEST_ARGS="-k board" passed to pytest
#   WORKERS=4              files of tests that run at a time (default 2; 0: one process, for a debugger)
#   CALIBRATE_ARGS="--windows 50 --simulated 500" passed to calibrate: fewer windows, sooner done
#   RECORDING=tests/recorded/2   where `make recording` writes

PYTHON ?=
TORCH_BACKEND ?=
PYTEST_ARGS ?=
WORKERS ?= 2
MUTANTS ?=
CALIBRATE_ARGS ?=
RECORDING ?=

UV := $(or $(shell command -v uv 2>/dev/null),.uv/bin/uv)
# A named interpreter has an environment of its own: the default one stays as it is.
VENV := .venv$(addprefix -,$(notdir $(PYTHON)))
BIN := $(VENV)/bin
# One stamp for each torch build: a change of TORCH_BACKEND installs again.
STAMP := $(VENV)/.installed-$(or $(TORCH_BACKEND),default)
# Packages that only torch's CUDA build needs; the universal lock names them for every Linux.
CUDA_ONLY := ^(cuda-(bindings|pathfinder|toolkit)|nvidia-(cu|nccl|nvjitlink|nvshmem|nvtx)[a-z0-9-]*|triton)==

export UV_PYTHON_DOWNLOADS := never

# Without what takes minutes: a broker, training, calibration.
QUICK := -m "not broker" --ignore tests/stream_engine/training --ignore tests/stream_engine/calibrate

# A file stays with one worker: what its tests share is made once.
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist loadfile

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup test quick coverage chaos demo calibrate-demo docs recording mutants lint types lock clean

help:
	@echo "make demo    set up, then real market data through a real Kafka, answered"
	@echo "make test    set up, then all tests, against a real broker"
	@echo "make quick   set up, then the tests that need no broker, training or calibration"
	@echo "make coverage   the quick tests, and the branches that they leave out; fails below the floor in pyproject.toml"
	@echo "make chaos   200 rounds of processes killed at random under load, with a report"
	@echo "make calibrate-demo   the gate's threshold on real and simulated bars, with plots, in runs/calibration"
	@echo "make docs    the documentation as pages, in site/; its generated parts written anew"
	@echo "make recording RECORDING=tests/recorded/2   what this version writes, for later versions to read"
	@echo "make mutants what no test would notice: changes of the code that survive; long, see CONTRIBUTING.md"
	@echo "make setup   the environment in .venv, from requirements.lock"
	@echo "make lint    ruff, the order of imports        make types   mypy --strict"
	@echo "make lock    requirements.lock from pyproject.toml"
	@echo "make clean   removes .venv, .uv and tool caches (not downloads)"
	@echo "Options: see the first lines of the Makefile."

setup: $(STAMP)

test: setup
	$(PYTEST) $(PYTEST_ARGS)

quick: setup
	$(PYTEST) $(QUICK) $(PYTEST_ARGS)

# Only there, because it makes the tests a sixth slower; what they start is measured as well.
coverage: setup
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -n $(WORKERS) --dist loadfile $(QUICK) $(PYTEST_ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

chaos: setup
	STREAM_ENGINE_CHAOS_ROUNDS=$${STREAM_ENGINE_CHAOS_ROUNDS:-200} \
	STREAM_ENGINE_CHAOS_SEED=$${STREAM_ENGINE_CHAOS_SEED:-random} $(BIN)/pytest -s --timeout 0 tests/integration/test_chaos.py

demo: setup
	$(BIN)/stream-engine demo

# The sample files that may lie beside a checkout are calibrated on as well, where they are there.
calibrate-demo: setup
	$(BIN)/stream-engine calibrate sample $(wildcard ../shared/data) --earlier-half --out runs/calibration \
		$(CALIBRATE_ARGS)

# mkdocs says in advance that its successor will differ; that is no fault of a page.
docs: setup
	$(BIN)/python -m docgen
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html"

recording: setup
	$(BIN)/python -m tests.recorded.record $(or $(RECORDING),$(error say where: make recording RECORDING=tests/recorded/2))

mutants: setup
	nice -n 15 $(BIN)/mutmut run --max-children 2 $(if $(MUTANTS),'$(MUTANTS)')
	@$(BIN)/mutmut results | grep -v 'not checked' || echo "None survives."

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: setup
	$(BIN)/mypy

lock: | $(filter .uv/bin/uv,$(UV))
	$(UV) pip compile --quiet --universal --all-extras --no-emit-index-url --no-annotate --python-version 3.11 \
		pyproject.toml -o requirements.lock

clean:
	rm -rf .venv .venv-* .uv site mutants .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Prints the interpreter to use, or says what is missing. A name that exists may still not run: pyenv's shims do so
# where its version is not chosen, and then its folder is looked into.
CANDIDATES := $(if $(filter newest,$(PYTHON)),python3.13 python3.12 python3.11,$(or $(PYTHON),python3 python3.13 python3.12 python3.11))
define FIND_PYTHON
find_python() { \
	for name in $(CANDIDATES); do \
		for each in "$$name" "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/*/bin/"$$name"; do \
			if "$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
				"$$each" -c 'import sys; print(sys.executable)'; return; \
			fi; \
		done; \
	done; \
	echo "Python 3.11 or newer is needed; tried: $(CANDIDATES)." >&2; \
	echo "Debian, Ubuntu: sudo apt-get install python3 python3-venv (or python3.11 python3.11-venv)." >&2; \
	echo "Fedora: sudo dnf install python3. Elsewhere: make PYTHON=/path/to/python3.12 ..." >&2; \
	return 1; \
}
endef

.uv/bin/uv:
	@$(FIND_PYTHON); python=$$(find_python) || exit 1; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
		version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		echo "This Python cannot make virtual environments: sudo apt-get install python$$version-venv" >&2; exit 1; \
	fi; \
	echo "Installing uv into .uv"; \
	"$$python" -m venv --clear .uv && .uv/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9' || { \
		rm -rf .uv; \
		echo "Could not install uv. Is the package index reachable (HTTPS_PROXY, PIP_INDEX_URL)? Then run make again." >&2; \
		exit 1; \
	}

$(BIN)/python: | $(filter .uv/bin/uv,$(UV))
	@$(FIND_PYTHON); python=$$(find_python) || exit 1; \
	$(UV) venv --quiet --clear --python "$$python" $(VENV)

$(STAMP): requirements.lock pyproject.toml | $(BIN)/python
	@rm -f $(VENV)/.installed-*
ifeq ($(TORCH_BACKEND),cpu)
	@echo "Installing the pinned dependencies into $(VENV), torch without CUDA"
	@grep -Ev '$(CUDA_ONLY)' requirements.lock > $(VENV)/requirements
else
	@echo "Installing the pinned dependencies into $(VENV) (with CUDA: 5 GB; TORCH_BACKEND=cpu picks the small build)"
	@cp requirements.lock $(VENV)/requirements
endif
	@$(UV) pip sync --quiet --python $(BIN)/python $(TORCH_BACKEND:%=--torch-backend=%) $(VENV)/requirements \
	&& $(UV) pip install --quiet --python $(BIN)/python --no-deps --editable . || { \
		echo "Could not install the dependencies: the lines above say which. Look at the network" >&2; \
		echo "(HTTPS_PROXY, UV_DEFAULT_INDEX) and at the free disk space (df -h .), then run make again." >&2; \
		exit 1; \
	}
	@touch $@
