package service

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/store"
)

// The tests of this file do what the API allows at its extreme. The store fails every transaction
// that is over its bounds.

// putMany writes rows that nobody makes in one request, some in each transaction.
func putMany[T any](t *testing.T, s *Service, table *store.Table[T], n int, row func(i int) *T) {
	t.Helper()
	for from := 0; from < n; from += 250 {
		update(t, s, func(tx *store.Tx) error {
			for i := from; i < min(n, from+250); i++ {
				if err := table.Put(tx, row(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// putWebhooks gives an account as many endpoints as it may have, which want everything.
func putWebhooks(t *testing.T, s *Service, who Actor) {
	t.Helper()
	putMany(t, s, store.Webhooks, webhookLimit, func(int) *store.Webhook {
		return &store.Webhook{ID: s.Store.NewID("wh"), AccountID: who.AccountID, URL: "https://hooks.test/", Events: []string{"*"}, Status: "enabled"}
	})
}

// serveZones has a service name its hosts, so that there can be zones.
func serveZones(s *Service) {
	s.Config.Hostname, s.Config.Nameservers = "mail.host.test", []string{"ns1.host.test", "ns2.host.test"}
}

func putDomainRow(t *testing.T, s *Service, who Actor, name, status string) *store.Domain {
	t.Helper()
	d := &store.Domain{ID: s.Store.NewID("dom"), AccountID: who.AccountID, Name: name, Status: status, DNSProvider: "builtin", CreatedAt: s.now()}
	update(t, s, func(tx *store.Tx) error { return store.Domains.Put(tx, d) })
	return d
}

// runJobs does the jobs of some kinds, by the queue's rules but without its clock, until none
// waits.
func runJobs(t *testing.T, s *Service, kinds ...string) {
	t.Helper()
	work := map[string]jobs.Kind{}
	for _, k := range s.kinds() {
		if slices.Contains(kinds, k.Name) {
			work[k.Name] = k
		}
	}
	for {
		var j *store.Job
		err := s.Store.View(func(tx *store.Tx) error {
			for one := range store.Jobs.All(tx) {
				if _, ok := work[one.Kind]; ok && !one.Ended() {
					j = one
					break
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if j == nil {
			return
		}
		writes, err := work[j.Kind].Work(t.Context(), j)
		if err != nil {
			t.Fatalf("%s: %v", j.Kind, err)
		}
		update(t, s, func(tx *store.Tx) error {
			if writes != nil {
				if err := writes(tx, j); err != nil {
					return err
				}
			}
			return store.Jobs.Delete(tx, j.ID)
		})
	}
}

// toldOf gives how many events of a type there are, and how many endpoints wait for each of them.
func toldOf(t *testing.T, s *Service, kind string) (happened, tells int) {
	t.Helper()
	waits := map[string]map[string]int{}
	err := s.Store.View(func(tx *store.Tx) error {
		for e := range store.Events.All(tx) {
			if e.Type == kind {
				waits[e.ID] = map[string]int{}
			}
		}
		for j := range store.Jobs.All(tx) {
			if j.Kind != "webhook" {
				continue
			}
			args, err := jobs.Args[tellArgs](j)
			if err != nil {
				return err
			}
			if of := waits[args.EventID]; of != nil {
				of[args.WebhookID]++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id, of := range waits {
		for hook, n := range of {
			if n != 1 {
				t.Errorf("%s is told %d times of %s", hook, n, id)
			}
			tells++
		}
	}
	return len(waits), tells
}

func TestBulkCreationTellsEveryEndpointWithinTheBounds(t *testing.T) {
	s, who := newBare(t)
	putWebhooks(t, s, who)
	d := putDomainRow(t, s, who, "big.test", domainComplete)
	var users []BulkUser
	for i := range 100 {
		users = append(users, BulkUser{Username: fmt.Sprintf("u%d", i), Name: strings.Repeat("ä", 200), Footer: strings.Repeat("f", 10_000)})
	}
	out, err := s.CreateEmailUsersBulk(t.Context(), who, BulkCreateIn{Domain: d.ID, Users: &users})
	if err != nil || out.Created != 100 {
		t.Fatalf("%+v, %v", out, err)
	}
	runJobs(t, s, "webhook_events")
	if events, tells := toldOf(t, s, EventEmailUserCreated); events != 100 || tells != 1000 {
		t.Errorf("%d events are told %d times", events, tells)
	}
	var emails []string
	for _, u := range out.Users {
		emails = append(emails, u.Email)
	}
	gone, err := s.DeleteEmailUsersBulk(t.Context(), who, BulkDeleteIn{Emails: &emails})
	if err != nil || gone.Queued != 100 {
		t.Fatalf("%+v, %v", gone, err)
	}
	runJobs(t, s, "email_users_bulk_delete", "webhook_events")
	if events, tells := toldOf(t, s, EventEmailUserDeleted); events != 100 || tells != 1000 {
		t.Errorf("%d deletions are told %d times", events, tells)
	}
}

func TestACompleteDomainTellsOfItsMailboxesWithinTheBounds(t *testing.T) {
	s, who := newBare(t)
	putWebhooks(t, s, who)
	d := putDomainRow(t, s, who, "big.test", domainInProgress)
	var users []BulkUser
	for i := range 100 {
		users = append(users, BulkUser{Username: fmt.Sprintf("u%d", i)})
	}
	if out, err := s.CreateEmailUsersBulk(t.Context(), who, BulkCreateIn{Domain: d.ID, Users: &users}); err != nil || out.Created != 100 {
		t.Fatalf("%+v, %v", out, err)
	}
	if err := s.activateMany(t.Context(), d.ID); err != nil {
		t.Fatal(err)
	}
	update(t, s, func(tx *store.Tx) error {
		now, err := store.Domains.Get(tx, d.ID)
		if err != nil {
			return err
		}
		return s.completeDomain(tx, now, &look{at: tx.Now()})
	})
	runJobs(t, s, "webhook_events")
	if events, tells := toldOf(t, s, EventEmailUserCreated); events != 100 || tells != 1000 {
		t.Errorf("%d events are told %d times", events, tells)
	}
}

func TestConnectingManyDomainsTellsWithinTheBounds(t *testing.T) {
	s, who := newBare(t)
	putWebhooks(t, s, who)
	for _, in := range []ConnectDomainsIn{{External: true}, {ManualDNS: true}, {}} {
		for i := range 100 {
			in.Domains = append(in.Domains, fmt.Sprintf("d%d-%v-%v.test", i, in.External, in.ManualDNS))
		}
		out, err := s.ConnectDomains(t.Context(), who, in)
		if err != nil || out.Domains[99].Status != "created" {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	runJobs(t, s, "webhook_events")
	if events, tells := toldOf(t, s, EventDomainReady); events != 100 || tells != 1000 {
		t.Errorf("%d events are told %d times", events, tells)
	}
	if events, tells := toldOf(t, s, EventDomainCreated); events != 200 || tells != 2000 {
		t.Errorf("%d events are told %d times", events, tells)
	}
}

// The zone above says where each zone below it is, with 300 records of its owner's in it.
func TestConnectingManyNamesBelowOneWithinTheBounds(t *testing.T) {
	s, who := newBare(t)
	serveZones(s)
	top := putDomainRow(t, s, who, "top.test", domainComplete)
	putMany(t, s, store.CustomRecords, maxCustomRecords, func(i int) *store.CustomRecord {
		return &store.CustomRecord{ID: s.Store.NewID("rec"), DomainID: top.ID, Name: fmt.Sprintf("r%d.top.test", i), Type: "TXT", Value: strings.Repeat("v", 1000), TTL: 300}
	})
	putMany(t, s, store.Domains, 399, func(i int) *store.Domain {
		return &store.Domain{ID: s.Store.NewID("dom"), AccountID: who.AccountID, Name: fmt.Sprintf("o%d.top.test", i), Status: domainComplete, DNSProvider: "builtin"}
	})
	s.Zone("top.test")
	var in ConnectDomainsIn
	for i := range 100 {
		in.Domains = append(in.Domains, fmt.Sprintf("n%d.top.test", i))
	}
	out, err := s.ConnectDomains(t.Context(), who, in)
	if err != nil || out.Domains[99].Status != "created" {
		t.Fatalf("%v", err)
	}
	for _, name := range []string{"n0.top.test", "n99.top.test", "o1.top.test"} {
		if z, ok := s.Zone(name); !ok || z.Origin != name {
			t.Errorf("%s is not served", name)
		}
	}
}

// others makes claims of names by as many other accounts.
func others(t *testing.T, s *Service, n int, name func(i int) string) []*store.Domain {
	t.Helper()
	var out []*store.Domain
	putMany(t, s, store.Domains, n, func(i int) *store.Domain {
		d := &store.Domain{
			ID: fmt.Sprintf("dom_%026d", i), AccountID: fmt.Sprintf("acc_%026d", i), Name: name(i), Status: domainPendingNS,
			DNSProvider: dnsprov.Builtin, Claim: store.ClaimOpen, ClaimedAt: s.now(),
		}
		if out = append(out, d); len(out) > n { // it runs twice
			out = out[:n]
		}
		return d
	})
	return out
}

func TestAProofAmongManyRivalsWithinTheBounds(t *testing.T) {
	s, who := newBare(t)
	serveZones(s)
	others(t, s, 500, func(int) string { return "wanted.test" })
	d := putDomainRow(t, s, who, "wanted.test", domainPendingNS)
	update(t, s, func(tx *store.Tx) error { d.Claim = store.ClaimOpen; return store.Domains.Put(tx, d) })
	s.Zone("wanted.test")
	if now, err := s.settleProof(d.ID, provenByTXT); err != nil || now.Claim != store.ClaimProven {
		t.Fatalf("%+v, %v", now, err)
	}
	if _, ok := s.Zone("wanted.test"); !ok {
		t.Error("the winner is not served")
	}
	runJobs(t, s, "claims_changed")
	lost := 0
	if err := s.Store.View(func(tx *store.Tx) error {
		for o := range store.Domains.All(tx) {
			if o.Claim == store.ClaimLost && o.Status == domainError && o.ErrorCode == claimedElsewhere {
				lost++
			}
		}
		return nil
	}); err != nil || lost != 500 {
		t.Errorf("%d of 500 rivals lost, %v", lost, err)
	}
}

func TestAProofAboveManyClaimsWithinTheBounds(t *testing.T) {
	s, who := newBare(t)
	serveZones(s)
	below := others(t, s, 1000, func(i int) string { return fmt.Sprintf("n%d.wanted.test", i) })
	if _, ok := s.Zone(below[999].Name); !ok {
		t.Fatal("what nobody else claims is served")
	}
	out, err := s.ConnectDomains(t.Context(), who, ConnectDomainsIn{Domains: []string{"wanted.test"}})
	if err != nil || out.Domains[0].Status != "created" {
		t.Fatalf("%+v, %v", out, err)
	}
	runJobs(t, s, "claims_changed")
	for _, d := range below {
		if z, ok := s.Zone(d.Name); ok && z.Origin == d.Name {
			t.Fatalf("%s is served though others claim a name above it", d.Name)
		}
	}
	id := *out.Domains[0].DomainID
	if now, err := s.settleProof(id, provenByTXT); err != nil || now.Claim != store.ClaimProven {
		t.Fatalf("%+v, %v", now, err)
	}
	runJobs(t, s, "claims_changed")
	if z, ok := s.Zone("wanted.test"); !ok || z.Origin != "wanted.test" {
		t.Error("the winner is not served")
	}
	if _, err := s.DeleteDomain(t.Context(), who, DomainIn{id}); err != nil {
		t.Fatal(err)
	}
	runJobs(t, s, "domain_delete", "claims_changed")
	for _, d := range below {
		if z, ok := s.Zone(d.Name); !ok || z.Origin != d.Name {
			t.Fatalf("%s is not served though nobody else claims it any more", d.Name)
		}
	}
}

// A transaction counts the records and does not read them.
func TestCustomRecordsAtTheirMostWithinTheBounds(t *testing.T) {
	s, who := newWith(t, store.Options{MaxSteps: 2 * maxCustomRecords})
	serveZones(s)
	d := putDomainRow(t, s, who, "big.test", domainComplete)
	put := func(i int) *store.CustomRecord {
		return &store.CustomRecord{ID: s.Store.NewID("rec"), DomainID: d.ID, Name: fmt.Sprintf("r%d.big.test", i), Type: "TXT", Value: strings.Repeat("v", 4000), TTL: 300}
	}
	putMany(t, s, store.CustomRecords, maxCustomRecords-1, put)
	out, err := s.CreateCustomDNSRecord(t.Context(), who, CreateCustomDNSRecordIn{DomainID: d.ID, Name: "last", Type: "TXT", Value: strings.Repeat("w", 4000)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateCustomDNSRecord(t.Context(), who, CreateCustomDNSRecordIn{DomainID: d.ID, Name: "more", Type: "TXT", Value: "w"}); err == nil {
		t.Error("there is no limit")
	}
	if _, err := s.DeleteCustomDNSRecord(t.Context(), who, CustomDNSRecordIn{d.ID, out.Record.ID}); err != nil {
		t.Fatal(err)
	}
	if err := s.eraseCustomRecords(t.Context(), d.ID); err != nil {
		t.Fatal(err)
	}
}

func TestPruningWithinTheBounds(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, who := newClocked(t, func() time.Time { return now })
	const n = 1200
	long := strings.Repeat("x", 900)
	putMany(t, s, store.Outgoings, n, func(i int) *store.Outgoing {
		return &store.Outgoing{ID: s.Store.NewID("msg"), AccountID: who.AccountID, MessageID: "<" + long + ">", Recipient: long, Status: store.OutgoingSent, QueuedAt: now}
	})
	putMany(t, s, store.Mappings, n, func(i int) *store.Mapping {
		return &store.Mapping{ID: s.Store.NewID("map"), AccountID: who.AccountID, Original: "<" + long + ">", Provided: "<" + long + ">", RelayedAt: now}
	})
	putMany(t, s, store.Events, n, func(i int) *store.Event {
		return &store.Event{ID: s.Store.NewID("evt"), AccountID: who.AccountID, Type: EventEmailReceived, Created: now, Data: []byte("{}")}
	})
	putMany(t, s, store.Deliveries, n, func(i int) *store.Delivery {
		return &store.Delivery{ID: s.Store.NewID("dlv"), AccountID: who.AccountID, WebhookID: "wh_1", EventID: "evt_1", At: now}
	})
	putMany(t, s, store.Tokens, n, func(i int) *store.Token {
		return &store.Token{
			ID: s.Store.NewID("tok"), AccountID: who.AccountID, UserID: who.UserID, Hash: fmt.Sprint("hash", i), Kind: sessionKind,
			CreatedAt: now, ExpiresAt: now.Add(SessionLife),
		}
	})
	now = now.Add(400 * 24 * time.Hour)
	if _, err := s.prune(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, table := range []func(*store.Tx) int{
		func(tx *store.Tx) int { return store.OutgoingsByAccount.Count(tx, "", 0) },
		func(tx *store.Tx) int { return store.MappingsByOriginal.Count(tx, "", 0) },
		func(tx *store.Tx) int { return store.EventsByAccount.Count(tx, "", 0) },
		func(tx *store.Tx) int { return store.DeliveriesByWebhook.Count(tx, "", 0) },
		func(tx *store.Tx) int { return store.SessionsByTime.Count(tx, "", 0) },
	} {
		if err := s.Store.View(func(tx *store.Tx) error {
			if left := table(tx); left > 0 {
				t.Errorf("%d rows are left", left)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// manyTokens are more than one transaction may revoke.
const manyTokens = 6000

func TestTokensOfAUserAreRevokedWithinTheBounds(t *testing.T) {
	s, who := newBare(t)
	u := &store.User{ID: s.Store.NewID("usr"), AccountID: who.AccountID, Email: "ann@example.test", Role: "member", Status: "active"}
	update(t, s, func(tx *store.Tx) error { return store.Users.Put(tx, u) })
	var values []string
	for range manyTokens {
		values = append(values, newToken())
	}
	putMany(t, s, store.Tokens, manyTokens, func(i int) *store.Token {
		tok := &store.Token{
			ID: s.Store.NewID("tok"), AccountID: who.AccountID, UserID: u.ID, Hash: tokenHash(values[i]), Kind: "api",
			Permissions: []string{"read"}, CreatedAt: s.now(),
		}
		if i%2 == 0 {
			tok.Kind, tok.ExpiresAt = sessionKind, s.now().Add(SessionLife)
		}
		return tok
	})
	stands := func() (n int) {
		for _, v := range []string{values[1], values[manyTokens/2+1], values[manyTokens-1]} {
			if _, err := s.Authenticate(t.Context(), v, "192.0.2.1"); err == nil {
				n++
			}
		}
		return n
	}
	if stands() != 3 {
		t.Fatal("the tokens do not stand")
	}
	err := s.Store.View(func(tx *store.Tx) error {
		for tok := range store.Tokens.All(tx) {
			s.uses.note(tok.ID, s.now(), "192.0.2.1")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.flushUses(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeleteTeamUser(t.Context(), who, TeamUserIn{u.ID}); err != nil {
		t.Fatal(err)
	}
	if n := stands(); n != 0 {
		t.Errorf("%d tokens of nobody stand", n)
	}
}

func TestAccountWithManyMailboxesWithinTheBounds(t *testing.T) {
	s, who := newBare(t)
	d := putDomainRow(t, s, who, "big.test", domainComplete)
	putMany(t, s, store.Mailboxes, 20_500, func(i int) *store.Mailbox {
		return &store.Mailbox{ID: fmt.Sprintf("eu_%026d", i), Num: uint32(i + 1), AccountID: who.AccountID, DomainID: d.ID, Email: fmt.Sprintf("u%d@big.test", i), Status: "active", Type: "hosted"}
	})
	name := "other"
	if out, err := s.UpdateAccount(t.Context(), who, UpdateAccountIn{Name: &name}); err != nil || out.EmailUsersUsed != 20_500 {
		t.Errorf("%+v, %v", out, err)
	}
	if out, err := s.UpdateDomain(t.Context(), who, UpdateDomainIn{DomainID: d.ID, Tags: &[]string{"x"}}); err != nil || out.EmailUsersCount != 20_500 {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := s.DeleteDomain(t.Context(), who, DomainIn{d.ID}); err != nil {
		t.Error(err)
	}
}

// A relay tells of a thousand recipients of one message at once.
func TestManyNoticesWithinTheBounds(t *testing.T) {
	s, who := newBare(t)
	putWebhooks(t, s, who)
	putDomainRow(t, s, who, "big.test", domainComplete)
	const n = 1000
	long := strings.Repeat("x", 60)
	var list reader
	putMany(t, s, store.Outgoings, n, func(i int) *store.Outgoing {
		return &store.Outgoing{
			ID: s.Store.NewID("msg"), AccountID: who.AccountID, MessageID: "<1@big.test>", Sender: "ann@big.test", Domain: "big.test",
			Recipient: fmt.Sprintf("%s%d@far.test", long, i), Status: store.OutgoingRelayed, Transport: viaRelay, Provider: "r1", QueuedAt: s.now(),
		}
	})
	for i := range n {
		list = append(list, feedback.Notice{
			Kind: feedback.Bounced, Type: feedback.Hard, Status: "5.1.1", MessageID: "<1@big.test>", Sender: "ann@big.test",
			Recipient: fmt.Sprintf("%s%d@far.test", long, i), Diagnostic: strings.Repeat("d", 1000),
		})
	}
	s.AddRelay(Relay{Name: "r1", Kind: "sendgrid"}, list)
	if err := s.TakeNotices(t.Context(), "sendgrid", "r1", feedback.Request{}); err != nil {
		t.Fatal(err)
	}
	if events, tells := toldOf(t, s, EventEmailBounced); events != n || tells != n*webhookLimit {
		t.Errorf("%d events are told %d times", events, tells)
	}
}
