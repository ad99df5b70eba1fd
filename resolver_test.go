package main

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
)

func TestOwnResolverAsksOurOwnServerAboutHostedNames(t *testing.T) {
	world := newResolver(t)
	world.set(t, "hosted.test", "TXT", `"ours"`)
	r := &ownResolver{own: dnsprov.NewResolver(world.addr), hosts: func(name string) bool { return name == "hosted.test" }}
	if got, err := r.LookupTXT(context.Background(), "Hosted.test."); err != nil || len(got) != 1 || got[0] != "ours" {
		t.Errorf("hosted: %v, %v", got, err)
	}
	var e *net.DNSError
	if _, err := r.LookupTXT(context.Background(), "far.test"); !errors.As(err, &e) || !e.IsNotFound {
		t.Errorf("a reserved name: %v, want not found at once", err)
	}
}
