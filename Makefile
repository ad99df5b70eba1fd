# make run builds and starts the sandbox; make test runs every test.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GOFLAGS_BUILD = -trimpath -ldflags '-s -w -X main.version=$(VERSION)'
FUZZTIME ?= 60s

.PHONY: build run test race lint fuzz soak bench peers web clean

build:
	CGO_ENABLED=0 go build $(GOFLAGS_BUILD) -o mailstead .

run: build
	./mailstead serve

test: peers
	go test ./...

race: peers
	go test -race ./...

peers:
	@sh .ci/peers

# Builds web/dist, which is committed, from the dashboard's sources.
web:
	@sh .ci/web

lint:
	@sh .ci/lint

fuzz:
	@.ci/fuzz $(FUZZTIME)

# The tests of long runs at their full size.
soak:
	MAILSTEAD_SOAK=1 go test -run '^TestExternalMailboxes$$' -v -timeout 30m .

bench:
	go test -run '^$$' -bench . -benchmem ./...

clean:
	rm -rf mailstead data
