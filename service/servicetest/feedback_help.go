package servicetest

import (
	"context"
	"net/netip"
	"strings"

	"github.com/mailstead/mailstead/service/mta"
)

// Arrive brings a message over SMTP, as far as the service sees of it.
func (i *Installation) Arrive(from, to, text string) error {
	i.T.Helper()
	r, err := i.Svc.MTA.Accepts(context.Background(), mta.RecipientQuery{From: from, To: to, RemoteIP: netip.MustParseAddr("192.0.2.1")})
	if err != nil {
		return err
	}
	body, err := i.Svc.MTA.Spool(strings.NewReader(text))
	if err != nil {
		i.T.Fatal(err)
	}
	defer body.Close()
	in := mta.Incoming{Client: mta.Client{IP: netip.MustParseAddr("192.0.2.1"), Helo: "mx.far.test"}, From: from, Recipients: []mta.Recipient{r}, Body: body}
	_, err = i.Svc.MTA.Receive(context.Background(), in)
	return err
}

func (i *Installation) MustArrive(from, to, text string) {
	i.T.Helper()
	if err := i.Arrive(from, to, text); err != nil {
		i.T.Fatalf("to %s: %v", to, err)
	}
}
