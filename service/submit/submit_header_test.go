package submit_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

const rawHeader = "From: Jörg <ann@example.test>\r\nTo: \"Zoë, B.\" <%TO%>\r\nSubject: Grüße\r\nMIME-Version: 1.0\r\n" +
	"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nhello\r\n--b\r\nContent-Type: application/pdf\r\n" +
	"Content-Disposition: attachment; filename=\"Größe.pdf\"\r\n\r\nx\r\n--b--\r\n"

func rawTo(to string) string { return strings.Replace(rawHeader, "%TO%", to, 1) }

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}

// TestRawHeaderIsEncodedUnlessSMTPUTF8GoesThrough: if submission does not use SMTPUTF8 or the next
// hop does not offer it, header text is encoded before signing; if both do, it is unchanged.
func TestRawHeaderIsEncodedUnlessSMTPUTF8GoesThrough(t *testing.T) {
	with, without := (&servicetest.Host{}).Start(t), (&servicetest.Host{No8Bit: true}).Start(t)
	for name, c := range map[string]struct {
		h    *servicetest.Host
		asks bool
		raw  bool
	}{
		"not asked for":           {with, false, false},
		"asked for and offered":   {with, true, true},
		"asked for, not offered":  {without, true, false},
		"neither asked nor there": {without, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			i := servicetest.Install(t, core.Config{MXPort: c.h.Port})
			i.DNS.MX["far.test"] = "mx.far.test"
			ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
			i.Run()
			to := strings.ReplaceAll(name, " ", "-") + "@far.test"
			to = strings.ReplaceAll(to, ",", "")
			_, err := i.Svc.Submit.Submit(t.Context(), core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email},
				submit.Submission{From: ann.Email, To: []outbound.Rcpt{{Address: to}}, Body: i.Spool(rawTo(to)), SMTPUTF8: c.asks})
			if err != nil {
				t.Fatal(err)
			}
			i.Becomes(to, store.OutgoingSent)
			var got string
			for _, m := range c.h.Mails() {
				if m.To == to {
					got = m.Data
				}
			}
			if ascii(got) == c.raw {
				t.Errorf("it goes out as\n%s", got)
			}
			if v := i.Verify([]byte(got)); v.DKIM != auth.Pass {
				t.Errorf("its signature: %+v", v.DKIM)
			}
			if !c.raw && !strings.Contains(got, "filename*=utf-8''Gr%C3%B6%C3%9Fe.pdf") {
				t.Errorf("the file's name goes out as\n%s", got)
			}
		})
	}
}

// TestHeaderThatNeedsSMTPUTF8IsRefusedWithoutIt: the error names the field.
func TestHeaderThatNeedsSMTPUTF8IsRefusedWithoutIt(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	_, err := i.Submit(ann, "From: ann@example.test\r\nCc: jörg@far.test\r\n\r\nx\r\n", "b@far.test")
	e := core.AsSMTPError(err)
	if err == nil || e.Code != 550 || e.Enhanced != "5.6.7" || !strings.Contains(e.Message, "Cc") {
		t.Errorf("have %v", err)
	}
	if _, err := i.Submit(ann, rawTo("b@far.test"), "b@far.test"); err != nil {
		t.Error(err)
	}
}
