package mailboxes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/pull/pulltest"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/transfer"
	"github.com/mailstead/mailstead/store"
)

// TestKeptUploadsOfAnAccountAreBounded: uploaded files are limited in number and in bytes over all
// mailboxes of an account. Other accounts' files do not count.
func TestKeptUploadsOfAnAccountAreBounded(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	other := i.AddAccount("owner@other.test")
	eve := i.AddMailbox(i.AddDomain(other, "other.test", nil), "eve", nil)
	dir := filepath.Join(i.St.Dir(), "uploads", ann.AccountID)
	keep := func(mb *store.Mailbox, size int) (string, error) {
		who := servicetest.Actor(i.Account)
		if mb == eve {
			who = servicetest.Actor(other)
		}
		length := int64(size)
		if size%2 == 1 { // as for a client that does not know the length
			length = -1
		}
		return i.Svc.Mailboxes.KeepUpload(who, mailboxes.Upload{UserID: mb.ID, Length: length, From: strings.NewReader(strings.Repeat("x", size))})
	}
	count := func() (n int) {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	kept := []string{}
	for n := range 100 {
		name, err := keep([]*store.Mailbox{ann, bob}[n%2], 4+n%2)
		if err != nil {
			t.Fatalf("file %d: %v", n, err)
		}
		kept = append(kept, name)
	}
	for _, mb := range []*store.Mailbox{ann, bob} {
		_, err := keep(mb, 4)
		if e, ok := core.AsError(err); !ok || e.Code != "rate_limited" || e.RetryAfter <= 0 {
			t.Errorf("a file beyond the number: %v", err)
		}
	}
	if _, err := keep(eve, 4); err != nil {
		t.Errorf("a file of another account: %v", err)
	}
	if n := count(); n != 100 {
		t.Errorf("%d files", n)
	}
	for _, name := range kept[1:] {
		if err := i.Svc.Mailboxes.DropUpload(name); err != nil {
			t.Fatal(err)
		}
	}

	// One file fills the account up to 100 bytes; the file has no blocks on the disk.
	if err := os.Truncate(filepath.Join(i.St.Dir(), "uploads", kept[0]), 32<<30-100); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{101, 102, 30 << 20} {
		if _, err := keep(bob, size); !servicetest.HasCode(err, "payload_too_large") {
			t.Errorf("a file of %d bytes: %v", size, err)
		}
	}
	if n := count(); n != 1 {
		t.Errorf("%d files, of which one was kept", n)
	}
	for _, size := range []int{51, 49} {
		if _, err := keep(bob, size); err != nil {
			t.Errorf("a file of %d bytes: %v", size, err)
		}
	}
	if _, err := keep(bob, 1); !servicetest.HasCode(err, "payload_too_large") {
		t.Errorf("a byte more: %v", err)
	}
	if _, err := keep(eve, 30<<20); err != nil {
		t.Errorf("a large file of another account: %v", err)
	}
	if err := filepath.WalkDir(filepath.Join(i.St.Dir(), "uploads"), func(path string, f fs.DirEntry, err error) error {
		if err != nil || f.IsDir() {
			return err
		}
		return os.Remove(path)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestImportsCarryTheirCountsOver has more imports of an account than may run at a time. Each ends
// its turn for the others, and its result counts all of its turns.
func TestImportsCarryTheirCountsOver(t *testing.T) {
	const folders, each = 3, 300
	var passed atomic.Int64
	bytes := int64(0)
	i := servicetest.InstallWith(t, core.Config{}, store.Options{Now: func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }})
	server := pulltest.Serve(t, nil)
	server.Change(func() {
		for n := range folders { // the server has INBOX's messages in each
			server.Folders = append(server.Folders, &pulltest.Folder{Name: fmt.Sprintf("Folder %d", n)})
		}
		for n := range each {
			bytes += folders * int64(len(server.Add(fmt.Sprintf("Subject: %d\r\n\r\nhello\r\n", n)).Text))
		}
		server.Manners = func(_, verb string, _ net.Conn, _ io.Writer) bool {
			if verb == "UID FETCH" {
				passed.Add(int64(20 * time.Second)) // a turn has some 15 commands
			}
			return false
		}
	})
	d := i.AddDomain(i.Account, "example.test", nil)
	i.Run()
	var all []string
	for _, local := range []string{"ann", "bob", "eve"} {
		mb := i.AddMailbox(d, local, nil)
		out, err := i.Svc.Mailboxes.ImportMail(t.Context(), servicetest.Actor(i.Account), mailboxes.ImportMailIn{
			EmailUserIn: core.EmailUserIn{UserID: mb.ID},
			IMAP:        &mailboxes.MailServerLogin{Host: "127.0.0.1", Port: server.Port, Security: "none", Username: "u", Password: "p"},
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, out.JobID)
	}
	turns := 0
	for _, id := range all {
		var j *store.Job
		for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			err := i.St.View(func(tx *store.Tx) (err error) {
				j, err = store.Jobs.Read(tx, id)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if j.State == store.JobCompleted {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("not done: %+v", j)
			}
		}
		var got transfer.ImportOutcome
		var carried struct{ Imported, Bytes int64 }
		if err := errors.Join(json.Unmarshal(j.Result, &got), json.Unmarshal(j.Args, &carried)); err != nil {
			t.Fatal(err)
		}
		if carried.Imported > 0 && carried.Imported < got.Imported && carried.Bytes > 0 && carried.Bytes < got.Bytes {
			turns++
		}
		got.DurationMS = min(got.DurationMS/time.Minute.Milliseconds(), 5) // minutes: longer than a turn
		want := transfer.ImportOutcome{Messages: folders * each, Imported: folders * each, Folders: folders, Bytes: bytes, DurationMS: 5, Errors: []transfer.ImportError{}}
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("with %+v before: %+v, want %+v", carried, got, want)
		}
	}
	if turns == 0 {
		t.Error("no import had a second turn")
	}
}
