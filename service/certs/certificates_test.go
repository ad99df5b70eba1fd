package certs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/ca"
	"github.com/mailstead/mailstead/dnsprov/ca/catest"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/certs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
	"github.com/miekg/dns"
)

const otherAddress = "192.0.2.99"

// An addressDNS returns the address 127.0.0.1 for every name, except those that a test changes.
type addressDNS struct {
	*servicetest.FakeDNS
	elsewhere map[string]string // by name; "": it does not exist, "?": the lookup fails
}

func (a *addressDNS) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	at, moved := a.elsewhere[strings.TrimSuffix(host, ".")]
	switch {
	case !moved:
		return servicetest.TestIPs[:1], nil
	case at == "":
		return nil, servicetest.NoSuchName(host)
	case at == "?":
		return nil, &net.DNSError{Err: "i/o timeout", Name: host, IsTimeout: true}
	}
	return []netip.Addr{netip.MustParseAddr(at)}, nil
}

// A certified is a service with an authority. Its queue does not run.
type certified struct {
	*service.Service
	t   *testing.T
	ca  *catest.Authority
	dns *addressDNS
	now time.Time
}

func newCertified(t *testing.T) *certified {
	t.Helper()
	c := &certified{t: t, ca: catest.New(t), dns: &addressDNS{servicetest.NewFakeDNS(), map[string]string{}}, now: time.Now().Truncate(time.Second)}
	clock := func() time.Time { return c.now }
	c.ca.Now, c.ca.Look = clock, c.look
	c.Service = servicetest.ZoneService(t, t.TempDir(), core.Config{
		HTTPS: true, ACME: &core.ACME{Directory: c.ca.URL, Host: true}, RootCAs: c.ca.Roots(), Resolver: c.dns, PublicIPs: servicetest.TestIPs[:1],
		Log: slog.New(slog.DiscardHandler), Version: "test",
	}, clock)
	// catest is at an address that has no name, so the resolver is not asked for it.
	return c
}

// look returns what the authority sees of a challenge.
func (c *certified) look(kind, name, token string) string {
	if kind == ca.HTTP01 {
		answer, _ := c.Certs.ChallengeAnswer(token)
		return answer
	}
	zone, ok := c.Zones.Zone(name)
	if !ok {
		return "no zone"
	}
	m := zone.Answer(new(dns.Msg).SetQuestion("_acme-challenge."+name+".", dns.TypeTXT))
	if len(m.Answer) != 1 {
		return fmt.Sprint(m.Answer)
	}
	return strings.Join(m.Answer[0].(*dns.TXT).Txt, "")
}

// attempt runs the job of a set once, and returns its error: when it continues, or why it failed.
func (c *certified) attempt(set string) error {
	c.t.Helper()
	args, err := json.Marshal(certs.CertificateArgs{Set: set})
	if err != nil {
		c.t.Fatal(err)
	}
	job := &store.Job{ID: "job_1", Args: args, CreatedAt: c.now}
	writes, err := c.Certs.Certify(context.Background(), job)
	if writes != nil {
		if err := c.Core.Store.Update(func(tx *store.Tx) error { return writes(tx, job) }); err != nil {
			c.t.Fatal(err)
		}
	}
	if err == nil {
		return errEnded
	}
	return err
}

var errEnded = errors.New("the job has ended")

// row returns the row of a set's certificate.
func (c *certified) row(set string) *store.Certificate {
	c.t.Helper()
	row := &store.Certificate{}
	err := c.Core.Store.View(func(tx *store.Tx) error {
		found, err := store.Certificates.Get(tx, set)
		if err == nil {
			row = found
		}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return row
}

// planned reports whether a check of the domain would queue its certificate job.
func (c *certified) planned(d *store.Domain) (planned bool) {
	c.t.Helper()
	err := c.Core.Store.Update(func(tx *store.Tx) error {
		if err := c.Certs.PlanCertificate(tx, d); err != nil {
			return err
		}
		_, err := store.JobByKey.Get(tx, store.JobKey("certificate", d.ID))
		planned = err == nil
		return errors.New("undo")
	})
	if err == nil {
		c.t.Fatal("the transaction was not undone")
	}
	return planned
}

// domain writes a complete redirected domain.
func (c *certified) domain(provider string) *store.Domain {
	c.t.Helper()
	d := &store.Domain{
		ID: "dom_1", AccountID: "acc_1", Name: "a.test", DNSProvider: provider, Status: store.DomainComplete, NSStatus: store.DomainNSVerified,
		RedirectURL: "https://b.test", RedirectCode: 301,
	}
	servicetest.PutTestDomain(c.t, c.Service, d)
	return d
}

func (c *certified) serves(names ...string) {
	c.t.Helper()
	for _, name := range names {
		if c.Certs.CertificateFor(name) == nil {
			c.t.Errorf("%s has no certificate", name)
		}
	}
}

func (c *certified) servesNot(names ...string) {
	c.t.Helper()
	for _, name := range names {
		if c.Certs.CertificateFor(name) != nil {
			c.t.Errorf("%s has a certificate", name)
		}
	}
}

func TestCertificateIsForTheNamesThatComeHere(t *testing.T) {
	c := newCertified(t)
	d := c.domain(store.DomainProviderManual)
	c.dns.elsewhere = map[string]string{"mta-sts.a.test": "", "autoconfig.a.test": otherAddress, "autodiscover.a.test": "?"}
	if !c.planned(d) {
		t.Error("nothing is planned for a domain without a certificate")
	}
	err := c.attempt(d.ID)
	if got := c.ca.Orders(); len(got) != 1 || !slices.Equal(got[0], []string{"a.test", "www.a.test"}) {
		t.Fatalf("%v: ordered %v", err, got)
	}
	c.serves("a.test", "www.a.test")
	c.servesNot("mta-sts.a.test", "autoconfig.a.test", "autodiscover.a.test", "mail.mailstead.test", "")
	// Another name points here, and the lookup of an old one fails.
	c.dns.elsewhere = map[string]string{"mta-sts.a.test": "", "autodiscover.a.test": "", "www.a.test": "?"}
	err = c.attempt(d.ID)
	if got := c.ca.Orders(); len(got) != 2 || !slices.Equal(got[1], []string{"a.test", "autoconfig.a.test", "www.a.test"}) {
		t.Fatalf("%v: ordered %v", err, got)
	}
	// A name that no longer points here does not cause an order; the renewal leaves it out.
	c.dns.elsewhere = map[string]string{"mta-sts.a.test": "", "autodiscover.a.test": "", "www.a.test": otherAddress, "autoconfig.a.test": ""}
	if err := c.attempt(d.ID); len(c.ca.Orders()) != 2 {
		t.Errorf("%v: ordered %v", err, c.ca.Orders())
	}
	c.now = c.row(d.ID).RenewAt
	if err := c.attempt(d.ID); len(c.ca.Orders()) != 3 || !slices.Equal(c.ca.Orders()[2], []string{"a.test"}) {
		t.Errorf("%v: ordered %v", err, c.ca.Orders())
	}
	c.serves("a.test")
	c.servesNot("www.a.test")
}

func TestZoneOfOursProvesByDNS(t *testing.T) {
	c := newCertified(t)
	d := c.domain("builtin")
	if err := c.attempt(d.ID); len(c.ca.Orders()) != 1 {
		t.Fatal(err)
	}
	c.serves("a.test")
	if text := c.look(ca.DNS01, "a.test", ""); text != "[]" {
		t.Errorf("the zone still has %s", text)
	}
	// A challenge that a crash has left is removed by the next attempt.
	d.Challenges = []store.DNSChallenge{{Name: "_acme-challenge.a.test", Value: "old"}}
	servicetest.PutTestDomain(t, c.Service, d)
	if text := c.look(ca.DNS01, "a.test", ""); text != "old" {
		t.Fatalf("the zone has %s", text)
	}
	_ = c.attempt(d.ID) // it waits for the renewal
	if text := c.look(ca.DNS01, "a.test", ""); text != "[]" || len(c.ca.Orders()) != 1 {
		t.Errorf("the zone still has %s", text)
	}
	d.NSStatus = store.DomainNSLost
	if c.planned(d) {
		t.Error("a certificate is planned for a domain that is delegated to others")
	}
}

// A name that the authority refuses does not affect the others, and is tried again at growing
// intervals.
func TestRefusedNameLeavesTheOthersAlone(t *testing.T) {
	for _, m := range []catest.Manners{{Refuses: map[string]string{"www.a.test": "no"}}, {Rejects: map[string]string{"www.a.test": "no"}}} {
		c := newCertified(t)
		d := c.domain(store.DomainProviderManual)
		c.ca.Behave(func(b *catest.Manners) { *b = m })
		_ = c.attempt(d.ID) // it waits for the next try
		c.serves("a.test", "mta-sts.a.test")
		c.servesNot("www.a.test")
		if c.planned(d) {
			t.Error("the refused name is tried again at once")
		}
		issued := c.ca.Issued()
		c.now = c.now.Add(10 * time.Minute)
		if !c.planned(d) {
			t.Error("the refused name is not tried again")
		}
		_ = c.attempt(d.ID)
		if r := c.row(d.ID); c.ca.Issued() != issued || r.Refused["www.a.test"].Times != 2 || r.Failures != 0 {
			t.Errorf("%d certificates more, refused %+v", c.ca.Issued()-issued, r.Refused)
		}
		c.now = c.now.Add(6 * time.Minute)
		if c.planned(d) {
			t.Error("the second wait is no longer than the first")
		}
		c.ca.Behave(func(b *catest.Manners) { *b = catest.Manners{} })
		c.now = c.now.Add(10 * time.Minute)
		_ = c.attempt(d.ID)
		c.serves("www.a.test", "a.test")
	}
}

// The wait after a failure is kept, whatever checks the domain.
func TestFailureIsWaitedOut(t *testing.T) {
	for _, m := range []catest.Manners{
		{Down: 500}, {Garbage: true}, {Expired: true}, {ForOthers: true}, {Limited: true, RetryAfter: "300"},
		{Refuses: map[string]string{"a.test": "x", "www.a.test": "x", "mta-sts.a.test": "x", "autoconfig.a.test": "x", "autodiscover.a.test": "x"}},
	} {
		c := newCertified(t)
		d := c.domain(store.DomainProviderManual)
		if m.Down == 0 && !m.Garbage {
			if _, err := c.Certs.Authority(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		c.ca.Behave(func(b *catest.Manners) { *b = m })
		if err := c.attempt(d.ID); err == nil || errors.Is(err, errEnded) {
			t.Errorf("%+v: %v", m, err)
		}
		c.servesNot("a.test")
		orders := len(c.ca.Orders())
		c.now = c.now.Add(4 * time.Minute)
		if c.planned(d) {
			t.Errorf("%+v: a look hurries it", m)
		}
		_ = c.attempt(d.ID)
		if len(c.ca.Orders()) != orders {
			t.Errorf("%+v: another order", m)
		}
		c.ca.Behave(func(b *catest.Manners) { *b = catest.Manners{} })
		c.now = c.now.Add(3 * time.Minute)
		_ = c.attempt(d.ID)
		c.serves("a.test", "www.a.test")
	}
}

// Whatever its life, a certificate is renewed when a third of it is left.
func TestRenewal(t *testing.T) {
	for _, life := range []time.Duration{90 * 24 * time.Hour, 6 * 24 * time.Hour, time.Hour} {
		c := newCertified(t)
		c.ca.Behave(func(m *catest.Manners) { m.Life = life })
		_ = c.attempt(store.HostCertificate)
		first, row := c.Certs.HostCertificate(), c.row(store.HostCertificate)
		if left := row.NotAfter.Sub(row.RenewAt); left < life/3-time.Second || left > life*2/5 {
			t.Errorf("of %s there is %s left at the renewal", life, left)
		}
		c.now = row.RenewAt.Add(-time.Second)
		if _ = c.attempt(store.HostCertificate); c.Certs.HostCertificate() != first {
			t.Errorf("of %s: renewed too early", life)
		}
		c.now = row.RenewAt
		if _ = c.attempt(store.HostCertificate); c.Certs.HostCertificate() == first || first == nil {
			t.Errorf("of %s: not renewed", life)
		}
	}
}

// While a certificate is still valid, a failed renewal is retried before it expires.
func TestFailedRenewalHurries(t *testing.T) {
	c := newCertified(t)
	c.ca.Behave(func(m *catest.Manners) { m.Life = 6 * 24 * time.Hour })
	_ = c.attempt(store.HostCertificate)
	row := c.row(store.HostCertificate)
	c.ca.Behave(func(m *catest.Manners) { m.Down = 403 })
	for c.now = row.RenewAt; c.now.Before(row.NotAfter); c.now = c.row(store.HostCertificate).NextTry {
		if err := c.attempt(store.HostCertificate); err == nil || !c.row(store.HostCertificate).NextTry.After(c.now) {
			t.Fatalf("%v: %+v", err, c.row(store.HostCertificate))
		}
	}
	if n := c.row(store.HostCertificate).Failures; n < 8 {
		t.Errorf("%d attempts before the certificate ran out", n)
	}
	// An operator who has fixed the cause need not wait.
	c.ca.Behave(func(m *catest.Manners) { *m = catest.Manners{} })
	if err := c.Certs.RetryCertificate(); err != nil {
		t.Fatal(err)
	}
	if _ = c.attempt(store.HostCertificate); !c.row(store.HostCertificate).NotAfter.After(row.NotAfter) {
		t.Error("the certificate is the one of before")
	}
}

// Senders that apply the MTA-STS policy do not deliver to a host without a certificate.
func TestPolicyWaitsForTheHostsCertificate(t *testing.T) {
	c := newCertified(t)
	c.domain("builtin")
	if policy, err := c.Mailboxes.STSPolicy("a.test"); policy != "" || err != nil {
		t.Errorf("before: %q, %v", policy, err)
	}
	_ = c.attempt(store.HostCertificate)
	if policy, err := c.Mailboxes.STSPolicy("a.test"); policy == "" || err != nil {
		t.Errorf("after: %q, %v", policy, err)
	}
	c.now = c.row(store.HostCertificate).NotAfter
	if policy, err := c.Mailboxes.STSPolicy("a.test"); policy != "" || err != nil {
		t.Errorf("when it has run out: %q, %v", policy, err)
	}
}

func TestHostWaitsForItsName(t *testing.T) {
	c := newCertified(t)
	c.dns.elsewhere["mail.mailstead.test"] = ""
	if err := c.attempt(store.HostCertificate); errors.Is(err, errEnded) || len(c.ca.Orders()) != 0 {
		t.Errorf("%v: ordered %v", err, c.ca.Orders())
	}
	delete(c.dns.elsewhere, "mail.mailstead.test")
	_ = c.attempt(store.HostCertificate)
	c.serves("mail.mailstead.test")
}

func TestCertificatesAreReadAgain(t *testing.T) {
	c := newCertified(t)
	d := c.domain(store.DomainProviderManual)
	_, _ = c.attempt(store.HostCertificate), c.attempt(d.ID)
	c.Certs.SetCertificates(certs.NewCertificates(c.Service.Core.Now))
	c.servesNot("a.test")
	if err := c.Certs.LoadCertificates(); err != nil {
		t.Fatal(err)
	}
	c.serves("a.test", "www.a.test", "mail.mailstead.test")
	c.Core.Config.ACME.Host = false // the operator has a file now
	if err := c.Certs.LoadCertificates(); err != nil {
		t.Fatal(err)
	}
	c.servesNot("mail.mailstead.test")
	if err := c.Core.Store.Update(func(tx *store.Tx) error { return c.Certs.DropCertificate(tx, d.ID) }); err != nil {
		t.Fatal(err)
	}
	c.servesNot("a.test", "www.a.test")
}

// After a change of the authority a new certificate is ordered; the old one is served until then.
func TestAnotherAuthority(t *testing.T) {
	c := newCertified(t)
	_ = c.attempt(store.HostCertificate)
	first := c.Certs.HostCertificate()
	other := catest.New(t)
	other.Now, other.Look = func() time.Time { return c.now }, c.look
	c.Core.Config.ACME.Directory, c.Core.Config.RootCAs, c.Certs.Certs().Client = other.URL, other.Roots(), nil
	_ = c.attempt(store.HostCertificate)
	if other.Issued() != 1 || c.Certs.HostCertificate() == first || first == nil {
		t.Errorf("the other authority made %d certificates", other.Issued())
	}
}

func TestForgottenAccountIsMadeAgain(t *testing.T) {
	c := newCertified(t)
	if _, err := c.Certs.Authority(context.Background()); err != nil {
		t.Fatal(err)
	}
	c.ca.ForgetAccounts()
	if err := c.attempt(store.HostCertificate); !errors.Is(err, ca.ErrNoAccount) {
		t.Fatalf("got %v", err)
	}
	c.now = c.row(store.HostCertificate).NextTry
	_ = c.attempt(store.HostCertificate)
	c.serves("mail.mailstead.test")
}

// A deleted domain's certificate is deleted, even if it is being ordered.
func TestDeletedDomainHasNoCertificate(t *testing.T) {
	c := newCertified(t)
	d := c.domain(store.DomainProviderManual)
	erase := func() {
		err := c.Core.Store.Update(func(tx *store.Tx) error {
			return errors.Join(c.Certs.DropCertificate(tx, d.ID), store.Domains.Delete(tx, d.ID))
		})
		if err != nil {
			t.Error(err)
		}
	}
	look := c.ca.Look
	c.ca.Look = func(kind, name, token string) string {
		erase()
		return look(kind, name, token)
	}
	_ = c.attempt(d.ID)
	c.servesNot("a.test")
	if err := c.attempt(d.ID); !errors.Is(err, errEnded) || c.row(d.ID).ID != "" {
		t.Errorf("%v: %+v is left", err, c.row(d.ID))
	}
}

// With many sets to order for, each waits for its turn.
func TestOrdersArePaced(t *testing.T) {
	c := newCertified(t)
	for range certs.OrdersBurst {
		if c.Certs.Certs().Orders.Take() != 0 {
			t.Fatal("the burst is too small")
		}
	}
	if err := c.attempt(store.HostCertificate); errors.Is(err, errEnded) || len(c.ca.Orders()) != 0 {
		t.Errorf("%v: ordered %v", err, c.ca.Orders())
	}
	c.now = c.now.Add(certs.OrdersEvery)
	_ = c.attempt(store.HostCertificate)
	c.serves("mail.mailstead.test")
}

// A sweep finds domains without a job, in every page.
func TestSweepFindsWhatIsLacking(t *testing.T) {
	c := newCertified(t)
	const many = certs.SweptAtATime + 3
	err := c.Core.Store.Update(func(tx *store.Tx) error {
		for i := range many {
			d := &store.Domain{ID: tx.NewID("dom"), AccountID: "acc_1", Name: fmt.Sprintf("s%d.test", i), DNSProvider: store.DomainProviderManual, Status: store.DomainComplete}
			if err := store.Domains.Put(tx, d); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Certs.SweepCertificates(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := c.Core.Store.View(func(tx *store.Tx) error {
		for j := range store.Jobs.All(tx) {
			if j.Kind == "certificate" {
				n++
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n != many+1 {
		t.Errorf("%d jobs for %d domains and the host", n, many)
	}
}

// A handshake does not read the store.
func BenchmarkCertificateFor(b *testing.B) {
	s := servicetest.ZoneService(b, b.TempDir(), core.Config{}, nil)
	index := map[string]certs.Issued{}
	for i := range 50_000 {
		index[fmt.Sprintf("mta-sts.d%d.test", i)] = certs.Issued{Set: "dom_1"}
	}
	s.Certs.Certs().Index.Store(&index)
	b.ReportAllocs()
	for b.Loop() {
		if s.Certs.CertificateFor("mta-sts.d777.test") != nil {
			b.Fatal("there is none")
		}
	}
}
