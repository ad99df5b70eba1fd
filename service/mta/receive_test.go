package mta_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
)

// TestTraceOfUsersTellsNoAddress: what a user sends says nothing of where it was sent from.
func TestTraceOfUsersTellsNoAddress(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	c := mta.Client{IP: netip.MustParseAddr("192.0.2.77"), Helo: "[10.1.2.3]", Extended: true, TLS: "TLS 1.3", Authenticated: true}
	field, id := i.Svc.Trace(c, "")
	if got := string(field); strings.Contains(got, "192.0.2") || strings.Contains(got, "10.1.2") || !strings.HasPrefix(got, "Received: by mail.mailstead.test (TLS 1.3)\r\n\twith ESMTPSA id "+id+";\r\n\t") {
		t.Errorf("%q", got)
	}
	c.Authenticated = false
	if field, _ := i.Svc.Trace(c, ""); !strings.HasPrefix(string(field), "Received: from [10.1.2.3] ([192.0.2.77])\r\n\tby mail.mailstead.test ") {
		t.Errorf("of a stranger: %q", field)
	}
}
