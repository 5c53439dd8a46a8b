# The commands a person needs. Each sets up what it needs by itself.
# Tests start hundreds of processes, each of which would compile drakit anew without its bytecode.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: demo test test-fast coverage e2e vm check fmt protos bench crash soak fuzz setup clean dist docs image image-check image-load release sbom help

VENV := .venv/bin

demo: setup  ## the main job on the embedded cluster with mock hardware
	$(VENV)/drakit demo

test: setup  ## every test but the full matrices
	@# A clean clone's tests are compiled once, rather than by each of the eight processes at the same time.
	@test -d tests/__pycache__ || $(VENV)/pytest -q --collect-only >/dev/null 2>&1 || true
	$(VENV)/pytest -q -n 8 --dist worksteal -m "not full"

test-fast: setup  ## the unit tests that start no process, need no root and no network: for the inner loop
	$(VENV)/pytest -q -n 4 --dist worksteal -m "not full and not root and not process" tests/unit \
	    $(addprefix --ignore=tests/unit/,bench docs examples packaging serving testing test_house_rules.py)

coverage: setup  ## every test but the full matrices, with a table of the branches that they leave out
	$(VENV)/pytest -q -n 4 --dist worksteal -m "not full" --cov --cov-report=term:skip-covered

check: setup  ## style, types, import directions, manifests
	$(VENV)/ruff check
	$(VENV)/ruff format --check
	$(VENV)/mypy
	$(VENV)/lint-imports

fmt: setup  ## write code the house's way
	$(VENV)/ruff check --fix
	$(VENV)/ruff format

e2e: setup  ## the checks of tests/e2e on the cluster of KUBECONFIG: make e2e IMAGE=NAME KUBECONFIG=FILE (docs/howto/test-on-a-cluster.md)
	@.ci/kubectl
	PATH="$(CURDIR)/$(VENV):$$PATH" $(VENV)/pytest tests/e2e $(if $(IMAGE),--image $(IMAGE)) $(if $(KUBECONFIG),--kubeconfig $(KUBECONFIG)) \
	    $(if $(JUNIT),--junitxml $(abspath $(JUNIT))) $(if $(TABLE),--table $(abspath $(TABLE))) $(ARGS)

vm: setup  ## the tests of tests/vm on real drivers, in an emulated machine: make vm VM_ARGS="--kernel 6.1 -k sriov" (docs/howto/test-on-real-drivers.md)
	PYTHONPATH=tests $(VENV)/python -m vm $(VM_ARGS)

protos: setup  ## regenerate driver/drakit/_proto
	$(VENV)/python protos/generate.py

bench: setup  ## measure, each figure beside a floor of the same run; some benchmarks: make bench ARGS="node allocator"
	PYTHONPATH=tests $(VENV)/python -m bench $(ARGS)

soak: setup  ## a driver's process under load and faults, an hour each: make soak ARGS="nic --minutes 60"
	PYTHONPATH=tests $(VENV)/python -m soak $(or $(ARGS),gpu)

fuzz:  ## five minutes of libFuzzer on the hook client, with ASan and UBSan
	tests/fuzz/run

crash: setup  ## the full crash and fault matrices
	$(VENV)/pytest -q -n 2 -m full tests/crash
	$(VENV)/pytest -q -m full --ignore=tests/crash
	DRAKIT_TEST_EXAMPLES=full $(VENV)/pytest -q -n 2 $$(grep -rl hypothesis tests --include='test_*.py')

dist: setup  ## wheels and source distributions of all parts of drakit in dist/, and the wheels in each example
	rm -rf dist examples/*/wheels
	for project in . cluster driver/drakit_gpu driver/drakit_nic driver/drakit_tools; do \
	    (cd $$project && $(CURDIR)/$(VENV)/python -m hatchling build -d $(CURDIR)/dist) || exit 1; done
	for example in examples/*/; do mkdir -p "$$example/wheels" && cp dist/*.whl "$$example/wheels"; done

release: setup  ## build wheels, image, chart, SBOM, notes and provenance in dist/ and check them: make release ARGS=--rehearse (docs/contributing/release.md)
	PYTHONPATH=tests $(VENV)/python -m release $(ARGS)

# The image: `make image`, or with an architecture, an engine, or a base that cannot change:
#   make image IMAGE=registry.example.com/drakit PLATFORM=linux/arm64 ENGINE=podman BASE_DIGEST=sha256:... BUILD_FLAGS="--network host"
IMAGE ?= drakit
VERSION ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
REVISION ?= $(shell git describe --always --dirty --abbrev=40 --exclude '*' 2>/dev/null)
ENGINE ?= $(shell command -v docker >/dev/null && echo docker || echo podman)

docs: setup  ## build the documentation as a site in site/; a warning is an error
	@test .venv-docs/.ready -nt requirements/docs.txt || { rm -rf .venv-docs && python3 -m venv .venv-docs && \
	    .venv-docs/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements/docs.txt && touch .venv-docs/.ready; }
	$(VENV)/python docs/reference/generate.py
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --site-dir site
	@echo "open site/index.html"

sbom:  ## list what the image installs, with versions, hashes and licences, as CycloneDX in dist/drakit.cdx.json, checked against its schema
	@test .venv-sbom/.ready -nt requirements/sbom.txt -a .venv-sbom/.ready -nt requirements/image.txt || { rm -rf .venv-sbom && python3 -m venv .venv-sbom && \
	    .venv-sbom/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements/sbom.txt && \
	    .venv-sbom/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements/image.txt \
	        --target .venv-sbom/image && touch .venv-sbom/.ready; }
	mkdir -p dist
	PYTHONWARNINGS=ignore .venv-sbom/bin/cyclonedx-py requirements requirements/image.txt --pyproject pyproject.toml --output-reproducible --validate \
	    --spec-version 1.6 --output-format JSON --output-file dist/drakit.cdx.json
	.venv-sbom/bin/python requirements/licences.py dist/drakit.cdx.json .venv-sbom/image

image:  ## build the image IMAGE:VERSION for PLATFORM by docker or podman
	$(ENGINE) build $(if $(PLATFORM),--platform $(PLATFORM)) $(if $(BASE_DIGEST),--build-arg BASE_DIGEST=$(BASE_DIGEST)) \
		--build-arg VERSION=$(VERSION) $(if $(REVISION),--build-arg REVISION=$(REVISION)) $(BUILD_FLAGS) --tag $(IMAGE):$(VERSION) .

image-load:  ## load that image into a cluster of this machine: make image-load CLUSTER=kind (or k3s, minikube, microk8s)
	daemonset/load-image "$(CLUSTER)" "$(ENGINE)" "$(IMAGE):$(VERSION)"

image-check: setup  ## check that image: its size, its contents, every command on a read-only root
	DRAKIT_IMAGE=$(IMAGE):$(VERSION) ENGINE="$(ENGINE)" RUN_FLAGS="$(RUN_FLAGS)" $(VENV)/pytest -q -s tests/image

help:  ## list these commands
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' Makefile | expand -t 14

setup:
	@.ci/setup

clean:
	rm -rf .venv .venv-docs .venv-sbom .venv-release site $(addprefix docs/reference/,author.md cli.md settings.md) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage .coverage.*
