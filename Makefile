# The targets are the steps of CI. `make demo` and `make test` are all that a newcomer needs.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.ONESHELL:

HOST := $(shell rustc -vV | sed -n 's/^host: //p')
OUT := $(CURDIR)/target/$(HOST)/release
TOOLS := $(CURDIR)/target/tools
SANDGLASS := $(OUT)/sandglass
RUNNER := $(CURDIR)/target/runner/$(HOST)/release/sandglass-runner
SUITE := $(OUT)/sandglass-conformance
# A job in the background ignores signals, and so would every process of every case.
RUN_SUITE := env --default-signal $(SUITE)
SHIM := $(OUT)/containerd-shim-sandglass-v1
STAMP := $(CURDIR)/target/sandglass/image.stamp

# Nothing is left outside of target/: the image, the cache of its inputs and the state of runs.
export SANDGLASS_STORE ?= $(CURDIR)/target/sandglass/store
export SANDGLASS_CACHE ?= $(CURDIR)/target/sandglass/cache

# What the benchmark compares with, built once for each lock.
RUNC := $(CURDIR)/target/bench/runc-$(shell cat conformance/bench/runc/go.mod conformance/bench/runc/go.sum | sha256sum | cut -c 1-16)

# Seconds that each fuzzer runs in `make fuzz`; the release checklist takes 600.
FUZZ_SECONDS ?= 5
FUZZERS := to_runner from_runner quantities report

.PHONY: help
help: ## what there is to make
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | column -ts $$'\t'

# command=package: what the build calls, and the Debian package that has it.
NEEDED := cc=build-essential c++=build-essential git=git python3=python3 pip3=python3-pip mvn=maven npm=npm unshare=util-linux

# Debian packages, as root; anybody else is told which.
define install
if (( EUID )); then echo "Install these Debian packages first:" $(1) >&2; exit 1; fi
echo "Installing" $(1) "…"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1) >/dev/null
endef

# Those of a list of command=package whose command is not here.
define need
missing=()
for pair in $(1); do
  command -v "$${pair%%=*}" >/dev/null || missing+=("$${pair#*=}")
done
if (( $${#missing[@]} )); then
$(call install,"$${missing[@]}")
fi
endef

.PHONY: setup
setup: ## install what the build needs and is not here (Debian packages, as root)
	@$(call need,$(NEEDED))

.PHONY: build
build: ## the `sandglass` binary and the runner, static, release
	@cargo build --locked --release -p sandglass -p sandglass-conformance
	# A target directory and path names of its own: the runner's bytes, and so the image's digest, do not depend on where it was built.
	CARGO_TARGET_DIR=target/runner CARGO_ENCODED_RUSTFLAGS="$$(printf '%s\x1f' -C target-feature=+crt-static --remap-path-prefix=$(CURDIR)=/src --remap-path-prefix=$${CARGO_HOME:-$$HOME/.cargo}=/cargo)--cap-lints=warn" \
	  cargo build --locked --release -p sandglass-runner

.PHONY: shim
shim: ## the containerd shim, static, release
	@cargo build --locked --release -p containerd-shim-sandglass-v1

.PHONY: image
image: setup build ## the sandbox image, from its lock
	@if [[ $(STAMP) -nt $(RUNNER) && $(STAMP) -nt $(SANDGLASS) ]] && $(SANDGLASS) image digest >/dev/null 2>&1; then exit 0; fi
	$(SANDGLASS) image build --runner $(RUNNER)
	touch $(STAMP)

.PHONY: demo
demo: image ## run real agent work in a real sandbox
	@work=$$(mktemp -d)
	trap 'rm -rf "$$work"' EXIT
	echo; echo "── A Python script simulates a subscription business ──"
	$(SANDGLASS) run --cpus 1 --out "$$work" examples/subscriptions.py
	echo; echo "── A Node script turns its table into JSON ──"
	$(SANDGLASS) run --out "$$work" --input "$$work/customers.csv" examples/to_json.mjs
	mkdir -p target/demo && cp "$$work"/* target/demo/
	echo; echo "The artifacts are in target/demo/:"; ls -l target/demo

.PHONY: check
check: $(TOOLS)/bin/cargo-deny $(TOOLS)/bin/cargo-machete ## format, lints, licences, unused dependencies, docs
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked -p containerd-shim-sandglass-v1 --all-targets --features otlp -- -D warnings
	cargo fetch --locked --quiet
	$(TOOLS)/bin/cargo-deny --offline check --hide-inclusion-graph bans licenses sources
	$(TOOLS)/bin/cargo-machete
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet

.PHONY: test
test: image check unit image-test conformance conformance-user fuzz shim-test stack-test critest conformance-containerd test-v2 ## everything that CI runs

.PHONY: unit
unit: ## unit and integration tests; those of the shim are in shim-test
	cargo test --locked --workspace --exclude containerd-shim-sandglass-v1 --exclude sandglass-stack

.PHONY: image-test
image-test: image ## build the image twice and compare; look at what is in it
	cargo test --locked --release -p sandglass-image -- --ignored --test-threads 1

# A machine on which others work too: only traces that are ours count as left behind.
SUITE_FLAGS := --sandglass $(SANDGLASS) --host-scope own

.PHONY: conformance
conformance: image ## as root: every control, then every hostile, outcome and work case
	@if (( EUID )); then echo "The suite's controls and cases need root; as you are, run make conformance-user." >&2; exit 1; fi
	root=$(SANDGLASS_STORE)/rootfs/$$($(SANDGLASS) image digest | cut -d: -f2)
	$(RUN_SUITE) $(SUITE_FLAGS) --validate --rootfs "$$root" --permit conformance/permitted-skips/validate.toml
	$(RUN_SUITE) $(SUITE_FLAGS) --permit conformance/permitted-skips/root.toml --junit target/conformance.xml

.PHONY: conformance-user
conformance-user: image ## the same cases as an ordinary user, with the waivers that this host forces
	@stage=$$(mktemp -d)
	trap 'rm -rf "$$stage"' EXIT
	as=()
	if (( EUID == 0 )); then
	  # A user of no account and no group, and files that it can reach wherever the checkout lies.
	  chmod 755 "$$stage"; install -d -o 64999 -g 64999 "$$stage/home"
	  as=(setpriv --reuid 64999 --regid 64999 --clear-groups env HOME="$$stage/home" XDG_RUNTIME_DIR="$$stage/home")
	fi
	cp $(SANDGLASS) $(SUITE) conformance/permitted-skips/user.toml "$$stage"
	cp -al "$(SANDGLASS_STORE)" "$$stage/store" 2>/dev/null || cp -a "$(SANDGLASS_STORE)" "$$stage/store"
	cd "$$stage"
	SANDGLASS_STORE="$$stage/store" "$${as[@]}" env --default-signal ./sandglass-conformance --sandglass "$$stage/sandglass" --host-scope own \
	  --user --waive memory,pids,cpu --permit user.toml

# Everything in one stack, whose start takes longer than many a case.
CONTAINERD_FLAGS := --runtime containerd --host-scope own --jobs 4 --endurance 20 --permit conformance/permitted-skips/containerd.toml

.PHONY: conformance-containerd
conformance-containerd: shim stack ## the same cases in containers of a real containerd: by the runner, the first process and exec; and runc, which must fail those listed
	@$(STACK_BIN) up --servers $(STACK) --shim $(SHIM) $(STACK_FLAGS) -- bash -euo pipefail -c '
	  for as in runner first exec; do
	    echo "── handler sandglass, the prober as $$as ──"
	    $(RUN_SUITE) $(CONTAINERD_FLAGS) --handler sandglass --as $$as --junit target/conformance-containerd-$$as.xml
	  done
	  echo "── real runc, by the same cases ──"
	  $(RUN_SUITE) $(CONTAINERD_FLAGS) --handler runc --as first --permit conformance/permitted-failures/runc.toml
	'

.PHONY: fuzz
fuzz: $(TOOLS)/bin/cargo-fuzz ## each decoder for FUZZ_SECONDS
	@cd run
	for target in $(FUZZERS); do
	  # New inputs go to target/, so that the committed corpus stays as small as it is. libFuzzer's instrumentation is a
	  # compiler flag that the stable compiler hides behind this variable.
	  found=$(CURDIR)/target/fuzz-corpus/$$target; mkdir -p "$$found"
	  RUSTC_BOOTSTRAP=1 RUSTFLAGS= $(TOOLS)/bin/cargo-fuzz run --target $(HOST) --sanitizer none $$target "$$found" fuzz/corpus/$$target -- \
	    -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=1024 -verbosity=0 -print_final_stats=1
	done

include conformance/stack/stack.mk
include conformance/vm/vm.mk
include conformance/bench-shim/bench-shim.mk

# So many containers are made in one shim, and ten times as many processes exec'ed.
ENDURANCE ?= 1000

.PHONY: shim-test
shim-test: $(STACK_BUSYBOX_STATIC) ## the shim against a mock containerd, and its faults (as root)
	SANDGLASS_ENDURANCE=$(ENDURANCE) cargo test --locked -p containerd-shim-sandglass-v1
	cargo test --locked -p containerd-shim-sandglass-v1 --features otlp -- otlp

.PHONY: bench
bench: image $(if $(shell command -v go),$(RUNC)) ## one table beside bwrap, runc and bare exec; BENCH="--crun PATH --only latency" for more or less of it
	cargo run --locked --release -p sandglass-bench -- --sandglass $(SANDGLASS) $(if $(shell command -v go),--runc $(RUNC)) $(BENCH)

$(RUNC):
	@pkg-config --exists libseccomp 2>/dev/null || { $(call install,libseccomp-dev pkg-config); }
	export PATH="$$($(CURDIR)/conformance/stack/go.sh $(CURDIR)/target/stack/go):$$PATH"
	cd conformance/bench/runc
	CGO_ENABLED=1 go build -buildvcs=false -trimpath -tags seccomp -ldflags "-s -w" -o $@ github.com/opencontainers/runc

.PHONY: doc
doc: ## the crates' documentation
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps

$(TOOLS)/bin/cargo-deny:
	cargo install --locked --quiet --debug --root $(TOOLS) --target-dir $(TOOLS)/build cargo-deny@0.20.2 --no-default-features
$(TOOLS)/bin/cargo-machete:
	cargo install --locked --quiet --debug --root $(TOOLS) --target-dir $(TOOLS)/build cargo-machete@0.9.2
$(TOOLS)/bin/cargo-fuzz:
	cargo install --locked --quiet --debug --root $(TOOLS) --target-dir $(TOOLS)/build cargo-fuzz@0.13.2
