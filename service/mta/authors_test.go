package mta_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestSubmissionNamesItsAuthors: whoever writes as somebody else, in whatever form some program
// would read that, is refused.
func TestSubmissionNamesItsAuthors(t *testing.T) {
	i, ann := capturing(t, nil)
	many := "To: " + strings.Repeat("x@far.test,", 998) + "x@far.test\r\n"
	const own, ceo = "ann@example.test", "ceo@example.test"
	for _, c := range []struct {
		header   string
		enhanced string // "" for what is taken
	}{
		{"From: " + own + "\r\n", ""},
		{"From: \"Ann, of Example\" <" + own + ">\r\nSender: " + own + "\r\n", ""},
		{"From: ann+a@example.test, Ann <ann+b@Example.Test>\r\nSender: " + own + "\r\n", ""},
		{"Resent-From: " + own + "\r\nResent-Sender: ann+x@example.test\r\nFrom: " + own + "\r\n", ""},
		{many + "From: " + own + "\r\nCc: c@far.test\r\n", ""},

		{many + "From: " + own + ", " + ceo + "\r\nSender: " + own + "\r\n", "5.7.1"},
		{many + "From: " + own + "\r\nSender: " + ceo + "\r\n", "5.7.1"},
		{many + "From: " + ceo + "\r\n", "5.7.1"},
		{"From: " + own + ", ann+b@example.test\r\n", "5.6.0"}, // without a Sender
		{"From: " + own + "\r\nSender: " + own + "\r\nSender: " + ceo + "\r\n", "5.6.0"},
		{"From: " + own + "\r\nSender:\r\n", "5.6.0"},
		{"From: " + own + "\r\nSender: " + own + ", " + own + "\r\n", "5.6.0"},
		{"From: " + own + "\r\nfrom : " + ceo + "\r\n", "5.6.0"},
		{"From: " + own + "\r\nFROM: " + own + "\r\n", "5.6.0"},
		{"From: " + ceo + " " + own + "\r\n", "5.6.0"},
		{"From: " + ceo + ": " + own + ";\r\n", "5.6.0"},
		{"From: Team: " + own + ";\r\n", "5.6.0"},
		{"From: <" + own + "> <" + ceo + ">\r\n", "5.6.0"},
		{"From: \"CEO\" <" + own + "> \"CEO\" <" + ceo + ">\r\n", "5.6.0"},
		{"From: " + ceo + " <" + own + ">\r\n", "5.6.0"},
		{"From: <@far.test:" + own + ">\r\n", "5.6.0"},
		{"From: \"" + ceo + ",\" " + own + "\r\n", "5.6.0"},
		{"From: =?utf-8?q?ceo=40example.test?= " + own + "\r\n", "5.6.0"},
		{"From: =?utf-8?q?ceo=40example.test?=\r\n", "5.6.0"},
		{"From: ann@example.test\x00\r\nX: y\x00\rFrom: " + ceo + "\r\n", "5.6.0"},
		{"From: " + own + ",\r\n \r\n " + own + "\r\nSender: " + own + "\r\n", "5.6.0"},
		{"From:\r\n", "5.6.0"},
		{"Subject: s\r\n", "5.6.0"},
		{"Resent-From: " + own + "\r\nFrom: " + ceo + "\r\n", "5.7.1"},
		{"Resent-From: " + own + "\r\nResent-From: " + ceo + "\r\nFrom: " + own + "\r\n", "5.7.1"},
		{"Resent-From: " + own + "\r\nResent-Sender: " + ceo + "\r\nFrom: " + own + "\r\n", "5.7.1"},
		{"Resent-From: " + ceo + " " + own + "\r\nFrom: " + own + "\r\n", "5.6.0"},
		{"Resent-Sender : " + ceo + "\r\nFrom: " + own + "\r\n", "5.6.0"},
		{strings.Repeat("X: y\r\n", 3000) + "From: " + own + "\r\nFrom: " + ceo + "\r\n", "5.6.0"},
		{"From: " + own + "\r\n" + strings.Repeat("X: y\r\n", 3000) + "Sender: " + ceo + "\r\n", "5.7.1"},
	} {
		_, err := i.Submit(ann, c.header+"Date: Mon, 01 Jan 2024 00:00:00 +0000\r\n\r\nhello\r\n", "x@far.test")
		var e *core.SMTPError
		errors.As(err, &e)
		if c.enhanced == "" && err != nil || c.enhanced != "" && (e == nil || e.Code != 550 || e.Enhanced != c.enhanced) {
			t.Errorf("%.200q: %v, want 550 %s", strings.TrimPrefix(c.header, many), err, c.enhanced)
		}
	}
	// What stands behind a line that is no field goes out as text, behind an empty line.
	i.MustSubmit(ann, "From: "+own+"\r\nno field\r\nFrom: "+ceo+"\r\n\r\nhello\r\n", "text@far.test")
}

// TestLocalMailPassesForItsAuthorOnly looks at mail that lay in the queue before its author was
// looked at strictly.
func TestLocalMailPassesForItsAuthorOnly(t *testing.T) {
	for name, c := range map[string]struct{ from, dmarc string }{
		"own":             {"From: Ann <ann@example.test>\r\n", "pass"},
		"own with tag":    {"From: Ann <ann+tag@example.test>\r\n", "pass"},
		"a colleague":     {"From: ceo@example.test\r\n", "fail"},
		"two, one hidden": {"From: ann@example.test\r\nFROM : ceo@example.test\r\n", "permerror"},
		"a group":         {"From: ceo@example.test: ann@example.test;\r\n", "permerror"},
	} {
		i, ann := capturing(t, nil)
		d := i.AddDomain(i.AddAccount("other@elsewhere.test"), "other.test", nil)
		bob := i.AddMailbox(d, "bob", nil)
		blob, err := i.St.Append([]byte("{}"), i.Spool(c.from+"Message-ID: <1@example.test>\r\nSubject: s\r\n\r\nhello\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		i.Update(func(tx *store.Tx) error {
			from, err := store.Domains.Get(tx, ann.DomainID)
			if err != nil {
				return err
			}
			_, err = i.Svc.Enqueue(tx, &store.Submission{
				AccountID: ann.AccountID, MailboxID: ann.ID, DomainID: ann.DomainID, MessageID: "<1@example.test>", Sender: ann.Email, Blob: blob,
			}, from, []mta.Rcpt{{Address: bob.Email}})
			return err
		})
		i.Run()
		i.Becomes(bob.Email, store.OutgoingDelivered)
		if got := i.Folder(bob, "INBOX"); len(got) != 1 || got[0].Meta.DMARC != c.dmarc {
			t.Errorf("%s: %+v, want dmarc=%s", name, got, c.dmarc)
		}
	}
}

// TestUnclearAuthorsAreNotBelieved has mail come in whose author programs read differently, in part
// as one whose domain wants forgeries rejected. The envelope is the sender's own.
func TestUnclearAuthorsAreNotBelieved(t *testing.T) {
	i, mb := screened(t, core.Spam{})
	i.DNS.Txt["_dmarc.far.test"] = "v=DMARC1; p=reject"
	i.DNS.Txt["_dmarc.bank.test"] = "v=DMARC1; p=reject"
	i.DNS.Txt["_dmarc.mild.test"] = "v=DMARC1; p=none"
	many := "To: " + strings.Repeat("x@example.test,", 999) + "x@example.test\r\n"
	var padding []string
	for c := 'a'; c <= 'z'; c++ {
		padding = append(padding, "x@"+string(c)+".test")
	}
	for _, c := range []struct {
		header string
		folder string // "" for what is refused
	}{
		{"From: pat@far.test\r\n", "INBOX"},
		{"From: \"Pat, Far\" <pat@far.test>\r\n", "INBOX"},
		{"From: pat@far.test (Pat)\r\n", "INBOX"},
		{"From: pat@far.test <pat@far.test>\r\n", "INBOX"}, // wrong, frequent, and the same to all
		{many + "From: pat@far.test\r\n", "INBOX"},
		{"From: pat@far.test\r\nSender: pat@far.test, x\r\n", "INBOX"},

		{"From: pat@far.test pat@far.test\r\n", "Junk"},
		{"From: Pat: pat@far.test;\r\n", "Junk"},
		{"From: boss@mild.test pat@far.test\r\n", "Junk"},
		{"From: pat@far.test\r\nFROM: pat@far.test\r\n", "Junk"},
		{"From : pat@far.test\r\n", "Junk"},
		{"From: Pat\r\n", "Junk"},

		{many + "From: pat@far.test, boss@bank.test\r\n", ""},
		{"From: pat@far.test\r\nFROM : boss@bank.test\r\n", ""},
		{"From: boss@bank.test pat@far.test\r\n", ""},
		{"From: boss@bank.test: pat@far.test;\r\n", ""},
		{"From: <pat@far.test> <boss@bank.test>\r\n", ""},
		{"From: \"Boss\" <pat@far.test> \"Boss\" <boss@bank.test>\r\n", ""},
		{"From: boss@bank.test <pat@far.test>\r\n", ""},
		{"From: =?utf-8?q?boss=40bank.test?=\r\n", ""},
		{"From: boss@(c)bank. test\r\n", ""},
		{"From: <@far.test:boss@bank.test>\r\n", ""},
		{"From: pat@far.test\r\nno field\r\nFrom: boss@bank.test\r\n", ""},
		{strings.Repeat("X: y\r\n", 60_000) + "From: boss@bank.test\r\n", ""},
		{"From: pat@far.test\r\n" + strings.Repeat("X: "+strings.Repeat("y", 900)+"\r\n", 700) + "From: boss@bank.test\r\n", ""},
		{"From: pat@far.test\r\n" + strings.Repeat("X: "+strings.Repeat("y", 900)+"\r\n", 1300), "Junk"},
		{"From: " + strings.Join(padding, ", ") + ", boss@bank.test\r\n", ""},
		{"From: " + strings.Repeat("pat@far.test ", 2000) + "boss@bank.test\r\n", ""},
	} {
		before := map[string]int{"INBOX": len(i.Folder(mb, "INBOX")), "Junk": len(i.Folder(mb, "Junk"))}
		err := i.ComeIn(netip.MustParseAddr("192.0.2.1"), "pat@far.test", "ann@example.test", c.header+"Subject: s\r\n\r\nhello\r\n")
		got := ""
		for folder, n := range before {
			if len(i.Folder(mb, folder)) > n {
				got = folder
			}
		}
		if got != c.folder || (servicetest.CodeOf(err) == 550) != (c.folder == "") {
			t.Errorf("%.100q: %v, %q, want %q", strings.TrimPrefix(c.header, many), err, got, c.folder)
		}
	}
}

// TestForwardReportsGoToGenuineSendersOnly replays signed mail with the envelope of a stranger.
func TestForwardReportsGoToGenuineSendersOnly(t *testing.T) {
	for name, c := range map[string]struct {
		path, client string
		told         bool
	}{
		"SPF of the path passes":             {"bounces@path.test", "192.0.2.7", true},
		"a path that DMARC's domain aligns":  {"bounces@mail.signed.test", "198.51.100.9", true},
		"a stranger's path, replayed":        {"victim@victim.test", "198.51.100.9", false},
		"a path whose SPF passes HELO alone": {"", "192.0.2.7", false},
	} {
		i := servicetest.Install(t, core.Config{})
		i.DNS.Txt["path.test"], i.DNS.Txt["victim.test"], i.DNS.Txt["client.far.test"] = "v=spf1 ip4:192.0.2.0/24 -all", "v=spf1 ip4:203.0.113.1 -all", "v=spf1 ip4:192.0.2.0/24 -all"
		i.DNS.Txt["_dmarc.signed.test"] = "v=DMARC1; p=reject"
		pem, _ := servicetest.DKIMKeys()
		key, err := auth.ParseKey(pem)
		if err != nil {
			t.Fatal(err)
		}
		i.DNS.Txt["s._domainkey.signed.test"] = auth.KeyRecord(key)
		text := "From: pat@signed.test\r\nTo: list@far.test\r\nSubject: s\r\n\r\nhello\r\n"
		signature, err := auth.Sign(strings.NewReader(text), auth.SignOptions{Keys: []auth.Key{{Domain: "signed.test", Selector: "s", Signer: key}}})
		if err != nil {
			t.Fatal(err)
		}
		i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.Forward = "all@gone.test" })
		if err := i.ComeIn(netip.MustParseAddr(c.client), c.path, "any@example.test", string(signature)+text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var to string
		i.Update(func(tx *store.Tx) error {
			for sub := range store.Submissions.All(tx) {
				to = sub.ReportTo
			}
			return nil
		})
		if want := map[bool]string{true: c.path}[c.told]; to != want {
			t.Errorf("%s: failures are told to %q, want %q", name, to, want)
		}
	}
}
