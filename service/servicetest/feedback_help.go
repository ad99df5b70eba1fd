package servicetest

import (
	"context"
	"net/netip"
	"strings"

	"github.com/mailstead/mailstead/service/inbound"
)

// Arrive delivers a message as the SMTP server does, and returns the error of the delivery.
func (i *Installation) Arrive(from, to, text string) error {
	i.T.Helper()
	r, err := i.Svc.Inbound.Accepts(context.Background(), inbound.RecipientQuery{From: from, To: to, RemoteIP: netip.MustParseAddr("192.0.2.1")})
	if err != nil {
		return err
	}
	body, err := i.Svc.Inbound.Spool(strings.NewReader(text))
	if err != nil {
		i.T.Fatal(err)
	}
	defer body.Close()
	in := inbound.Incoming{Client: inbound.Client{IP: netip.MustParseAddr("192.0.2.1"), Helo: "mx.far.test"}, From: from, Recipients: []inbound.Recipient{r}, Body: body}
	_, err = i.Svc.Inbound.Receive(context.Background(), in)
	return err
}

func (i *Installation) MustArrive(from, to, text string) {
	i.T.Helper()
	if err := i.Arrive(from, to, text); err != nil {
		i.T.Fatalf("to %s: %v", to, err)
	}
}
