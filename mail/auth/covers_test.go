package auth

import (
	"crypto"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

const (
	coverHead = "From: User <user@x.com>\r\nTo: you@here.example\r\nSubject: Hello\r\nDate: Fri, 20 Nov 2026 12:00:00 +0000\r\n" +
		"Message-ID: <1@x.com>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain\r\n"
	coverNames = "from:to:subject:date:message-id:mime-version:content-type"
)

// signedBy puts a relaxed signature of the fields in names, without oversigning, before a message.
func signedBy(t *testing.T, key crypto.Signer, tags, names, message string) string {
	t.Helper()
	head, body, _ := strings.Cut(message, "\r\n\r\n")
	fields, err := splitFields(head + "\r\n")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := hashBody(t.Context(), strings.NewReader(body), true)
	if err != nil {
		t.Fatal(err)
	}
	f := newField("DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; s=rsa; "+tags+"; h="+names+"; bh="+base64.StdEncoding.EncodeToString(sum)+"; b=\r\n", 1)
	text, _ := signedText(fields, strings.Split(names, ":"), f, true)
	return strings.TrimSuffix(f.raw, "\r\n") + signatureOf(t, key, text) + "\r\n" + message
}

func proofOf(t *testing.T, keys testKeys, spf, message string) (*Verdict, Proof) {
	t.Helper()
	dns := keys.dns(t)
	dns.txt["x.com"] = []string{spf}
	dns.txt["_spf.others.example"] = []string{"v=spf1 ip4:192.0.2.1 -all"}
	dns.txt["_spf.x.com"] = []string{"v=spf1 ip4:192.0.2.1 -all"}
	v, err := (&Verifier{Resolver: dns}).Verify(t.Context(), request(message, "user@x.com"))
	if err != nil {
		t.Fatal(err)
	}
	return v, v.Proof()
}

const (
	noSPF     = "v=spf1 -all"
	ownSPF    = "v=spf1 ip4:192.0.2.1 -all"
	sharedSPF = "v=spf1 include:_spf.others.example -all"
)

func TestProofCoversWhatReadersAreShown(t *testing.T) {
	keys := newTestKeys(t)
	whole := signedBy(t, keys.rsa, "d=x.com", coverNames, coverHead+"\r\nHi\r\n")
	changed := map[string]string{}
	for _, name := range []string{"Subject", "To", "Cc", "Reply-To", "Sender", "Date", "Message-ID", "In-Reply-To", "References", "MIME-Version",
		"Content-Type", "Content-Transfer-Encoding", "Content-Disposition", "Content-Language", "List-Id", "List-Unsubscribe", "List-Anything"} {
		for form, written := range map[string]string{"": name, " in capitals": strings.ToUpper(name), " with a blank": name + " "} {
			changed[name+form+" above"] = written + ": evil\r\n" + whole
		}
		changed[name+" below"] = strings.Replace(whole, "\r\n\r\n", "\r\n"+name+": evil\r\n\r\n", 1)
		changed[name+" behind a bare CR"] = "X-A: b\r" + name + ": evil\r\n" + whole
		changed[name+" behind a bare LF"] = "X-A: b\n" + name + ": evil\r\n" + whole
	}
	changed["From above"] = "From: User <user@x.com>\r\n" + whole
	changed["a line without a colon"] = "no field\r\n" + whole
	changed["a continuation first"] = " Subject: evil\r\n" + whole
	changed["a name with a NUL"] = "Sub\x00ject: evil\r\n" + whole
	changed["a field renamed"] = strings.Replace(whole, "Subject:", "X-Subject:", 1)
	changed["a field taken out"] = strings.Replace(whole, "Subject: Hello\r\n", "", 1)
	changed["a signature of From alone"] = signedBy(t, keys.rsa, "d=x.com", "from", coverHead+"\r\nHi\r\n")
	changed["a signature of a part"] = signedBy(t, keys.rsa, "d=x.com; l=4", coverNames, coverHead+"\r\nHi\r\n")
	changed["a signature of another domain"] = signedBy(t, keys.rsa, "d=y.com", coverNames, coverHead+"\r\nHi\r\n")
	for name, change := range map[string]func(string) string{
		"a list's footer":         func(s string) string { return s + "-- \r\nthe list\r\n" },
		"a list's subject":        func(s string) string { return strings.Replace(s, "Subject: ", "Subject: [list] ", 1) },
		"a second subject":        func(s string) string { return "Subject: evil\r\n" + s },
		"a reply-to of the list":  func(s string) string { return "Reply-To: list@y.com\r\n" + s },
		"a second type":           func(s string) string { return "Content-Type: text/html\r\n" + s },
		"a field in front of all": func(s string) string { return "List-Id: <list.y.com>\r\n" + s },
	} {
		before := change(whole)
		sealed := forward(t, keys, before)
		changed["sealed, then "+name] = change(forward(t, keys, whole))
		changed["sealed with "+name] = sealed
		changed["sealed twice with "+name] = forward(t, keys, stripped(t, sealed))
	}
	if len(changed) < 40 {
		t.Fatalf("%d changes", len(changed))
	}
	for name, message := range changed {
		for spf, record := range map[string]string{"no SPF": noSPF, "shared SPF": sharedSPF} {
			v, p := proofOf(t, keys, record, message)
			if p.Domain != "" {
				t.Errorf("%s, %s: proven as %+v", name, spf, p)
			}
			if strings.HasPrefix(name, "sealed with") && v.ARC.Result != Pass {
				t.Errorf("%s: the chain is %+v", name, v.ARC)
			}
		}
	}
	for _, c := range []struct {
		name, spf, message string
		want               Proof
	}{
		{"a signature", noSPF, whole, Proof{Domain: "x.com", Signed: true}},
		{"a signature and shared SPF", sharedSPF, whole, Proof{Domain: "x.com", Signed: true}},
		{"a field that is not shown", noSPF, "X-Any: thing\r\nReceived: from a\r\n" + whole, Proof{Domain: "x.com", Signed: true}},
		{"a signature of From alone", noSPF, changed["a signature of From alone"], Proof{}},
		{"a signature under a seal", noSPF, forward(t, keys, whole), Proof{Domain: "x.com", Signed: true}},
		{"a signature under two seals", noSPF, forward(t, keys, stripped(t, forward(t, keys, whole))), Proof{Domain: "x.com", Signed: true}},
		{"SPF by its own host", ownSPF, coverHead + "\r\nHi\r\n", Proof{Domain: "x.com", Signed: false}},
		{"SPF by its own include", "v=spf1 include:_spf.x.com -all", coverHead + "\r\nHi\r\n", Proof{Domain: "x.com", Signed: false}},
		{"SPF by its own include behind another's", "v=spf1 include:_spf.others.example include:_spf.x.com -all", coverHead + "\r\nHi\r\n", Proof{Domain: "x.com", Signed: false}},
		{"SPF by its own host, and a signature", ownSPF, "Subject: mine\r\n" + whole, Proof{Domain: "x.com", Signed: false}},
		{"SPF by an include of others", sharedSPF, coverHead + "\r\nHi\r\n", Proof{}},
		{"SPF by a redirect to others", "v=spf1 redirect=_spf.others.example", coverHead + "\r\nHi\r\n", Proof{}},
		{"SPF by all", "v=spf1 +all", coverHead + "\r\nHi\r\n", Proof{}},
	} {
		v, p := proofOf(t, keys, c.spf, c.message)
		if (p.Missing != "") != (v.DMARC == Pass && p.Domain == "") {
			t.Errorf("%s: it lacks %q", c.name, p.Missing)
		}
		p.Missing = ""
		if p != c.want {
			t.Errorf("%s: %+v, want %+v (DMARC %s, SPF %s)", c.name, p, c.want, v.DMARC, v.SPF)
		}
	}
}

func TestAlignedSignaturesAreVerifiedFirst(t *testing.T) {
	keys := newTestKeys(t)
	whole := signedBy(t, keys.rsa, "d=x.com", coverNames, coverHead+"\r\nHi\r\n")
	for _, others := range []int{5, 9, 30} {
		message := ""
		for i := range others {
			message += fmt.Sprintf("DKIM-Signature: v=1; a=rsa-sha256; d=other%d.example; s=s; h=from; bh=AA==; b=AA==\r\n", i)
		}
		v, _ := proofOf(t, keys, noSPF, message+whole)
		if v.DMARC != Pass || len(v.Signatures) != min(others+1, 10) {
			t.Errorf("behind %d others: dmarc=%s of %d signatures", others, v.DMARC, len(v.Signatures))
		}
	}
}

// TestNeighboursProveNothing: below a suffix that anybody can get a name of, such as uk.com, the
// tree walk of RFC 9989 takes all names for one organisation where its owner has a DMARC record
// without psd=y. DMARC passes then, but one name proves nothing for another.
func TestNeighboursProveNothing(t *testing.T) {
	keys := newTestKeys(t)
	head := strings.NewReplacer("x.com", "victim.uk.com").Replace(coverHead)
	for name, c := range map[string]struct{ signs, mailFrom, want string }{
		"a neighbour signs":    {"thief.uk.com", "bounce@else.example", ""},
		"a neighbour sends":    {"else.example", "bounce@thief.uk.com", ""},
		"the author signs":     {"victim.uk.com", "bounce@else.example", "victim.uk.com"},
		"a name below signs":   {"mail.victim.uk.com", "bounce@else.example", "victim.uk.com"},
		"the author sends":     {"else.example", "bounce@victim.uk.com", "victim.uk.com"},
		"a name below sends":   {"else.example", "bounce@mail.victim.uk.com", "victim.uk.com"},
		"the suffix itself so": {"uk.com", "bounce@uk.com", ""},
	} {
		dns := keys.dns(t)
		key := dns.txt["rsa._domainkey.x.com"]
		dns.txt["_dmarc.uk.com"] = []string{"v=DMARC1; p=none"}
		for _, domain := range []string{"uk.com", "thief.uk.com", "victim.uk.com", "mail.victim.uk.com", "else.example"} {
			dns.txt["rsa._domainkey."+domain], dns.txt[domain] = key, []string{ownSPF}
		}
		r := request(signedBy(t, keys.rsa, "d="+c.signs, coverNames, head+"\r\nHi\r\n"), "user@victim.uk.com")
		r.MailFrom = c.mailFrom
		v, err := (&Verifier{Resolver: dns}).Verify(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if p := v.Proof(); v.DMARC != Pass || p.Domain != c.want || (p.Missing == "") != (c.want != "") {
			t.Errorf("%s: DMARC %s, %+v, want %q", name, v.DMARC, p, c.want)
		}
	}
}
