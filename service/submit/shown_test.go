package submit_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// hidden is a text that a program tries to send without the approver seeing it.
const hidden = "qx7secret"

const (
	plainHead = "From: Ann <ann@example.test>\r\nTo: b@far.test\r\nSubject: Hello\r\nMIME-Version: 1.0\r\n"
	htmlHead  = plainHead + "Content-Type: text/html; charset=utf-8\r\n\r\n"
)

func partsOf(kind string, parts ...string) string {
	return plainHead + "Content-Type: multipart/" + kind + "; boundary=b\r\n\r\n--b\r\n" + strings.Join(parts, "\r\n--b\r\n") + "\r\n--b--\r\n"
}

func inBase64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// The two allowed results for a hidden text: gone, it is not sent; shown, the approver sees it.
const (
	gone    = "gone"
	seen    = "seen"
	refused = "refused"
)

const visible = "Content-Type: text/plain\r\n\r\nvisible words\r\n"

var waysToHide = []struct{ name, becomes, message string }{
	{"an HTML comment", gone, htmlHead + "<p>visible words</p><!-- qx7secret -->"},
	{"a conditional comment", gone, htmlHead + "visible words<!--[if mso]><p>qx7secret</p><![endif]-->"},
	{"an element with display:none", gone, htmlHead + "visible words<div style='display:none'>qx7secret</div>"},
	{"an element with an escaped style", seen, htmlHead + `visible words<div style='d\69splay:none'>qx7secret</div>`},
	{"visibility", gone, htmlHead + "visible words<p style='visibility: hidden'>qx7secret</p>"},
	{"no size", gone, htmlHead + "visible words<span style='font-size:0'>qx7secret</span>"},
	{"the attribute hidden", gone, htmlHead + "visible words<section hidden>qx7secret</section>"},
	{"white on white", seen, htmlHead + "visible words<font color=white>qx7secret</font>"},
	{"a place off the page", seen, htmlHead + "visible words<p style='position:absolute;left:-9999px'>qx7secret</p>"},
	{"a class of a style sheet", seen, htmlHead + "<style>.x{display:none}</style>visible words<p class=x>qx7secret</p>"},
	{"the style sheet itself", gone, htmlHead + "<style>/* qx7secret */</style>visible words"},
	{"a template", gone, htmlHead + "visible words<template>qx7secret</template>"},
	{"noscript", gone, htmlHead + "visible words<noscript>qx7secret</noscript>"},
	{"a script", gone, htmlHead + "visible words<script>var x = 'qx7secret'</script>"},
	{"the title", gone, htmlHead + "<title>qx7secret</title>visible words"},
	{"a text area", gone, htmlHead + "visible words<textarea>qx7secret</textarea>"},
	{"a remote image", gone, htmlHead + "visible words<img src='https://evil.test/qx7secret.png' alt='qx7secret'>"},
	{"attributes", gone, htmlHead + "<p id=qx7secret class=qx7secret data-x=qx7secret title=qx7secret lang=qx7secret>visible words</p>"},
	{"the target of a link", seen, htmlHead + "visible words <a href='https://evil.test/?qx7secret'>here</a>"},
	{"a link without words", seen, htmlHead + "visible words <a href='https://evil.test/?qx7secret'></a>"},
	{"the head of an HTML page", gone, htmlHead + "<html><head><meta name=x content=qx7secret></head><body>visible words</body></html>"},
	{"HTML in base64", gone, plainHead + "Content-Type: text/html\r\nContent-Transfer-Encoding: base64\r\n\r\n" + inBase64("visible words<!-- qx7secret -->") + "\r\n"},
	{"a plain text beside the HTML", gone, partsOf("alternative", "Content-Type: text/plain\r\n\r\nqx7secret", "Content-Type: text/html\r\n\r\n<p>visible words</p>")},
	{"the order of alternatives", gone, partsOf("alternative", "Content-Type: text/html\r\n\r\n<p>visible words</p>", "Content-Type: text/plain\r\n\r\nqx7secret")},
	{"a third alternative", gone, partsOf("alternative", visible, "Content-Type: text/enriched\r\n\r\nqx7secret", "Content-Type: text/html\r\n\r\nvisible words")},
	{"a second HTML alternative", gone, partsOf("alternative", "Content-Type: text/html\r\n\r\nqx7secret", "Content-Type: text/html\r\n\r\nvisible words")},
	{"the preamble", gone, strings.Replace(partsOf("mixed", visible), "\r\n\r\n--b", "\r\n\r\nqx7secret\r\n--b", 1)},
	{"the epilogue", gone, partsOf("mixed", visible) + "qx7secret\r\n"},
	{"the boundary", gone, strings.ReplaceAll(strings.ReplaceAll(partsOf("mixed", visible), "--b", "--qx7secret"), "boundary=b", "boundary=qx7secret")},
	{"a header of a part", gone, partsOf("mixed", "X-Part: qx7secret\r\nContent-Description: qx7secret\r\nContent-ID: <qx7secret@x>\r\nContent-Location: https://evil.test/qx7secret\r\n"+visible)},
	{"a parameter of a type", gone, plainHead + "Content-Type: text/plain; x=qx7secret; name*=utf-8''qx7secret\r\n\r\nvisible words\r\n"},
	{"an own Message-ID", gone, "Message-ID: <qx7secret@example.test>\r\n" + plainHead + "\r\nvisible words\r\n"},
	{"an own Date", gone, "Date: Fri, 01 Jan 1999 00:00:00 +0000 (qx7secret)\r\n" + plainHead + "\r\nvisible words\r\n"},
	{"X fields", gone, "X-Data: qx7secret\r\n" + plainHead + "\r\nvisible words\r\n"},
	{"List fields", gone, "List-Unsubscribe: <https://evil.test/qx7secret>\r\nList-Id: <qx7secret>\r\n" + plainHead + "\r\nvisible words\r\n"},
	{"other fields", gone, "Comments: qx7secret\r\nKeywords: qx7secret\r\nOrganization: qx7secret\r\nReceived: from qx7secret by x; Fri, 01 Jan 1999 00:00:00 +0000\r\n" + plainHead + "\r\nvisible words\r\n"},
	{"Reply-To", gone, "Reply-To: qx7secret@example.test\r\n" + plainHead + "\r\nvisible words\r\n"},
	{"a comment in To", seen, strings.Replace(plainHead, "b@far.test", "b@far.test (qx7secret)", 1) + "\r\nvisible words\r\n"},
	{"the name of a group", refused, strings.Replace(plainHead, "b@far.test", "qx7secret: b@far.test;", 1) + "\r\nvisible words\r\n"},
	{"a name in To", seen, strings.Replace(plainHead, "b@far.test", "\"qx7secret\" <b@far.test>", 1) + "\r\nvisible words\r\n"},
	{"References", seen, "References: <qx7secret@x.test>\r\n" + plainHead + "\r\nvisible words\r\n"},
	{"an attachment", seen, partsOf("mixed", visible, "Content-Type: application/pdf; name=x.pdf\r\nContent-Disposition: attachment; filename=x.pdf\r\n\r\n%PDF qx7secret")},
	{"an attachment that says it is text", seen, partsOf("mixed", visible, "Content-Type: text/plain\r\nContent-Disposition: attachment; filename=x.txt\r\n\r\n<script>qx7secret</script>")},
	{"a comment in an attached page", seen, partsOf("mixed", visible, "Content-Type: text/html\r\nContent-Disposition: attachment; filename=x.html\r\n\r\n<!-- qx7secret -->")},
	{"an image of the text", seen, partsOf("related", "Content-Type: text/html\r\n\r\nvisible words<img src=cid:i>", "Content-Type: image/svg+xml\r\nContent-ID: <i>\r\nContent-Disposition: inline\r\n\r\n<svg>qx7secret</svg>")},
	{"a name by RFC 2231", seen, partsOf("mixed", visible, "Content-Type: application/octet-stream\r\nContent-Disposition: attachment; filename*0*=utf-8''qx7; filename*1=secret.bin\r\n\r\nx")},
	{"two names of a file", gone, partsOf("mixed", visible, "Content-Type: application/octet-stream; name=qx7secret.exe\r\nContent-Disposition: attachment; filename=x.bin\r\n\r\nx")},
	{"the text of a message in it", seen, partsOf("mixed", visible, "Content-Type: message/rfc822\r\n\r\nFrom: a@x.test\r\nSubject: in\r\n\r\nqx7secret")},
	{"a field of a message in it", gone, partsOf("mixed", visible, "Content-Type: message/rfc822\r\n\r\nFrom: a@x.test\r\nX-Data: qx7secret\r\nSubject: in\r\n\r\nvisible words")},
	{"a comment of a message in it", gone, partsOf("mixed", visible, "Content-Type: message/rfc822\r\n\r\nFrom: a@x.test\r\nContent-Type: text/html\r\n\r\nvisible words<!-- qx7secret -->")},
	{"a file of a message in it", seen, partsOf("mixed", visible, "Content-Type: message/rfc822\r\n\r\nFrom: a@x.test\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\nin\r\n--c\r\nContent-Disposition: attachment; filename=y.txt\r\n\r\nqx7secret\r\n--c--")},
	{"words below empty lines", seen, plainHead + "\r\nvisible words\r\n" + strings.Repeat("\r\n", 3000) + "qx7secret\r\n"},
	{"words beside blanks", seen, plainHead + "\r\nvisible words" + strings.Repeat(" ", 900) + "qx7secret\r\n"},
	{"words of which each letter has a zero-width character", seen, plainHead + "Content-Type: text/plain; charset=utf-8\r\n\r\nvisible words q\u200bx\u2060s7secret\r\n"},
	{"a signed message", refused, partsOf("signed; micalg=x; protocol=\"application/pgp-signature\"", visible, "Content-Type: application/pgp-signature\r\n\r\nqx7secret")},
	{"an encrypted message", refused, partsOf("encrypted; protocol=\"application/pgp-encrypted\"", "Content-Type: application/pgp-encrypted\r\n\r\nVersion: 1", "Content-Type: application/octet-stream\r\n\r\nqx7secret")},
	{"an S/MIME message", refused, plainHead + "Content-Type: application/pkcs7-mime\r\n\r\nqx7secret\r\n"},
	{"an entry for a calendar", refused, partsOf("alternative", visible, "Content-Type: text/calendar; method=REPLY\r\n\r\nqx7secret")},
	{"a report", refused, partsOf("report; report-type=disposition-notification", visible, "Content-Type: message/disposition-notification\r\n\r\nqx7secret")},
	{"what lies elsewhere", refused, partsOf("mixed", visible, "Content-Type: message/external-body; access-type=URL; URL=\"https://evil.test/qx7secret\"\r\n\r\n\r\n")},
	{"messages deep in one another", refused, partsOf("mixed", visible, strings.Repeat("Content-Type: message/rfc822\r\n\r\nFrom: a@x.test\r\n", 8)+"\r\nqx7secret")},
}

// decodedAll returns all texts of a message, decoded from every part and encoding that a Composer
// writes.
func decodedAll(t *testing.T, raw []byte) string {
	t.Helper()
	out := string(raw)
	root, err := msg.Scan(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	headers, err := msg.Headers(bytes.NewReader(raw), root)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		out += "\n" + h.Value
	}
	var walk func(p *msg.Part)
	walk = func(p *msg.Part) {
		text, err := io.ReadAll(msg.Open(bytes.NewReader(raw), p))
		if err != nil {
			t.Fatal(err)
		}
		out += "\n" + string(text)
		if bytes.HasPrefix(text, []byte("Date: ")) { // an attached message, which is encoded like a file
			out += "\n" + decodedAll(t, text)
		}
		for _, c := range p.Children {
			walk(c)
		}
	}
	walk(root)
	return out
}

var tags = regexp.MustCompile(`<[^>]*>`)

// showing returns everything that a person is shown of a held message, and the bytes that would be
// sent.
func (f *approvals) showing(id string) (words string, raw []byte) {
	f.T.Helper()
	in := submit.ApprovalIn{ApprovalID: id}
	d, err := f.Svc.Submit.GetApproval(f.T.Context(), f.who, in)
	if err != nil {
		f.T.Fatal(err)
	}
	words = d.Subject
	for _, h := range d.Headers {
		words += "\n" + h.Value
	}
	if d.Text != nil {
		words += "\n" + *d.Text
	}
	if d.HTML != nil {
		words += "\n" + tags.ReplaceAllString(*d.HTML, "")
	}
	for n, a := range d.Attachments {
		page, file, err := f.Svc.Submit.OpenApprovalFile(f.T.Context(), f.who, submit.ApprovalFileIn{ApprovalID: id, Index: strconv.Itoa(n)})
		if err != nil {
			f.T.Fatal(err)
		}
		words += "\n" + a.Filename
		if page != nil {
			words += "\n" + string(page.HTML)
			continue
		}
		content, err := io.ReadAll(file.Body)
		if err != nil {
			f.T.Fatal(err)
		}
		words += "\n" + string(content)
	}
	file, err := f.Svc.Submit.GetApprovalRaw(f.T.Context(), f.who, in)
	if err != nil {
		f.T.Fatal(err)
	}
	defer file.Body.Close()
	raw, err = io.ReadAll(file.Body)
	if err != nil {
		f.T.Fatal(err)
	}
	return words, raw
}

func (f *approvals) askFirst() {
	f.T.Helper()
	f.Update(func(tx *store.Tx) error {
		f.ann.SendPolicy = store.Policy{Send: store.SendApproval}
		return store.Mailboxes.Put(tx, f.ann)
	})
}

func (f *approvals) submit(text string, change func(*submit.Submission)) (*submit.Submitted, error) {
	f.T.Helper()
	in := submit.Submission{From: "ann@example.test", Body: f.Spool(text), To: []outbound.Rcpt{{Address: "b@far.test"}}}
	if change != nil {
		change(&in)
	}
	return f.Svc.Submit.Submit(f.T.Context(), core.MailboxUser{AccountID: f.ann.AccountID, MailboxID: f.ann.ID, Email: f.ann.Email}, in)
}

// TestWhatIsSentIsShown: a program has many ways to put text into a message that the approver does
// not see. Each such text is either shown or not sent.
func TestWhatIsSentIsShown(t *testing.T) {
	f := newApprovals(t, nil)
	f.askFirst()
	for _, way := range waysToHide {
		t.Run(way.name, func(t *testing.T) {
			f.T = t
			sent, err := f.submit(way.message, nil)
			if way.becomes == refused {
				refusal := new(core.SMTPError)
				if !errors.As(err, &refusal) || refusal.Code != 550 || servicetest.ErrorCode(err) != "sending_not_allowed" || strings.Contains(err.Error(), hidden) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || sent.ApprovalID == "" {
				t.Fatalf("%+v, %v", sent, err)
			}
			words, raw := f.showing(sent.ApprovalID)
			all := decodedAll(t, raw)
			if !strings.Contains(words, "visible words") && !strings.Contains(way.name, "words of which") {
				t.Errorf("what was to be seen is lost:\n%s", words)
			}
			want := hidden
			if strings.Contains(way.name, "zero-width") {
				want = "qxs7secret"
			}
			if got := fmt.Sprint(strings.Contains(words, want), strings.Contains(all, want)); got != map[string]string{gone: "false false", seen: "true true"}[way.becomes] {
				t.Errorf("shown and sent: %s\n%s\n\nshown:\n%s", got, all, words)
			}
			if strings.Contains(words, strings.Repeat("\n", 10)) || strings.Contains(words, strings.Repeat(" ", 100)) {
				t.Error("words are out of sight")
			}
		})
	}
}

// TestEnvelopeOfAHeldMessageSaysNothing: the envelope has no text that the sender chose, except the
// recipients.
func TestEnvelopeOfAHeldMessageSaysNothing(t *testing.T) {
	f := newApprovals(t, nil)
	f.askFirst()
	sent, err := f.submit("TLS-Required: No\r\n"+plainHead+"\r\nvisible words\r\n", func(in *submit.Submission) {
		in.EnvelopeID, in.To[0].ORCPT, in.Trace = hidden, "rfc822;"+hidden, []byte("Received: from "+hidden+" by x; Fri, 27 Nov 2026 12:00:00 +0000\r\n")
	})
	if err != nil {
		t.Fatal(err)
	}
	_, raw := f.showing(sent.ApprovalID)
	row := f.Row("b@far.test")
	err = f.St.View(func(tx *store.Tx) error {
		sub, err := store.Submissions.Get(tx, row.SubmissionID)
		if err != nil {
			return err
		}
		if text := fmt.Sprintf("%+v %+v %s", sub, row, raw); strings.Contains(text, hidden) || sub.TLSOptional {
			t.Error(text)
		}
		if sub.MessageID != sent.MessageID || !strings.Contains(string(raw), sent.MessageID) {
			t.Errorf("the Message-ID is %s, %s was told", sub.MessageID, sent.MessageID)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.submit(plainHead+"\r\nx\r\n", func(in *submit.Submission) { in.To[0].Address = "b\u200b@far.test"; in.SMTPUTF8 = true }); err == nil {
		t.Error("an address with an invisible character is taken")
	}
}

// TestMessageByAPIIsShownToo: it has no Reply-To and no fields of its own, and its copy in Sent is
// the approved message.
func TestMessageByAPIIsShownToo(t *testing.T) {
	f := newApprovals(t, nil)
	f.askFirst()
	f.Run()
	content := inBase64("file\u200bwords")
	out := f.MustSend(f.ann, submit.SendEmailIn{
		To: submit.Texts{"\"B\u202eb\" <b@far.test>"}, Bcc: submit.Texts{"z@far.test"}, ReplyTo: submit.Texts{"ann+" + hidden + "@example.test"}, Subject: "He\u200bllo", Text: hidden,
		HTML: submit.HTMLText{Text: "<p>visible words</p><p hidden>" + hidden + "</p>"}, Attachments: []submit.SendAttachment{{Filename: "x\u202etxt.bin", Content: &content}},
	})
	words, raw := f.showing(*out.ApprovalID)
	if strings.Contains(decodedAll(t, raw), hidden) || !strings.Contains(words, "visible words") || !strings.Contains(words, "\nxtxt.bin\n") ||
		!strings.Contains(words, "file[U+200B]words") || !strings.HasPrefix(words, "Hello\n") || !strings.Contains(words, "Bb <b@far.test>") {
		t.Errorf("shown:\n%s\nsent:\n%s", words, raw)
	}
	if err := f.approve(*out.ApprovalID); err != nil {
		t.Fatal(err)
	}
	f.Becomes("b@far.test", "relayed")
	servicetest.Eventually(t, "a copy in Sent", func() bool { return len(f.Folder(f.ann, "Sent")) == 1 })
	if got := f.Folder(f.ann, "Sent")[0].Raw; !strings.Contains(string(got), string(raw)) {
		t.Errorf("in Sent:\n%s\nwant\n%s", got, raw)
	}
}

// TestForwardIsMadeAnewToo: a forward becomes a message of the mailbox itself, signed by its
// domain, since the author's signature does not cover the composed message.
func TestForwardIsMadeAnewToo(t *testing.T) {
	f := newApprovals(t, nil)
	f.Update(func(tx *store.Tx) error {
		f.ann.ForwardTo, f.ann.SendPolicy = "onward@far.test", store.Policy{Send: store.SendApproval}
		return store.Mailboxes.Put(tx, f.ann)
	})
	f.Run()
	text := "From: Pat <pat@away.test>\r\nTo: ann@example.test\r\nSubject: on\r\nX-Data: qx7secret\r\nContent-Type: text/html\r\n\r\nvisible words<!-- qx7secret -->\r\n"
	if err := f.ComeIn(netip.MustParseAddr("192.0.2.1"), "pat@away.test", "ann@example.test", text); err != nil {
		t.Fatal(err)
	}
	f.Becomes("onward@far.test", "held")
	list, err := f.Svc.Submit.ListApprovals(t.Context(), f.who, submit.ListApprovalsIn{})
	if err != nil || len(list.Data) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	id := list.Data[0].ApprovalID
	words, raw := f.showing(id)
	if strings.Contains(decodedAll(t, raw), hidden) || !strings.Contains(words, "visible words") || !strings.Contains(words, "Pat pat at away.test") || !strings.Contains(words, "<ann@example.test>") {
		t.Errorf("shown:\n%s\nsent:\n%s", words, raw)
	}
	if err := f.approve(id); err != nil {
		t.Fatal(err)
	}
	f.Becomes("onward@far.test", "relayed")
	if sent := f.sent(); len(sent) != 1 || !strings.Contains(sent[0].Data, "DKIM-Signature: ") || !strings.Contains(sent[0].Data, "d=example.test") {
		t.Errorf("sent: %+v", sent)
	}

	// A forward that cannot be shown is not sent, and nothing of it is kept.
	deep := "From: Pat <pat@away.test>\r\nTo: ann@example.test\r\nSubject: on\r\n" + strings.Repeat("Content-Type: message/rfc822\r\n\r\nFrom: a@x.test\r\n", 8) + "\r\nx\r\n"
	if err := f.ComeIn(netip.MustParseAddr("192.0.2.1"), "pat@away.test", "ann@example.test", deep); err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "nothing is left", func() bool { subs, jobs := f.Left(); return subs == 0 && jobs == 0 })
	if len(f.sent()) != 1 {
		t.Errorf("sent: %+v", f.sent())
	}
}
