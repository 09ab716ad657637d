# `make` lists the targets. The first two are all a newcomer needs.
.DEFAULT_GOAL := help
.PHONY: help demo xds test build check fmt clippy doc deny goldens sim e2e fuzz search bench load up dist clean

CARGO ?= cargo

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | awk -F'\t' '{printf "  %-10s %s\n", $$1, $$2}'

# Of the whole workspace, or other features would be chosen and everything built once more.
xds: ## Run the rules of xDS as tests and print which test holds which rule
	$(CARGO) test --workspace --lib rulebook
	@$(CARGO) test --quiet --workspace --lib rulebook::table::every_rule -- --nocapture

demo: ## Run one global, two zones and real Envoys, show a policy take effect (ONCE=1: stop after the last proof)
	@demo/setup.sh demo
	@ONCE=$(ONCE) demo/run.sh

# A gate fails for what was changed, never for a case that chance brought up: seeds are the same in every run
# of the tests, and `make search` looks for new cases.
test: export PROPTEST_RNG_SEED ?= 20260101
test: ## Install what the tests need and run them all
	@demo/setup.sh test
	@CARGO=$(CARGO) tests/run.sh

# Rounds, each with seeds of its own.
ROUNDS ?= 20
search: ## Run the property tests on random cases, over and over (ROUNDS=20)
	@unset PROPTEST_RNG_SEED; for round in $$(seq $(ROUNDS)); do \
		echo "round $$round of $(ROUNDS)"; \
		$(CARGO) test --quiet --package common --package global --package zone --lib || exit 1; \
	done

build: ## Build the three binaries, optimised
	@demo/setup.sh build
	$(CARGO) build --release --bins

dist: ## Build and pack what is given to others into target/packages: archive, .deb, SBOM, checksums
	@demo/setup.sh dist
	@CARGO=$(CARGO) dist/make.sh

check: fmt clippy doc ## Formatting, lints and docs, as CI runs them

fmt:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items

deny: ## Check licences and advisories of dependencies (needs cargo-deny)
	$(CARGO) deny check

goldens: ## Replay the golden cases and print passed, failed and skipped per family
	GOLDENS_DIR=$${GOLDENS_DIR:-../shared/data/kuma-goldens} $(CARGO) test --package strait --test goldens -- --nocapture

sim: ## Simulate global and two zones under faults (SIM_SEED=7 for one schedule)
	$(CARGO) test --package strait --test sim -- --nocapture

e2e: ## Run the real binaries with real Envoys
	@demo/setup.sh test
	$(CARGO) test --package strait --test e2e

# Minutes of a core for each target; what it had before counts.
FUZZ_MINUTES ?= 60
fuzz: ## Search on with libFuzzer where the tests replay, stopped and resumed at will (TARGET=sync-items for one; needs nightly Rust)
	@tests/fuzz/search.sh "$(TARGET)" "$(FUZZ_MINUTES)"

bench: ## Measure against a floor in the same run (BENCH=p4 for one scenario, BENCH_SCALE=0.1 for less of it)
	$(CARGO) bench --package strait --bench strait

# Options of strait-load.
LOAD ?= --proxies 100 --services 100 --outbounds 50
load: build ## Start a zone, play its proxies and say what they cost (LOAD="--proxies 1000"; LOAD=--help lists more)
	$(CARGO) run --release --package load -- --start target/release/strait-zone $(LOAD)

up: ## The demo in containers, on Postgres
	docker compose up --build

clean: ## Remove build output and what the demo left
	$(CARGO) clean
	rm -rf .strait
