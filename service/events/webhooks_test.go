package events_test

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/webhooks"
)

const apiKey = "Bearer key-0123456789abcdef"

// A rig is an installation with two accounts and a receiver of events.
type rig struct {
	*servicetest.Installation
	who      core.Actor
	url      string
	mu       sync.Mutex
	received []*http.Request // their bodies are read
	bodies   []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.received, r.bodies = append(r.received, q), append(r.bodies, string(body))
		fmt.Fprintf(w, "you sent %q", q.Header.Get("Authorization"))
	}))
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	r.Installation = servicetest.Install(t, core.Config{RootCAs: roots})
	r.who, r.url = servicetest.ActorNum(r.Account, 1), server.URL
	return r
}

// last returns the newest request that the receiver has got.
func (r *rig) last() (*http.Request, string) {
	r.T.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.received) == 0 {
		r.T.Fatal("nothing was received")
	}
	return r.received[len(r.received)-1], r.bodies[len(r.bodies)-1]
}

func (r *rig) create(in events.CreateWebhookIn) *events.WebhookCreated {
	r.T.Helper()
	if in.URL == "" {
		in.URL = r.url
	}
	if in.Events == nil {
		in.Events = []string{"*"}
	}
	w, err := r.Svc.Events.CreateWebhook(r.T.Context(), r.who, in)
	if err != nil {
		r.T.Fatal(err)
	}
	return w
}

func (r *rig) update(in events.UpdateWebhookIn) *events.Webhook {
	r.T.Helper()
	w, err := r.Svc.Events.UpdateWebhook(r.T.Context(), r.who, in)
	if err != nil {
		r.T.Fatal(err)
	}
	return w
}

func (r *rig) secretOf(id string) string {
	r.T.Helper()
	out, err := r.Svc.Events.GetWebhookSecret(r.T.Context(), r.who, events.WebhookIn{ID: id})
	if err != nil {
		r.T.Fatal(err)
	}
	if out.PreviousSecretExpiresAt != (core.Time{}) {
		r.T.Error("the previous secret also signs")
	}
	return out.Secret
}

// test sends a test event, and returns the request.
func (r *rig) test(id string) (*http.Request, string) {
	r.T.Helper()
	if _, err := r.Svc.Events.TestWebhook(r.T.Context(), r.who, events.WebhookIn{ID: id}); err != nil {
		r.T.Fatal(err)
	}
	servicetest.RunJobs(r.T.(*testing.T), r.Svc, "webhook")
	return r.last()
}

// TestHeadersOfEndpoints: header fields are sent with each delivery and do not change its
// signature; they are shown masked, replaced whole, and kept where the mask is given.
func TestHeadersOfEndpoints(t *testing.T) {
	r := newRig(t)
	w := r.create(events.CreateWebhookIn{Headers: map[string]string{"Authorization": apiKey, "X-Env": "prod"}})
	want := func(got, headers map[string]string) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(headers) {
			t.Errorf("shown are %v, want %v", got, headers)
		}
	}
	sent := func(headers map[string]string) {
		t.Helper()
		q, body := r.test(w.ID)
		for _, name := range []string{"Authorization", "X-Env", "X-Other"} {
			if q.Header.Get(name) != headers[name] {
				t.Errorf("%s: %q was sent, want %q", name, q.Header.Get(name), headers[name])
			}
		}
		if err := webhooks.Verify(r.secretOf(w.ID), q.Header.Get("X-Service-Timestamp"), q.Header.Get("X-Service-Signature"), []byte(body), time.Now()); err != nil {
			t.Error(err)
		}
	}
	want(w.Headers, map[string]string{"Authorization": "…cdef", "X-Env": "…"})
	sent(map[string]string{"Authorization": apiKey, "X-Env": "prod"})

	// Masks keep values, in any case of the name; what is left out is gone.
	got := r.update(events.UpdateWebhookIn{ID: w.ID, Headers: &map[string]string{"authorization": "…cdef", "X-Other": "new"}})
	want(got.Headers, map[string]string{"authorization": "…cdef", "X-Other": "…"})
	sent(map[string]string{"Authorization": apiKey, "X-Other": "new"})
	got = r.update(events.UpdateWebhookIn{ID: w.ID, Headers: &map[string]string{"authorization": "…cdef"}, Events: &[]string{"email.received"}})
	want(got.Headers, map[string]string{"authorization": "…cdef"})
	path := r.url + "/other?path"
	want(r.update(events.UpdateWebhookIn{ID: w.ID, URL: &path}).Headers, map[string]string{"authorization": "…cdef"})
	sent(map[string]string{"Authorization": apiKey})

	for name, headers := range map[string]map[string]string{
		"a mask of another value": {"authorization": "…0000"}, "a mask of nothing": {"X-New": "…"}, "a refused name": {"Host": "x"}, "a wrong value": {"X-A": "a\nb"},
		"one name twice": {"X-A": "a", "x-a": "b"}, "an empty value": {"X-A": ""},
	} {
		_, err := r.Svc.Events.UpdateWebhook(t.Context(), r.who, events.UpdateWebhookIn{ID: w.ID, Headers: &headers})
		if e, ours := core.AsError(err); !ours || e.Code != "validation_error" || e.Details[0].Field != "headers" {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := map[string]string{}
	for n := range 11 {
		many[fmt.Sprint("X-", n)] = "x"
	}
	if _, err := r.Svc.Events.UpdateWebhook(t.Context(), r.who, events.UpdateWebhookIn{ID: w.ID, Headers: &many}); !servicetest.HasCode(err, "too_many_items") {
		t.Errorf("11 fields: %v", err)
	}
	delete(many, "X-0")
	for name := range many {
		many[name] = strings.Repeat("v", 1<<10)
	}
	if got := r.update(events.UpdateWebhookIn{ID: w.ID, Headers: &many}); len(got.Headers) != 10 || got.Headers["X-5"] != "…vvvv" {
		t.Errorf("the most that there can be: %v", got.Headers)
	}
	want(r.update(events.UpdateWebhookIn{ID: w.ID, Headers: &map[string]string{}}).Headers, map[string]string{})
	sent(nil)
}

// TestMovedEndpointLosesSecrets: another host or port gets neither the header fields nor the secret
// of the former receiver.
func TestMovedEndpointLosesSecrets(t *testing.T) {
	r := newRig(t)
	for url, moves := range map[string]bool{
		"https://hooks.test/a": false, "https://HOOKS.test:443/b?c": false, "https://hooks.test": false,
		"https://hooks.test:8443/a": true, "https://other.test/a": true, "https://hooks.test.evil.test/a": true,
	} {
		w := r.create(events.CreateWebhookIn{URL: "https://hooks.test/a", Headers: map[string]string{"Authorization": apiKey}})
		if _, err := r.Svc.Events.RotateWebhookSecret(t.Context(), r.who, events.WebhookIn{ID: w.ID}); err != nil {
			t.Fatal(err)
		}
		before, err := r.Svc.Events.GetWebhookSecret(t.Context(), r.who, events.WebhookIn{ID: w.ID})
		if err != nil {
			t.Fatal(err)
		}
		got := r.update(events.UpdateWebhookIn{ID: w.ID, URL: &url})
		after, err := r.Svc.Events.GetWebhookSecret(t.Context(), r.who, events.WebhookIn{ID: w.ID})
		if err != nil {
			t.Fatal(err)
		}
		if (len(got.Headers) == 0) != moves || (after.Secret != before.Secret) != moves || (after.PreviousSecretExpiresAt == core.Time{}) != moves || !strings.HasSuffix(after.Secret, got.SecretHint) {
			t.Errorf("%s: headers %v, another secret %t, the previous one until %v", url, got.Headers, after.Secret != before.Secret, after.PreviousSecretExpiresAt)
		}
		if _, err := r.Svc.Events.DeleteWebhook(t.Context(), r.who, events.WebhookIn{ID: w.ID}); err != nil {
			t.Fatal(err)
		}
	}

	// Values can come with the URL; masks cannot, since there is nothing to keep.
	w := r.create(events.CreateWebhookIn{URL: "https://hooks.test/a", Headers: map[string]string{"Authorization": apiKey}})
	other := "https://other.test/a"
	if _, err := r.Svc.Events.UpdateWebhook(t.Context(), r.who, events.UpdateWebhookIn{ID: w.ID, URL: &other, Headers: &map[string]string{"Authorization": "…cdef"}}); !servicetest.HasCode(err, "validation_error") {
		t.Errorf("a mask for another host: %v", err)
	}
	if got := r.update(events.UpdateWebhookIn{ID: w.ID, URL: &other, Headers: &map[string]string{"Authorization": "Bearer of the other"}}); got.Headers["Authorization"] != "…ther" {
		t.Errorf("%v", got.Headers)
	}
}

// TestHeaderValuesAreNeverShown: no answer, row, event, delivery or audit row has the value of a
// header field, also where the receiver repeats it.
func TestHeaderValuesAreNeverShown(t *testing.T) {
	r := newRig(t)
	who := r.who
	who.Request = &core.Request{Action: "update_webhook", Fields: []string{"headers"}}
	w, err := r.Svc.Events.CreateWebhook(t.Context(), who, events.CreateWebhookIn{URL: r.url, Events: []string{"*"}, Headers: map[string]string{"Authorization": apiKey}})
	if err != nil {
		t.Fatal(err)
	}
	updated, err := r.Svc.Events.UpdateWebhook(t.Context(), who, events.UpdateWebhookIn{ID: w.ID, Headers: &map[string]string{"Authorization": apiKey}})
	if err != nil {
		t.Fatal(err)
	}
	if q, _ := r.test(w.ID); q.Header.Get("Authorization") != apiKey {
		t.Errorf("sent was %q", q.Header.Get("Authorization"))
	}
	list, errList := r.Svc.Events.ListWebhooks(t.Context(), who)
	got, errGet := r.Svc.Events.GetWebhook(t.Context(), who, events.WebhookIn{ID: w.ID})
	tries, errTries := r.Svc.Events.ListWebhookDeliveries(t.Context(), who, events.ListDeliveriesIn{ID: w.ID})
	if errList != nil || errGet != nil || errTries != nil || len(tries.Data) != 1 {
		t.Fatalf("%v %v %v %+v", errList, errGet, errTries, tries)
	}
	if excerpt := tries.Data[0].ResponseExcerpt; excerpt == nil || *excerpt != `you sent "…cdef"` {
		t.Errorf("the answer is shown as %v", excerpt)
	}
	shown := []any{w, updated, list, got, tries}
	err = r.St.View(func(tx *store.Tx) error {
		for row := range store.Webhooks.All(tx) {
			shown = append(shown, row)
		}
		for row := range store.Events.All(tx) {
			shown = append(shown, row)
		}
		for row := range store.Deliveries.All(tx) {
			shown = append(shown, row)
		}
		audits := 0
		for row := range store.Audits.All(tx) {
			shown, audits = append(shown, row), audits+1
		}
		if audits < 2 {
			t.Errorf("%d audit rows", audits)
		}
		for row := range store.Jobs.All(tx) {
			shown = append(shown, row)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range shown {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "0123456789abcdef") {
			t.Errorf("a value is shown: %s", text)
		}
	}
}

// queuedFor returns to which endpoints the newest event is to be delivered, by their descriptions.
func (r *rig) queuedFor(about events.About, accountID string) (to []string) {
	r.T.Helper()
	var e *store.Event
	r.Update(func(tx *store.Tx) (err error) {
		e, err = r.Svc.Events.Emit(tx, accountID, events.EventEmailReceived, about, map[string]string{})
		return err
	})
	return r.deliveriesOf(e.ID)
}

func (r *rig) deliveriesOf(eventID string) (to []string) {
	r.T.Helper()
	err := r.St.View(func(tx *store.Tx) error {
		for j := range store.Jobs.All(tx) {
			var args events.DeliveryArgs
			if j.Kind != "webhook" {
				continue
			}
			if err := json.Unmarshal(j.Args, &args); err != nil {
				return err
			}
			if args.EventID != eventID {
				continue
			}
			w, err := store.Webhooks.Get(tx, args.WebhookID)
			if err != nil {
				return err
			}
			to = append(to, w.Description)
		}
		return nil
	})
	if err != nil {
		r.T.Fatal(err)
	}
	slices.Sort(to)
	return to
}

// TestFiltersSelectEvents: an event about a mailbox or domain goes to endpoints that list either,
// through changes of the mailbox; an event about neither goes to all; deleted ones leave the lists,
// and an empty list selects nothing.
func TestFiltersSelectEvents(t *testing.T) {
	r := newRig(t)
	one, two := r.AddDomain(r.Account, "one.test", nil), r.AddDomain(r.Account, "two.test", nil)
	ann, bob, cat := r.AddMailbox(one, "ann", nil), r.AddMailbox(one, "bob", nil), r.AddMailbox(two, "cat", nil)
	add := func(name string, f *events.WebhookFilters) *events.WebhookCreated {
		t.Helper()
		return r.create(events.CreateWebhookIn{Description: name, Filters: f})
	}
	add("all", nil)
	hookAnn := add("ann", &events.WebhookFilters{Mailboxes: []string{ann.ID, ann.ID}})
	hookTwo := add("two", &events.WebhookFilters{Domains: []string{two.ID}})
	add("ann or two", &events.WebhookFilters{Mailboxes: []string{ann.ID}, Domains: []string{two.ID}})
	add("none", &events.WebhookFilters{})
	if !slices.Equal(hookAnn.Filters.Mailboxes, []string{ann.ID}) || hookAnn.Filters.Domains == nil {
		t.Errorf("%+v", hookAnn.Filters)
	}
	expect := func(what string, about events.About, want ...string) {
		t.Helper()
		if got := r.queuedFor(about, r.Account.AccountID); !slices.Equal(got, want) {
			t.Errorf("%s goes to %q, want %q", what, got, want)
		}
	}
	everything := func() {
		t.Helper()
		expect("ann", events.About{MailboxID: ann.ID, Domain: one.ID}, "all", "ann", "ann or two")
		expect("ann, without a domain", events.About{MailboxID: ann.ID}, "all", "ann", "ann or two")
		expect("bob", events.About{MailboxID: bob.ID, Domain: one.ID}, "all")
		expect("cat", events.About{MailboxID: cat.ID, Domain: two.ID}, "all", "ann or two", "two")
		expect("cat, without a domain", events.About{MailboxID: cat.ID}, "all", "ann or two", "two")
		expect("cat, with the name of a domain", events.About{MailboxID: cat.ID, Domain: "two.test"}, "all", "ann or two", "two")
		expect("the domain one", events.About{Domain: one.ID}, "all")
		expect("the domain two", events.About{Domain: two.ID}, "all", "ann or two", "two")
		expect("the domain two by name", events.About{Domain: "two.test"}, "all", "ann or two", "two")
		expect("a domain that is gone", events.About{Domain: "gone.test"}, "all")
		expect("a mailbox that is gone", events.About{MailboxID: "eu_gone"}, "all")
		expect("nothing of these", events.About{}, "all", "ann", "ann or two", "none", "two")
	}
	everything()
	name, aliases := "Another Name", []string{"nan@one.test"}
	if _, err := r.Svc.Mailboxes.UpdateEmailUser(t.Context(), r.who, mailboxes.UpdateEmailUserIn{UserID: ann.ID, Name: &name, Aliases: &aliases}); err != nil {
		t.Fatal(err)
	}
	everything()

	// What arrives at an alias of a mailbox is about the mailbox.
	if err := r.Receive("x@far.test", "From: x@far.test\r\nSubject: to an alias\r\n\r\nhello\r\n", "nan@one.test"); err != nil {
		t.Fatal(err)
	}
	var arrived string
	err := r.St.View(func(tx *store.Tx) error {
		for e := range store.Events.All(tx) {
			if e.Type == events.EventEmailReceived && strings.Contains(string(e.Data), "to an alias") {
				arrived = e.ID
			}
		}
		return nil
	})
	if err != nil || arrived == "" {
		t.Fatalf("no event: %v", err)
	}
	if got := r.deliveriesOf(arrived); !slices.Equal(got, []string{"all", "ann", "ann or two"}) {
		t.Errorf("mail to an alias goes to %q", got)
	}

	// A deletion is the last event of a mailbox, and then its id leaves the lists.
	if _, err := r.Svc.Mailboxes.DeleteEmailUser(t.Context(), r.who, mailboxes.DeleteEmailUserIn{UserID: ann.ID}); err != nil {
		t.Fatal(err)
	}
	if err := r.Svc.Mailboxes.EraseMailbox(t.Context(), ann.ID); err != nil {
		t.Fatal(err)
	}
	var deleted string
	err = r.St.View(func(tx *store.Tx) error {
		for e := range store.Events.All(tx) {
			if e.Type == events.EventEmailUserDeleted {
				deleted = e.ID
			}
		}
		return nil
	})
	if got := r.deliveriesOf(deleted); err != nil || !slices.Equal(got, []string{"all", "ann", "ann or two"}) {
		t.Errorf("the deletion of ann goes to %q, %v", got, err)
	}
	filtersOf := func(id string) *events.WebhookFilters {
		t.Helper()
		w, err := r.Svc.Events.GetWebhook(t.Context(), r.who, events.WebhookIn{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		return w.Filters
	}
	if f := filtersOf(hookAnn.ID); f == nil || len(f.Mailboxes) != 0 {
		t.Errorf("without ann: %+v", f)
	}
	expect("bob, when ann is gone", events.About{MailboxID: bob.ID, Domain: one.ID}, "all")
	expect("ann, when ann is gone", events.About{MailboxID: ann.ID, Domain: one.ID}, "all")
	if _, err := r.Svc.Domains.DeleteDomain(t.Context(), r.who, domains.DomainIn{DomainID: two.ID}); err != nil {
		t.Fatal(err)
	}
	servicetest.RunJobs(t, r.Svc, "domain_delete")
	if f := filtersOf(hookTwo.ID); f == nil || len(f.Domains) != 0 {
		t.Errorf("without two.test: %+v", f)
	}
	again := r.AddDomain(r.Account, "two.test", nil)
	expect("another domain of that name", events.About{Domain: again.Name}, "all")
	expect("nothing of these, at the end", events.About{}, "all", "ann", "ann or two", "none", "two")

	// Without filters again, an endpoint gets all.
	r.update(events.UpdateWebhookIn{ID: hookTwo.ID, Filters: core.Opt[events.WebhookFilters]{Set: true, Null: true}})
	expect("bob, without filters", events.About{MailboxID: bob.ID}, "all", "two")
}

// TestFiltersNameOwnOnly: ids of another account, of deleted and of unknown mailboxes and domains
// are refused, and the endpoints of another account get nothing.
func TestFiltersNameOwnOnly(t *testing.T) {
	r := newRig(t)
	d := r.AddDomain(r.Account, "one.test", nil)
	ann := r.AddMailbox(d, "ann", nil)
	gone := r.AddMailbox(d, "gone", func(mb *store.Mailbox) { mb.Status = store.MailboxDeleting })
	other := r.AddAccount("owner@other.test")
	theirDomain := r.AddDomain(other, "theirs.test", nil)
	theirs := r.AddMailbox(theirDomain, "eve", nil)
	w := r.create(events.CreateWebhookIn{Description: "mine", Filters: &events.WebhookFilters{Mailboxes: []string{ann.ID}, Domains: []string{d.ID}}})
	for field, filters := range map[string][]events.WebhookFilters{
		"filters.mailboxes": {{Mailboxes: []string{ann.ID, theirs.ID}}, {Mailboxes: []string{"eu_unknown"}}, {Mailboxes: []string{gone.ID}}, {Mailboxes: []string{d.ID}}, {Mailboxes: []string{""}}},
		"filters.domains":   {{Domains: []string{theirDomain.ID}}, {Domains: []string{"theirs.test"}}, {Domains: []string{"one.test"}}, {Domains: []string{ann.ID}}},
	} {
		for _, f := range filters {
			_, errCreate := r.Svc.Events.CreateWebhook(t.Context(), r.who, events.CreateWebhookIn{URL: r.url, Events: []string{"*"}, Filters: &f})
			_, errUpdate := r.Svc.Events.UpdateWebhook(t.Context(), r.who, events.UpdateWebhookIn{ID: w.ID, Filters: core.Opt[events.WebhookFilters]{Set: true, Value: f}})
			for _, err := range []error{errCreate, errUpdate} {
				if e, ours := core.AsError(err); !ours || e.Code != "validation_error" || e.Details[0].Field != field {
					t.Errorf("%+v: %v", f, err)
				}
			}
		}
	}
	stranger := servicetest.ActorNum(other, 2)
	if _, err := r.Svc.Events.UpdateWebhook(t.Context(), stranger, events.UpdateWebhookIn{ID: w.ID, Headers: &map[string]string{}}); !servicetest.HasCode(err, "not_found") {
		t.Errorf("another account: %v", err)
	}
	if got := r.queuedFor(events.About{MailboxID: ann.ID, Domain: d.ID}, other.AccountID); got != nil { // an event of theirs, whatever it names
		t.Errorf("an event of another account goes to %q", got)
	}
	if got := r.queuedFor(events.About{MailboxID: ann.ID, Domain: d.ID}, r.Account.AccountID); !slices.Equal(got, []string{"mine"}) {
		t.Errorf("the account's own goes to %q", got)
	}

	// An event that the filters have left out is not in the endpoint's log.
	var e *store.Event
	bob := r.AddMailbox(r.AddDomain(r.Account, "two.test", nil), "bob", nil)
	r.Update(func(tx *store.Tx) (err error) {
		e, err = r.Svc.Events.Emit(tx, r.Account.AccountID, events.EventEmailReceived, events.About{MailboxID: bob.ID}, map[string]string{})
		return err
	})
	if _, err := r.Svc.Events.RedeliverEvent(t.Context(), r.who, events.RedeliverIn{ID: w.ID, EventID: e.ID}); !servicetest.HasCode(err, "not_found") {
		t.Errorf("redelivery of what was left out: %v", err)
	}
}
