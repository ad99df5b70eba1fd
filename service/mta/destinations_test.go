package mta_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestWhoGetsIt holds the order of the contract: the mailbox, also with a tag, else the catch-all,
// else the address that the domain forwards to, else nobody; and what postmaster and abuse get.
func TestWhoGetsIt(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	plain := i.AddDomain(i.Account, "plain.test", nil)
	i.AddDomain(i.Account, "catch.test", func(d *store.Domain) { d.CatchAll, d.Forward = "ann@plain.test", "far@away.test" })
	i.AddDomain(i.Account, "forward.test", func(d *store.Domain) { d.Forward = "far@away.test" })
	i.AddDomain(i.Account, "out.test", func(d *store.Domain) { d.CatchAll = "all@elsewhere.test" })
	i.AddDomain(i.AddAccount("other@elsewhere.test"), "other.test", func(d *store.Domain) { d.CatchAll = "ann@plain.test" })
	i.AddMailbox(plain, "ann", func(m *store.Mailbox) { m.ForwardTo = "ann@away.test" })
	i.AddMailbox(plain, "ann+news", nil)
	i.AddMailbox(plain, "sue", func(m *store.Mailbox) { m.Status = "suspended" })
	i.AddMailbox(plain, "new", func(m *store.Mailbox) { m.Status = "pending" })
	i.AddMailbox(plain, "gone", func(m *store.Mailbox) { m.Status = "deleting" })
	for address, want := range map[string]string{
		"ann@plain.test":                      "ann@plain.test, ann@away.test",
		"ann+tag@plain.test":                  "ann@plain.test, ann@away.test",
		"ann+tag+more@plain.test":             "ann@plain.test, ann@away.test",
		"ann+news@plain.test":                 "ann+news@plain.test, ",
		"+ann@plain.test":                     "550 5.1.1",
		"annn@plain.test":                     "550 5.1.1",
		"gone@plain.test":                     "550 5.1.1",
		"sue@plain.test":                      "550 5.2.1",
		"sue+tag@plain.test":                  "550 5.2.1",
		"new@plain.test":                      "450 4.2.1",
		"postmaster@plain.test":               "-, owner@elsewhere.test",
		"abuse@plain.test":                    "-, owner@elsewhere.test",
		"abuse+x@plain.test":                  "550 5.1.1",
		"any@catch.test":                      "ann@plain.test, ann@away.test",
		"any+tag@catch.test":                  "ann@plain.test, ann@away.test",
		"postmaster@catch.test":               "ann@plain.test, ann@away.test",
		"any@forward.test":                    "-, far@away.test",
		"abuse@forward.test":                  "-, owner@elsewhere.test",
		"any@out.test":                        "-, all@elsewhere.test",
		"any@other.test":                      "-, ann@plain.test", // another account's mailbox is elsewhere
		"postmaster@" + i.Svc.Config.Hostname: "-, owner@elsewhere.test",
		"any@" + i.Svc.Config.Hostname:        "550 5.7.1",
		"ann@unknown.test":                    "550 5.7.1",
	} {
		got := ""
		err := i.St.View(func(tx *store.Tx) error {
			to, err := i.Svc.Receiver(tx, address)
			if e := new(core.SMTPError); errors.As(err, &e) {
				got = fmt.Sprint(e.Code, " ", e.Enhanced)
				return nil
			}
			if err != nil {
				return err
			}
			got = "-, " + to.Forward
			if to.Mailbox != nil {
				got = to.Mailbox.Email + ", " + to.Forward
			}
			return nil
		})
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", address, got, err, want)
		}
	}
}
