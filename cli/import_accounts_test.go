package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/store"
)

// importedAccounts runs the import of a file with these lines.
func importedAccounts(t *testing.T, dir string, lines ...string) (out mailboxes.AccountsImported, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "accounts.csv")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := mailsteadCommand(t, "import", "accounts", "--data", dir, "--from", file, "--json")
	if text != "" {
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return out, err
}

// TestImportAccountsWithAliases: the fourth column gives a mailbox its aliases. A line with an
// alias that cannot be makes nothing, and is named; whoever exists keeps the aliases there are.
func TestImportAccountsWithAliases(t *testing.T) {
	dir := t.TempDir()
	if _, err := mailsteadCommand(t, "init", "--data", dir, "--owner-email", "ops@example.com"); err != nil {
		t.Fatal(err)
	}
	var account string
	inStore(t, dir, func(tx *store.Tx) error {
		for a := range store.Accounts.All(tx) {
			account = a.ID
		}
		for id, name := range map[string]string{"dom_1": "boxes.test", "dom_2": "second.test", "dom_3": "pending.test"} {
			status := store.DomainComplete
			if id == "dom_3" {
				status = "pending_ns"
			}
			if err := store.Domains.Put(tx, &store.Domain{ID: id, AccountID: account, Name: name, Status: status, DNSProvider: "builtin"}); err != nil {
				return err
			}
		}
		return nil
	})
	const hash = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
	with := func(address, aliases string) string { return address + "," + hash + ",," + aliases }
	out, err := importedAccounts(t, dir, "email,password_hash,name,aliases",
		with("ann@boxes.test", `"Sales@boxes.test, info@second.test"`), with("bob@boxes.test", ""), with("cat@boxes.test", "abuse@boxes.test;cats@boxes.test cats@boxes.test"),
		with("dan@boxes.test", "sales@boxes.test"), with("eve@boxes.test", "eve@elsewhere.test"), with("fay@boxes.test", "fay@pending.test"),
		with("gus@boxes.test", "not-an-address"), "hal@boxes.test,"+hash+",Hal", with("info@second.test", ""), with("ivy@boxes.test", "x@boxes.test")+",more",
	)
	if err == nil || out.Accounts != 10 || out.Imported != 3 || out.Skipped != 0 || out.Failed != 7 {
		t.Errorf("%v, %+v", err, out)
	}
	words := map[int]string{5: "sales@boxes.test exists already", 6: "elsewhere.test", 7: "pending.test", 8: "aliases", 9: "3 columns", 10: "it is an alias", 11: "5 columns"}
	for _, e := range out.Errors {
		if !strings.Contains(e.Message, words[e.Line]) || words[e.Line] == "" {
			t.Errorf("line %d (%s): %s", e.Line, e.Email, e.Message)
		}
		delete(words, e.Line)
	}
	if len(words) > 0 {
		t.Errorf("no errors: %v", words)
	}
	want := map[string][]string{
		"ann@boxes.test": {"info@second.test", "sales@boxes.test"}, "bob@boxes.test": nil, "cat@boxes.test": {"abuse@boxes.test", "cats@boxes.test"},
	}
	aliases := func() map[string][]string {
		all := map[string][]string{}
		inStore(t, dir, func(tx *store.Tx) error {
			for mb := range store.Mailboxes.All(tx) {
				all[mb.Email] = nil
				for _, a := range store.AddressesByMailbox.Asc(tx, mb.ID, "") {
					all[mb.Email] = append(all[mb.Email], a.Email)
				}
				slices.Sort(all[mb.Email])
			}
			return nil
		})
		return all
	}
	same := func() {
		t.Helper()
		got := aliases()
		for email, list := range want {
			if there, ok := got[email]; !ok || !slices.Equal(there, list) {
				t.Errorf("%s has %v, want %v", email, there, list)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	same()
	// Again, without the column: who exists is skipped, aliases and all.
	out, err = importedAccounts(t, dir, "email,password_hash,name", "ann@boxes.test,"+hash+",", "dan@boxes.test,"+hash+",Dan")
	if err != nil || out.Skipped != 1 || out.Imported != 1 {
		t.Errorf("again: %v, %+v", err, out)
	}
	want["dan@boxes.test"] = nil
	out, err = importedAccounts(t, dir, "email,password_hash,name,aliases", with("dan@boxes.test", "dan2@boxes.test"))
	if err != nil || out.Skipped != 1 {
		t.Errorf("with other aliases: %v, %+v", err, out)
	}
	same()
	_, err = importedAccounts(t, dir, "email,password_hash,name,alias", with("dan@boxes.test", ""))
	if !isWrongUse(err) || !strings.Contains(err.Error(), "email,password_hash,name or email,password_hash,name,aliases") {
		t.Errorf("another header: %v", err)
	}
}
