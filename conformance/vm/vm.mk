# cgroup v2 for real: a Debian VM with systemd. Included by the root Makefile; see conformance/vm/README.md.

VM := $(CURDIR)/target/vm
# A new recipe is a new disk.
VM_RECIPE := conformance/vm/disk conformance/vm/packages $(sort $(shell find conformance/vm/guest/etc -type f))
VM_DISK := $(VM)/$(shell cat $(VM_RECIPE) | sha256sum | cut -c 1-16)
VM_PAYLOAD := $(VM)/payload.img

# section:seconds that it may take at most. `runc` and `shim` run under containerd.
VM_SECTIONS ?= root:180 user:150 live:120 suite:420 runc:180 shim:180
VM_STACK := $(if $(filter runc:% shim:%,$(VM_SECTIONS)),$(STACK))
VM_SHIM := $(if $(filter shim:%,$(VM_SECTIONS)),$(SHIM))

$(VM_DISK)/disk.img:
	@conformance/vm/disk $(VM_DISK)
	# Of other recipes, none is of use any more.
	find $(VM) -mindepth 1 -maxdepth 1 -type d -name '????????????????' ! -path $(VM_DISK) -exec rm -rf {} +

.PHONY: vm-payload
vm-payload: image $(if $(VM_STACK),stack) $(if $(VM_SHIM),shim)
	@live=$$(cargo test --locked --no-run -p sandglass-sandbox --test live 2>&1 | sed -n 's/.*Executable .*(\(.*\))$$/\1/p')
	if [[ -z $$live ]]; then echo "cargo made no test binary of sandbox/tests/live.rs." >&2; exit 1; fi
	mkdir -p $(VM)
	STACK=$(VM_STACK) conformance/vm/payload $(VM_PAYLOAD) $(SANDGLASS_STORE) \
	  $(SANDGLASS) $(SUITE) "$$live=live" $(VM_SHIM)

.PHONY: test-v2
test-v2: $(VM_DISK)/disk.img vm-payload ## cgroup v2 for real, in a VM with systemd (no KVM needed); at most 14 minutes
	@exec setpriv --pdeathsig TERM conformance/vm/test $(VM_DISK) $(VM_PAYLOAD) $(VM)/results $(VM_SECTIONS)

.PHONY: vm-shell
vm-shell: $(VM_DISK)/disk.img vm-payload ## a root shell in that VM; `poweroff` or ctrl-a x ends it
	@results=$$(mktemp); trap 'rm -f "$$results"' EXIT; truncate -s 64M "$$results"
	conformance/vm/boot $(VM_DISK) $(VM_PAYLOAD) "$$results" 86400
