package handlers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestLargeBodyWaitsForItsTurn: while large bodies fill the memory that is theirs, another one
// waits and small ones do not.
func TestLargeBodyWaitsForItsTurn(t *testing.T) {
	b := newSandbox(t, nil)
	path := "/v1/email-users/" + b.box("ann") + "/inbox/send"
	send := func(size int) *reply {
		return b.do("POST", path, fmt.Sprintf(`{"to":"x@far.test","subject":"s","text":%q}`, strings.Repeat("long ", size/5)))
	}
	if err := b.server.bodies.large.Acquire(context.Background(), maxLargeInMemory); err != nil {
		t.Fatal(err)
	}
	came := make(chan *reply, 1)
	go func() { came <- send(2 << 20) }()
	send(1000).is(200)
	select {
	case <-came:
		t.Fatal("a large body did not wait")
	case <-time.After(100 * time.Millisecond):
	}
	b.server.bodies.large.Release(maxLargeInMemory)
	(<-came).is(200)
	send(40<<20).fails(413, "payload_too_large")
	if !b.server.bodies.large.TryAcquire(maxLargeInMemory) {
		t.Error("a body that was answered still has its place")
	}
}
