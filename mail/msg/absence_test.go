package msg

import (
	"strings"
	"testing"
)

func summaryOf(t testing.TB, message string) *Summary {
	t.Helper()
	r := strings.NewReader(strings.ReplaceAll(message, "\n", "\r\n"))
	root, err := Scan(r)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Summarize(r, root)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAutomaticMailIsKnown(t *testing.T) {
	const report = "Content-Type: multipart/report; report-type=%s; boundary=b\n\n--b\n\nHello.\n--b\nContent-Type: message/%s\n\nx: y\n--b--\n"
	parts := func(kind, part string) string {
		return strings.Replace(strings.Replace(report, "%s", kind, 1), "%s", part, 1)
	}
	for name, c := range map[string]struct {
		header       string
		auto, bounce bool
	}{
		"a person's letter":              {"Subject: Lunch?\n", false, false},
		"answer of a person":             {"Subject: Re: Automatic reply: Lunch?\n", false, false},
		"subject about absence":          {"Subject: Out of office hours are from 5\n", false, false},
		"subject about holidays":         {"Subject: Vacations 2027\n", false, false},
		"Auto-Submitted: no":             {"Auto-Submitted: no\n", false, false},
		"Auto-Submitted: NO (comment)":   {"Auto-Submitted: No (human)\n", false, false},
		"Auto-Submitted: auto-replied":   {"Auto-Submitted: auto-replied\n", true, false},
		"Auto-Submitted: auto-notified":  {"Auto-Submitted: auto-notified; owner-email=\"a@b.c\"\n", true, false},
		"Auto-Submitted: auto-generated": {"auto-submitted: auto-generated (rejected)\n", true, false},
		"X-Auto-Response-Suppress: All":  {"X-Auto-Response-Suppress: All\n", true, false},
		"X-Auto-Response-Suppress: OOF":  {"X-Auto-Response-Suppress: DR, OOF, AutoReply\n", true, false},
		"X-Auto-Response-Suppress: None": {"X-Auto-Response-Suppress: None\n", false, false},
		"X-Autoreply":                    {"X-Autoreply: yes\n", true, false},
		"X-Autorespond":                  {"X-Autorespond: Re: hello\n", true, false},
		"Precedence: auto_reply":         {"Precedence: auto_reply\n", true, false},
		"Precedence: bulk":               {"Precedence: bulk\n", true, false},
		"Precedence: junk":               {"Precedence: Junk\n", true, false},
		"a list's bulk":                  {"Precedence: bulk\nList-Id: <a.b.c>\n", false, false},
		"Precedence: list":               {"Precedence: list\n", false, false},
		"null return path":               {"Return-Path: <>\n", true, false},
		"return path":                    {"Return-Path: <a@b.c>\n", false, false},
		"Outlook":                        {"Subject: Automatic reply: Lunch?\n", true, false},
		"Outlook, German":                {"Subject: Automatische Antwort: Mittag?\n", true, false},
		"Outlook, French, encoded":       {"Subject: =?utf-8?q?R=C3=A9ponse_automatique_=3A_Salut?=\n", true, false},
		"Outlook, Japanese":              {"Subject: =?utf-8?b?6Ieq5YuV5b+c562UOiDjgZTpgKPntaE=?=\n", true, false},
		"older Outlook":                  {"Subject: Out of Office: Lunch?\n", true, false},
		"Abwesenheitsnotiz":              {"Subject: Abwesenheitsnotiz: AW: Mittag\n", true, false},
		"sieve":                          {"Subject: Auto: Lunch?\n", true, false},
		"Gmail":                          {"Subject: Out of office Re: Lunch?\n", false, false}, // has Precedence and X-Autoreply
		"whole subject":                  {"Subject: I am away\nX-Autoreply: yes\n", true, false},
		"out of the office":              {"Subject: Out of the office.\n", true, false},
		"delivery report":                {parts("delivery-status", "delivery-status"), true, true},
		"read receipt":                   {parts("disposition-notification", "disposition-notification"), true, false},
		"complaint":                      {parts("feedback-report", "feedback-report"), true, false},
		"exim's bounce":                  {"X-Failed-Recipients: a@b.c\n", true, true},
		"notice of a postmaster":         {"Return-Path: <>\nFrom: Mailstead <postmaster@b.c>\nAuto-Submitted: auto-generated\n", true, false},
		"mailer-daemon":                  {"From: Mail Delivery <MAILER-DAEMON@b.c>\n", true, true},
		"postmaster with null path":      {"From: postmaster@b.c\nReturn-Path: <>\nSubject: Undeliverable\n", true, true},
		"postmaster, a person":           {"From: postmaster@b.c\nSubject: Your question\n", false, false},
	} {
		message := "From: Ann <ann@a.test>\n"
		if strings.Contains(c.header, "From:") {
			message = ""
		}
		message += c.header
		if !strings.Contains(message, "\n\n") {
			message += "\nHello.\n"
		}
		if s := summaryOf(t, message); s.AutoReply != c.auto || s.Bounce != c.bounce {
			t.Errorf("%s: auto %v, bounce %v, want %v, %v", name, s.AutoReply, s.Bounce, c.auto, c.bounce)
		}
	}
}

func TestBaseSubject(t *testing.T) {
	for subject, c := range map[string]struct {
		base   string
		answer bool
	}{
		"":                                {"", false},
		"Lunch?":                          {"lunch?", false},
		"Re: Lunch?":                      {"lunch?", true},
		"RE : Re[2]: re(3): AW:  Lunch ?": {"lunch ?", true},
		"Fwd: Lunch?":                     {"lunch?", false},
		"Re: Fwd: Lunch?":                 {"lunch?", true},
		"[list] Re: [list] Lunch":         {"lunch", true},
		"[only]":                          {"[only]", false},
		"Antw: SV: Odp: Mittag":           {"mittag", true},
		"回复：午餐":                           {"午餐", true},
		"Ticket: 5":                       {"ticket: 5", false},
		"Re:":                             {"", true},
	} {
		if base, answer := BaseSubject(subject); base != c.base || answer != c.answer {
			t.Errorf("%q: %q, %v, want %q, %v", subject, base, answer, c.base, c.answer)
		}
	}
}

func TestSearchTexts(t *testing.T) {
	message := strings.ReplaceAll(`From: =?utf-8?q?J=C3=BCrgen?= <j@a.test>
To: Team: b@b.test, Cy <c@c.test>;
Subject: Plans
Content-Type: multipart/mixed; boundary=m

--m
Content-Type: multipart/alternative; boundary=a

--a

See HTML.
--a
Content-Type: text/html

<html><head><title>no</title><style>p{}</style></head><p>The <b>real</b> text</p><script>x()</script></html>
--a--
--m
Content-Type: application/pdf; name="Figures 2026.pdf"

xyz
--m--
`, "\n", "\r\n")
	root, err := Scan(strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	texts, err := SearchTexts(strings.NewReader(message), root)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(texts, "|")
	if want := "Plans|Jürgen j@a.test| b@b.test|Cy c@c.test|Figures 2026.pdf|See HTML.|The real text"; got != want {
		t.Errorf("texts %q, want %q", got, want)
	}
	long := "Subject: x\r\n\r\n" + strings.Repeat("word ", 100_000)
	root, err = Scan(strings.NewReader(long))
	if err != nil {
		t.Fatal(err)
	}
	texts, err = SearchTexts(strings.NewReader(long), root)
	if err != nil || len(texts[1]) > searchText {
		t.Errorf("%d bytes of text, %v", len(texts[1]), err)
	}
}

func FuzzBaseSubject(f *testing.F) {
	f.Add("Re: [a] Fwd: b")
	f.Add("[[[")
	f.Fuzz(func(t *testing.T, s string) {
		base, _ := BaseSubject(s)
		if _, mark := cutSubjectPrefix(base); mark != "" || base != strings.TrimSpace(base) {
			t.Fatalf("%q becomes %q", s, base)
		}
		isAwaySubject(s)
	})
}
