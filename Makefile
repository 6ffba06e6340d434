# One door for the developer: `make help`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help packages cluster cluster-down setup run test test-fast check format generate lock kube-assets bench-client bench-apiserver bench-cni bench-ipam bench-agent bench-scale bench-conversion clean

PY := .venv/bin/python
READY := .venv/.ready

help: ## list every target
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

setup: $(READY) ## make the environment (.venv) from the lock; the other targets call it
$(READY): requirements.lock pyproject.toml tools/setup hatch_build.py src/subnetes/cni/subnetes-ipam.c src/subnetes/cni/bare.c
	@tools/setup && touch $(READY)

run: setup ## start everything on this machine, on the embedded API server (ARGS="--ephemeral")
	@.venv/bin/subnetes up $(ARGS)

test: packages setup kube-assets ## every test, on the embedded and on the real API server (ARGS="-k informer")
	@$(PY) -m pytest $(ARGS)

test-fast: setup ## the daily loop: no Go, no root, under two minutes
	@$(PY) -m pytest -m "not real and not slow and not postgres" $(ARGS)

check: setup ## ruff, mypy --strict, layers, generated files up to date
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-cache
	@$(PY) -m subnetes.api.generate --check
	@tools/lock --check

format: setup ## mend what ruff can mend
	@.venv/bin/ruff check --fix . && .venv/bin/ruff format .

generate: setup ## write deploy/crds/ from the structs in src/subnetes/api
	@$(PY) -m subnetes.api.generate

lock: setup ## resolve pyproject.toml into requirements.lock
	@tools/lock

kube-assets: ## etcd, kube-apiserver, kubectl in a cache outside the clone (built once, about six minutes)
	@python3 -m tests.harness.kube_assets || [ -z "$$(command -v go)" ]

packages: ## what the tests need from Debian: runc, ip, PostgreSQL, gcc; installed if root, named if not
	@tools/packages

cluster: packages setup ## a whole real Kubernetes with Subnetes on this machine; stays (needs root and Go)
	@$(PY) -m tests.harness.cluster up

cluster-down: setup ## end and remove that cluster, and what killed test runs left
	@$(PY) -m tests.harness.cluster down

bench-client: setup kube-assets ## CPU of a status patch, beside lightkube, on the real API server
	@$(PY) -m benchmarks.client

bench-apiserver: setup kube-assets ## the embedded API server beside the real one: writes, lists, watches, memory
	@$(PY) -m benchmarks.apiserver

bench-ipam: setup ## a batch of addresses from subnets of every size, beside a plain set; a pod's part of the pool
	@$(PY) -m benchmarks.ipam

bench-agent: setup ## memory and idle CPU of the node agent with 110 pods
	@$(PY) -m benchmarks.agent

bench-scale: setup ## 100 to 5,000 nodes with 30 pods each on the embedded API server: seconds, writes, memory
	@$(PY) -m benchmarks.scale

bench-conversion: setup ## a review of an NNC with 250 IPs, beside an empty handler; 5,000 of them one by one and at once
	@$(PY) -m benchmarks.conversion

bench-cni: setup kube-assets ## ADD and DEL through the CNI executable, beside host-local, with /bin/true as the floor
	@$(PY) -m benchmarks.cni

clean: ## remove what the targets above made inside the clone
	@rm -rf .venv .uv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
