# Needs Python >= 3.11, make, and a package index. Everything else is installed or built on first use.
STACK ?= dev
KEEP ?=
VERBOSE ?=
PYTEST ?=
STACKS ?=
MINUTES ?= 30
SEED ?= 1
# One test process more than there are processors, since a process that waits for a cluster computes nothing.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
UV ?= uv
PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3,$(if $(shell command -v $(p)),$(p))) python3)
PY := .venv/bin/python
VENV := .venv/.installed
POLICIES := policies/.venv/.installed
SITE := website/.venv/.installed
COMPILE := $(UV) pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-header

.DEFAULT_GOAL := help
.PHONY: help demo shell down test check lint format lock bench faults policies site clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV) ## preview, up, clean second preview, a job, destroy of STACK=dev in the sandbox; KEEP=1 leaves it running, VERBOSE=1 shows all
	@$(PY) -m sandbox demo --stack $(STACK) $(if $(KEEP),--keep) $(if $(VERBOSE),--verbose)

shell: $(VENV) ## a shell in which `pulumi preview|up|destroy -s dev` work against the sandbox
	@$(PY) -m sandbox shell --stack $(STACK)

down: $(VENV) ## stop a sandbox that was left running
	@$(PY) -m sandbox down

test: $(VENV) $(POLICIES) ## all tiers of tests; PYTEST='-k name' narrows them down
	@$(PY) -m sandbox build
	@$(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(or $(PYTEST),--all-tiers)

check: $(VENV) $(POLICIES) lint ## formatting, lint, types, and the tests that need nothing built: the loop while you edit
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal --nothing-built $(PYTEST)

lint: $(VENV) ## formatting, lint and types
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy

format: $(VENV) ## format the code
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

lock: ## compile requirements*.in into hash-pinned requirements*.txt (needs uv)
	$(COMPILE) requirements.in -o requirements.txt
	$(COMPILE) requirements-dev.in -o requirements-dev.txt
	$(COMPILE) -c requirements-dev.txt sandbox/requirements.in -o sandbox/requirements.txt
	$(COMPILE) policies/requirements.in -o policies/requirements.txt
	$(COMPILE) website/requirements.in -o website/requirements.txt
	$(COMPILE) sandbox/toolchain/go-requirements.in -o sandbox/toolchain/go-requirements.txt
	$(COMPILE) sandbox/hosts/jax-requirements.in -o sandbox/hosts/jax-requirements.txt

policies: $(POLICIES) ## the policy pack's own Python environment, for `pulumi preview --policy-pack policies`

site: $(SITE) ## build the documentation into website/html: open website/html/index.html
	@website/.venv/bin/python -m sphinx --quiet --fresh-env --fail-on-warning --keep-going --nitpicky -c website . website/html

bench: $(VENV) ## measure against the budgets
	@$(PY) -m tests.bench

faults: $(VENV) ## faults at resources of STACKS that were not tried yet, for about MINUTES; docs/reliability.md
	@$(PY) -m tests.faults $(STACKS) --minutes $(MINUTES) --seed $(SEED)

clean: ## stop the sandbox, remove .venv and caches; what is built per user stays
	@if [ -x $(PY) ]; then $(PY) -m sandbox down; fi
	@rm -rf .venv policies/.venv website/.venv website/html .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV): requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: $(PYTHON) is Python %d.%d; name a newer one: make PYTHON=python3.11 ..." % sys.version_info[:2])'
	@echo "Installing the Python packages of requirements-dev.txt into .venv; once, a minute or two."
	@$(PYTHON) -m venv .venv
	@$(PY) -m pip install --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@

$(POLICIES): policies/requirements.txt
	@echo "Installing the Python packages of policies/requirements.txt into policies/.venv; once, half a minute."
	@$(PYTHON) -m venv policies/.venv
	@policies/.venv/bin/python -m pip install --disable-pip-version-check --require-hashes -r policies/requirements.txt
	@touch $@

$(SITE): website/requirements.txt
	@echo "Installing the Python packages of website/requirements.txt into website/.venv; once, half a minute."
	@$(PYTHON) -m venv website/.venv
	@website/.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r website/requirements.txt
	@touch $@
