# make run builds and starts the sandbox; make test runs every test.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The tag leaves out what the library of the command line makes manuals with. What waits for a network, a disk or a person is
# compiled without inlining: 0.8 MB less.
GOFLAGS_BUILD = $(shell cat packaging/buildflags) -ldflags '-s -w -X main.version=$(VERSION)'
FUZZTIME ?= 60s

.PHONY: build run test race race-short lint fuzz soak bench bench-compare bench-server measure peers web licenses screenshots clean release compare-bounces

build:
	CGO_ENABLED=0 go build $(GOFLAGS_BUILD) -o mailstead .

run: build
	./mailstead serve

# Without tables of symbols and of a debugger, since linking the tests of 60 packages takes its time; make lint has vet. The packages
# that take longest begin first, and beside them those that do not wait for other programs. Three at a time keep two cores busy.
# Collecting garbage at five times the live memory saves a twentieth of the time.
test: peers
	GOGC=400 TMPDIR=$$(sh .ci/tmp) go test -vet=off -ldflags=-s -timeout 30m -p 3 ./e2e/api ./e2e/faults ./handlers ./e2e/... ./handlers/... ./service/... ./store/... ./dnsprov/... ./...

# The race detector makes everything four times as slow. race-short, which .ci/run asks for, takes the packages whose work
# is to share things between goroutines. race takes all but parsers that do one thing at a time, and the tests of the
# program in which most goes on at once; the program is then built with the detector.
race-short:
	TMPDIR=$$(sh .ci/tmp) go test -race -short -vet=off -ldflags=-s ./handlers/connlimit ./internal/limit ./jobs ./store ./webhooks

RACY = ^Test(Receive|Send|Stop|TwoAccounts|Connections|TooMany|EdgeRaces|ExternalChanges|Feedback|Relay|ManyHosts|DeadResolver)
race: peers
	go test -race -short -ldflags=-w $$(go list ./... | grep -vE '/(e2e/.*|mail/(dmarcreport|msg|tokenize|view))$$')
	go test -race -short -run '$(RACY)' ./e2e/...

peers:
	@sh .ci/peers

# Builds web/dist, which is committed, from the dashboard's sources.
web:
	@sh .ci/web

# Collects the licence notices of what is built in; to be run, and the result committed, when go.mod or web/package-lock.json changes.
licenses:
	@sh .ci/web modules
	@go run ./internal/licenses/generate

# Fills dist with archives, packages, the list of what is built in, the changelog with changelog/unreleased on top, and
# checksums: make release VERSION=1.2.3. Two runs on one commit with one version of Go give the same bytes.
release:
	rm -rf dist
	@go run ./packaging/release $(if $(filter-out file,$(origin VERSION)),-version '$(VERSION)')

# Pictures of every page of the dashboard, at work, into docs/screenshots; those that README and docs/dashboard.md show are committed.
screenshots: peers
	MAILSTEAD_SHOTS=$(CURDIR)/docs/screenshots MAILSTEAD_WALK=pages go test -count=1 -run '^TestDashboard$$' ./e2e/api
	cd docs/screenshots && cp inbox-phone-light.png phone.png && cp message.png inbox.png

lint:
	@sh .ci/lint

fuzz:
	@.ci/fuzz all $(FUZZTIME)

# The tests of long runs: make soak NAME=hold ROUNDS=500 SEED=7; without a name it lists them. soak-hold is the same.
NAME ?=
soak:
	@NAME='$(NAME)' .ci/soak

soak-%:
	@NAME='$*' .ci/soak

# Compares how reports of bounces are read with Sisimai, over those that the test makes, or over the
# files of a folder, of which REPORTS is the whole path.
compare-bounces: peers
	MAILSTEAD_REPORTS=$(REPORTS) go test -count=1 -v -run '^TestReports(AreReadAsTheyWereMade|AgainstAnotherReader)$$' ./service/feedback

# At the end stand the largest and longest transactions; a function is to take at most 50 ms.
bench:
	@reports=$$(mktemp -d); trap 'rm -rf "$$reports"' EXIT; MAILSTEAD_TX_REPORT=$$reports go test -run '^$$' -bench . -benchmem ./... && .ci/tx-report $$reports

# Compares SMTP, IMAP and the API with those of an earlier commit: make bench-compare BASE=COMMIT.
COUNT ?= 10
bench-compare:
	@.ci/bench-compare $(BASE) $(COUNT)

# Measures the built program from outside, side by side with servers that do nothing but keep the bytes: a table of medians.
# ONLY is a regular expression of the works (bench/mailstead-bench -list names them), SIZE a factor on their size.
ROUNDS_BENCH ?= 5
SIZE ?= 1
bench-server: build
	CGO_ENABLED=0 go build -o bench/mailstead-bench ./bench
	bench/mailstead-bench -server ./mailstead -only '$(ONLY)' -rounds $(ROUNDS_BENCH) -count $(SIZE)

# How the code is cut: lengths of functions, sizes of packages, circles of files, ways of a message.
measure:
	@go run ./internal/measure

clean:
	rm -rf mailstead data dist
