package mailboxes_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// manyBoxes puts mailboxes u0, u1, … of a domain into the store, with the password "correct horse".
func manyBoxes(t testing.TB, s *core.Core, who core.Actor, domain string, from, count int) {
	t.Helper()
	for ; count > 500; from, count = from+500, count-500 {
		manyBoxes(t, s, who, domain, from, 500)
	}
	err := s.Store.Update(func(tx *store.Tx) error {
		for i := range count {
			num, err := tx.NextMailboxNum()
			if err != nil {
				return err
			}
			id := tx.NewID("eu")
			err = store.Mailboxes.Put(tx, &store.Mailbox{
				ID: id, Num: num, AccountID: who.AccountID, AccountNum: who.AccountNum, DomainID: domain, Email: fmt.Sprintf("u%d@boxes.test", from+i),
				Status: "active", Ready: true, Type: "hosted", PasswordSealed: s.Keys.Seal(store.MailboxBinding(id), []byte("correct horse")), CreatedAt: tx.Now(), UpdatedAt: tx.Now(),
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// exportDomain makes a service with mailboxes on one domain.
func exportDomain(t *testing.T, count int) (*service.Service, core.Actor, string) {
	t.Helper()
	s, who := servicetest.NewBare(t)
	d := &store.Domain{ID: s.Core.Store.NewID("dom"), AccountID: who.AccountID, Name: "boxes.test", Status: "complete", DNSProvider: "builtin"}
	servicetest.Update(t, s, func(tx *store.Tx) error { return store.Domains.Put(tx, d) })
	manyBoxes(t, s.Core, who, d.ID, 0, count)
	return s, who, d.ID
}

// TestExportIsMadeWhileItIsRead exports more mailboxes than a batch. During the export one mailbox
// is deleted and others are created.
func TestExportIsMadeWhileItIsRead(t *testing.T) {
	for _, format := range []string{"default", "json"} {
		s, who, domain := exportDomain(t, 2*mailboxes.ExportBatch+50)
		out, err := s.Mailboxes.CreateExport(t.Context(), who, mailboxes.CreateExportIn{Format: format, All: true, Inline: true})
		if err != nil {
			t.Fatal(err)
		}
		half := &bytes.Buffer{}
		if _, err := io.CopyN(half, out.File.Body, 1000); err != nil {
			t.Fatal(err)
		}
		if size := out.File.Body.(*mailboxes.ExportReader).Buf.Cap(); size > mailboxes.ExportBatch*1500 {
			t.Errorf("%d bytes are held", size)
		}
		servicetest.Update(t, s, func(tx *store.Tx) error {
			mb, err := store.MailboxByEmail.Get(tx, "u300@boxes.test")
			if err != nil {
				return err
			}
			mb.Status = "deleting"
			return store.Mailboxes.Put(tx, mb)
		})
		manyBoxes(t, s.Core, who, domain, 2*mailboxes.ExportBatch+50, 10)
		if _, err := io.Copy(half, iotest.OneByteReader(out.File.Body)); err != nil {
			t.Fatal(err)
		}
		emails := exportedEmails(t, format, half)
		if len(emails) != 2*mailboxes.ExportBatch+59 || emails["u300@boxes.test"] || !emails["u0@boxes.test"] || !emails["u449@boxes.test"] {
			t.Errorf("%s has %d mailboxes", format, len(emails))
		}
	}
}

// TestLongRowsAreMadeOneByOne exports rows of a MiB each, of which few are held at a time.
func TestLongRowsAreMadeOneByOne(t *testing.T) {
	const count = 20
	s, who, _ := exportDomain(t, count)
	servicetest.Update(t, s, func(tx *store.Tx) error {
		for n := range count {
			mb, err := store.MailboxByEmail.Get(tx, fmt.Sprintf("u%d@boxes.test", n))
			if err != nil {
				return err
			}
			mb.Footer = strings.Repeat("x", 10_000)
			if err := store.Mailboxes.Put(tx, mb); err != nil {
				return err
			}
		}
		return nil
	})
	columns := []mailboxes.ExportColumn{{Header: "long", Value: strings.Repeat("{footer}", 100)}}
	out, err := s.Mailboxes.CreateExport(t.Context(), who, mailboxes.CreateExportIn{Format: "columns", Columns: &columns, All: true, Inline: true})
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, out.File.Body)
	if err != nil || n != int64(len("long\r\n")+count*(1_000_000+2)) {
		t.Errorf("%d bytes, %v", n, err)
	}
	if size := out.File.Body.(*mailboxes.ExportReader).Buf.Cap(); size > 8<<20 {
		t.Errorf("%d bytes are held", size)
	}
}

func exportedEmails(t *testing.T, format string, file io.Reader) map[string]bool {
	t.Helper()
	emails := map[string]bool{}
	if format == "json" {
		var list []mailboxes.Credentials
		if err := json.NewDecoder(file).Decode(&list); err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			emails[c.Email] = c.Password == "correct horse"
		}
		return emails
	}
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[1:] {
		emails[row[1]] = row[4] == "correct horse"
	}
	return emails
}

// TestExportIsNoHalfFile: a password that cannot be opened is an error at the start, or in the
// middle of reading.
func TestExportIsNoHalfFile(t *testing.T) {
	for _, at := range []int{0, mailboxes.ExportBatch + 1} {
		s, who, _ := exportDomain(t, mailboxes.ExportBatch+2)
		servicetest.Update(t, s, func(tx *store.Tx) error {
			mb, err := store.MailboxByEmail.Get(tx, fmt.Sprintf("u%d@boxes.test", at))
			if err != nil {
				return err
			}
			mb.PasswordSealed[0] ^= 1
			return store.Mailboxes.Put(tx, mb)
		})
		out, err := s.Mailboxes.CreateExport(t.Context(), who, mailboxes.CreateExportIn{All: true, Inline: true})
		if err == nil {
			_, err = io.Copy(io.Discard, out.File.Body)
		}
		if err == nil || !strings.Contains(err.Error(), "exp_") {
			t.Errorf("error %v", err)
		}
	}
}

func TestExportsOfAnAccount(t *testing.T) {
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	s, who := servicetest.NewClocked(t, func() time.Time { return now })
	all := mailboxes.CreateExportIn{All: true}
	count := func() (n int) {
		servicetest.Update(t, s, func(tx *store.Tx) error { n = store.ExportsByAccount.Count(tx, who.AccountID, 0); return nil })
		return n
	}
	first, err := s.Mailboxes.CreateExport(t.Context(), who, all)
	if err != nil || !first.Link.ExpiresAt.Equal(now.Add(900*time.Second)) {
		t.Fatalf("%+v, %v", first, err)
	}
	for _, wait := range []time.Duration{0, 4999 * time.Millisecond} {
		now = now.Add(wait)
		_, err := s.Mailboxes.CreateExport(t.Context(), who, all)
		if e, _ := core.AsError(err); e == nil || e.Code != "export_rate_limited" || e.RetryAfter != 5*time.Second-wait {
			t.Errorf("after %v: %v", wait, err)
		}
	}
	now = now.Add(time.Millisecond)
	if _, err := s.Mailboxes.CreateExport(t.Context(), who, all); err != nil || count() != 2 {
		t.Errorf("after 5 s: %v, %d kept", err, count())
	}
	token := first.Link.DownloadURL[strings.LastIndexByte(first.Link.DownloadURL, '/')+1:]
	now = now.Add(895*time.Second - time.Millisecond)
	if _, err := s.Mailboxes.OpenExport(t.Context(), token); err != nil {
		t.Errorf("just before the end of the link: %v", err)
	}
	now = now.Add(time.Millisecond)
	if _, err := s.Mailboxes.CreateExport(t.Context(), who, all); err != nil || count() != 2 {
		t.Errorf("an expired export is kept: %v, %d kept", err, count())
	}
	now = now.Add(-time.Hour) // a clock that was set back
	if _, err := s.Mailboxes.CreateExport(t.Context(), who, all); err != nil {
		t.Errorf("with a clock set back: %v", err)
	}
	now = now.Add(3 * time.Hour)
	if _, err := s.Prune(t.Context(), nil); err != nil || count() != 0 {
		t.Errorf("retention leaves %d: %v", count(), err)
	}
}

// BenchmarkExport exports 10 000 mailboxes.
func BenchmarkExport(b *testing.B) {
	st, err := store.Open(b.TempDir(), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	keys, err := core.OpenKeys(st)
	if err != nil {
		b.Fatal(err)
	}
	s := &mailboxes.Service{Core: &core.Core{Store: st, Keys: keys}}
	who := core.Actor{AccountID: st.NewID("acc"), AccountNum: 1}
	manyBoxes(b, s.Core, who, "dom_x", 0, 10_000)
	e := &store.Export{AccountID: who.AccountID, Format: "default", All: true}
	b.ReportAllocs()
	for b.Loop() {
		file, err := s.ExportFile(e)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, file.Body)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(n)
	}
}
