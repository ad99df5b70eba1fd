package service

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mailstead/mailstead/store"
)

// TestWhoGetsIt holds the order of the contract: the mailbox, also with a tag, else the catch-all,
// else the address that the domain forwards to, else nobody; and what postmaster and abuse get.
func TestWhoGetsIt(t *testing.T) {
	i := install(t, Config{})
	plain := i.addDomain(i.account, "plain.test", nil)
	i.addDomain(i.account, "catch.test", func(d *store.Domain) { d.CatchAll, d.Forward = "ann@plain.test", "far@away.test" })
	i.addDomain(i.account, "forward.test", func(d *store.Domain) { d.Forward = "far@away.test" })
	i.addDomain(i.account, "out.test", func(d *store.Domain) { d.CatchAll = "all@elsewhere.test" })
	i.addDomain(i.addAccount("other@elsewhere.test"), "other.test", func(d *store.Domain) { d.CatchAll = "ann@plain.test" })
	i.addMailbox(plain, "ann", func(m *store.Mailbox) { m.ForwardTo = "ann@away.test" })
	i.addMailbox(plain, "ann+news", nil)
	i.addMailbox(plain, "sue", func(m *store.Mailbox) { m.Status = "suspended" })
	i.addMailbox(plain, "new", func(m *store.Mailbox) { m.Status = "pending" })
	i.addMailbox(plain, "gone", func(m *store.Mailbox) { m.Status = "deleting" })
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
		"postmaster@" + i.svc.Config.Hostname: "-, owner@elsewhere.test",
		"any@" + i.svc.Config.Hostname:        "550 5.7.1",
		"ann@unknown.test":                    "550 5.7.1",
	} {
		got := ""
		err := i.st.View(func(tx *store.Tx) error {
			to, err := i.svc.receiver(tx, address)
			if e := new(SMTPError); errors.As(err, &e) {
				got = fmt.Sprint(e.Code, " ", e.Enhanced)
				return nil
			}
			if err != nil {
				return err
			}
			got = "-, " + to.forward
			if to.mailbox != nil {
				got = to.mailbox.Email + ", " + to.forward
			}
			return nil
		})
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", address, got, err, want)
		}
	}
}
