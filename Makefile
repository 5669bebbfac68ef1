# Every command of the project. Each sets up what it needs first: a fresh machine needs python3, make and a C compiler.
.DEFAULT_GOAL := help
.SUFFIXES:

BUILD := $(CURDIR)/build
BIN := $(CURDIR)/.venv/bin
PY := $(BIN)/python

# A tier is run once it has tests. `make test TIERS=tests/unit` runs one alone. First stand those with files that take
# long, last the one with many small files: no process is left alone with a long one at the end.
TIERS ?= $(addprefix tests/,packaging native chaos property contract integration golden fuzz unit)
HAVE = $(foreach tier,$(TIERS),$(if $(shell find $(tier) -name 'test_*.py' -print -quit 2>/dev/null),$(tier)))
PYTEST_ARGS ?=
# Tests of one file run one after the other, files beside each other, in their order: four processes more than cores, for
# tests wait a lot (JOBS=0: none of that).
JOBS ?= $(shell expr $$(nproc) + 4)
SPREAD = -n $(JOBS) --dist loadfile --no-loadscope-reorder

# The lab's versions, for `make lab` and all that runs on it: make e2e KUBERNETES=1.36 CONTAINERD=2.3. The newest by default.
ifneq ($(KUBERNETES),)
export EDGEGPU_LAB_KUBERNETES := $(KUBERNETES)
endif
ifneq ($(CONTAINERD),)
export EDGEGPU_LAB_CONTAINERD := $(CONTAINERD)
endif

# Some machines forbid Python its cache of compiled files. Each of the thousands of processes that tests start would
# compile the product again then.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup venv cc simdriver limiter demo test native shares gpu driver driver-pin lint e2e restarts versions schedulers churn box vm chaos bugs cloud fuzz bench nightly lab lock env bundle clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: cc venv ## check for a C compiler, make .venv (PYTHON=python3.12 chooses the Python)

venv:
	@PYTHON='$(PYTHON)' tools/setup venv

cc:
	@tools/setup cc

simdriver: cc
	@mkdir -p $(BUILD)
	@flock $(BUILD)/simdriver.lock $(MAKE) -s -C simulation/simdriver OUT=$(BUILD)/simdriver

limiter: venv ## build the limiter's two libraries (plugin/limiter) into build/limiter
	@tools/setup toolchain
	@flock $(BUILD)/limiter.lock $(MAKE) -s -C plugin/limiter

demo: cc venv simdriver ## a console with simulated boxes until Ctrl-C, the scenarios play in it (ONCE=1: without; BOXES=300: more boxes; DEMO_ARGS=--help)
	@$(PY) -m edgegpu_sim.demo --out build/demo.json $(if $(ONCE),--no-console) $(if $(BOXES),--boxes $(BOXES)) $(DEMO_ARGS)

# What make cloud runs is ignored, and not only deselected: else each process reads those 1 900 tests first. Nor does
# each load schemathesis, which make cloud alone uses and pytest would import by itself.
test: cc venv simdriver limiter ## run every tier that needs no root (TIERS=tests/unit: one; PYTEST_ARGS=-x)
	@$(PY) -m pytest -m "not e2e and not gpu and not driver and not cloud and not sanitizer and not shares" $(SPREAD) \
		-p no:schemathesis --ignore=tests/integration/cloud $(PYTEST_ARGS) $(HAVE)

native: cc venv simdriver limiter ## the C parts without a card: simulated driver, limiter, under sanitizers too (FULL=1, alone: every share)
	@$(PY) -m pytest -m "not gpu and not shares" $(SPREAD) $(PYTEST_ARGS) tests/native
	@test -z '$(FULL)' || TEST_FULL=1 $(PY) -m pytest $(PYTEST_ARGS) $(SHARES)

# One test after the other, and nothing beside them: what lacks on a busy machine is no fault of the limiter.
SHARES = $(addprefix tests/native/test_limiter_,compute.py competing.py waiting.py)
shares: cc venv simdriver limiter ## shares of a simulated card's time, within 2 points: a seventh of the table, by the day (FULL=1: all); build/shares.json
	@TEST_FULL='$(FULL)' $(PY) -m pytest -m shares -s $(PYTEST_ARGS) $(SHARES); \
		status=$$?; $(PY) tests/native/sharestable.py; exit $$status

gpu: cc venv limiter ## on a machine with an NVIDIA card: nvidia-smi's formats, the limiter against its limits (GPU_ARGS="shares pairs": those parts)
	@$(PY) -m pytest -m gpu $(PYTEST_ARGS) tests/gpu
	@$(PY) tests/gpu/limiter/run.py $(GPU_ARGS) || test $$? = 77

# The folder's own kits come from tests/, the list of functions from tools/.
DRIVER = PYTHONPATH=tests:tools $(PY) -m driver
driver: cc venv simdriver limiter ## the limiter and the plugin over NVIDIA's own user-space, eight branches, without a card; root for all of it
	@$(DRIVER).report --begin
	@$(PY) -m pytest -m driver -n 2 --dist worksteal $(PYTEST_ARGS) tests/driver; status=$$?; \
		$(DRIVER).report $(if $(WRITE),--document docs/box/drivers.md) && exit $$status

driver-pin: venv ## pin the newest packages of these branches that Debian's archive has (tests/driver/pins.yaml)
	@$(DRIVER).renew

lint: venv ## style, types, import contracts, generated code, documents, shell, sizes
	@tools/lint

e2e: cc venv simdriver limiter ## run the tests on a real k3s (root; the lab's k3s where there is none; KUBERNETES=1.36: of that version)
	@tools/setup root "make e2e"
	@EDGEGPU_K3S='$(EDGEGPU_K3S)' $(PY) -m pytest -m e2e $(PYTEST_ARGS) $(or $(E2E),tests/e2e)

restarts: cc venv simdriver limiter ## restarts of k3s on a busy machine: how many pods does kubelet fail? (root; PODS=600: 45 min); build/e2e
	@tools/setup root "make restarts"
	@EDGEGPU_K3S='$(EDGEGPU_K3S)' EDGEGPU_RESTARTED_PODS=$(or $(PODS),60) $(PY) -m pytest -s $(PYTEST_ARGS) tests/e2e/measure_restarts.py

# What depends on kubelet and containerd most.
VERSIONS = $(addprefix tests/e2e/test_,contract_kubelet.py contract_plugin.py scenarios.py)
versions: cc venv simdriver limiter ## scenarios and contracts on an older Kubernetes, another one each day (FULL=1: on each)
	@tests/lab/labversion.py $(if $(FULL),--others,--today) > $(BUILD)/versions
	@status=0; while read -r kubernetes containerd; do echo "=== Kubernetes $$kubernetes, containerd $$containerd"; \
		$(MAKE) lab e2e KUBERNETES=$$kubernetes CONTAINERD=$$containerd E2E='$(VERSIONS)' EDGEGPU_K3S= EDGEGPU_LAB_PACK= < /dev/null || status=1; \
		done < $(BUILD)/versions; exit $$status

schedulers: cc venv ## schedulers of Kubernetes 1.20 to 1.24 with our file and extender (Go; the first time half an hour of building); build/schedulers
	@$(PY) -m pytest -m schedulers $(PYTEST_ARGS) tests/schedulers

churn: cc venv simdriver limiter ## pods come and go on a real k3s while all is killed, a checker looks each second (root; SECONDS=1800, SEED=1); build/churn
	@tools/setup root "make churn"
	@EDGEGPU_K3S='$(EDGEGPU_K3S)' PYTHONPATH=tests $(PY) -m churn.run --seconds $(or $(SECONDS),180) $(if $(SEED),--seed $(SEED)) \
		$(if $(PLANT),--plant $(PLANT)) $(CHURN_ARGS)

box: cc venv simdriver ## install, break and uninstall booted boxes (root): a twentieth of the faults, by the day; FULL=1: all, hours
	@tools/setup root "make box"
	@BOX_FULL='$(FULL)' $(PY) -m pytest -m box -s $(PYTEST_ARGS) tests/box

vm: cc venv simdriver limiter ## a virtual machine with cgroup v2 and a kernel of its own (root): install, scenarios, hardening, cuts, clocks (FULL=1: all)
	@tools/setup root "make vm"
	@TEST_FULL='$(FULL)' $(PY) -m pytest -m vm $(PYTEST_ARGS) tests/vm

chaos: cc venv simdriver ## commands to boxes, as root one is booted, while everything is killed, cut, forged (COMMANDS=1000, SEED=1)
	@$(PY) tests/chaos/run.py --commands $(or $(COMMANDS),1000) $(if $(SEED),--seed $(SEED)) $(CHAOS_ARGS)

bugs: cc venv simdriver ## the minutes-long tests: chaos and fuzz find agents with bugs, kills at steps (FULL=1: at each), clocks, lost brokers
	@TEST_FULL='$(FULL)' $(PY) -m pytest -m "chaos or fuzz" $(SPREAD) $(PYTEST_ARGS) tests/chaos tests/fuzz

cloud: cc venv simdriver ## the tests of the cloud with all its parts: Chromium, the API, controllers, the command line, kills (FULL=1: all)
	@TEST_FULL='$(FULL)' $(PY) -m pytest -m cloud $(SPREAD) $(PYTEST_ARGS) tests/integration tests/unit

fuzz: cc venv simdriver ## lie to an agent over its broker, and fuzz what reads messages on both sides (MESSAGES=10000, SEED=1)
	@$(PY) tests/fuzz/run.py --messages $(or $(MESSAGES),10000) $(if $(SEED),--seed $(SEED)) $(FUZZ_ARGS)

bench: cc venv simdriver limiter ## measure against the limits, best of three decides; writes build/bench/*.json (ONLY=placement, agent, cloud, limiter-cost, e2e: that part)
	@$(PY) tests/bench/run.py $(if $(SLACK),--slack $(SLACK)) $(if $(E2E_RAN),--e2e-ran) $(ONLY)

nightly: ## all turns of everything, hours: what was not seen for longest first; a table of what was last seen when (ONLY="box e2e"; LIST=1: the table alone)
	@PYTHONPATH=tools python3 -m gate $(if $(LIST),seen,nightly $(ONLY))

lab: ## make the lab's k3s from source (Go; minutes the first time; KUBERNETES=1.36 CONTAINERD=2.3: other versions)
	@tests/lab/build.sh

lock: venv ## resolve requirements/*.txt again, with hashes
	@tools/lock

env: cc venv ## make build/env/edgegpu: a folder to put on a box as it is
	@tools/env

bundle: env ## make build/bundle: all that a web server must offer for the one line
	@tools/bundle

clean: ## remove what was made, .venv excepted
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
