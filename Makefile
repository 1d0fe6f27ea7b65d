# Pawl. `make help` lists what can be made.

SHELL := /usr/bin/env bash -o pipefail
.SHELLFLAGS := -ec

# Tools are built into bin/ by the Go toolchain, at these versions.
CONTROLLER_TOOLS_VERSION ?= v0.22.0
GOLANGCI_LINT_VERSION ?= v2.15.0

# The image that docker-build makes and deploy runs.
IMG ?= controller:latest
CONTAINER_TOOL ?= docker

LOCALBIN := $(CURDIR)/bin
CONTROLLER_GEN := $(LOCALBIN)/controller-gen-$(CONTROLLER_TOOLS_VERSION)
GOLANGCI_LINT := $(LOCALBIN)/golangci-lint-$(GOLANGCI_LINT_VERSION)

# kubectl of the development binaries, unless the machine has one.
KUBECTL ?= $(or $(shell command -v kubectl 2>/dev/null),$(LOCALBIN)/k8s/current/kubectl)

# Packages below test/ need the control plane, the others do not. Of these, the ones that know
# no cluster and no vendor's SDK are cheap to compile for the race detector.
RACE_PACKAGES = $(shell go list -f '{{.ImportPath}} {{join .Deps " "}}' ./api/... ./internal/... | \
	grep -v ' k8s.io/client-go/\| sigs.k8s.io/controller-runtime/\| github.com/openai/\| github.com/anthropics/' | cut -d' ' -f1)
OTHER_PACKAGES = $(filter-out $(RACE_PACKAGES),$(shell go list ./... | grep -v '^github.com/pawl-run/pawl/test/'))

# The race detector needs cgo; everything else is built without it, like the released binary,
# so that one compilation serves the build, the tests and the demo.
export CGO_ENABLED := 0

.DEFAULT_GOAL := help

##@ General

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*##"; printf "Usage: make \033[36m<target>\033[0m\n"} \
		/^[a-zA-Z_0-9-]+:.*?##/ { printf "  \033[36m%-18s\033[0m %s\n", $$1, $$2 } \
		/^##@/ { printf "\n\033[1m%s\033[0m\n", substr($$0, 5) }' $(MAKEFILE_LIST)

##@ Development

.PHONY: demo
demo: kubernetes ## Show every sample run to its end on a real control plane (DEMO_EXIT=1: check and exit).
	go run ./hack/demo

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Generate the DeepCopy methods.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./api/...

.PHONY: manifests
manifests: $(CONTROLLER_GEN) ## Generate the custom resource definitions.
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:dir=config/crd/bases

.PHONY: docs
docs: ## Generate the parts of docs/ that come from code.
	go run ./hack/reasons

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the code.
	$(GOLANGCI_LINT) fmt

.PHONY: vet
vet: ## Run go vet.
	go vet ./...

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Check style, mistakes and the direction of imports.
	$(GOLANGCI_LINT) run --allow-parallel-runners

.PHONY: lint-fix
lint-fix: $(GOLANGCI_LINT) ## Let the linters repair what they can.
	$(GOLANGCI_LINT) run --fix

GENERATED = api config/crd/bases docs

.PHONY: verify
verify: ## Check that generated files are current and go.mod is tidy.
	@before=$$(git status --porcelain --untracked-files=all -- $(GENERATED); git diff -- $(GENERATED)); \
	$(MAKE) --no-print-directory generate manifests docs; \
	after=$$(git status --porcelain --untracked-files=all -- $(GENERATED); git diff -- $(GENERATED)); \
	if [ "$$before" != "$$after" ]; then \
		git status --short -- $(GENERATED); git --no-pager diff --stat -- $(GENERATED); \
		echo "generated files were not current; commit what was just generated" >&2; exit 1; \
	fi
	go mod tidy -diff
	@echo "generated files are current"

##@ Test

.PHONY: kubernetes
kubernetes: ## Find, download or build etcd, kube-apiserver, kube-controller-manager and kubectl.
	@hack/kubernetes/build.sh >/dev/null

.PHONY: kubernetes-node
kubernetes-node: ## The same, and kubelet and kube-scheduler, for a cluster that runs pods.
	@hack/kubernetes/build.sh --node >/dev/null

.PHONY: test
test: kubernetes vet test-unit fuzz-short sim canaries test-integration ## Run all tests but test-replicas, which takes as long again.

.PHONY: test-unit
test-unit: ## Run the tests that need no control plane.
	@if command -v gcc >/dev/null; then \
		echo "CGO_ENABLED=1 go test -timeout 4m -race <pure packages>"; \
		CGO_ENABLED=1 go test -timeout 4m -race $(RACE_PACKAGES); \
	else \
		echo "without the race detector, which needs gcc:"; \
		go test -timeout 4m $(RACE_PACKAGES); \
	fi
	go test -timeout 4m $(OTHER_PACKAGES)

.PHONY: test-integration
test-integration: kubernetes ## Run the tests against the real control plane.
	go test -timeout 9m $(filter-out %/test/sim %/test/replicas %/test/e2e $(TELLING),$(shell go list ./test/...))
	go test -timeout 9m -v $(TELLING) | grep -v '^=== '

# Suites that say what they replayed or why they skip it.
TELLING = $(addprefix github.com/pawl-run/pawl/test/,wire mcp aimock)

# Seeds of the simulator, and schedules of each cell of the crash matrix.
SEEDS ?= 500
SCHEDULES ?= 20

.PHONY: sim
sim: ## Simulate SEEDS schedules of several replicas with faults (docs/simulator.md).
	go test -timeout 90m -count 1 -v ./test/sim -seeds $(SEEDS) | grep -v '^=== \|^ *--- PASS'

.PHONY: canaries
canaries: ## Leave out one guard after the other: the simulator must notice each (WRITE=1: write docs/simulator.md).
	go test -timeout 15m -count 1 -v -tags canary ./test/sim -run TestCanaries -args $(if $(WRITE),-write)

# How long each target is fuzzed, and which ones, by package and name.
FUZZTIME ?= 1m
FUZZ ?= .

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME, one after the other (FUZZ=model/: some of them).
	@hack/fuzz.sh "$(FUZZTIME)" "$(FUZZ)"

# So many inputs of each target that every `make test` fuzzes for some seconds. Counts, unlike
# seconds, begin after the inputs that are known.
.PHONY: fuzz-short
fuzz-short: ## Fuzz every target with a few thousand inputs.
	@hack/fuzz.sh 3000x "$(FUZZ)"

.PHONY: crash-matrix
crash-matrix: ## Force every fault at every call SCHEDULES times and write docs/crash-matrix.md.
	go test -timeout 90m -count 1 ./test/sim -run TestCrashMatrix -schedules $(SCHEDULES) -matrix $(CURDIR)/docs/crash-matrix.md

.PHONY: journal-growth
journal-growth: kubernetes ## Measure how a long run's journal grows and write docs/journal-growth.md.
	PAWL_GROWTH=$(CURDIR)/docs/journal-growth.md go test -count 1 ./test/integration -ginkgo.focus "results of 5 KB"

# It measures times, so it runs by itself, before everything else that the machine does where
# that is allowed. For the same reason a spec that fails is tried once more; both attempts show,
# and one that did something twice or lost it fails the suite, whatever the other one does.
# Most of the time it waits: two halves, each with a control plane of its own, take half as long.
PRECEDENCE = $(shell [ "$$(nice -n -10 nice 2>/dev/null)" != -10 ] || echo nice -n -10)
FOCUS ?=

.PHONY: test-replicas
test-replicas: kubernetes ## Kill, suspend and cut off several operators (PAWL_LONG=1: longer; FOCUS: some specs).
	$(PRECEDENCE) go run github.com/onsi/ginkgo/v2/ginkgo --procs $(if $(FOCUS),1,2) --timeout $(if $(PAWL_LONG),90m,15m) \
		--flake-attempts 2 --silence-skips --focus '$(FOCUS)' ./test/replicas

# What the pods of the end-to-end suite run, and the command that takes its archive, whose path
# is added, to the cluster's nodes.
E2E_IMAGE ?= localhost/pawl-task:1
E2E_IMPORT ?=

.PHONY: e2e
e2e: kubernetes ## Run Jobs on the cluster that KUBECONFIG names (E2E_IMPORT: how images get there, docs/jobs.md).
	@[ -n "$$KUBECONFIG" ] || { echo "set KUBECONFIG to the cluster to use: Pawl is installed there, and its operator scaled to nothing" >&2; exit 2; }
	@[ -n "$(E2E_IMPORT)" ] || { echo "set E2E_IMPORT to a command that takes an image archive to the nodes, such as 'kind load image-archive'" >&2; exit 2; }
	@mkdir -p bin/e2e
	go build -trimpath -ldflags '-s -w' -o bin/e2e/task ./test/e2e/task
	go run ./hack/image $(E2E_IMAGE) bin/e2e/task > bin/e2e/task.tar
	$(E2E_IMPORT) bin/e2e/task.tar
	PAWL_E2E_IMAGE=$(E2E_IMAGE) go test -timeout 9m -count 1 -v ./test/e2e | grep -v '^=== '

.PHONY: conformance
conformance: ## Run the MCP conformance suite's client scenarios against the operator's MCP client (needs npm).
	go run ./test/conformance

.PHONY: controlplane-up
controlplane-up: kubernetes ## Start a control plane with Pawl's definitions and policies, and leave it running.
	go run ./hack/controlplane up --detach

.PHONY: controlplane-down
controlplane-down: ## Stop it.
	go run ./hack/controlplane down

##@ Build

.PHONY: build
build: ## Build bin/manager.
	go build -o bin/manager ./cmd

.PHONY: run
run: ## Run the operator from here, against the cluster of the current kubeconfig.
	go run ./cmd

.PHONY: docker-build
docker-build: ## Build the operator's image, IMG.
	$(CONTAINER_TOOL) build -t $(IMG) .

.PHONY: build-installer
build-installer: manifests generate ## Write everything that an installation applies to dist/install.yaml.
	@mkdir -p dist
	$(KUBECTL) kustomize config/default | sed 's#image: controller:latest#image: $(IMG)#' > dist/install.yaml

##@ Deployment

.PHONY: install
install: manifests ## Apply the custom resource definitions alone.
	$(KUBECTL) apply -k config/crd

.PHONY: uninstall
uninstall: ## Delete the custom resource definitions, and with them every run.
	$(KUBECTL) delete --ignore-not-found -k config/crd

.PHONY: deploy
deploy: manifests ## Apply everything, with the operator's image IMG.
	$(KUBECTL) kustomize config/default | sed 's#image: controller:latest#image: $(IMG)#' | $(KUBECTL) apply -f -

.PHONY: undeploy
undeploy: ## Delete everything.
	$(KUBECTL) delete --ignore-not-found -k config/default

##@ Tools

.PHONY: tools
tools: $(CONTROLLER_GEN) $(GOLANGCI_LINT) ## Build the tools into bin/.

$(CONTROLLER_GEN):
	$(call go-install,controller-gen,sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_TOOLS_VERSION))

$(GOLANGCI_LINT):
	$(call go-install,golangci-lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION))

# $(1) is the program's name, $(2) its package and version. The version is part of the file's
# name, so that another version is another target.
define go-install
	@echo "installing $(2)"
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
		GOBIN="$$dir" go install $(2) && mkdir -p $(LOCALBIN) && mv "$$dir/$(1)" $@
endef
