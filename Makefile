# Everything a machine with Go, git and make can do. `make demo` and `make test` are the two to start with.
.PHONY: build tools demo test soak check bench profile fuzz clean
GO ?= go
TOOLS := bin/temporal bin/versitygw bin/staticcheck bin/workflowcheck

build: ; $(GO) build -o bin/ ./worker ./starter ./serve
tools: $(TOOLS)
bin/%: deploy/go.mod deploy/go.sum ; @echo "building bin/$* (once)"; $(GO) build -C deploy -o ../bin/ $$($(GO) list -C deploy tool | grep '/$*$$') && touch $@
demo: build ; @command -v temporal >/dev/null || $(MAKE) -s --no-print-directory bin/temporal; bin/starter demo $(DEMO_ARGS)
test: build bin/temporal bin/versitygw ; deploy/test
soak: build bin/temporal bin/versitygw ; nice -n 10 $(GO) test -tags soak -count=1 -timeout 60m -run '$(or $(SOAK),AllRealData|AnySize|FromNothing)' -v ./internal/e2e
check: bin/staticcheck bin/workflowcheck ; deploy/check
bench: ; $(GO) test -run xxx -bench . -benchtime $(or $(BENCHTIME),1x) ./... && $(GO) test -C bench ./... && $(GO) run -C bench ./compare
profile: ; BENCH_PROFILE=$(CURDIR)/bin/cpu.prof BENCH_KEYS=0 BENCH_GROWTH=0 BENCH_WORKER_ROWS=0 BENCH_SERVE_ROWS=0 $(GO) run -C bench ./compare && $(GO) tool pprof -top bin/cpu.prof | head -60
fuzz: ; deploy/fuzz $(FUZZTIME)
clean: ; rm -rf bin
