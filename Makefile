# The newcomer's commands. Each target installs, by Debian package name, what it lacks (scripts/need), then does
# its work with cargo and the scripts in scripts/. `make help` lists them.

PREFIX  ?= /usr/local
DESTDIR ?=
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
RELEASE    := $(TARGET_DIR)/$(TARGET:%=%/)release
export CARGO_TARGET_DIR := $(TARGET_DIR)

# `make build TARGET=aarch64-unknown-linux-gnu` builds for another machine, with Debian's cross compiler for it; the
# compiler of Rust needs the standard library of that machine (rustup target add, or Debian's libstd-rust-dev:arm64).
ifdef TARGET
CROSS_CC ?= $(subst -unknown,,$(TARGET))-gcc
export CARGO_TARGET_$(shell echo '$(TARGET)' | tr 'a-z-' 'A-Z_')_LINKER ?= $(CROSS_CC)
endif

# `make build REPRODUCIBLE=1` keeps the paths of this folder and of cargo's out of the binaries: two builds of one commit
# are the same octets, whoever made them.
ifdef REPRODUCIBLE
WITHOUT_PATHS := RUSTFLAGS='--remap-path-prefix=$(CURDIR)=/usr/src/weft \
	--remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/usr/src/cargo'
endif

.DEFAULT_GOAL := help
.PHONY: help build packages demo test test-full test-siw test-sockets test-scale test-packages test-hostile test-loom test-mutants test-asan bench install uninstall lint clean

help: ## this list
	@echo 'Weft: software iWARP in user space. Targets:'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20
	@echo 'Settings: PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) CARGO_TARGET_DIR=$(TARGET_DIR)'

build: ## target/release/weft, with its libraries beside it
	@scripts/need build
	$(WITHOUT_PATHS) cargo build --release $(TARGET:%=--target=%) --package weft --package weft-abi-preload
	$(WITHOUT_PATHS) $(if $(TARGET),CC='$(CROSS_CC)') abi/verbs/build.sh $(TARGET:%=--target=%) $(RELEASE)
	cargo xtask third-party >$(RELEASE)/third-party.txt.new && mv $(RELEASE)/third-party.txt.new $(RELEASE)/third-party.txt
	cargo xtask materials >$(RELEASE)/weft.cdx.json.new && mv $(RELEASE)/weft.cdx.json.new $(RELEASE)/weft.cdx.json

demo: ## unmodified RDMA programs on this machine, beside raw TCP
	@scripts/need build verbs demo
	@$(MAKE) --no-print-directory build
	scripts/demo $(RELEASE)/weft

test: ## every test, from the value tests to the real programs
	@scripts/need build verbs test
	@scripts/need siw || true # without a guest its cells are skipped
	scripts/test

test-full: ## the same, with every cell of the real programs (about forty minutes)
	@scripts/need build verbs test
	scripts/test --full

test-siw: ## Linux siw in a guest as the peer, every cell (about ten minutes)
	@scripts/need build verbs test siw
	@$(MAKE) --no-print-directory build
	tests/siw/run.py --weft $(RELEASE)/weft --logs $(TARGET_DIR)/test-logs/siw --docs docs/interop.md

test-sockets: ## unmodified socket programs and every conformance run, under the hooks (about ten minutes)
	@scripts/need build verbs test sockets
	@$(MAKE) --no-print-directory build
	tests/unmodified/run.py $(RELEASE)/libweft_preload.so --full --docs docs/sockets-programs.md
	tests/sockets/long.sh $(RELEASE)/weft

test-scale: ## ten thousand queue pairs beside as many sockets, and peers of one UDP program (about eleven minutes)
	@scripts/need build verbs test
	@$(MAKE) --no-print-directory build
	tests/scale/run.py --weft $(RELEASE)/weft --json $(TARGET_DIR)/scale.json $(SCALE_ARGS)
	tests/uoe/peers.py --weft $(RELEASE)/weft

test-packages: ## packages made, checked, and installed in clean systems (about half an hour)
	@scripts/need build verbs test packages
	@$(MAKE) --no-print-directory build
	tests/packages/run.py --build $(RELEASE) --full

packages: ## the Debian package, the RPM and the wheel, in target/packages
	@scripts/need build packages
	@$(MAKE) --no-print-directory build REPRODUCIBLE=1 CARGO_TARGET_DIR=$(TARGET_DIR)/reproducible
	scripts/package $(TARGET_DIR)/reproducible/$(TARGET:%=%/)release $(TARGET_DIR)/packages deb rpm wheel

test-hostile: ## attacks on real programs for an hour, honest traffic beside them (HOSTILE_ARGS='--seconds N --seed S')
	@scripts/need build verbs test
	@$(MAKE) --no-print-directory build
	tests/hostile/run.py --weft $(RELEASE)/weft --seconds 3600 $(HOSTILE_ARGS)

test-loom: ## locks and wake-ups under a model checker, longer; that it and the simulation find what they should
	LOOM_MAX_PREEMPTIONS=3 LOOM_MAX_DURATION=120 cargo test --release --package weft-loom
	tests/loom/mutants.sh
	tests/simulation/tests/system/mutants.sh
	tests/simulation/tests/uoe/mutants.sh

test-mutants: ## take checks out of the crates one at a time and ask for a test that fails (an hour; goes on where it was ended)
	tests/mutants/run.py $(MUTANTS_ARGS)

test-asan: ## the C edge under AddressSanitizer (needs a nightly compiler)
	@scripts/need build verbs test
	tests/asan.sh

bench: ## measure against raw TCP, libfabric and UCX
	@scripts/need build verbs bench
	@$(MAKE) --no-print-directory build
	$(RELEASE)/weft bench $(BENCH_ARGS)

install: ## weft, libraries, a header, man pages and completions under DESTDIR/PREFIX
	@[ -e $(RELEASE)/libweft.so ] || $(MAKE) --no-print-directory build
	scripts/install $(RELEASE) '$(DESTDIR)$(PREFIX)'

uninstall: ## remove what `make install` put there
	scripts/install --remove $(RELEASE) '$(DESTDIR)$(PREFIX)'

lint: ## formatting, clippy, the house rules
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings
	cargo xtask tidy

clean: ## remove everything built
	cargo clean
