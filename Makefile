# Newcomers need two commands, `make demo` and `make test`; each installs what it needs (see tools/setup).

BIN := .venv/bin

# How many damaged inputs `make fuzz` tries, shared among all parsers.
INPUTS ?= 1000000

.PHONY: help setup releases demo test check lint matrix twins bench faults soak fuzz audit clean

help:
	@echo 'make demo    the whole story on a private Slurm, in under five minutes'
	@echo 'make test    all tests; what needs a real Slurm runs where Debian packages can be installed'
	@echo 'make lint    ruff, mypy, import contracts, luacheck'
	@echo 'make check   make lint, then all tests'
	@echo 'make matrix  every way of asking on every release of Slurm, as a table: asked, allocated, as planned'
	@echo 'make twins   requests drawn by chance, of sbatch and of clients that ask, each cut and as it was typed, on every release (REQUESTS=40 for each cluster)'
	@echo 'make bench   the benchmarks, each against a named floor in the same run'
	@echo 'make faults  break a private Slurm in every way we know, and show what became of the jobs (FORMAT=markdown: as in docs/faults.md)'
	@echo 'make soak    half an hour of submissions as fast as slurmctld takes them, with a fault every five seconds'
	@echo 'make audit   compare the pinned dependencies with the public advisories (exit code 4: they cannot be reached)'
	@echo 'make fuzz    a million damaged inputs, shared among all parsers, guided by coverage (INPUTS=20000 for fewer)'
	@echo 'make clean   remove the virtual environment and caches'

setup:
	@tools/setup packages
	@tools/setup venv

demo: setup
	@$(BIN)/rightsizer demo

# Other releases of Slurm for the tests; a release that cannot be bootstrapped is skipped.
releases:
	@tools/setup releases

test: setup releases
	@tools/test

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@if command -v luacheck >/dev/null; then luacheck --quiet lua tests/lua; else echo 'luacheck is not installed (Debian: lua-check): skipped'; fi

check: lint test

matrix: setup releases
	@$(BIN)/python -m tests.cluster.matrix

twins: setup releases
	@$(BIN)/python -m tests.cluster.twins --requests $(or $(REQUESTS),40)

bench: setup
	$(BIN)/python -m bench.submit_rate
	$(BIN)/python -m bench.journal_links
	$(BIN)/python -m bench.clients_flood
	$(BIN)/python -m bench.collector_cost
	$(BIN)/python -m bench.ingest_rate
	$(BIN)/python -m bench.reingest
	$(BIN)/python -m bench.training
	$(BIN)/python -m bench.simulation_rate
	$(BIN)/python -m bench.replay_rate
	$(BIN)/python -m bench.patent_waits
	$(BIN)/python -m bench.brakes
	$(BIN)/python -m bench.recovery_rounds
	@if [ -n "$$RIGHTSIZER_TRACES" ]; then $(BIN)/python -m bench.memory_sizing --warm 4 && $(BIN)/python -m bench.calibration && $(BIN)/python -m bench.forecast && $(BIN)/python -m bench.gpu_sharing && $(BIN)/python -m bench.gpu_fragmentation; else echo 'RIGHTSIZER_TRACES is not set: sizing, forecasts and GPUs on public traces are skipped'; fi

faults: setup
	@$(BIN)/python -m tests.cluster.campaign --format $(or $(FORMAT),table)

soak: setup
	@$(BIN)/python -m bench.soak

audit: setup
	@tools/audit

# If there is no wheel of atheris, seeds are damaged at random, without coverage.
fuzz: setup
	@$(BIN)/python -m pip install -q --disable-pip-version-check --constraint constraints.txt --editable '.[fuzz]' || true
	@$(BIN)/python -m tests.fuzz --inputs $(INPUTS)

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
