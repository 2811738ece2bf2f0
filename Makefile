# Every target sets up what it needs first; a second setup takes no time. `make` lists the targets.

.DEFAULT_GOAL := help
.PHONY: help setup demo test properties fuzz fidelity replays test-real e2e e2e-kubelets nightly check docs changelog sbom dist format lock real-tools kubelet-tools engine-tools operator-tools test-kubelets test-engine test-console test-integrations test-operators sif-tools test-sif volcano-tools test-volcano real-up real-down clean

# The environment's own Python when there is one, else the first of these that is new enough.
# `make PYTHON=python3.13` rebuilds the environment with that one.
PYTHON ?= $(shell for python in .venv/bin/python python3 python3.14 python3.13 python3.12 \
	python3.11; do $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && exit; done; echo python3)

PROJECTS := $(wildcard */pyproject.toml services/*/pyproject.toml extras/*/pyproject.toml tests/*/pyproject.toml)
INTEGRATIONS := $(wildcard integrations/*/pyproject.toml)
BIN := .venv/bin
# Checks of generated files, each by the module that generates it.
GENERATORS := stromboli.shared.asyncapi stromboli.shared.jobspec.crds stromboli.shared.jobspec.policies \
	stromboli.controller.lifecycle_diagram stromboli.admission.rest.openapi_file \
	stromboli.cli.reference tools.release_version tools.charts tools.compose tools.pod_schema tools.docs.settings tools.docs.gang_diagram tools.docs.assumption_diagram

# Containers set this variable, and the tests start hundreds of Python processes: without bytecode
# files each of them compiles its imports.
export PYTHONDONTWRITEBYTECODE =

SERVICES := admission console controller history monitor scheduler
NODES ?= 100
KUBELETS ?= 0
REPEAT ?= 1
KUBELET_TESTS ?= tests/e2e
DEPTH ?= 50
JOBS ?= 2000
SECONDS ?= 600
SESSIONS ?= 10000
# Tests in three processes for two cores, because they wait half of the time, each in runs of
# neighbours: these share what their fixtures started. The real ones share one Kafka and one API
# server, so they run one after another.
WORKERS := $(shell n=$$(getconf _NPROCESSORS_ONLN || echo 2); echo $$((n + (n + 1) / 2)))
CORES = --numprocesses $(WORKERS) --dist worksteal
# The longest first: at the end of a run short tests keep all workers busy.
TESTS = tests tools shared services client cli extras embedded
NO_TIMEOUT = --timeout=0 -o faulthandler_timeout=0
# Tests whose examples Hypothesis makes: STROM_DEPTH multiplies how many.
PROPERTIES := $(addprefix services/scheduler/tests/test_,session_properties.py \
	eviction_properties.py eviction_limits.py properties.py reservation.py reference.py equal_gangs_properties.py \
	batch_placement.py cluster_model.py scheduler_state_machine.py volumes.py \
	topology_constraint_properties.py liveness.py eviction_liveness.py advance_reservations_properties.py) \
	embedded/tests/test_simulation_orders.py shared/tests/test_leases.py \
	$(addprefix services/controller/tests/test_,any_order.py workloads_any_order.py batch_state.py \
	eviction_cycles.py) \
	services/monitor/tests/test_reflector_state_machine.py

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' Makefile

setup: ## build .venv from the lock (every other target does it when it is needed)
	@python="$(PYTHON)"; command -v "$$python" >/dev/null || { echo "Stromboli needs Python 3.11 \
	or later and there is no $$python: install python3.11 (Debian, Ubuntu: apt install \
	python3.11-venv)" >&2; exit 1; }; exec "$$python" tools/bootstrap.py

demo: setup ## gangs against single pods, live, in about a minute: needs nothing but this machine
	@$(BIN)/strom demo

test: setup ## all tests that need no real parts; with CI=true the real ones too
	$(BIN)/pytest $(CORES) -m "not real and not kubelet and not engine and not operators and not sif and not volcano" $(TESTS)
ifeq ($(CI),true)
	@$(MAKE) --no-print-directory test-real
else
	@echo "Skipped: the tests on real Kafka and Kubernetes. They run with: make test-real"
endif

properties: setup ## properties and state machines in depth: make properties DEPTH=50 (an hour)
	STROM_DEPTH=$(DEPTH) $(BIN)/pytest $(CORES) $(NO_TIMEOUT) --durations=40 $(PROPERTIES)

fuzz: setup ## odd inputs to decoders and the scheduling process: make fuzz SECONDS=600 (of each)
	STROM_FUZZ_S=$(SECONDS) STROM_FUZZ_REPORT=$(CURDIR)/.fuzz-report.txt \
	$(BIN)/pytest $(CORES) $(NO_TIMEOUT) tests/fuzz

fidelity: setup ## the same jobs through the pipeline and the simulation: make fidelity JOBS=2000
	STROM_FIDELITY_JOBS=$(JOBS) $(BIN)/pytest -s $(NO_TIMEOUT) tests/e2e/test_simulation_fidelity.py

replays: setup ## record sessions in virtual time and run them again: make replays SESSIONS=10000
	STROM_REPLAY_SESSIONS=$(SESSIONS) $(BIN)/pytest -s $(NO_TIMEOUT) tests/e2e/test_many_replays.py

test-real: setup real-tools ## the tests on real Kafka and Kubernetes, none of them skipped
	STROM_REAL=1 $(BIN)/pytest -m "real and not kubelet"

test-kubelets: setup real-tools kubelet-tools operator-tools ## the tests on real kubelets and containers (needs root)
	STROM_REAL=1 STROM_KUBELETS=1 STROM_OPERATORS=1 $(BIN)/pytest -m kubelet

test-engine: setup real-tools kubelet-tools engine-tools ## our images: Compose under Docker, the charts on kubelets (root)
	STROM_REAL=1 STROM_KUBELETS=1 STROM_ENGINE=1 $(BIN)/pytest -m engine

test-console: setup ## the console in Chromium: updates, keyboard, accessibility; screenshots/
	@$(BIN)/python -c 'from tools.real import browser; browser.ensure()'
	STROM_SCREENSHOTS=$(CURDIR)/screenshots $(BIN)/pytest tests/e2e/test_console_browser.py

test-integrations: setup ## workflow engines, installed apart, run their examples on process nodes
	@$(BIN)/python -m tools.integrations
	.venv-integrations/bin/pytest integrations

test-operators: setup real-tools operator-tools ## released third-party operators over our services
	STROM_REAL=1 STROM_OPERATORS=1 $(BIN)/pytest -m "operators and not kubelet"

test-sif: setup sif-tools ## image files (SIF) on process nodes, run by SingularityCE
	STROM_SIF=1 $(BIN)/pytest -m sif

test-volcano: setup real-tools volcano-tools ## Volcano's own suites over our services: make test-volcano SUITE=jobp FOCUS=PATTERN
	STROM_REAL=1 STROM_VOLCANO=1 STROM_VOLCANO_FOCUS='$(FOCUS)' $(BIN)/pytest -m volcano -k '$(SUITE)' $(NO_TIMEOUT) tests/volcano

e2e: setup real-tools ## the end-to-end scenarios, embedded, reordered and real: make e2e REPEAT=20
	@passed=0; for round in $$(seq $(REPEAT)); do echo "round $$round of $(REPEAT)"; \
	STROM_REAL=1 STROM_FAULT_SEED=$$round $(BIN)/pytest -q tests/e2e/test_end_to_end.py && passed=$$((passed + 1)); done; \
	echo "$$passed of $(REPEAT) rounds passed"; test $$passed -eq $(REPEAT)

e2e-kubelets: setup real-tools kubelet-tools ## jobs on kubelets in rounds, with one start of the nodes: make e2e-kubelets REPEAT=50 KUBELET_TESTS=FILE
	STROM_REAL=1 STROM_KUBELETS=1 STROM_KUBELET_ROUNDS=$(REPEAT) $(BIN)/pytest -v -m kubelet $(KUBELET_TESTS)

nightly: ## what takes hours and does not gate: repeats, fuzzing, properties, kubelets, engine, Volcano's suites
	$(MAKE) e2e REPEAT=20
	$(MAKE) fuzz SECONDS=600
	$(MAKE) properties DEPTH=50
	$(MAKE) fidelity JOBS=2000
	$(MAKE) replays SESSIONS=10000
	$(MAKE) test-integrations
	$(MAKE) test-kubelets
	$(MAKE) test-engine
	$(MAKE) test-operators
	$(MAKE) test-sif
	$(MAKE) test-volcano

check: setup ## formatting, lint, types, imports between packages, generated files, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@for generator in $(GENERATORS); do \
	echo "$(BIN)/python -m $$generator --check"; $(BIN)/python -m $$generator --check || exit 1; done
	@$(MAKE) --no-print-directory docs

docs: setup ## the documentation site in .site, every warning an error (`make check` does this, too)
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going \
	-d .site/doctrees docs .site/html
	@echo "open .site/html/index.html"

sbom: setup ## bills of materials of the six images in .sbom, from their locks (CycloneDX)
	@$(BIN)/python -m tools.sbom .sbom

dist: setup ## a release in dist/: wheels, charts, images, bills of materials, checksums; runs the demo from it
	@$(BIN)/python -m tools.dist dist

changelog: setup ## what changes/ adds to CHANGELOG.md; with VERSION=0.2.0 move it there
ifdef VERSION
	$(BIN)/towncrier build --yes --version $(VERSION)
else
	$(BIN)/towncrier build --draft --version next
endif

format: setup ## rewrite the sources as ruff wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The lock keeps what it pins unless UPGRADE=--upgrade is given. Extras and groups are all in: one
# set of versions is what every test has seen.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate $(UPGRADE)
lock: setup ## rewrite all requirements and tools/uv.txt (UPGRADE=--upgrade for new versions)
	$(COMPILE) $(PROJECTS) --all-extras --group pyproject.toml:dev \
	$$(sed -n 's/^name = /--no-emit-package /p' $(PROJECTS) | tr -d '"') \
	--output-file requirements.txt >/dev/null
	@for service in $(SERVICES); do $(COMPILE) services/$$service/pyproject.toml \
	--no-emit-package stromboli-shared --no-emit-package stromboli-client \
	--no-emit-package stromboli-cli --constraints requirements.txt \
	--output-file services/$$service/requirements.txt >/dev/null || exit 1; done
	$(COMPILE) $(INTEGRATIONS) --all-extras --constraints requirements.txt \
	$$(sed -n 's/^name = /--no-emit-package /p' $(PROJECTS) $(INTEGRATIONS) | tr -d '"') \
	--output-file integrations/requirements.txt >/dev/null
	$(COMPILE) --group pyproject.toml:real --output-file requirements-real.txt >/dev/null
	$(COMPILE) --group pyproject.toml:bootstrap --output-file tools/uv.txt >/dev/null
	$(COMPILE) --group pyproject.toml:debug-tools --output-file tools/real/debug_tools.txt >/dev/null
	$(COMPILE) --group pyproject.toml:code-server --output-file tools/real/code_server.txt >/dev/null
	$(COMPILE) --group pyproject.toml:spark --output-file tools/real/spark.txt >/dev/null
	@echo "The lock is written; the next make installs it."

real-tools: setup ## build or find real Kafka, etcd and Kubernetes (minutes the first time)
	@$(BIN)/python tools/real/install.py

kubelet-tools: setup ## build the kubelet and containerd for test-kubelets (needs root)
	@$(BIN)/python tools/real/kubelets.py

engine-tools: setup ## install Docker's engine and build Compose for test-engine (needs root)
	@$(BIN)/python tools/real/engine.py

operator-tools: setup ## build third-party controllers for test-operators (minutes the first time)
	@$(BIN)/python tools/real/operators.py

sif-tools: setup ## install squashfs tools and build SingularityCE for test-sif (root, minutes the first time)
	@$(BIN)/python tools/real/image_files.py

volcano-tools: setup ## build Volcano's suites for test-volcano (20 minutes the first time)
	@$(BIN)/python tools/real/volcano.py

real-up: setup real-tools ## start the real parts and the four services: make real-up NODES=100 KUBELETS=0
ifneq ($(KUBELETS),0)
	@$(MAKE) --no-print-directory kubelet-tools
endif
	@$(BIN)/python -m stromboli.testkit.real_up up --nodes $(NODES) --kubelets $(KUBELETS)

real-down: setup ## stop exactly what real-up started
	@$(BIN)/python -m stromboli.testkit.real_up down

clean: ## remove the environment and every tool's cache (not .strom: state and jobs of yours)
	rm -rf .venv .venv-integrations .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .site .sbom dist screenshots
	find . -name __pycache__ -not -path './.strom/*' -prune -exec rm -rf {} +
