# make run builds and starts the sandbox; make test runs every test.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The tag leaves out what the library of the command line makes manuals with. What waits for a network, a disk or a person is
# compiled without inlining: 0.8 MB less.
GOFLAGS_BUILD = $(shell cat packaging/buildflags) -ldflags '-s -w -X main.version=$(VERSION)'
FUZZTIME ?= 60s

.PHONY: build run test race race-short lint fuzz soak soak-approvals soak-authors soak-backup soak-backup-kills soak-bare soak-costs soak-deleted soak-entries soak-hour soak-import soak-kills soak-large soak-lists soak-open soak-powercut soak-swaps soak-upgrade soak-recipients bench bench-compare bench-server measure peers web licenses screenshots clean soak-years soak-faults soak-flips soak-guesses release soak-packages soak-rotate soak-secrets soak-thief soak-schedule soak-slow-receivers soak-groups soak-qresync soak-rules soak-wait soak-classifier soak-sort soak-hold soak-gate soak-sizes soak-clients compare-bounces

build:
	CGO_ENABLED=0 go build $(GOFLAGS_BUILD) -o mailstead .

run: build
	./mailstead serve

# Without the tables of a debugger, since linking the tests of 60 packages takes its time; make lint has vet. The two that take
# longest begin first.
test: peers
	TMPDIR=$$(sh .ci/tmp) go test -vet=off -ldflags=-w -timeout 30m ./e2e ./handlers ./...

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

# Fills dist with archives, packages, the list of what is built in, the changelog with changelog/unreleased on top, and
# checksums: make release VERSION=1.2.3. Two runs on one commit with one version of Go give the same bytes.
release:
	rm -rf dist
	@go run ./packaging/release $(if $(filter-out file,$(origin VERSION)),-version '$(VERSION)')

# Pictures of every page of the dashboard, at work, into docs/screenshots; those that README and docs/dashboard.md show are committed.
screenshots: peers
	MAILSTEAD_SHOTS=$(CURDIR)/docs/screenshots MAILSTEAD_WALK=pages go test -count=1 -run '^TestDashboard$$' ./e2e
	cd docs/screenshots && cp inbox-phone-light.png phone.png && cp message.png inbox.png

lint:
	@sh .ci/lint

fuzz:
	@.ci/fuzz all $(FUZZTIME)

# The tests of long runs at their full size.
soak:
	MAILSTEAD_SOAK=1 go test -count=1 -run '^Test(ExternalMailboxes|TenThousandIdleConnections)$$' -v -timeout 30m ./e2e
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_SOAK=1 go test -count=1 -run '^Test(Text|FlippedBits|RestoreToAnySecond)' -timeout 30m ./store ./store/backup
	MAILSTEAD_SOAK=1 MAILSTEAD_WALK=long,crowded,roles,pages,inbox,mail,domains,people go test -count=1 -run '^TestDashboard$$' -v -timeout 30m ./e2e

# Random histories of a store whose entries another one applies, both killed in between.
HISTORIES ?= 10000
soak-entries:
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_HISTORIES=$(HISTORIES) MAILSTEAD_SEED=$(SEED) go test -count=1 -run '^TestEntriesMakeTheSameStore$$' -timeout 60m ./store

# Power cuts at random points under load, by a trace of system calls.
CUTS ?= 200
soak-powercut: peers
	MAILSTEAD_CUTS=$(CUTS) MAILSTEAD_SEED=$(SEED) go test -count=1 -run '^TestPowerCut$$' -v -timeout 60m ./e2e

# Faults of the disk, of memory and of others, at their full size (docs/faults.md).
soak-faults: peers
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_SOAK=1 go test -count=1 -run '^Test(FailedSync|FailedWrite|ReadOnlyDisk|SlowDisk|TooFewFiles|LittleMemory|FullDisk|DeadUpstreams|DeadResolver|DamagedDisk|TenThousandIdleConnections)$$' -v -timeout 60m ./e2e

# kill -9 at every named point of the write paths, at three passings of each. POINTS is a pattern of names.
POINTS ?= .
PASSINGS ?= 3
soak-kills:
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_POINTS='$(POINTS)' MAILSTEAD_PASSINGS=$(PASSINGS) MAILSTEAD_SEED=$(SEED) go test -count=1 -parallel 4 -run '^TestKillPoint' -v -timeout 180m ./e2e

# Backups of 100 000 messages under load, to a directory and to a bucket, compared with what is restored.
MESSAGES ?= 100000
soak-backup:
	MAILSTEAD_MESSAGES=$(MESSAGES) MAILSTEAD_STRICT=0 go test -count=1 -run '^TestBackupUnderLoad$$' -v -timeout 60m ./e2e

# Backups killed at random moments, servers that send them too, and full disks in between.
soak-backup-kills: KILLS ?= 50
soak-backup-kills:
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_KILLS=$(KILLS) MAILSTEAD_SEED=$(SEED) go test -count=1 -run '^TestKilledBackups$$' -v -timeout 60m ./e2e

# Changes of the master key killed at points of it, on stopped stores and in servers, and run again.
soak-rotate: KILLS ?= 50
soak-rotate:
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_KILLS=$(KILLS) MAILSTEAD_SEED=$(SEED) go test -count=1 -parallel 4 -run '^TestRotateKeyKilled$$' -v -timeout 60m ./e2e

# A restore on a bare machine, and every body of it read.
soak-bare: MESSAGES = 1000
soak-bare: peers
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_MESSAGES=$(MESSAGES) MAILSTEAD_SEED=$(SEED) go test -count=1 -run '^TestRestoreOnABareMachine$$' -v -timeout 30m ./e2e

# Migrations of an old store killed before random writes and syncs.
soak-upgrade: KILLS ?= 200
soak-upgrade: peers
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_KILLS=$(KILLS) MAILSTEAD_SEED=$(SEED) go test -count=1 -run '^TestUpgradeKilled$$' -v -timeout 60m ./store

# A relay, a domain, a mailbox and a key deleted, each while 10 000 messages wait.
WAITING ?= 10000
soak-deleted:
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_WAITING=$(WAITING) MAILSTEAD_STRICT=0 go test -count=1 -run '^Test(DeletedWithMailWaiting|StoppedAccounts)$$' -v -timeout 60m ./e2e

# Ten thousand lines of the log, and their traces, of a run whose secrets are marked: none of them is there.
LINES ?= 10000
soak-secrets:
	MAILSTEAD_LOG_LINES=$(LINES) MAILSTEAD_STRICT=0 go test -count=1 -run '^TestSecretsStayOutOfLogs$$' -v -timeout 60m ./e2e

# Years of an installation at work by a clock that is advanced: nothing grows without bound.
YEARS ?= 3
PER_DAY ?= 100
soak-years:
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_YEARS=$(YEARS) MAILSTEAD_PER_DAY=$(PER_DAY) MAILSTEAD_SEED=$(SEED) go test -count=1 -run '^TestYearsReachAPlateau$$' -v -timeout 60m ./service

# Rounds of an upgrade for good, each with the store before started again.
ROUNDS ?= 20
soak-swaps:
	MAILSTEAD_ROUNDS=$(ROUNDS) go test -count=1 -run '^TestSwapAndBack$$' -v -timeout 30m ./e2e

# One byte changed at random places of segments and of the database, in use and at rest.
FLIPS ?= 200
soak-flips:
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_FLIPS=$(FLIPS) MAILSTEAD_SEED=$(SEED) go test -count=1 -run '^TestRebuildBringsMessagesBack$$' -v -timeout 60m ./store
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_FLIPS=$(FLIPS) MAILSTEAD_SEED=$(SEED) go test -count=1 -run '^TestFlips$$' -v -timeout 120m ./e2e

# Two releases of one commit in different places; packages in a bare system, which debootstrap makes; the container image.
soak-packages:
	@sh .ci/peers packages
	MAILSTEAD_SOAK=1 go test -count=1 -run '^Test(Packages|RPM|TwoReleases|ContainerImage)$$' -v -timeout 60m ./e2e

# How long a store of a million messages takes to open, with nothing of it cached.
soak-open:
	MAILSTEAD_SOAK=1 go test -count=1 -run '^TestOpenSoak$$' -v -timeout 30m ./store

# Messages to a thousand mailboxes at once, and kills in between.
soak-recipients:
	MAILSTEAD_SOAK=1 MAILSTEAD_STRICT=0 go test -count=1 -run '^TestManyRecipients$$' -v -timeout 20m ./e2e

# 200 000 messages of an mbox file with kills in between, of a Maildir, and of a Dovecot: none lost, none twice, and all as they
# were when they are exported.
IMPORT ?= 200000
soak-import: peers
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_IMPORT=$(IMPORT) MAILSTEAD_STRICT=0 go test -count=1 -parallel 1 -run '^TestImport(IsKilled|AndExport|FromDovecot)$$' -v -timeout 60m ./e2e

# An hour of steady mixed load in production's settings: what grows, fails.
MINUTES ?= 60
RATE ?= 40
soak-hour:
	MAILSTEAD_MINUTES=$(MINUTES) MAILSTEAD_RATE=$(RATE) MAILSTEAD_SEED=$(SEED) MAILSTEAD_STRICT=0 go test -count=1 -run '^TestHourOfLoad$$' -v -timeout $$(($(MINUTES)+30))m ./e2e

# A store of five million messages in 20 000 mailboxes, which is filled if SCALE_DIR has none (25 GB, six minutes): the time of
# every list with each filter, an hour of load with 200 MiB of memory, and the costs that docs/performance.md has for each SCALE.
# Load and backups make it grow to 50 GB.
SCALE ?= 5000000
SCALE_DIR ?= /tmp/mailstead-scale
soak-lists:
	MAILSTEAD_SCALE=$(SCALE) MAILSTEAD_SCALE_DIR=$(SCALE_DIR) MAILSTEAD_STRICT=0 go test -count=1 -run '^TestLargeLists$$' -v -timeout 120m ./e2e

soak-costs:
	MAILSTEAD_SCALE=$(SCALE) MAILSTEAD_SCALE_DIR=$(SCALE_DIR) go test -count=1 -run '^TestLargeCosts$$' -v -timeout 120m ./e2e

soak-large:
	MAILSTEAD_SCALE=$(SCALE) MAILSTEAD_SCALE_DIR=$(SCALE_DIR) MAILSTEAD_MINUTES=$(MINUTES) MAILSTEAD_STRICT=0 go test -count=1 -run '^TestLargeLoad$$' -v -timeout $$(($(MINUTES)+120))m ./e2e

# Compares who the author of a message is, over made-up headers, with Go's net/mail, Python's email package and nodemailer.
AUTHORS ?= 1000000
SEED ?= 2026
soak-authors: peers
	MAILSTEAD_AUTHORS=$(AUTHORS) MAILSTEAD_SEED=$(SEED) go test -count=1 -run '^TestAuthorsAgree$$' -v -timeout 60m ./mail/msg

# A hundred thousand messages that are scheduled for the same seconds, with a kill in the middle.
soak-schedule:
	MAILSTEAD_SOAK=1 go test -count=1 -run '^TestScheduledForTheSameMinute$$' -v -timeout 60m ./e2e

# Fifty thousand messages to a relay that takes 14 a second and to a host that throttles.
soak-slow-receivers:
	MAILSTEAD_SOAK=1 go test -count=1 -run '^TestSlowReceivers$$' -v -timeout 150m ./e2e

# A thief who writes to ten thousand strangers over SMTP, the API and MCP from fifty networks.
soak-thief:
	MAILSTEAD_SOAK=1 go test -count=1 -run '^TestThief$$' -v -timeout 30m ./e2e

# Ten thousand passwords that are tried over every way in at once, from one network and from many.
soak-guesses:
	MAILSTEAD_GUESSES=10000 go test -count=1 -run '^TestGuessesOverAllDoorsAreFew$$' -v -timeout 10m ./service/core

# Messages that are held, approved and rejected while the server is killed.
soak-approvals:
	MAILSTEAD_SOAK=1 go test -count=1 -v -timeout 60m -run '^TestApprovalsUnderKills$$' ./e2e

# ARRIVALS messages to mailboxes, groups and domains that do much by themselves, within the store's bounds; then rules against a
# model, and rules while the server is killed.
soak-rules: ARRIVALS ?= 3000
soak-rules: peers
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_ARRIVALS=$(ARRIVALS) MAILSTEAD_SEED=$(SEED) go test -count=1 -v -timeout 60m -run '^TestRandomRulesWithinTheBounds$$' ./service/inbound
	MAILSTEAD_RULES=100000 go test -count=1 -v -timeout 30m -run '^TestRulesAgainstAModel$$' ./service/rules
	MAILSTEAD_SOAK=1 go test -count=1 -v -timeout 30m -run '^TestRulesUnderKills$$' ./e2e

# Ten thousand messages of templates that the start set was not made from, before and after 200 corrections. CORPUS may name a
# folder of other people's mail, in folders named ham… and spam…, which is measured too.
CLASSIFIED ?= 10000
soak-classifier:
	MAILSTEAD_CLASSIFIED=$(CLASSIFIED) MAILSTEAD_CORPUS=$(CORPUS) go test -count=1 -v -timeout 30m -run '^Test(HeldBackTemplates|PublicCorpus)$$' ./mail/classify

# A client that comes back to folders which three others change, over restarts.
soak-qresync: STEPS ?= 50000
soak-qresync:
	MAILSTEAD_STEPS=$(STEPS) MAILSTEAD_SEED=$(SEED) go test -count=1 -v -timeout 60m -run '^TestResyncAgainstModel$$' ./handlers/imapd

# Every order and every way of threading of messages that are made up, compared with Dovecot's.
SORT ?= 5000
soak-sort: peers
	MAILSTEAD_SORT=$(SORT) MAILSTEAD_SEED=$(SEED) go test -count=1 -v -timeout 30m -run '^TestSort(As|Unlike)Dovecot$$' ./e2e

# Mail that is held, cancelled, released and discarded at every point of deliveries, with stops and crashes in between.
soak-hold: ROUNDS = 500
soak-hold:
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_ROUNDS=$(ROUNDS) MAILSTEAD_SEED=$(SEED) go test -count=1 -v -timeout 30m -run '^TestHoldAndCancelActOnWhatWaits$$' ./service/outbound

# Requests of random sizes to every operation, up to its limits.
SIZES ?= 10000
soak-sizes:
	TMPDIR=$$(sh .ci/tmp) MAILSTEAD_SIZES=$(SIZES) MAILSTEAD_SEED=$(SEED) go test -count=1 -v -timeout 60m -run '^TestRequestsOfEverySizeAreBounded$$' ./handlers

# Roundcube's IMAP library and Delta Chat's core at work, and imaptest: its scripts, and random commands of 20 clients at once for ten
# minutes, with and without QRESYNC. IMAPTEST names imaptest, which Debian does not have; without it those are skipped.
soak-clients: MINUTES = 10
soak-clients: peers
	@sh .ci/peers clients
	IMAPTEST='$(IMAPTEST)' go test -count=1 -v -run '^TestScriptsOfImaptest$$' ./handlers/imapd
	IMAPTEST='$(IMAPTEST)' MAILSTEAD_MINUTES=$(MINUTES) ROUNDCUBE=/usr/share/roundcube \
		DELTACHAT=$$(ls $${XDG_CACHE_HOME:-$$HOME/.cache}/mailstead-peers/deltachat/node_modules/@deltachat/*/deltachat-rpc-server) \
		go test -count=1 -v -timeout 60m -run '^Test(Roundcube|DeltaChat|ImaptestStress)$$' ./e2e

# Compares how reports of bounces are read with Sisimai, over those that the test makes, or over the
# files of a folder, of which REPORTS is the whole path.
compare-bounces: peers
	MAILSTEAD_REPORTS=$(REPORTS) go test -count=1 -v -run '^TestReports(AreReadAsTheyWereMade|AgainstAnotherReader)$$' ./service/feedback

soak-wait:
	MAILSTEAD_WAIT=10000 go test -count=1 -v -timeout 60m -run '^(TestNoMessageIsMissed|TestCostOfWaiters)$$' ./service/inbox

soak-gate:
	MAILSTEAD_GATE=20000 go test -count=1 -v -timeout 60m -run '^(TestSixtyWaysOut|TestGateWalk)$$' ./service/inbox

soak-groups: peers
	MAILSTEAD_SOAK=1 go test -count=1 -v -timeout 30m -run '^TestGroupUnderKills$$' ./e2e

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
