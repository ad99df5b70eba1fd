package store

import (
	"encoding/base64"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEverySealedFieldIsKnown: a field of a record that is sealed is in this list, and so in
// secrets.go too; what is missing there would be lost with the next change of the master key.
func TestEverySealedFieldIsKnown(t *testing.T) {
	want := []string{
		"Certificate.Key", "Certificate.NextKey", "CertificateAccount.Key", "CertificateOrder.Key", "Credential.SCRAM", "DKIMKey.Sealed", "DNSCredential.Sealed", "DNSSECKey.Sealed",
		"Domain.EdgeToken", "Idempotency.Sealed", "Mailbox.PasswordSealed", "Mailbox.SCRAM", "PastKey.MacRoot", "Server.PasswordSealed", "Setting.Sealed",
		"TOTP.Sealed", "Webhook.OldSecret", "Webhook.Secret", "WebhookHeader.Sealed",
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			record, ok := n.(*ast.TypeSpec)
			if !ok || !record.Name.IsExported() {
				return true
			}
			fields, ok := record.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range fields.Fields.List {
				list, ok := f.Type.(*ast.ArrayType)
				if !ok || fmt.Sprint(list.Elt) != "byte" || len(f.Names) == 0 {
					continue
				}
				if name := f.Names[0].Name; strings.Contains(name, "Sealed") || strings.Contains(f.Comment.Text(), "sealed") {
					found = append(found, record.Name.Name+"."+name)
				}
			}
			return true
		})
	}
	if slices.Sort(found); !slices.Equal(found, want) {
		t.Errorf("sealed are\n%v, not\n%v: secrets.go must know them", found, want)
	}
}

// sealedRecords returns one record of each kind, with all secrets sealed by an old key. A sealed
// secret here is a text that names its place.
func sealedRecords(t *testing.T, s *Store) {
	t.Helper()
	old := func(place string) []byte { return []byte("old " + place) }
	text := base64.StdEncoding.EncodeToString
	args := fmt.Sprintf(`{"domain_id":"dom_1","dns":true,"edge_token":%q,"mailboxes":[{"ID":"eu_9","Email":"x@y.test","PasswordSealed":%q}]}`,
		text(old("edge dom_1")), text(old("mailbox eu_9")))
	update(t, s, func(tx *Tx) error {
		for _, put := range []error{
			Mailboxes.Put(tx, &Mailbox{ID: "eu_1", Num: 1, DomainID: "dom_1", Email: "a@y.test", PasswordSealed: old("mailbox eu_1")}),
			Mailboxes.Put(tx, &Mailbox{ID: "eu_2", Num: 2, DomainID: "dom_1", Email: "b@y.test", External: &External{
				IMAP: Server{PasswordSealed: old("mailbox eu_2 imap")}, SMTP: &Server{PasswordSealed: old("mailbox eu_2 smtp")},
			}}),
			Mailboxes.Put(tx, &Mailbox{ID: "eu_3", Num: 3, DomainID: "dom_1", Email: "c@y.test"}),
			Domains.Put(tx, &Domain{
				ID: "dom_1", Name: "y.test", EdgeToken: old("edge dom_1"), DKIM: []DKIMKey{{Selector: "r", Sealed: old("dkim dom_1")}, {Selector: "e", Sealed: old("dkim dom_1")}},
				DNSSEC: &DNSSECKey{Sealed: old("dnssec dom_1")},
			}),
			DNSCredentials.Put(tx, &DNSCredential{ID: "dnsc_1", AccountID: "acc_1", Sealed: old("dns credential dnsc_1")}),
			Webhooks.Put(tx, &Webhook{
				ID: "wh_1", AccountID: "acc_1", Secret: old("webhook wh_1"), OldSecret: old("webhook wh_1"),
				Headers: []WebhookHeader{{Name: "X-Key", Sealed: old("webhook wh_1 header x-key"), Mask: "…"}, {Name: "authorization", Sealed: old("webhook wh_1 header authorization"), Mask: "…abcd"}},
			}),
			Certificates.Put(tx, &Certificate{ID: "host", Key: old("certificate host"), NextKey: old("certificate host"), Order: CertificateOrder{Key: old("certificate host")}}),
			CertificateAccounts.Put(tx, &CertificateAccount{Directory: "d", Key: old("acme account d")}),
			Users.Put(tx, &User{ID: "usr_1", AccountID: "acc_1", Email: "u@y.test", TOTP: &TOTP{Sealed: old("usr_1 totp"), Recovery: [][]byte{{1}}}}),
			Idempotencies.Put(tx, &Idempotency{ID: "i", Sealed: old("replay i"), CreatedAt: tx.Now()}),
			Jobs.Put(tx, &Job{ID: "job_1", Kind: "domain_setup", State: JobQueued, Args: []byte(args)}),
			Settings.Put(tx, &Setting{Key: "alerts.url", Sealed: old("setting alerts.url")}),
			Jobs.Put(tx, &Job{ID: "job_2", Kind: "other", State: JobQueued, Args: []byte(`{"mailboxes":3}`)}),
		} {
			if put != nil {
				return put
			}
		}
		return nil
	})
}

// numbered reseals a secret, each time with another result.
func numbered() Reseal {
	n := 0
	return func(place string, sealed []byte) []byte {
		if string(sealed) != "old "+place {
			return sealed
		}
		n++
		return fmt.Appendf(nil, "new %s %d", place, n)
	}
}

// TestRecordsAreSealedAnew: every secret is sealed anew for its own place, nothing else changes,
// and nobody is told.
func TestRecordsAreSealedAnew(t *testing.T) {
	s := openTest(t, Options{})
	sealedRecords(t, s)
	told := false
	s.OnCommit(func([]Change) { told = true })
	reseal := numbered()
	records := 0
	for after, more := "", true; more; {
		var n int
		var next string
		update(t, s, func(tx *Tx) (err error) {
			n, next, err = tx.Reseal(after, reseal)
			return err
		})
		records += n
		after, more = next, next != ""
	}
	if records != 11 || told {
		t.Errorf("%d records, told %v", records, told)
	}
	view(t, s, func(tx *Tx) error {
		list := tx.Secrets(100)
		if len(list) != 17 { // those that are alike in a record count once
			t.Errorf("%d secrets: %v", len(list), list)
		}
		for _, secret := range list {
			if !strings.HasPrefix(string(secret.Sealed), "new "+secret.Binding+" ") {
				t.Errorf("%s: %s", secret.Binding, secret.Sealed)
			}
		}
		c, err := Certificates.Get(tx, "host")
		if err != nil || string(c.Key) != string(c.NextKey) || string(c.Key) != string(c.Order.Key) {
			t.Errorf("one key is three: %+v, %v", c, err)
		}
		u, err := Users.Get(tx, "usr_1")
		if err != nil || len(u.TOTP.Recovery) != 1 || u.Email != "u@y.test" {
			t.Errorf("%+v, %v", u, err)
		}
		j, err := Jobs.Get(tx, "job_1")
		if err != nil || !strings.Contains(string(j.Args), `"dns":true`) || !strings.Contains(string(j.Args), `"x@y.test"`) {
			t.Errorf("%s, %v", j.Args, err)
		}
		return nil
	})
}

// TestLateWritesAreSealedAnew: what is put after everything was sealed anew is sealed anew too, and
// the caller's record stays as it is.
func TestLateWritesAreSealedAnew(t *testing.T) {
	s := openTest(t, Options{})
	s.ResealWrites(numbered())
	mine := &Domain{ID: "dom_1", Name: "y.test", DKIM: []DKIMKey{{Sealed: []byte("old dkim dom_1")}}}
	update(t, s, func(tx *Tx) error { return Domains.Put(tx, mine) })
	if string(mine.DKIM[0].Sealed) != "old dkim dom_1" {
		t.Errorf("the caller's record: %s", mine.DKIM[0].Sealed)
	}
	view(t, s, func(tx *Tx) error {
		d, err := Domains.Get(tx, "dom_1")
		if err != nil || !strings.HasPrefix(string(d.DKIM[0].Sealed), "new dkim dom_1 ") {
			t.Errorf("%+v, %v", d, err)
		}
		return nil
	})
}

// TestManyRecordsAreSealedAnewInSteps: the store fails a transaction that is over its bounds.
func TestManyRecordsAreSealedAnewInSteps(t *testing.T) {
	s := openTest(t, Options{})
	const n = 2100
	for from := 0; from < n; from += 300 {
		update(t, s, func(tx *Tx) error {
			for i := from; i < from+300; i++ {
				id := fmt.Sprintf("%05d", i)
				if err := Idempotencies.Put(tx, &Idempotency{ID: id, Sealed: append([]byte("old replay "+id), make([]byte, 10_000)...), CreatedAt: tx.Now()}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	steps, records := 0, 0
	for after, more := "", true; more; steps++ {
		var n int
		var next string
		update(t, s, func(tx *Tx) (err error) {
			n, next, err = tx.Reseal(after, func(_ string, sealed []byte) []byte { return append([]byte("new"), sealed[3:]...) })
			return err
		})
		records += n
		after, more = next, next != ""
	}
	if records != n || steps < n/200 {
		t.Errorf("%d records in %d steps", records, steps)
	}
}
