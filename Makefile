# `make` alone prints the targets.
.DEFAULT_GOAL := help

GO      ?= go
BIN     := .build/bin
PYTHON  := .build/venv/bin/python
LINT    := $(BIN)/golangci-lint
LINT_V  := v2.15.0
KUSTOMIZE_V := v5.7.1
FUZZTIME ?= 30s
BENCH   ?= .
KILLS   ?= 200
DAMAGES ?= 400
COLLECT_KILLS ?= 20,10
SOAK    ?= 10m
AWAY    ?= 5m
NEW     ?= bin/rollout
OLD     ?=

export CGO_ENABLED ?= 0
# These are also the flags of .ci/dist.py, so the tests and the wheel share compiled packages.
export GOFLAGS ?= -trimpath -gcflags=all=-dwarf=false
export ROLLOUT_PYTHON ?= $(CURDIR)/$(PYTHON)

.PHONY: help
help: ## print this list
	@echo 'usage: make TARGET'; echo
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

.PHONY: build
build: ## build bin/rollout
	$(GO) build -trimpath -o bin/rollout ./cmd/rollout

.PHONY: wheel
wheel: ## build the Python wheel of this platform in dist
	.ci/dist.py wheel

.PHONY: release
release: ## build the wheels, archives and checksums of all platforms in dist/release, and compare them with a second build
	.ci/release

.PHONY: image
image: ## build the container image in dist/image.tar, without a container engine, and test it; exit status 75 if a package is not available
	.ci/image.sh dist/image.tar

.PHONY: demo
demo: build ## collect from a simulated server and show the results; kill a collector and resume its run
	.ci/demo.sh

.PHONY: test
test: ## run all tests, including the tests that need Python or promtool
	.ci/together.sh '$(MAKE) --no-print-directory fixtures' '$(GO) build ./...'
	.ci/together.sh '.ci/test.sh -timeout 25m -parallel 4 -skip "^TestGate" ./...' 'nice .ci/pytest.sh -n 2 --dist worksteal'
	packages=$$(.ci/having.sh '^func TestGate') && .ci/test.sh -timeout 25m -p 1 -parallel 8 -count 1 -run '^TestGate' $$packages

.PHONY: fixtures
fixtures: python vocabularies promtool trainers ## install what the tests need

.PHONY: pytest
pytest: python trainers ## test the wheel of the Python package in a separate environment
	.ci/pytest.sh -n 2 --dist worksteal

.PHONY: firstrow
firstrow: python ## run the README's quick start, from the wheel to a verified row, on a fresh Debian without Go; needs root
	.ci/firstrow.sh

.PHONY: short
short: ## run the quick tests, without Python
	$(GO) test -short ./...

.PHONY: race
race: ## run the quick tests under the race detector; needs a C compiler
	CGO_ENABLED=1 $(GO) test -race -short ./...

.PHONY: python
python: ## create the Python environment for the tests
	.ci/python.sh

.PHONY: vocabularies
vocabularies: python ## install the vocabularies that the tests need and the repository cannot contain
	$(PYTHON) .ci/vocabularies.py

.PHONY: trainers
trainers: python ## fetch the wheels of the trainers with which the tests compare the Python package
	$(PYTHON) .ci/trainers.py

.PHONY: frameworks
frameworks: ## test the adapters with TRL, verl, Tinker, SkyRL and AReaL installed (6 GB, in .build/frameworks)
	.ci/frameworks.sh

.PHONY: harbor
harbor: ## check exported trajectories with the validator of Harbor, installed into .build/harbor; exit status 75 if its packages or a Python 3.12 or 3.13 are not available
	.ci/harbor.sh

.PHONY: mistral
mistral: ## create an environment with mistral-common, for comparisons with its tekken.json tokenizer
	.ci/mistral.sh

.PHONY: transformers
transformers: ## create an environment for each transformers version with which the tests compare chat templates and tokenizers
	.ci/transformers.sh

.PHONY: promtool
promtool: ## install promtool, which checks the alerts and the dashboard
	.ci/promtool.sh

.PHONY: letta
letta: ## install the Letta servers LETTA (0.16.7 and 0.16.8) with PostgreSQL into .build/letta-VERSION (1 GB); exit status 75 if their packages are not available
	.ci/letta.sh $(LETTA)

.PHONY: harnesses
harnesses: ## install published agent harnesses and the SDKs of OpenAI and Anthropic into .build/harness (3 GB); exit status 75 if their packages are not available
	.ci/harnesses.sh

.PHONY: e2e-letta
e2e-letta: letta ## test the program against the real Letta servers LETTA (0.16.7 and 0.16.8); SHORT=1 skips slow tests, RUN selects tests
	LETTA='$(LETTA)' .ci/e2e-letta.sh $(if $(SHORT),-short) $(if $(value RUN),-run '$(value RUN)')

.PHONY: e2e-harness
e2e-harness: python ## run the published agent harnesses against a scripted engine, without a network, and compare their rows with its log; SHORT=1 runs two of them, as in .ci/run
	.ci/e2e-harness.sh

.PHONY: page
page: ## build the page of rollout view again, compare it with the committed one, and test it in Chromium; UPDATE=1 replaces it; exit status 75 if a package is not available
	.ci/page.sh

.PHONY: stores
stores: ## install the S3 servers versitygw, moto and s3proxy into .build/stores; exit status 75 if their packages are not available
	.ci/stores.sh

.PHONY: e2e-store
e2e-store: python ## test sink/store against versitygw and moto, also through a proxy with faults, and check that s3proxy is refused
	.ci/e2e-store.sh

.PHONY: e2e-fleet
e2e-fleet: python ## collect 5,000 samples with 8 workers in a real S3 server, while workers are killed, paused and cut off from it, and follow the run; exit status 75 if a package is not available
	.ci/e2e-fleet.sh

.PHONY: e2e-k8s
e2e-k8s: image python ## apply configs/k8s to a real Kubernetes API server without nodes, and run its containers here with a bucket; needs root; exit status 75 if a package is not available
	.ci/e2e-k8s.sh dist/image.tar

.PHONY: e2e-slurm
e2e-slurm: build python ## run configs/slurm with Debian's Slurm, and requeue a worker; needs root; exit status 75 if a package is not available
	.ci/e2e-slurm.sh

.PHONY: hostile
hostile: ## test the program against every kind of bad server, for each kind of request
	HOSTILE=all $(GO) test -p 1 -count 1 -timeout 30m -parallel 8 -run '^TestGateHostileServers$$' ./cmd/rollout

.PHONY: lint
lint: $(LINT) python manifests ## run golangci-lint, a 32-bit vet of the core, and mypy and ruff on the Python package
	$(LINT) run ./...
	GOARCH=386 $(GO) vet ./tokenize/... ./collector/session/...
	cd sink/python && $(CURDIR)/$(PYTHON) -m mypy --cache-dir $(CURDIR)/.build/mypy
	$(PYTHON) -m ruff check --no-cache --config sink/python/pyproject.toml sink/python .ci/dist.py .ci/image.py .ci/fleetcheck.py collector/reward/worker.py collector/harness/presets

.PHONY: manifests
manifests: $(BIN)/kustomize python ## compare the manifests of configs/k8s with the schemas of Kubernetes
	set -e; for d in job deployment; do \
		$(BIN)/kustomize build configs/k8s/$$d > .build/$$d.yaml; \
		$(dir $(PYTHON))kubernetes-validate --strict --quiet .build/$$d.yaml; done

$(BIN)/kustomize: Makefile
	GOBIN=$(CURDIR)/$(BIN) $(GO) install sigs.k8s.io/kustomize/kustomize/v5@$(KUSTOMIZE_V)
	@touch $@

$(LINT): Makefile
	GOBIN=$(CURDIR)/$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_V)
	@touch $@

.PHONY: licenses
licenses: ## update the list of third-party licenses, after a change of go.mod
	$(GO) test -count 1 -run '^TestLicenses$$' ./cmd/rollout/internal/licenses -update

.PHONY: vuln
vuln: ## look for known vulnerabilities in the code that the program calls; fail if there is one
	.ci/vuln.sh

.PHONY: killtest
killtest: python ## kill and resume the collector KILLS (200) times: no sample is lost or duplicated
	ROLLOUT_KILLS=$(KILLS) $(GO) test -count 1 -timeout 60m -v -run '^TestKill|^TestTakenOver' ./cmd/rollout

.PHONY: loopkill
loopkill: python ## kill the collector and the trainer of a training loop COLLECT_KILLS (20,10) times, and stop a trainer for a minute: each group is trained on once
	COLLECT_KILLS=$(COLLECT_KILLS) COLLECT_STOPPED=60 .ci/pytest.sh test_collect_run.py -k 'kills or stops' -s

.PHONY: raytest
raytest: python ## test rollout.ray and rollout.collect() on Ray, while a node dies; installs Ray into .build/ray
	test -x .build/ray/bin/python || $(PYTHON) -m venv .build/ray
	.build/ray/bin/python -m pip install --quiet --disable-pip-version-check ray==2.60.0 numpy==1.26.4 pyarrow==25.0.0 pytest==9.2.0
	ROLLOUT_PYTHON=$(CURDIR)/.build/ray/bin/python .ci/pytest.sh --source test_ray.py test_collect_ray.py

.PHONY: trackers
trackers: python ## test rollout.log_to with wandb, trackio, tensorboard and mlflow, offline; installs them into .build/trackers; exit status 75 if they are not available
	.ci/trackers.sh -q

.PHONY: damage
damage: ## damage the files of runs DAMAGES (400) times: the damage is found or harmless, and no sample is lost or duplicated
	ROLLOUT_DAMAGES=$(DAMAGES) $(GO) test -count 1 -timeout 60m -v -run '^TestDamage' ./cmd/rollout

.PHONY: soak
soak: ## collect for SOAK (10m) with 1,000 samples in flight: memory, goroutines and files stay constant; then take the bucket of a fleet away for AWAY (5m)
	ROLLOUT_SOAK=$(SOAK) $(GO) test -count 1 -timeout 60m -v -run '^TestSoak' ./cmd/rollout
	ROLLOUT_AWAY=$(AWAY) $(GO) test -count 1 -timeout 60m -v -run '^TestStoreAway$$' ./cmd/rollout

.PHONY: soakstream
soakstream: ## collect with --stream for SOAK (10m), paced by a trainer: files, memory and descriptors stay constant, and verify passes
	ROLLOUT_SOAK=$(SOAK) $(GO) test -count 1 -timeout 60m -v -run '^TestStreamSoak$$' ./cmd/rollout

.PHONY: fuzz
fuzz: vocabularies ## run every fuzz target for FUZZTIME (30s)
	.ci/fuzz.sh $(FUZZTIME)

.PHONY: differential
differential: python vocabularies transformers mistral ## run the long comparisons with the reference implementations, including every code point
	$(GO) test -count 1 -tags differential -timeout 60m -v -run '^TestPeer|^TestGatePeer' -skip '^TestPeerAutoReleases$$' ./tokenize/bpe -args -texts 20000 -tokenizers 54000
	$(GO) test -count 1 -v -run 'AgainstPython' -timeout 120m ./tokenize/chat -args -expressions 100000 -mutated 40000 -calls 60000 -codepoints 1
	$(GO) test -count 1 -v -run '^TestHostileOperations$$' -timeout 60m ./tokenize/chat -args -hostile 20000
	ROLLOUT_TRANSFORMERS=$(CURDIR)/.build/transformers $(GO) test -count 1 -v -run '^TestAgainstTransformers$$' -timeout 60m ./tokenize/chat -args -applications 200
	ROLLOUT_TRANSFORMERS=$(CURDIR)/.build/transformers $(GO) test -count 1 -tags differential -v -run '^TestPeerAutoReleases$$' -timeout 90m ./tokenize/bpe -args -configs 20000 -otherconfigs 2000

.PHONY: peerspeed
peerspeed: python vocabularies ## print the speed of this tokenizer and of the reference tokenizer, for every kind of text
	$(GO) test -count 1 -tags differential -timeout 60m -v -run '^TestGatePeerSpeedTable$$' ./tokenize/bpe

.PHONY: bench
bench: vocabularies ## run every benchmark; BENCH=regexp selects some
	$(GO) test -p 1 -run '^$$' -bench '$(BENCH)' -benchmem ./...

.PHONY: profile
profile: build ## print the CPU time of a collection by stage; with OLD=PROGRAM, compare two builds
	ROLLOUT_PROFILE=$(CURDIR)/.build/profile ROLLOUT_NEW=$(abspath $(NEW)) ROLLOUT_OLD=$(if $(OLD),$(abspath $(OLD))) \
		$(GO) test -count 1 -timeout 60m -v -run '^TestProfile$$' ./cmd/rollout/internal/profile

.PHONY: profilestore
profilestore: build stores ## print the CPU time of a worker on a bucket of versitygw and on a local disk, compared with rollout collect
	ROLLOUT_STORES=$(CURDIR)/.build/stores ROLLOUT_NEW=$(abspath $(NEW)) \
		$(GO) test -count 1 -timeout 60m -v -run '^TestProfileStore$$' ./cmd/rollout/internal/profile

.PHONY: cover
cover: ## write the test coverage to cover.html
	$(GO) test -short -coverprofile=.build/cover.out ./... && $(GO) tool cover -html=.build/cover.out -o .build/cover.html

.PHONY: clean
clean: ## remove the build results and the demo's runs
	rm -rf bin dist .build run
