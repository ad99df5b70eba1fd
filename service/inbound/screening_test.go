package inbound_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/milter"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// screened is an installation with a mailbox that has a Junk folder.
func screened(t *testing.T, spam core.Spam) (*servicetest.Installation, *store.Mailbox) {
	t.Helper()
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Spam: spam}})
	i.DNS.Txt["far.test"], i.DNS.Txt["_dmarc.far.test"] = "v=spf1 ip4:192.0.2.0/24 -all", "v=DMARC1; p=none"
	mb := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Update(func(tx *store.Tx) error {
		return tx.CreateFolder(&store.Folder{Mailbox: mb.Num, Name: "Junk", SpecialUse: inbound.JunkUse})
	})
	return i, mb
}

// TestTrustedSealers: mail of a list that broke its author's signature passes, if the operator
// trusts the list and the list attests that the signature was valid.
func TestTrustedSealers(t *testing.T) {
	author := "From: Pat <pat@strict.test>\r\nTo: list@list.test\r\nSubject: hello\r\n\r\nhello\r\n"
	for name, tc := range map[string]struct {
		trusted []string
		results string
		change  func(sealed string) string
		code    int
	}{
		"trusted":        {[]string{"list.test"}, "dmarc=pass header.from=strict.test", nil, 250},
		"nobody":         {nil, "dmarc=pass header.from=strict.test", nil, 550},
		"somebody else":  {[]string{"other.test"}, "dmarc=pass header.from=strict.test", nil, 550},
		"it saw a fail":  {[]string{"list.test"}, "dmarc=fail header.from=strict.test", nil, 550},
		"another author": {[]string{"list.test"}, "dmarc=pass header.from=other.test", nil, 550},
		"broken chain":   {[]string{"list.test"}, "dmarc=pass header.from=strict.test", func(s string) string { return s + "spam\r\n" }, 550},
	} {
		i, mb := screened(t, core.Spam{TrustedSealers: tc.trusted, Reports: true})
		i.DNS.Txt["_dmarc.strict.test"] = "v=DMARC1; p=reject; rua=mailto:d@strict.test"
		rsa, _ := servicetest.DKIMKeys()
		key, err := auth.ParseKey(rsa)
		if err != nil {
			t.Fatal(err)
		}
		i.DNS.Txt["s._domainkey.list.test"] = auth.KeyRecord(key)
		text := "Authentication-Results: mx.list.test; " + tc.results + "\r\n" + author
		set, err := auth.Seal(strings.NewReader(text), auth.SealOptions{Key: auth.Key{Domain: "list.test", Selector: "s", Signer: key}, AuthservID: "mx.list.test", Now: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		sealed := string(set) + text
		if tc.change != nil {
			sealed = tc.change(sealed)
		}
		if got := servicetest.CodeOf(i.ComeIn(servicetest.Stranger, "bounce@list.test", "ann@example.test", sealed)); got != tc.code {
			t.Errorf("%s: %d, want %d", name, got, tc.code)
		}
		if n := len(i.Folder(mb, "INBOX")); (n == 1) != (tc.code == 250) {
			t.Errorf("%s: %d messages", name, n)
		}
		rows := i.Counted()
		if len(rows) != 1 || strings.Contains(string(rows[0].Record), "local_policy") != (tc.code == 250) {
			t.Errorf("%s: counted %+v", name, rows)
		}
	}
}

// TestGreylisting: strangers must retry, tuples that have passed survive a restart, and senders of
// authentic mail to the account pass at once.
func TestGreylisting(t *testing.T) {
	i, mb := screened(t, core.Spam{Greylisting: true})
	from := func(ip, path, author string) int {
		return servicetest.CodeOf(i.ComeIn(netip.MustParseAddr(ip), path, "ann@example.test", servicetest.LetterFrom(author)))
	}
	older := func(by time.Duration) {
		t.Helper()
		i.Update(func(tx *store.Tx) error {
			var all []*store.GreyTuple
			for g := range store.GreyTuples.All(tx) {
				all = append(all, g)
			}
			for _, g := range all {
				g.FirstAt, g.Expires = g.FirstAt.Add(-by), g.Expires.Add(-by)
				if err := store.GreyTuples.Put(tx, g); err != nil {
					return err
				}
			}
			return nil
		})
	}
	steps := []struct {
		name             string
		wait             time.Duration
		restart          bool
		ip, path, author string
		code             int
	}{
		{"a stranger", 0, false, "198.51.100.1", "x@none.test", "x@none.test", 451},
		{"at once again", 0, false, "198.51.100.1", "x@none.test", "x@none.test", 451},
		{"after a while, from a neighbour", 6 * time.Minute, true, "198.51.100.77", "x@none.test", "x@none.test", 250},
		{"from now on", 0, false, "198.51.100.1", "x@none.test", "x@none.test", 250},
		{"another network", 0, false, "203.0.113.1", "x@none.test", "x@none.test", 451},
		{"another sender", 0, false, "198.51.100.1", "y@none.test", "y@none.test", 451},
		{"too late", 49 * time.Hour, false, "198.51.100.1", "y@none.test", "y@none.test", 451},
		{"one who passes DMARC", 0, false, "192.0.2.1", "x@far.test", "x@far.test", 451},
		{"after a while", 6 * time.Minute, false, "192.0.2.1", "x@far.test", "x@far.test", 250},
		{"the same domain", 0, false, "192.0.2.200", "other@far.test", "other@far.test", 250},
		{"one who only says so", 0, false, "198.51.100.9", "other@far.test", "other@far.test", 451},
	}
	for _, s := range steps {
		if older(s.wait); s.restart {
			i.Reopen()
		}
		if got := from(s.ip, s.path, s.author); got != s.code {
			t.Errorf("%s: %d, want %d", s.name, got, s.code)
		}
	}
	if n := len(i.Folder(mb, "INBOX")); n != 4 {
		t.Errorf("%d messages", n)
	}
	older(40 * 24 * time.Hour)
	i.Update(func(tx *store.Tx) error {
		_, err := i.Svc.Inbound.PruneScreened(tx)
		return err
	})
	_ = i.St.View(func(tx *store.Tx) error {
		for g := range store.GreyTuples.All(tx) {
			t.Errorf("%+v is left", g)
		}
		return nil
	})
}

// TestCrowdsAreBounded: a full table deletes the row that expires first.
func TestCrowdsAreBounded(t *testing.T) {
	i, _ := screened(t, core.Spam{Greylisting: true})
	i.Svc.Inbound.Screener().Grey.MaxRows = 3
	for n := range 5 {
		i.Update(func(tx *store.Tx) error {
			_, err := i.Svc.Inbound.GreyWait(tx, inbound.GreyKey(servicetest.Stranger, "x", string(rune('a'+n))))
			return err
		})
		time.Sleep(2 * time.Millisecond)
	}
	n := 0
	_ = i.St.View(func(tx *store.Tx) error {
		for range store.GreyTuples.All(tx) {
			n++
		}
		_, first := store.GreyTuples.Get(tx, inbound.GreyKey(servicetest.Stranger, "x", "b"))
		_, last := store.GreyTuples.Get(tx, inbound.GreyKey(servicetest.Stranger, "x", "e"))
		if !errors.Is(first, store.ErrNotFound) || last != nil {
			t.Errorf("the second: %v, the last: %v", first, last)
		}
		return nil
	})
	if n != 3 {
		t.Errorf("%d rows", n)
	}
}

// TestFirstSenderWaits: mail from an unknown sender is delayed, and so is unauthenticated mail in
// the name of a known one.
func TestFirstSenderWaits(t *testing.T) {
	const wait = 300 * time.Millisecond
	i, _ := screened(t, core.Spam{FirstDelay: wait})
	for n, tc := range []struct {
		ip    string
		waits bool
	}{{"192.0.2.1", true}, {"192.0.2.1", false}, {"198.51.100.1", true}} {
		began := time.Now()
		if err := i.ComeIn(netip.MustParseAddr(tc.ip), "a@far.test", "ann@example.test", servicetest.LetterFrom("a@far.test")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); (took >= wait) != tc.waits {
			t.Errorf("%d: took %v", n, took)
		}
	}
	for range inbound.MostDelayed { // too many wait already
		i.Svc.Inbound.Screener().Delayed <- struct{}{}
	}
	began := time.Now()
	if err := i.ComeIn(netip.MustParseAddr("198.51.100.1"), "a@far.test", "ann@example.test", servicetest.LetterFrom("a@far.test")); err != nil || time.Since(began) >= wait {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// listDNS is a fakeDNS that has address records too.
type listDNS struct {
	*servicetest.FakeDNS
	ip map[string]string
}

func (l listDNS) LookupIPAddr(_ context.Context, name string) ([]net.IPAddr, error) {
	if a, ok := l.ip[strings.TrimSuffix(name, ".")]; ok {
		return []net.IPAddr{{IP: net.ParseIP(a)}}, nil
	}
	return nil, servicetest.NoSuchName(name)
}

// TestListedClients are refused, or their mail goes to Junk; postmasters accept everybody's mail.
func TestListedClients(t *testing.T) {
	for _, junk := range []bool{false, true} {
		i, mb := screened(t, core.Spam{DNSBL: []string{"bl.test", "other.test"}, DNSBLJunk: junk})
		i.DNS.Txt["1.2.0.192.other.test"] = "seen spamming, see https://other.test/"
		i.Svc.Core.Resolver = listDNS{i.DNS, map[string]string{"1.2.0.192.other.test": "127.0.0.2"}}
		err := i.ComeIn(servicetest.Stranger, "a@far.test", "ann@example.test", servicetest.LetterFrom("a@far.test"))
		want, inJunk := 550, 0
		if junk {
			want, inJunk = 250, 1
		}
		if servicetest.CodeOf(err) != want || !junk && !strings.Contains(err.Error(), "192.0.2.1 is listed by other.test: seen spamming, see https://other.test/") {
			t.Errorf("junk %v: %v", junk, err)
		}
		if err := i.ComeIn(netip.MustParseAddr("192.0.2.2"), "a@far.test", "ann@example.test", servicetest.LetterFrom("a@far.test")); err != nil {
			t.Error(err)
		}
		if err := i.ComeIn(servicetest.Stranger, "a@far.test", "postmaster@example.test", servicetest.LetterFrom("a@far.test")); err != nil {
			t.Errorf("postmaster: %v", err)
		}
		if in, bad := len(i.Folder(mb, "INBOX")), len(i.Folder(mb, "Junk")); in != 1 || bad != inJunk {
			t.Errorf("junk %v: %d in INBOX, %d in Junk", junk, in, bad)
		}
	}
}

// TestFilterDecides: the filter's decisions are applied, and mail is accepted if the filter does
// not answer.
func TestFilterDecides(t *testing.T) {
	decide := func(v *milter.Verdict) (*inbound.ScreeningResult, error) {
		f := &inbound.ScreeningResult{Verdict: &auth.Verdict{}}
		return f, (&service.Service{}).Inbound.Follow(f, v)
	}
	for want, v := range map[string]*milter.Verdict{
		"550 5.7.1 Message rejected by policy":   {Action: milter.Reject},
		"451 4.7.1 Try again later":              {Action: milter.TempFail},
		"554 5.7.1 Gtube pattern":                {Action: milter.Reject, Reply: "554 5.7.1 Gtube pattern"},
		"553 5.7.1 no":                           {Action: milter.Reject, Reply: "553 no"},
		"450 4.7.1 soon":                         {Action: milter.TempFail, Reply: "450 4.7.1 soon"},
		"451 4.7.1 Try again later ":             {Action: milter.TempFail, Reply: "421 4.7.1 bye"},
		"550 5.7.1 Message rejected by policy ":  {Action: milter.Reject, Reply: "451 odd"},
		"550 5.7.1 Message rejected by policy  ": {Action: milter.Discard},
	} {
		if _, err := decide(v); err == nil || err.Error() != strings.TrimRight(want, " ") {
			t.Errorf("%+v: %v, want %s", v, err, want)
		}
	}
	for _, tc := range []struct {
		v    milter.Verdict
		junk bool
	}{
		{milter.Verdict{Action: milter.Accept}, false},
		{milter.Verdict{Action: milter.Accept, Quarantine: "x"}, true},
		{milter.Verdict{Action: milter.Accept, Fields: []milter.Field{{Name: "X-Spam", Value: "Yes"}}}, true},
		{milter.Verdict{Action: milter.Accept, Fields: []milter.Field{{Name: "X-Spam-Flag", Value: "NO"}}}, false},
	} {
		if f, err := decide(&tc.v); err != nil || f.Junk != tc.junk {
			t.Errorf("%+v: %+v, %v", tc.v, f, err)
		}
	}

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	silent := make(chan struct{})
	go func() {
		defer close(silent)
		if c, err := ln.Accept(); err == nil {
			io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	i, mb := screened(t, core.Spam{Milter: &milter.Client{Network: "tcp", Address: ln.Addr().String(), Timeout: 200 * time.Millisecond}})
	began := time.Now()
	if err := i.ComeIn(servicetest.Stranger, "a@far.test", "ann@example.test", servicetest.LetterFrom("a@far.test")); err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	<-silent
	if n := len(i.Folder(mb, "INBOX")); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// TestFilteredMessage: the filter's header fields are kept, and a message that it rates as spam
// goes to Junk.
func TestFilteredMessage(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			spamFilter(c)
			c.Close()
		}
	}()
	i, mb := screened(t, core.Spam{Milter: &milter.Client{Network: "tcp", Address: ln.Addr().String()}})
	claims := "X-Spam-Flag: NO\r\nx-spam-status : No,\r\n score=-100\r\nReceived-SPF: pass\r\nX-Spam: No\r\nX-Mine: kept\r\n"
	if err := i.ComeIn(servicetest.Stranger, "a@far.test", "ann@example.test", claims+servicetest.LetterFrom("a@far.test")); err != nil {
		t.Fatal(err)
	}
	got := i.Folder(mb, "Junk")
	if len(got) == 1 && (strings.Count(strings.ToLower(string(got[0].Raw)), "x-spam") != 1 || strings.Contains(string(got[0].Raw), "Received-SPF") || !strings.Contains(string(got[0].Raw), "X-Mine: kept")) {
		t.Errorf("what its sender says of itself stays:\n%s", got[0].Raw)
	}
	if len(got) != 1 || !strings.Contains(string(got[0].Raw), "\r\nX-Spam: Yes\r\nReceived: from client.far.test") {
		t.Errorf("%d in Junk: %s", len(got), got[0].Raw)
	}
	if n := len(i.Folder(mb, "INBOX")); n != 0 {
		t.Errorf("%d in INBOX", n)
	}
	i.Run()
	i.MustSubmit(mb, claims+servicetest.PlainMessage, mb.Email)
	i.Becomes(mb.Email, store.OutgoingDelivered)
	if got := i.Folder(mb, "INBOX"); len(got) != 1 || strings.Contains(strings.ToLower(string(got[0].Raw)), "x-spam") || !strings.Contains(string(got[0].Raw), "X-Mine: kept") {
		t.Errorf("a user's own mail: %s", got[0].Raw)
	}
	if n := len(i.Events("email.received")); n != 1 {
		t.Errorf("%d events, one of them of what is in INBOX", n)
	}
}

// spamFilter marks every message as spam. It answers only the negotiation and the end of a message.
func spamFilter(c net.Conn) {
	for {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		packet := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c, packet); err != nil {
			return
		}
		switch packet[0] {
		case 'O': // version 6, fields are added, every answer but the last is left out
			_, _ = io.WriteString(c, "\x00\x00\x00\x0dO\x00\x00\x00\x06\x00\x00\x00\x01\x00\x0f\xf3\xff")
		case 'E':
			_, _ = io.WriteString(c, "\x00\x00\x00\x0chX-Spam\x00Yes\x00"+"\x00\x00\x00\x01a")
		case 'Q':
			return
		}
	}
}

// TestUnclearAuthorsAreNotBelieved receives mail whose author programs read differently, some of
// them as an author whose domain rejects forgeries. The envelope sender is genuine.
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
		folder string // "" if the message is refused
	}{
		{"From: pat@far.test\r\n", "INBOX"},
		{"From: \"Pat, Far\" <pat@far.test>\r\n", "INBOX"},
		{"From: pat@far.test (Pat)\r\n", "INBOX"},
		{"From: pat@far.test <pat@far.test>\r\n", "INBOX"}, // invalid but common, and read the same by all programs
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
