package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/mailstead/mailstead/service/transfer"
	"github.com/mailstead/mailstead/store"
)

// TestMaildirsWithTheSameNames: exports of two mailboxes may give two messages one name. Both come
// into a third mailbox, and each of them once.
func TestMaildirsWithTheSameNames(t *testing.T) {
	dir := t.TempDir()
	if _, err := mailsteadCommand(t, "init", "--data", dir, "--owner-email", "ops@example.com"); err != nil {
		t.Fatal(err)
	}
	inStore(t, dir, func(tx *store.Tx) error {
		var account string
		for a := range store.Accounts.All(tx) {
			account = a.ID
		}
		return store.Domains.Put(tx, &store.Domain{ID: "dom_1", AccountID: account, Name: "boxes.test", Status: store.DomainComplete, DNSProvider: "builtin"})
	})
	const hash = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
	if out, err := importedAccounts(t, dir, "email,password_hash,name", "ann@boxes.test,"+hash+","); err != nil || out.Imported != 1 {
		t.Fatal(out, err)
	}
	var sources []string
	for _, subject := range []string{"one", "two"} {
		source := t.TempDir()
		for _, sub := range []string{"cur", "new", "tmp"} {
			if err := os.Mkdir(filepath.Join(source, sub), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		text := "From: bob@elsewhere.test\nSubject: " + subject + "\n\nHi\n"
		if err := os.WriteFile(filepath.Join(source, "cur", "1600000000.U1.mailstead:2,S"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		sources = append(sources, source)
	}
	for run, want := range []transfer.ImportOutcome{{Imported: 1}, {Imported: 1}, {Skipped: 1}, {Skipped: 1}} {
		text, err := mailsteadCommand(t, "import", "maildir", "--data", dir, "--from", sources[run%2], "--to", "ann@boxes.test", "--json")
		if err != nil {
			t.Fatal(err)
		}
		var got transfer.ImportOutcome
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if got.Imported != want.Imported || got.Skipped != want.Skipped || got.Failed != 0 {
			t.Errorf("run %d: %s", run+1, text)
		}
	}
}
