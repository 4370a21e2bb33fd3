# Everything a machine with Go, git and make can do. Start with `make demo` and `make test`.
.PHONY: build tools demo demo-crawl test levels weakhash race soak places fixtures check bench bench-serve bench-frontier proto assembly profile fuzz clean
GO ?= go
# Programs do not depend on the folder of the sources, so a copy of them builds from the cache.
export GOFLAGS ?= -trimpath
SERVICES := bin/temporal bin/versitygw
LINTERS := bin/golangci-lint bin/deadcode
TOOLS := $(SERVICES) $(LINTERS) bin/workflowcheck
# Makes the tool $@ in the module that lists it as a tool.
tool = @echo "building $@ (once)"; $(GO) build -C $(1) -o $(CURDIR)/bin/ $$($(GO) list -C $(1) tool | grep '/$(@F)$$') && touch $@

# Starter and worker are urlake by other names: a link costs more than all the rest of a build.
# Without symbols, which only debuggers read, it takes two thirds of the time.
build: ; $(GO) build -ldflags=-s -o bin/ . ./serve ./frontier/frontierd ./frontier/example/crawler && ln -sf urlake bin/starter && ln -sf urlake bin/worker
tools: $(TOOLS)
# Linters are a module of their own, so that their dependencies do not change the services under
# test.
$(LINTERS): deploy/lint/go.mod deploy/lint/go.sum ; $(call tool,deploy/lint)
bin/%: deploy/go.mod deploy/go.sum ; $(call tool,deploy)
demo: build ; @command -v temporal >/dev/null || $(MAKE) -s --no-print-directory bin/temporal; bin/starter demo $(DEMO_ARGS)
# Crawls test sites, from the URLs of a lake to a dataset of visits: docs/frontier.md.
demo-crawl: build ; @command -v temporal >/dev/null || $(MAKE) -s --no-print-directory bin/temporal; $(GO) run ./frontier/example/demo $(DEMO_ARGS)
test: build $(SERVICES) ; deploy/test
# The tests of packages with assembly at each CPU level that the code can choose.
levels: ; $(GO) run ./internal/cpulevels $(TEST_FLAGS)
# Answers against brute force, with a hash of which 12 values are left.
weakhash: ; $(GO) test -tags weakhash -run 'EqualBruteForce|EqualsBruteForce' $(TEST_FLAGS) ./serve/lookup
race: ; deploy/race $(TEST_FLAGS)
soak: build $(SERVICES) ; nice -n 10 $(GO) test -tags soak -count=1 -timeout 90m -run '$(or $(SOAK),AllRealData|RealDataMoves|AnySize|ManyDatasets|FromNothing|AnyDamage|Fixture|LivesThrough|EveryInterleaving|BadNetwork|FlipsUnderLoad|SteadyUnderLoad|SoakOfEverything|KilledOnceAStep|StarterKilled|LakeEqualsMap|MillionKeys|TreesOfRealData|NothingIsLostWhateverDies)' -v ./frontier/command ./indexbuild/treebuild ./internal/e2e ./internal/model ./publish/lakecheck ./publish/gc ./lake/blob/s3blob ./serve/api ./serve/command
# All places of a crash or of damage, where make test looks at one of several (testenv.Every).
places: ; nice -n 10 $(GO) test -tags soak -vet=off -count=1 -timeout 90m $(TEST_FLAGS) $$(grep -rl --include='*_test.go' 'testenv\.Every(' . | xargs -n1 dirname | sort -u)
# Writes internal/compat/testdata/lakes/FIXTURE, a lake for later versions to read:
# docs/compatibility.md.
fixtures: $(SERVICES) ; @test -n '$(FIXTURE)' || { echo 'give it a name: make fixtures FIXTURE=2-what-is-new'; exit 2; }
	$(GO) test -tags soak -count=1 -run 'TestFixture$$' ./internal/e2e -fixture '$(FIXTURE)'
check: $(LINTERS) bin/workflowcheck ; deploy/check
bench: ; $(GO) test -run xxx -bench . -benchtime $(or $(BENCHTIME),1x) ./... && $(GO) test -C bench ./... && $(GO) run -C bench ./compare
# The read server beside SQLite and DuckDB: docs/performance.md.
bench-serve: ; $(GO) run -C bench ./serving
# The crawl frontier over HTTP beside a queue in PostgreSQL: docs/performance.md.
bench-frontier: ; $(GO) test ./frontier/command -run xxx -bench . -benchtime 1x -timeout 6h
# The Go code of the URLFrontier protocol, by protoc (Debian: protobuf-compiler).
PROTO := frontier/urlfrontier/urlfrontierpb
proto: ; GOBIN=$(CURDIR)/bin $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go && GOBIN=$(CURDIR)/bin $(GO) install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
	PATH=$(CURDIR)/bin:$$PATH protoc -I $(PROTO) --go_out=$(PROTO) --go_opt=paths=source_relative --go-grpc_out=$(PROTO) --go-grpc_opt=paths=source_relative urlfrontier.proto
# What each assembly routine saves. It takes minutes for every routine; ROUTINES chooses some.
assembly: ; $(GO) run -C bench ./assembly $(if $(ROUTINES),-routines '$(ROUTINES)')
profile: ; BENCH_PROFILE=$(CURDIR)/bin/cpu.prof BENCH_KEYS=0 BENCH_GROWTH=0 BENCH_WORKER_ROWS=0 BENCH_SERVE_ROWS=0 $(GO) run -C bench ./compare && $(GO) tool pprof -top bin/cpu.prof | head -60
fuzz: ; deploy/fuzz $(FUZZTIME)
clean: ; rm -rf bin
