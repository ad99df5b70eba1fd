# make run builds and starts the sandbox; make test runs every test.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GOFLAGS_BUILD = -trimpath -ldflags '-s -w -X main.version=$(VERSION)'
FUZZTIME ?= 60s

.PHONY: build run test race race-short lint fuzz soak soak-authors soak-backup soak-entries soak-open soak-powercut soak-swaps soak-recipients bench bench-server measure peers web licenses screenshots clean

build:
	CGO_ENABLED=0 go build $(GOFLAGS_BUILD) -o mailstead .

run: build
	./mailstead serve

# Without the tables of a debugger, since linking the tests of 60 packages takes its time; make lint has vet.
test: peers
	TMPDIR=$$(sh .ci/tmp) go test -vet=off -ldflags=-w ./...

# The race detector makes everything four times as slow. race-short, which .ci/run asks for, takes the packages whose work
# is to share things between goroutines. race takes all but parsers that do one thing at a time, and the tests of the
# program in which most goes on at once; the program is then built with the detector.
race-short:
	TMPDIR=$$(sh .ci/tmp) go test -race -short -vet=off -ldflags=-w ./handlers/connlimit ./internal/limit ./jobs ./store ./webhooks

RACY = ^Test(Receive|Send|Stop|TwoAccounts|Connections|TooMany|EdgeRaces|ExternalChanges|Feedback|Relay|ManyHosts|DeadResolver)
race: peers
	go test -race -short -ldflags=-w $$(go list ./... | grep -vE '/(e2e|mail/(dmarcreport|msg|tokenize|view))$$')
	go test -race -short -run '$(RACY)' ./e2e

peers:
	@sh .ci/peers

# Builds web/dist, which is committed, from the dashboard's sources.
web:
	@sh .ci/web

# Collects the licence notices of what is built in; to be run, and the result committed, when go.mod or web/package-lock.json changes.
licenses:
	@sh .ci/web modules
	@go run ./internal/licenses/generate

# Pictures of every page of the dashboard, at work, into docs/screenshots; those that README shows are committed.
screenshots: peers
	MAILSTEAD_SHOTS=$(CURDIR)/docs/screenshots MAILSTEAD_WALK=pages go test -count=1 -run '^TestDashboard$$' ./e2e
	cd docs/screenshots && cp inbox-phone-light.png phone.png && cp message.png inbox.png

lint:
	@sh .ci/lint

fuzz:
	@.ci/fuzz all $(FUZZTIME)

# The tests of long runs at their full size.
soak:
	MAILSTEAD_SOAK=1 go test -run '^TestExternalMailboxes$$' -v -timeout 30m ./e2e
	MAILSTEAD_SOAK=1 MAILSTEAD_WALK=long,crowded,roles go test -count=1 -run '^TestDashboard$$' -v -timeout 30m ./e2e

# Random histories of a store whose entries another one applies, both killed in between.
HISTORIES ?= 10000
soak-entries:
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_HISTORIES=$(HISTORIES) MAILSTEAD_SEED=$(SEED) go test -count=1 -run '^TestEntriesMakeTheSameStore$$' -timeout 60m ./store

# Power cuts at random points under load, by a trace of system calls.
CUTS ?= 200
soak-powercut: peers
	MAILSTEAD_CUTS=$(CUTS) MAILSTEAD_SEED=$(SEED) go test -count=1 -run '^TestPowerCut$$' -v -timeout 60m ./e2e

# Backups of 100 000 messages under load, to a directory and to a bucket, compared with what is restored.
MESSAGES ?= 100000
soak-backup:
	MAILSTEAD_MESSAGES=$(MESSAGES) MAILSTEAD_STRICT=0 go test -count=1 -run '^TestBackupUnderLoad$$' -v -timeout 60m ./e2e

# Rounds of an upgrade for good, each with the store before started again.
ROUNDS ?= 20
soak-swaps:
	MAILSTEAD_ROUNDS=$(ROUNDS) go test -count=1 -run '^TestSwapAndBack$$' -v -timeout 30m ./e2e

# How long a store of a million messages takes to open, with nothing of it cached.
soak-open:
	MAILSTEAD_SOAK=1 go test -count=1 -run '^TestOpenSoak$$' -v -timeout 30m ./store

# Messages to a thousand mailboxes at once, and kills in between.
soak-recipients:
	MAILSTEAD_SOAK=1 MAILSTEAD_STRICT=0 go test -count=1 -run '^TestManyRecipients$$' -v -timeout 20m ./e2e

# Compares who the author of a message is, over made-up headers, with Go's net/mail, Python's email package and nodemailer.
AUTHORS ?= 1000000
SEED ?= 2026
soak-authors: peers
	MAILSTEAD_AUTHORS=$(AUTHORS) MAILSTEAD_SEED=$(SEED) go test -count=1 -run '^TestAuthorsAgree$$' -v -timeout 60m ./mail/msg

# At the end stand the largest and longest transactions; a function is to take at most 50 ms.
bench:
	@reports=$$(mktemp -d); trap 'rm -rf "$$reports"' EXIT; MAILSTEAD_TX_REPORT=$$reports go test -run '^$$' -bench . -benchmem ./... && .ci/tx-report $$reports

# Measures the built program from outside, side by side with servers that do nothing but keep the bytes: a table of medians.
# ONLY is a regular expression of the works (bench/mailstead-bench -list names them), COUNT a factor on their size.
ROUNDS_BENCH ?= 5
COUNT ?= 1
bench-server: build
	CGO_ENABLED=0 go build -o bench/mailstead-bench ./bench
	bench/mailstead-bench -server ./mailstead -only '$(ONLY)' -rounds $(ROUNDS_BENCH) -count $(COUNT)

# How the code is cut: lengths of functions, sizes of packages, circles of files, ways of a message.
measure:
	@go run ./internal/measure

clean:
	rm -rf mailstead data
