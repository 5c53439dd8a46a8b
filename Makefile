# The commands a person needs. Each sets up what it needs by itself.
.PHONY: demo test check fmt protos bench crash fuzz setup clean

VENV := .venv/bin

demo: setup  ## the main job on the embedded cluster with mock hardware
	$(VENV)/drakit demo

test: setup  ## every test but the full matrices
	$(VENV)/pytest -q -n 4 --dist worksteal -m "not full"

check: setup  ## style, types, import directions, manifests
	$(VENV)/ruff check
	$(VENV)/ruff format --check
	$(VENV)/mypy
	$(VENV)/lint-imports

fmt: setup  ## write code the house's way
	$(VENV)/ruff check --fix
	$(VENV)/ruff format

protos: setup  ## regenerate driver/drakit/_proto
	$(VENV)/python protos/generate.py

bench: setup  ## measure, each figure beside a floor of the same run
	PYTHONPATH=tests $(VENV)/python -m bench

fuzz:  ## five minutes of libFuzzer on the hook client, with ASan and UBSan
	tests/fuzz/run

crash: setup  ## the full crash and fault matrices
	$(VENV)/pytest -q -n 2 -m full tests/crash
	$(VENV)/pytest -q -m full --ignore=tests/crash

setup:
	@.ci/setup

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
