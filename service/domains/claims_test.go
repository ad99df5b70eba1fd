package domains_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/mail/pull/pulltest"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/external"
	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// rivals returns two accounts of one installation.
func rivals(t *testing.T) (b *servicetest.Sandbox, w *servicetest.World, a, z core.Actor) {
	t.Helper()
	b, w, a = newWorld(t)
	made := b.Account(t, "rival@example.test")
	z, err := b.Accounts.Operator(t.Context(), made.AccountID)
	if err != nil {
		t.Fatal(err)
	}
	return b, w, a, z
}

func connectAs(t *testing.T, b *servicetest.Sandbox, who core.Actor, in domains.ConnectDomainsIn) domains.ConnectResult {
	t.Helper()
	out, err := b.Domains.ConnectDomains(t.Context(), who, in)
	if err != nil {
		t.Fatal(err)
	}
	return out.Domains[0]
}

func claimCode(d *domains.Domain) string {
	if d.Error == nil {
		return ""
	}
	return d.Error.Code
}

func checkNS(t *testing.T, b *servicetest.Sandbox, who core.Actor, name string) domains.NameserverCheck {
	t.Helper()
	out, err := b.Domains.CheckNameservers(t.Context(), who, domains.CheckNameserversIn{Domains: []string{name}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Domains[0]
}

func accepts(b *servicetest.Sandbox, address string) int {
	_, err := b.Inbound.Accepts(context.Background(), inbound.RecipientQuery{From: "x@far.test", To: address})
	if e, ok := err.(*core.SMTPError); ok {
		return e.Code
	}
	return 250
}

// Connecting a name below another account's domain blocks nobody. The published DKIM key says who
// owns a manual domain.
func TestManualClaimsAreProvenByTheirKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, a, z := rivals(t)
		connectAs(t, b, z, domains.ConnectDomainsIn{Domains: []string{"mail.big.test"}})
		in := domains.ConnectDomainsIn{Domains: []string{"big.test"}, ManualDNS: true}
		first, second := connectAs(t, b, z, in), connectAs(t, b, a, in)
		time.Sleep(time.Second)
		if first.Status != "created" || second.Status != "created" || b.Zones.HostsName("big.test") {
			t.Fatalf("%+v %+v, hosted %v", first, second, b.Zones.HostsName("big.test"))
		}
		records, err := b.Domains.GetDNSRecords(t.Context(), a, domains.DomainIn{DomainID: *second.DomainID})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records.Records {
			if r.Purpose == "DKIM" {
				w.Tell("TXT", r.Host+".big.test", r.Value)
			}
		}
		verifyDNS := func(who core.Actor, id string) {
			if _, err := b.Domains.VerifyDNS(t.Context(), who, domains.DomainIn{DomainID: id}); err != nil {
				t.Error(err)
			}
		}
		verifyDNS(z, *first.DomainID)
		if d := getDomain(t, b.Service, z, *first.DomainID); d.Error != nil {
			t.Fatalf("a key of somebody else's: %+v", d.Error)
		}
		verifyDNS(a, *second.DomainID)
		if d := getDomain(t, b.Service, z, *first.DomainID); d.Status != "error" || claimCode(d) != "domain_claimed_elsewhere" {
			t.Errorf("the loser is %s %+v", d.Status, d.Error)
		}
		if d := getDomain(t, b.Service, a, *second.DomainID); d.Error != nil || d.Status == "error" {
			t.Errorf("the winner is %s %+v", d.Status, d.Error)
		}
		if r := connectAs(t, b, z, domains.ConnectDomainsIn{Domains: []string{"big.test"}}); r.Status != "already_exists" {
			t.Errorf("%+v", r)
		}
		other, err := b.Accounts.Operator(t.Context(), b.Account(t, "third@example.test").AccountID)
		if err != nil {
			t.Fatal(err)
		}
		if r := connectAs(t, b, other, in); r.Status != "error" || !strings.HasPrefix(*r.Error, "domain_claimed_elsewhere") {
			t.Errorf("%+v", r)
		}
	})
}

// A contested delegation proves nothing; the TXT record does. An unproven domain receives no mail
// and serves no zone.
func TestContestedDelegationTakesTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, a, z := rivals(t)
		mine := connect(t, b.Service, a, "both.test")
		theirs := connect(t, b.Service, z, "both.test")
		w.Tell("NS", "both.test", "ns1.example.test.", "ns2.example.test.")
		for who, id := range map[*core.Actor]string{&a: mine, &z: theirs} {
			if c := checkNS(t, b, *who, "both.test"); c.Verified || !strings.Contains(c.Message, "_mailstead.both.test with the value mailstead-claim="+id) {
				t.Errorf("contested: %+v", c)
			}
			if d := getDomain(t, b.Service, *who, id); d.StatusDetail == nil || !strings.Contains(*d.StatusDetail, "mailstead-claim="+id) {
				t.Errorf("the detail names no record: %v", d.StatusDetail)
			}
		}
		for _, who := range []core.Actor{a, z} { // the same address twice
			if _, err := b.Mailboxes.CreateEmailUser(t.Context(), who, mailboxes.CreateEmailUserIn{Email: "ann@both.test"}); err != nil {
				t.Fatal(err)
			}
		}
		if code := accepts(b, "ann@both.test"); code != 450 || b.Zones.HostsName("both.test") {
			t.Errorf("unproven: %d, hosted %v", code, b.Zones.HostsName("both.test"))
		}
		st, err := b.Domains.GetDNSStatus(t.Context(), a, domains.GetDNSStatusIn{DomainID: mine, Refresh: true})
		if err != nil || st.Records[len(st.Records)-1].Expected != "mailstead-claim="+mine {
			t.Errorf("dns-status %+v, %v", st, err)
		}
		w.Tell("TXT", "_mailstead.both.test", "mailstead-claim="+mine)
		if c := checkNS(t, b, a, "both.test"); !c.Verified {
			t.Fatalf("with the record: %+v", c)
		}
		time.Sleep(time.Second)
		if d := getDomain(t, b.Service, a, mine); d.Status != "complete" || d.StatusDetail != nil {
			t.Errorf("the winner is %s, %v", d.Status, d.StatusDetail)
		}
		if d := getDomain(t, b.Service, z, theirs); claimCode(d) != "domain_claimed_elsewhere" || d.Status != "error" {
			t.Errorf("the loser is %s %+v", d.Status, d.Error)
		}
		if code := accepts(b, "ann@both.test"); code != 250 || !b.Zones.HostsName("both.test") {
			t.Errorf("proven: %d, hosted %v", code, b.Zones.HostsName("both.test"))
		}
		_, err = b.Domains.SetupDomain(t.Context(), z, domains.SetupDomainIn{Domain: "both.test"})
		if e, ok := core.AsError(err); !ok || e.Code != "domain_claimed_elsewhere" {
			t.Errorf("setup of a lost claim: %v", err)
		}

		// The loser's deletion takes nothing from the winner; the winner's frees the name.
		if _, err := b.Domains.DeleteDomain(t.Context(), a, domains.DomainIn{DomainID: mine}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.Set(func() { w.Names = nil })
		w.Tell("NS", "both.test", "ns1.example.test.", "ns2.example.test.")
		if c := checkNS(t, b, z, "both.test"); !c.Verified {
			t.Fatalf("the name is not free: %+v", c)
		}
		time.Sleep(time.Second)
		if d := getDomain(t, b.Service, z, theirs); d.Status != "complete" || d.Error != nil || !b.Zones.HostsName("both.test") {
			t.Errorf("after the deletion: %s %+v", d.Status, d.Error)
		}
	})
}

func TestALosersDeletionTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, a, z := rivals(t)
		connect(t, b.Service, a, "both.test")
		theirs := connect(t, b.Service, z, "both.test")
		mine := connect(t, b.Service, a, "other.test")
		w.Tell("TXT", "_mailstead.both.test", "mailstead-claim="+*connectAs(t, b, a, domains.ConnectDomainsIn{Domains: []string{"both.test"}}).DomainID)
		checkNS(t, b, a, "both.test")
		if _, err := b.Domains.DeleteDomain(t.Context(), z, domains.DomainIn{DomainID: theirs}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if !b.Zones.HostsName("both.test") || !b.Zones.HostsName("other.test") || mine == "" {
			t.Error("the winner's zone went with the loser")
		}
	})
}

// Of several accounts that prove a claim at the same time exactly one wins, and any may.
func TestOneOfTwoProofsWins(t *testing.T) {
	b, w, a, z := rivals(t)
	for range 10 {
		name := strings.ToLower(b.Core.Store.NewID("n")[2:]) + ".test"
		ids := map[*core.Actor]string{&a: connect(t, b.Service, a, name), &z: connect(t, b.Service, z, name)}
		w.Tell("TXT", "_mailstead."+name, "mailstead-claim="+ids[&a], "mailstead-claim="+ids[&z])
		var wg sync.WaitGroup
		for who := range ids {
			wg.Go(func() {
				if _, err := b.Domains.CheckNameservers(context.Background(), *who, domains.CheckNameserversIn{Domains: []string{name}}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		lost := 0
		for who, id := range ids {
			if claimCode(getDomain(t, b.Service, *who, id)) == "domain_claimed_elsewhere" {
				lost++
			}
		}
		if lost != 1 {
			t.Errorf("%d of two lost", lost)
		}
	}
}

func TestClaimsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, a, z := rivals(t)
		id := connect(t, b.Service, a, "late.test")
		away := *connectAs(t, b, a, domains.ConnectDomainsIn{Domains: []string{"away.test"}, External: true}).DomainID
		w.Tell("NS", "late.test", "ns.elsewhere.test.")
		time.Sleep(14*24*time.Hour - time.Hour)
		if d := getDomain(t, b.Service, a, id); d.Error != nil {
			t.Fatalf("too early: %+v", d.Error)
		}
		time.Sleep(2 * time.Hour)
		for id, code := range map[string]string{id: "ns_timeout", away: "claim_expired"} {
			if d := getDomain(t, b.Service, a, id); d.Status != "error" || claimCode(d) != code {
				t.Errorf("after 14 days: %s %+v, want %s", d.Status, d.Error, code)
			}
		}
		if b.Zones.HostsName("late.test") || accepts(b, "ann@late.test") != 550 {
			t.Error("an expired claim serves")
		}
		w.Tell("NS", "late.test", "ns1.example.test.", "ns2.example.test.")
		other := connect(t, b.Service, z, "late.test") // the name is free
		if c := checkNS(t, b, z, "late.test"); !c.Verified {
			t.Errorf("%+v", c)
		}
		if c := checkNS(t, b, a, "late.test"); c.Status != "error" {
			t.Errorf("an expired claim of a name that is proven elsewhere: %+v", c)
		}
		w.Tell("TXT", "_mailstead.away.test", "mailstead-claim="+away)
		if _, err := b.Domains.GetDNSStatus(t.Context(), a, domains.GetDNSStatusIn{DomainID: away, Refresh: true}); err != nil {
			t.Fatal(err)
		}
		if d := getDomain(t, b.Service, a, away); d.Status != "complete" || d.Error != nil || d.StatusDetail != nil {
			t.Errorf("a late proof: %s %+v %v", d.Status, d.Error, d.StatusDetail)
		}
		_ = other
	})
}

// A server that starts queues again the checks of claims whose jobs are lost.
func TestClaimsExpireAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, a, _ := rivals(t)
		w.Tell("NS", "late.test", "ns.elsewhere.test.")
		id := connect(t, b.Service, a, "late.test")
		err := b.Core.Store.Update(func(tx *store.Tx) error {
			for j := range store.Jobs.All(tx) {
				if j.Kind == "domain_claim" {
					return b.Core.Queue.Cancel(tx, j.ID)
				}
			}
			t.Error("no job looks at the claim")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		b.FlushUses(t) // runs the service for a moment
		time.Sleep(15 * 24 * time.Hour)
		if d := getDomain(t, b.Service, a, id); claimCode(d) != "ns_timeout" {
			t.Errorf("%s %+v", d.Status, d.Error)
		}
	})
}

func TestTheOperatorDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, a, z := rivals(t)
		mine, theirs := connect(t, b.Service, a, "both.test"), connect(t, b.Service, z, "both.test")
		for _, in := range []domains.ClaimDecision{{}, {Account: a.AccountID, Domain: "none.test"}, {Account: "acc_none", Domain: "both.test"}, {Account: a.AccountID, Domain: "com"}} {
			if _, err := b.Domains.DecideClaim(t.Context(), in); err == nil {
				t.Errorf("%+v is decided", in)
			}
		}
		w.Tell("NS", "both.test", "ns1.example.test.", "ns2.example.test.")
		decide := func(who core.Actor, winner, loser string, other core.Actor) {
			t.Helper()
			for range 2 { // again it changes nothing
				if out, err := b.Domains.DecideClaim(t.Context(), domains.ClaimDecision{Account: who.AccountID, Domain: "Both.test"}); err != nil || out.DomainID != winner {
					t.Fatalf("%+v, %v", out, err)
				}
			}
			if c := checkNS(t, b, who, "both.test"); !c.Verified {
				t.Errorf("%+v", c)
			}
			time.Sleep(time.Second)
			if d := getDomain(t, b.Service, who, winner); d.Status != "complete" || d.Error != nil {
				t.Errorf("the winner is %s %+v", d.Status, d.Error)
			}
			if d := getDomain(t, b.Service, other, loser); d.Status != "error" || claimCode(d) != "domain_claimed_elsewhere" {
				t.Errorf("the loser is %s %+v", d.Status, d.Error)
			}
		}
		decide(a, mine, theirs, z)
		user, err := b.Mailboxes.CreateEmailUser(t.Context(), a, mailboxes.CreateEmailUserIn{Email: "ann@both.test"})
		if err != nil {
			t.Fatal(err)
		}
		decide(z, theirs, mine, a) // a complete domain goes too, with what it served
		time.Sleep(2 * time.Hour)
		decide(a, mine, theirs, z) // and comes back, and is checked again
		if n := len(jobsOf(t, b, "dns_check", mine)); n != 1 {
			t.Errorf("%d checks of the domain that came back are planned", n)
		}
		decide(z, theirs, mine, a)
		if code := accepts(b, "ann@both.test"); code != 550 {
			t.Errorf("mail to the loser's mailbox: %d", code)
		}
		_, err = b.Submit.SendEmail(t.Context(), a, submit.SendEmailIn{UserID: user.ID, To: submit.Texts{"x@far.test"}, Text: "hello"})
		if e, ok := core.AsError(err); !ok || e.Code != "domain_not_ready" {
			t.Errorf("the loser sends: %v", err)
		}
	})
}

// An external domain is complete at once, but blocks nobody before a login to one of its mailboxes.
func TestExternalClaimsAreProvenByALogin(t *testing.T) {
	b, _, a, z := rivals(t)
	remote := pulltest.Serve(t, nil)
	in := domains.ConnectDomainsIn{Domains: []string{"away.test"}, External: true}
	first, second := connectAs(t, b, z, in), connectAs(t, b, a, in)
	if first.Status != "created" || second.Status != "created" {
		t.Fatalf("%+v %+v", first, second)
	}
	on := true
	if _, err := b.External.SetUniversalInbox(t.Context(), a, external.UniversalInboxIn{Enabled: &on}); err != nil {
		t.Fatal(err)
	}
	_, err := b.Mailboxes.CreateEmailUser(t.Context(), a, mailboxes.CreateEmailUserIn{
		Email: "me@away.test", Type: "external",
		IMAP: &mailboxes.MailServerLogin{Host: "127.0.0.1", Port: remote.Port, Security: "none", Username: "me", Password: "secret"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 500 {
		if d := getDomain(t, b.Service, z, *first.DomainID); d.Status == "error" {
			if claimCode(d) != "domain_claimed_elsewhere" {
				t.Errorf("%+v", d.Error)
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the log-in proved nothing")
}

// Anybody can get a mailbox at a public mail service: a login to one proves nothing, and claims of
// its domain do not expire.
func TestALoginProvesNoPublicMailService(t *testing.T) {
	b, _, a, z := rivals(t)
	remote := pulltest.Serve(t, nil)
	in := domains.ConnectDomainsIn{Domains: []string{"gmail.com"}, External: true}
	first, second := connectAs(t, b, z, in), connectAs(t, b, a, in)
	made, err := b.Mailboxes.CreateEmailUser(t.Context(), a, mailboxes.CreateEmailUserIn{
		Email: "me@gmail.com", Type: "external",
		IMAP: &mailboxes.MailServerLogin{Host: "127.0.0.1", Port: remote.Port, Security: "none", Username: "me", Password: "secret"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.External.RefreshEmailUserInbox(t.Context(), a, core.EmailUserIn{UserID: made.UserID}); err != nil {
		t.Fatal(err)
	}
	synced := false
	for end := time.Now().Add(10 * time.Second); !synced && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		mb, err := b.Mailboxes.GetEmailUser(t.Context(), a, core.EmailUserIn{UserID: made.UserID})
		if err != nil {
			t.Fatal(err)
		}
		synced = !mb.LastSyncAt.IsZero()
	}
	if !synced {
		t.Fatal("nobody logged in to the mailbox")
	}
	for id, who := range map[string]core.Actor{*first.DomainID: z, *second.DomainID: a} {
		if d := getDomain(t, b.Service, who, id); d.Status != "complete" || claimCode(d) != "" || d.StatusDetail != nil {
			t.Errorf("%s %+v", d.Status, d.Error)
		}
		err := b.Core.Store.View(func(tx *store.Tx) error {
			d, err := store.Domains.Get(tx, id)
			if err == nil && d.Claim != store.ClaimOpen {
				t.Errorf("claim of %s: %q by %q", d.AccountID, d.Claim, d.ProvenBy)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
