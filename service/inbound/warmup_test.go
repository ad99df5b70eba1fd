package inbound_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/rules"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// A warmth is an installation whose account files warm-up mail in the folder "Warm/up". DMARC
// passes for far.test.
type warmth struct {
	*servicetest.Installation
	ann *store.Mailbox
}

func newWarmth(t *testing.T, c core.Config, o store.Options) *warmth {
	t.Helper()
	c.Outbound = core.ViaCapture
	i := servicetest.InstallWith(t, c, o)
	i.DNS.Txt["far.test"], i.DNS.Txt["_dmarc.far.test"] = "v=spf1 ip4:192.0.2.0/24 -all", "v=DMARC1; p=none"
	w := &warmth{i, i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)}
	i.Update(func(tx *store.Tx) error {
		return tx.CreateFolder(&store.Folder{Mailbox: w.ann.Num, Name: "Junk", SpecialUse: `\Junk`})
	})
	value := "7f3a"
	w.set(accounts.UpdateAccountIn{
		WarmupPhrases: &[]string{"blue bird"}, WarmupHeaders: &[]accounts.WarmupHeader{{Name: "X-Warm-Id", Value: &value}, {Name: "x-any"}},
		WarmupFolder: core.Opt[string]{Set: true, Value: "Warm/up"},
	})
	return w
}

func (w *warmth) set(in accounts.UpdateAccountIn) {
	w.T.Helper()
	if _, err := w.Svc.Accounts.UpdateAccount(w.T.Context(), servicetest.Actor(w.Account), in); err != nil {
		w.T.Fatal(err)
	}
}

// arrive has a message arrive, and gives the name of the folder that it is in.
func (w *warmth) arrive(ip, from, subject, fields, body string) (folder string) {
	w.T.Helper()
	before := w.counts()
	text := "From: " + from + "\r\nTo: ann@example.test\r\nSubject: " + subject + "\r\nMessage-ID: <" + w.St.NewID("x") + "@far.test>\r\n" + fields + "\r\n" + body + "\r\n"
	if err := w.ComeIn(netip.MustParseAddr(ip), from, "ann@example.test", text); err != nil {
		w.T.Fatal(err)
	}
	for name, n := range w.counts() {
		if n != before[name] {
			folder += name
		}
	}
	return folder
}

// counts counts ann's messages by folder.
func (w *warmth) counts() map[string]int {
	w.T.Helper()
	out := map[string]int{}
	err := w.St.View(func(tx *store.Tx) error {
		folders, err := tx.Folders(w.ann.Num)
		for _, f := range folders {
			out[f.Name] = int(f.Messages)
		}
		return err
	})
	if err != nil {
		w.T.Fatal(err)
	}
	return out
}

// TestWarmupMailIsFiledByItself: mail with a field or phrase and a proven author comes to the
// folder, and nothing else happens with it. All other mail arrives as ever.
func TestWarmupMailIsFiledByItself(t *testing.T) {
	w := newWarmth(t, core.Config{Settings: core.Settings{Spam: core.Spam{DNSBL: []string{"bl.test"}, DNSBLJunk: true}}}, store.Options{})
	w.Svc.Core.Resolver = listDNS{w.DNS, map[string]string{"9.2.0.192.bl.test": "127.0.0.2"}}
	addRule(w.Installation, w.ann, "", "flag $Ruled")
	addRule(w.Installation, w.ann, "hello", "reject Not here")
	if _, err := w.Svc.Rules.SetVacation(t.Context(), servicetest.Actor(w.Account), rules.SetVacationIn{UserID: w.ann.ID, Enabled: true, Text: "away"}); err != nil {
		t.Fatal(err)
	}
	w.Update(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Get(tx, w.ann.ID)
		if err != nil {
			return err
		}
		mb.ForwardTo = "onward@else.test"
		return store.Mailboxes.Put(tx, mb)
	})
	w.Run()
	sent := w.MustSend(w.ann, submit.SendEmailIn{To: submit.Texts{"pat@far.test"}, Subject: "ours", Text: "hello"})
	const usual, listed = "192.0.2.1", "192.0.2.9"
	cases := []struct{ name, ip, from, subject, fields, want string }{
		{"field", usual, "a1@far.test", "hello", "X-Warm-Id:  7f3a \r\n", "Warm/up"},
		{"name in another case", usual, "a2@far.test", "hello", "X-WARM-ID: 7f3a\r\n", "Warm/up"},
		{"any value", usual, "a3@far.test", "hello", "X-Any: \r\n thing\r\n", "Warm/up"},
		{"one of several", usual, "a4@far.test", "hello", "X-Warm-Id: other\r\nX-Warm-Id: 7f3a\r\n", "Warm/up"},
		{"phrase", usual, "a5@far.test", "hello Blue  bird", "", "Warm/up"},
		{"another value", usual, "b1@far.test", "good day", "X-Warm-Id: 7F3A\r\n", "INBOX"},
		{"no proof", usual, "b2@nowhere.test", "good day", "X-Any: x\r\n", "INBOX"},
		{"failed proof", "198.51.100.1", "b3@far.test", "good day", "X-Any: x\r\n", "INBOX"},
		{"answer", usual, "b4@far.test", "good day", "X-Any: x\r\nIn-Reply-To: " + sent.MessageID + "\r\n", "INBOX"},
		{"junk", listed, "b5@far.test", "good day", "X-Any: x\r\n", "Junk"},
		{"name without X-", usual, "b6@far.test", "good day", "Warm-Id: 7f3a\r\n", "INBOX"},
	}
	for _, c := range cases {
		if got := w.arrive(c.ip, c.from, c.subject, c.fields, "text"); got != c.want {
			t.Errorf("%s: filed in %q, want %s", c.name, got, c.want)
		}
	}
	settled(t, w.Installation)
	for _, m := range w.Folder(w.ann, "Warm/up") {
		if m.Bits&store.BitWarmup == 0 || len(m.Keywords) > 0 {
			t.Errorf("in the folder: %+v", m.Message)
		}
	}
	for _, m := range w.Folder(w.ann, "INBOX") {
		if fmt.Sprint(m.Keywords) != "[$Ruled]" {
			t.Errorf("in INBOX: %+v", m.Message)
		}
	}
	if told := w.Events(events.EventEmailReceived); len(told) != 2 { // b1 and b6; the others are marked as warm-up mail
		t.Errorf("%d events: %v", len(told), told)
	}
	forwards := 0
	err := w.St.View(func(tx *store.Tx) error {
		for o := range store.Outgoings.All(tx) {
			if o.Recipient == "onward@else.test" {
				forwards++
			}
			if strings.HasPrefix(o.Recipient, "a") {
				t.Errorf("%s got an automatic reply", o.Recipient)
			}
		}
		return nil
	})
	if err != nil || forwards != 6 { // what is in INBOX and in Junk
		t.Errorf("%d forwards, %v", forwards, err)
	}
}

// TestOldWarmupMailIsDeleted: what was filed as warm-up mail is deleted after the account's days,
// also from a folder that was renamed; what people put there stays.
func TestOldWarmupMailIsDeleted(t *testing.T) {
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	w := newWarmth(t, core.Config{}, store.Options{Now: func() time.Time { return now }})
	empty := func(want int) {
		t.Helper()
		if err := w.Svc.Inbox.EmptyWarmup(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := w.counts()["Warm/up"] + w.counts()["Old"]; got != want {
			t.Errorf("at %s: %d messages, want %d", now.Format("2 15:04"), got, want)
		}
	}
	for range 3 {
		w.arrive("192.0.2.1", "a@far.test", "one", "X-Any: x\r\n", "text")
	}
	servicetest.Keep(w.Installation, w.ann, "Warm/up", "From: ann@example.test\nX-Any: x\n\nkept\n")
	now = now.Add(6 * 24 * time.Hour)
	w.arrive("192.0.2.1", "a@far.test", "two", "X-Any: x\r\n", "text")
	empty(5)
	user := core.MailboxUser{AccountID: w.ann.AccountID, MailboxID: w.ann.ID, Mailbox: w.ann.Num, Email: w.ann.Email}
	if err := w.Svc.Inbox.RenameFolder(t.Context(), user, "Warm/up", "Old"); err != nil {
		t.Fatal(err)
	}
	now = now.Add(25 * time.Hour)
	empty(2)
	if got := w.arrive("192.0.2.1", "a@far.test", "three", "X-Any: x\r\n", "text"); got != "Warm/up" {
		t.Errorf("after the renaming it is filed in %q", got)
	}
	days := 1
	w.set(accounts.UpdateAccountIn{WarmupDays: &days})
	empty(2)
	w.set(accounts.UpdateAccountIn{WarmupFolder: core.Opt[string]{Set: true, Null: true}})
	now = now.Add(25 * time.Hour)
	empty(1)
	if got := w.arrive("192.0.2.1", "a@far.test", "four", "X-Any: x\r\n", "text"); got != "INBOX" {
		t.Errorf("without a folder it is filed in %q", got)
	}
	w.Update(func(tx *store.Tx) error {
		for f := range store.WarmupFolders.All(tx) {
			t.Errorf("a record is left: %+v", f)
		}
		return nil
	})
}

// TestMovedWarmupMailStays: a message that a person has moved is theirs, also when it is moved
// back.
func TestMovedWarmupMailStays(t *testing.T) {
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	w := newWarmth(t, core.Config{}, store.Options{Now: func() time.Time { return now }})
	w.arrive("192.0.2.1", "a@far.test", "one", "X-Any: x\r\n", "text")
	w.arrive("192.0.2.1", "a@far.test", "two", "X-Any: x\r\n", "text")
	user := core.MailboxUser{AccountID: w.ann.AccountID, MailboxID: w.ann.ID, Mailbox: w.ann.Num, Email: w.ann.Email}
	for _, step := range [][2]string{{"Warm/up", "INBOX"}, {"INBOX", "Warm/up"}} {
		from, err := w.Svc.Inbox.FolderByName(t.Context(), user, step[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Svc.Inbox.MoveMessages(t.Context(), user, from.ID, []uint32{1}, step[1]); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(30 * 24 * time.Hour)
	if err := w.Svc.Inbox.EmptyWarmup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := w.Folder(w.ann, "Warm/up"); len(left) != 1 || !strings.Contains(string(left[0].Raw), "Subject: one") {
		t.Errorf("%d messages are left", len(left))
	}
}

// TestWarmupMailTakesATenthOfTheQuota: the oldest makes room for the newest, and a message that is
// too large for that arrives as any mail.
func TestWarmupMailTakesATenthOfTheQuota(t *testing.T) {
	w := newWarmth(t, core.Config{}, store.Options{})
	quota := int64(100_000)
	w.Update(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Get(tx, w.ann.ID)
		if err != nil {
			return err
		}
		mb.QuotaBytes = &quota
		return store.Mailboxes.Put(tx, mb)
	})
	body := strings.Repeat("0123456789\r\n", 150)
	for n := range 12 {
		if got := w.arrive("192.0.2.1", "a@far.test", fmt.Sprintf("number %2d", n), "X-Any: x\r\n", body); got == "INBOX" {
			t.Fatalf("message %d is filed in INBOX", n)
		}
		err := w.St.View(func(tx *store.Tx) error {
			f, err := tx.FolderByName(w.ann.Num, "Warm/up")
			if err == nil && f.Bytes > quota/10 {
				t.Errorf("the folder has %d bytes", f.Bytes)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	left := w.Folder(w.ann, "Warm/up")
	size := int64(left[0].Blob.Length)
	if fit := int(quota / 10 / size); len(left) != fit || !strings.Contains(string(left[0].Raw), fmt.Sprintf("Subject: number %2d\r\n", 12-fit)) {
		t.Errorf("%d messages of %d bytes are left", len(left), size)
	}
	if got := w.arrive("192.0.2.1", "a@far.test", "large", "X-Any: x\r\n", strings.Repeat(body, 6)); got != "INBOX" {
		t.Errorf("a large message is filed in %q", got)
	}
	half := int64(50_000) // the folder has too much from now on
	w.Update(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Get(tx, w.ann.ID)
		if err != nil {
			return err
		}
		mb.QuotaBytes = &half
		return store.Mailboxes.Put(tx, mb)
	})
	if err := w.Svc.Inbox.EmptyWarmup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := w.Folder(w.ann, "Warm/up"); len(left) != int(half/10/size) {
		t.Errorf("%d messages are left in half the room", len(left))
	}
}

// TestWarmupMailOfMailboxesHere: the author of mail that is sent from here is proven too.
func TestWarmupMailOfMailboxesHere(t *testing.T) {
	w := newWarmth(t, core.Config{}, store.Options{})
	w.Run()
	text := "From: ann@example.test\r\nTo: ann@example.test\r\nSubject: mine\r\nX-Any: x\r\n\r\nhello\r\n"
	w.MustSubmit(w.ann, text, "ann@example.test")
	servicetest.Eventually(t, "it is filed", func() bool { return w.counts()["Warm/up"] == 1 })
	if n := w.counts()["INBOX"]; n != 0 {
		t.Errorf("%d messages in INBOX", n)
	}
}
