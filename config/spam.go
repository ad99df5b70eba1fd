package config

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/milter"
	"github.com/mailstead/mailstead/service/core"
)

// spamSettings is the table [spam]: how mail from outside is screened.
type spamSettings struct {
	TrustedSealers   []dnsName   `toml:"trusted_sealers"`
	DMARCReports     bool        `toml:"dmarc_reports"`
	Milter           milterAddr  `toml:"milter"`
	MilterTimeout    duration    `toml:"milter_timeout"`
	DNSBL            []dnsName   `toml:"dnsbl"`
	DNSBLAction      dnsblAction `toml:"dnsbl_action"`
	Greylisting      bool        `toml:"greylisting"`
	FirstSenderDelay duration    `toml:"first_sender_delay"`
}

const maxLists = 10

// check finds values that are out of bounds.
func (s *spamSettings) check() error {
	switch {
	case len(s.DNSBL) > maxLists:
		return fmt.Errorf("[spam] dnsbl: at most %d lists, since every message waits for all of them", maxLists)
	case s.FirstSenderDelay.d < 0 || s.FirstSenderDelay.d > time.Minute:
		return errors.New("[spam] first_sender_delay: from 0s to 1m")
	case s.MilterTimeout.d < 0 || s.MilterTimeout.d > 5*time.Minute:
		return errors.New("[spam] milter_timeout: from 1s to 5m; senders do not wait much longer")
	}
	return nil
}

// service gives the settings in the shape that the service uses.
func (s *spamSettings) service() core.Spam {
	out := core.Spam{
		Reports: s.DMARCReports, DNSBLJunk: s.DNSBLAction.text == "junk", Greylisting: s.Greylisting, FirstDelay: s.FirstSenderDelay.d,
	}
	for _, d := range s.TrustedSealers {
		out.TrustedSealers = append(out.TrustedSealers, d.text)
	}
	for _, d := range s.DNSBL {
		out.DNSBL = append(out.DNSBL, d.text)
	}
	if s.Milter.address != "" {
		out.Milter = &milter.Client{Network: s.Milter.network, Address: s.Milter.address, Timeout: s.MilterTimeout.d}
	}
	return out
}

// A milterAddr is where a filter listens: inet:HOST:PORT or unix:PATH.
type milterAddr struct{ network, address string }

// UnmarshalText checks its form.
func (m *milterAddr) UnmarshalText(text []byte) error {
	kind, address, _ := strings.Cut(string(text), ":")
	switch kind {
	case "inet":
		if _, port, err := net.SplitHostPort(address); err == nil && port != "" {
			*m = milterAddr{"tcp", address}
			return nil
		}
	case "unix":
		if strings.HasPrefix(address, "/") {
			*m = milterAddr{"unix", address}
			return nil
		}
	}
	return fmt.Errorf("%q is no filter; write inet:HOST:PORT or unix:/PATH", text)
}

// A dnsblAction is what happens to mail from an address on a DNSBL.
type dnsblAction struct{ checked }

// UnmarshalText checks the word.
func (a *dnsblAction) UnmarshalText(text []byte) (err error) {
	a.text, err = choice(text, "reject", "junk")
	return err
}
