# What the shim costs under containerd. Included by the root Makefile, whose variables it uses, and those of stack.mk.

# Peers beside runc. crun: any that takes this host's cgroups. youki is built where libseccomp can be had.
BENCH_CRUN ?= $(shell command -v crun)
YOUKI := $(TOOLS)/bin/youki

$(YOUKI):
	@pkg-config --exists libseccomp 2>/dev/null || { $(call install,libseccomp-dev pkg-config); }
	# Outside of the workspace, whose settings ask for static programs: libseccomp is linked as distributions do.
	cd / && cargo install --locked --quiet --root $(TOOLS) --target-dir $(TOOLS)/build youki@0.7.0 \
	  --no-default-features --features v1,v2,seccomp

.PHONY: bench-shim
bench-shim: stack stack-runsc $(YOUKI) ## the shim under containerd beside runc's with runc, crun and youki; BENCH_SHIM="--runs 5 --only pods" for less of it
	@cargo build --locked --release -p containerd-shim-sandglass-v1
	cargo run --locked --release -p sandglass-bench-shim -- --servers $(STACK) --shim $(OUT)/containerd-shim-sandglass-v1 \
	  --youki $(YOUKI) $(if $(BENCH_CRUN),--crun $(BENCH_CRUN)) $(BENCH_SHIM)
