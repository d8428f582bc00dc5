# The real servers that the shim is measured under. Included by the root Makefile, whose variables and runc it uses.
#
# Each group of servers is built once for each lock (its go.mod and go.sum, and the script that builds it), into a folder
# named after it. target/stack/bin, cni and images are what the stack looks at; nothing else needs to know the names.

STACK := $(CURDIR)/target/stack
STACK_GO := $(CURDIR)/conformance/stack/go
STACK_BUILD := $(CURDIR)/conformance/stack/build.sh
STACK_BIN := $(OUT)/sandglass-stack
STACK_GROUPS := containerd critools cni runsc

stack_group = $(STACK)/$(1)-$(shell cat $(STACK_GO)/$(1)/go.mod $(STACK_GO)/$(1)/go.sum $(STACK_BUILD) | sha256sum | cut -c 1-16)
STACK_CONTAINERD := $(call stack_group,containerd)
STACK_CRITOOLS := $(call stack_group,critools)
STACK_CNI := $(call stack_group,cni)
STACK_RUNSC := $(call stack_group,runsc)
# busybox-static keeps to its own programs in its shell; busybox starts others, and wants the host's libraries.
STACK_BUSYBOX := $(STACK)/busybox/bin/busybox
STACK_BUSYBOX_STATIC := $(STACK)/busybox-static/bin/busybox

# What the stack calls, and the Debian packages that have it.
STACK_NEEDED := go=golang-go ip=iproute2 iptables=iptables nsenter=util-linux dpkg-deb=dpkg

# Extra arguments of `sandglass-stack up`, such as --crun PATH.
STACK_FLAGS ?=

.PHONY: stack-setup
stack-setup:
	@$(call need,$(STACK_NEEDED))

$(STACK_CONTAINERD) $(STACK_CRITOOLS) $(STACK_CNI) $(STACK_RUNSC): | stack-setup
	@group=$(notdir $@)
	mkdir -p $(STACK)
	echo "Building $${group%-*} …"
	go=$$($(CURDIR)/conformance/stack/go.sh $(STACK)/go)
	PATH="$$go:$$PATH" $(STACK_BUILD) "$${group%-*}" $(STACK_GO) $@

# Whatever busybox the distribution has: tests run its programs, nothing is measured by it.
$(STACK_BUSYBOX) $(STACK_BUSYBOX_STATIC): $(STACK)/%/bin/busybox: | stack-setup
	@mkdir -p $(STACK)/$*
	cd $(STACK)/$*
	apt-get download -qq $* 2>/dev/null || { apt-get update -qq; apt-get download -qq $*; }
	dpkg-deb -x $*_*.deb . && rm $*_*.deb
	# Newer distributions keep it in /usr/bin.
	[[ -e $@ ]] || { mkdir -p bin; cp usr/bin/busybox bin/; }
	touch $@

.PHONY: stack-bin
stack-bin:
	@cargo build --locked --release -p sandglass-stack

.PHONY: stack
stack: $(STACK_CONTAINERD) $(STACK_CRITOOLS) $(STACK_CNI) $(RUNC) $(STACK_BUSYBOX) $(STACK_BUSYBOX_STATIC) stack-bin image ## the real servers and the test images (minutes, once)
	@mkdir -p $(STACK)/bin
	ln -sfn $(STACK_CNI) $(STACK)/cni
	for program in $(STACK_CONTAINERD)/* $(STACK_CRITOOLS)/* $(wildcard $(STACK_RUNSC)/*) $(STACK_BIN); do
	  ln -sfn "$$program" $(STACK)/bin/
	done
	ln -sfn $(RUNC) $(STACK)/bin/runc
	if [[ ! -e $(STACK)/images/images.json || $(STAMP) -nt $(STACK)/images/images.json || $(STACK_BIN) -nt $(STACK)/images/images.json ]]; then
	  $(STACK_BIN) images --busybox $(STACK_BUSYBOX) --busybox-static $(STACK_BUSYBOX_STATIC) \
	    --guest $(OUT)/sandglass-stack-guest --store $(SANDGLASS_STORE) --out $(STACK)/images >/dev/null
	fi

.PHONY: stack-runsc
stack-runsc: $(STACK_RUNSC) ## gVisor's runsc and its shim, as a peer of the stack
	@mkdir -p $(STACK)/bin
	ln -sfn $(STACK_RUNSC)/* $(STACK)/bin/

.PHONY: stack-up
stack-up: stack ## a shell with ctr and crictl, on a containerd of its own
	@# The shell's own status is its user's affair; 125 says that something went wrong with the stack.
	$(STACK_BIN) up --servers $(STACK) $(STACK_FLAGS) || (( $$? != 125 ))

# So many containers are made and deleted under the real containerd.
CYCLES ?= 1000

.PHONY: stack-test
stack-test: stack shim ## the stack itself, and our shim's faults under it: killed, restarted, many, nothing left
	SANDGLASS_STACK=$(STACK) SANDGLASS_CYCLES=$(CYCLES) cargo test --locked -p sandglass-stack -- --include-ignored --test-threads 2

# What runc passes on a machine like CI's; fewer mean that the run itself is broken.
CRITEST_LEAST ?= 90
# The handlers beside runc, the baseline.
CRITEST_HANDLERS ?= sandglass-spec sandglass

.PHONY: critest
critest: stack shim ## critest with real runc, then with ours, compared name by name
	@$(STACK_BIN) critest --servers $(STACK) $(STACK_FLAGS) --at-least $(CRITEST_LEAST) --out target/critest --handler runc \
	  $(addprefix --handler ,$(CRITEST_HANDLERS)) \
	  $(if $(filter sandglass,$(CRITEST_HANDLERS)),--expected sandglass=conformance/stack/critest-sandglass.toml)
