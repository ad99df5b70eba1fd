package handlers

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
)

// letter is a message with an attachment, a group in To and a script in its HTML.
const letter = `Message-ID: <one@far.test>
In-Reply-To: <zero@boxes.test>
References: <root@boxes.test> <zero@boxes.test>
Date: Mon, 02 Nov 2026 10:00:00 +0100
From: "Far, Fred" <Fred@far.test>
To: Friends: ann@boxes.test, Bob <bob@else.test>;
Cc: cc@else.test
Reply-To: back@far.test
Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=m

--m
Content-Type: multipart/alternative; boundary=a

--a
Content-Type: text/plain; charset=utf-8

Hello Ann, here is the report.
--a
Content-Type: text/html

<p onclick="x()">Hello <b>Ann</b></p><script>alert(1)</script>
--a--
--m
Content-Type: text/html; name=report.html
Content-Disposition: attachment; filename="report.html"
Content-Transfer-Encoding: base64

PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==
--m
Content-Type: image/png
Content-ID: <logo>
Content-Disposition: inline; filename="../logo.png"
Content-Transfer-Encoding: base64

iVBORw0KGgo=
--m--
`

func TestGetMessage(t *testing.T) {
	b := newSandbox(t, nil)
	id := b.box("ann")
	at := time.Date(2026, 11, 2, 9, 30, 0, 123e6, time.UTC)
	uid := b.Put(t, "ann@boxes.test", letter, mail{Received: at, SPF: "pass"})
	path := fmt.Sprintf("/v1/email-users/%s/inbox/%d", id, uid)
	r := b.get(path).is(200)
	r.has("uid", "1", "user_id", id, "mailbox", "ann@boxes.test", "folder", "INBOX", "message_id", "<one@far.test>",
		"in_reply_to", "<zero@boxes.test>", "references.0", "<root@boxes.test>", "from", `"Far, Fred" <Fred@far.test>`,
		"from_email", "Fred@far.test", "from_name", "Far, Fred", "to", "[ann@boxes.test Bob <bob@else.test>]", "cc", "[cc@else.test]",
		"reply_to", "[back@far.test]", "subject", "Grüße", "body_preview", "Hello Ann, here is the report.",
		"received_at", "2026-11-02T09:30:00.123Z", "date", "2026-11-02T09:00:00.000Z", "is_read", "false", "is_answered", "false",
		"is_flagged", "false", "has_attachments", "true", "is_warmup", "false", "is_auto_reply", "false", "is_bounce", "false",
		"auth.spf", "pass", "auth.dkim", "none", "auth.dmarc", "none", "original_message_id", "<nil>", "truncated", "false",
		"attachments.0.index", "0", "attachments.0.filename", "report.html", "attachments.0.content_type", "text/html", "attachments.0.size", "25",
		"attachments.0.content_id", "<nil>", "attachments.1.filename", "logo.png", "attachments.1.content_id", "logo", "attachments.1.size", "8",
		"size", fmt.Sprint(strings.Count(letter, "\n")+len(letter)), "headers.0.name", "Message-ID", "headers.8.value", "Grüße")
	if html := r.text("html"); !strings.Contains(html, "<b>Ann</b>") || strings.Contains(html, "script") || strings.Contains(html, "onclick") {
		t.Errorf("html %q", html)
	}
	if text := r.text("text"); strings.TrimSpace(text) != "Hello Ann, here is the report." {
		t.Errorf("text %q", text)
	}
	byBox := b.get("/v1/inbox/1?mailbox=Ann@Boxes.test").is(200)
	if string(byBox.raw) != string(r.raw) {
		t.Errorf("by mailbox: %s", byBox.raw)
	}
	if v := r.text("uid_validity"); v == "" || v == "0" {
		t.Errorf("uid_validity %q", v)
	}
	b.get(path).has("is_read", "false") // looking does not mark
	for _, bad := range []string{"2", "0", "-1", "x", "4294967296", "1.0"} {
		b.get("/v1/email-users/"+id+"/inbox/"+bad).fails(404, "not_found")
	}
	b.get("/v1/inbox/1").fails(400, "mailbox_required")
	b.get("/v1/inbox/1?mailbox=nobody@boxes.test").fails(404, "not_found")
}

// TestReplyText: the detail of a message says what its author wrote, to programs and to assistants.
func TestReplyText(t *testing.T) {
	b := newSandbox(t, nil)
	path := "/v1/email-users/" + b.box("ann") + "/inbox/"
	for _, body := range []string{
		"Content-Type: text/plain\n\nTuesday.\n\nOn Mon, Nov 2, 2026 at 9:30 AM Bob\n<bob@far.test> wrote:\n\n> When?\n\nOr later.\n-- \nFred\n",
		"Content-Type: text/html\n\n<p onclick='x()'>Tuesday.</p><div id=divRplyFwdMsg><b>From:</b> Bob</div><p>When?</p>\n",
		"Content-Type: text/plain\n\n> When?\n",
		"Content-Type: image/png\n\nx\n",
	} {
		b.Put(t, "ann@boxes.test", "From: fred@far.test\nMIME-Version: 1.0\n"+body, mail{})
	}
	b.get(path+"1").is(200).has("reply_text", "Tuesday.\n\nOr later.", "html", "<nil>")
	r := b.get(path+"2").is(200).has("reply_text", "Tuesday.", "text", "<nil>")
	if html := r.text("html"); !strings.Contains(html, "When?") || strings.Contains(html, "onclick") {
		t.Errorf("html %q", html)
	}
	b.get(path+"3").is(200).has("reply_text", "<nil>", "text", "> When?\n")
	b.get(path+"4").is(200).has("reply_text", "<nil>", "text", "<nil>", "html", "<nil>")
	seen := b.assistant(b.token).call("get_inbox_message", map[string]any{"message_id": "2", "mailbox": "ann@boxes.test"}).is(200)
	if got := seen.unmarked("reply_text"); got != "Tuesday." {
		t.Errorf("an assistant sees %q", got)
	}
}

func TestPlainMessageHasNoHTML(t *testing.T) {
	b := newSandbox(t, nil)
	id := b.box("ann")
	b.Put(t, "ann@boxes.test", "\nno header at all\n", mail{})
	r := b.get("/v1/email-users/"+id+"/inbox/1").is(200).has("html", "<nil>", "text", "no header at all\n", "subject", "", "from", "", "from_name", "<nil>",
		"date", "<nil>", "in_reply_to", "<nil>", "to", "[]", "references", "[]", "attachments", "[]", "headers", "[]", "message_id", "")
	if r.text("received_at") == "<nil>" {
		t.Error("received_at is null")
	}
}

func TestRawAndAttachments(t *testing.T) {
	b := newSandbox(t, nil)
	path := "/v1/email-users/" + b.box("ann") + "/inbox/1"
	b.Put(t, "ann@boxes.test", letter, mail{})
	raw := b.get(path + "/raw").is(200)
	if got := strings.ReplaceAll(string(raw.raw), "\r\n", "\n"); got != letter {
		t.Errorf("raw is %q", got)
	}
	if ct := raw.header.Get("Content-Type"); ct != "message/rfc822" {
		t.Errorf("raw is %s", ct)
	}
	page := b.get(path + "/attachments/0").is(200)
	if string(page.raw) != "<script>alert(1)</script>" {
		t.Errorf("attachment is %q", page.raw)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "Content-Disposition": "attachment; filename=report.html",
		"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox",
	} {
		if got := page.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	logo := b.get(path + "/attachments/1").is(200)
	if string(logo.raw) != "\x89PNG\r\n\x1a\n" || logo.header.Get("Content-Type") != "image/png" {
		t.Errorf("logo is %q, %s", logo.raw, logo.header.Get("Content-Type"))
	}
	for _, i := range []string{"2", "-1", "x", "99999999999999999999"} {
		b.get(path+"/attachments/"+i).fails(404, "not_found")
	}
	b.get("/v1/email-users/eu_none/inbox/1/raw").fails(404, "not_found")
	all := b.get(path + "/attachments").is(200)
	if all.header.Get("Content-Type") != "application/zip" || all.header.Get("Content-Disposition") != "attachment; filename=attachments-1.zip" {
		t.Errorf("all of them: %v", all.header)
	}
	z, err := zip.NewReader(bytes.NewReader(all.raw), int64(len(all.raw)))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []*reply{page, logo} {
		f, err := z.File[i].Open()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, want.raw) || len(z.File) != 2 {
			t.Errorf("%s of %d is %q, %v", z.File[i].Name, len(z.File), got, err)
		}
	}
	b.Put(t, "ann@boxes.test", "From: a@far.test\nSubject: no files\n\nhello\n", mail{})
	b.get(strings.TrimSuffix(path, "1")+"2/attachments").fails(404, "not_found")
	b.get("/v1/email-users/eu_none/inbox/1/attachments").fails(404, "not_found")
}

func TestMarkMessage(t *testing.T) {
	b := newSandbox(t, nil)
	id := b.box("ann")
	path := "/v1/email-users/" + id + "/inbox/1"
	b.Put(t, "ann@boxes.test", letter, mail{})
	b.get("/v1/email-users/"+id).has("unread_count", "1", "used_bytes", fmt.Sprint(strings.Count(letter, "\n")+len(letter)))
	b.patch(path, `{"is_read":true}`).is(200).has("is_read", "true", "message_id", "1", "uid", "1", "mailbox", "ann@boxes.test")
	b.get(path).has("is_read", "true")
	b.get("/v1/email-users/"+id).has("unread_count", "0")
	b.patch(path, `{"is_read":true}`).is(200)
	b.patch("/v1/inbox/1?mailbox=ann@boxes.test", `{"read":false}`).is(200).has("is_read", "false")
	b.get(path).has("is_read", "false")
	b.patch(path, `{"is_flagged":true}`).is(200).has("is_flagged", "true", "is_read", "false", "message", "The message is marked flagged.")
	b.patch(path, `{"is_read":true,"is_flagged":null}`).fails(400, "validation_error").has("error.details.0.field", "is_flagged")
	b.patch(path, `{"is_read":true}`).is(200).has("is_flagged", "true", "is_read", "true")
	b.get(path).has("is_flagged", "true", "is_read", "true")
	b.patch("/v1/inbox/1?mailbox=ann@boxes.test", `{"is_read":false,"is_flagged":false}`).is(200).has("is_flagged", "false", "is_read", "false")
	b.get(path).has("is_flagged", "false", "is_read", "false")
	b.patch(path, `{}`).fails(400, "nothing_to_update")
	b.patch(path, `{"is_flagged":"yes"}`).fails(400, "validation_error")
	b.patch(path, `{"is_read":"yes"}`).fails(400, "validation_error")
	b.patch(path, `{"is_read":null}`).fails(400, "validation_error")
	b.patch("/v1/inbox/1", `{"is_read":true}`).fails(400, "mailbox_required")
	b.patch("/v1/inbox/7?mailbox=ann@boxes.test", `{"is_read":true}`).fails(404, "not_found")
}

func TestDeleteMessage(t *testing.T) {
	b := newSandbox(t, nil)
	path := "/v1/email-users/" + b.box("ann") + "/inbox/"
	for range 2 {
		b.Put(t, "ann@boxes.test", letter, mail{})
	}
	b.remove(path+"1").is(200).has("message_id", "1", "uid", "1", "mailbox", "ann@boxes.test")
	b.remove(path+"1").fails(404, "not_found")
	b.remove("/v1/inbox/2").fails(400, "mailbox_required").has("error.details.0.field", "mailbox")
	b.remove("/v1/inbox/2?mailbox=ann@boxes.test").is(200).has("message_id", "2", "uid", "2", "mailbox", "ann@boxes.test")
	b.get("/v1/inbox").has("pagination.count", "0")
}

func TestBulkDeleteMessages(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann")
	b.box("bob")
	for range 3 {
		b.Put(t, "ann@boxes.test", letter, mail{})
		b.Put(t, "bob@boxes.test", letter, mail{})
	}
	b.post("/v1/inbox/bulk-delete", `{"messages":[
		{"uid":"1","mailbox":"ann@boxes.test"},{"uid":"3","mailbox":"bob@boxes.test"},{"uid":"2","mailbox":"Ann@boxes.test"},
		{"uid":"9","mailbox":"ann@boxes.test"},{"uid":"99999999999","mailbox":"ann@boxes.test"},{"uid":"1","mailbox":"nobody@boxes.test"}]}`).is(200).
		has("deleted", "3", "failed", "3", "errors.0.uid", "9", "errors.0.mailbox", "ann@boxes.test", "errors.1.uid", "99999999999", "errors.2.mailbox", "nobody@boxes.test")
	left := b.get("/v1/inbox").is(200)
	got := left.list("data", "mailbox")
	for i, uid := range left.list("data", "uid") {
		got[i] += " " + uid
	}
	slices.Sort(got)
	if want := "[ann@boxes.test 3 bob@boxes.test 1 bob@boxes.test 2]"; fmt.Sprint(got) != want {
		t.Errorf("left %v, want %s", got, want)
	}
	for body, code := range map[string]string{
		`{}`: "validation_error", `{"messages":[]}`: "validation_error", `{"messages":[{"uid":"1"}]}`: "validation_error",
		`{"messages":[{"mailbox":"ann@boxes.test"}]}`: "validation_error", `{"messages":[{"uid":1,"mailbox":"ann@boxes.test"}]}`: "validation_error",
		`{"messages":["1"]}`: "validation_error", `{"messages":[` + strings.Repeat(`{"uid":"1","mailbox":"a@b.c"},`, 200) + `{"uid":"1","mailbox":"a@b.c"}]}`: "too_many_items",
	} {
		b.post("/v1/inbox/bulk-delete", body).fails(400, code)
	}
}

func TestBulkMarkMessages(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann")
	b.box("bob")
	for range 3 {
		b.Put(t, "ann@boxes.test", letter, mail{})
		b.Put(t, "bob@boxes.test", letter, mail{Seen: true})
	}
	marks := func() string {
		t.Helper()
		list := b.get("/v1/inbox").is(200)
		var out []string
		read, flagged, box := list.list("data", "is_read"), list.list("data", "is_flagged"), list.list("data", "mailbox")
		for i, uid := range list.list("data", "uid") {
			out = append(out, box[i][:1]+uid+strings.NewReplacer("true", "+", "false", "-").Replace(read[i]+flagged[i]))
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	b.post("/v1/inbox/bulk-mark", `{"is_read":true,"messages":[
		{"uid":"1","mailbox":"ann@boxes.test"},{"uid":"1","mailbox":"ann@boxes.test"},{"uid":"3","mailbox":"bob@boxes.test"},{"uid":"2","mailbox":"Ann@boxes.test"},
		{"uid":"9","mailbox":"ann@boxes.test"},{"uid":"x","mailbox":"ann@boxes.test"},{"uid":"1","mailbox":"nobody@boxes.test"}]}`).is(200).
		has("marked", "4", "failed", "3", "errors.0.uid", "9", "errors.0.error", "There is no such message in this account. Check the id.", "errors.1.uid", "x", "errors.2.mailbox", "nobody@boxes.test")
	if got, want := marks(), "a1+- a2+- a3-- b1+- b2+- b3+-"; got != want {
		t.Errorf("marks %s, want %s", got, want)
	}
	b.post("/v1/inbox/bulk-mark", `{"read":false,"is_flagged":true,"messages":[{"uid":"1","mailbox":"ann@boxes.test"},{"uid":"1","mailbox":"bob@boxes.test"}]}`).is(200).
		has("marked", "2", "failed", "0")
	if got, want := marks(), "a1-+ a2+- a3-- b1-+ b2+- b3+-"; got != want {
		t.Errorf("marks %s, want %s", got, want)
	}
	b.get("/v1/inbox?is_flagged=true&mailbox=ann@boxes.test").has("pagination.count", "1", "data.0.uid", "1")
	one := `"messages":[{"uid":"1","mailbox":"ann@boxes.test"}]`
	for body, code := range map[string]string{
		`{}`: "validation_error", `{` + one + `}`: "nothing_to_update", `{` + one + `,"is_read":null}`: "nothing_to_update", `{"is_read":true}`: "validation_error",
		`{"is_read":true,"messages":[]}`: "validation_error", `{"is_read":true,"messages":[{"uid":"1"}]}`: "validation_error", `{` + one + `,"is_read":1}`: "validation_error",
		`{"is_read":true,"messages":[` + strings.Repeat(`{"uid":"1","mailbox":"a@b.c"},`, 200) + `{"uid":"1","mailbox":"a@b.c"}]}`: "too_many_items",
	} {
		b.post("/v1/inbox/bulk-mark", body).fails(400, code)
	}
}

func TestListInbox(t *testing.T) {
	b := newSandbox(t, nil)
	ann, bob := b.box("ann"), b.box("bob")
	day := func(n int) time.Time { return time.Date(2026, 11, n, 23, 59, 59, 999e6, time.UTC) }
	put := func(box, subject, from string, how mail) {
		b.Put(t, box+"@boxes.test", "From: "+from+"\nSubject: "+subject+"\n\nThe body of "+subject+"\n", how)
	}
	put("ann", "a1", "Fred <fred@far.test>", mail{Received: day(1)})
	put("ann", "a3", "fred@far.test", mail{Received: day(3), Warmup: true})
	put("bob", "b3", "gina@far.test", mail{Received: day(3)})
	put("bob", "b2", "Gina <gina@far.test>", mail{Received: day(2), Seen: true})
	b.Put(t, "ann@boxes.test", letter, mail{Received: day(4)})
	b.patch("/v1/inbox/1?mailbox=bob@boxes.test", `{"is_flagged":true}`).is(200)
	subjects := func(query string) string {
		t.Helper()
		return fmt.Sprint(b.get(query).is(200).list("data", "subject"))
	}
	queries := map[string]string{
		"":                           "[Grüße a3 b3 b2 a1]", // a3 has the higher UID
		"?mailbox=ann@boxes.test":    "[Grüße a3 a1]",
		"?mailbox=nobody@boxes.test": "[]",
		"?filter[mailbox]=BOB@boxes.test&filter[is_read]=false": "[b3]",
		"?exclude_warmup=true":                              "[Grüße b3 b2 a1]",
		"?exclude_warmup=false":                             "[Grüße a3 b3 b2 a1]",
		"?has_attachments=true":                             "[Grüße]",
		"?has_attachments=false":                            "[Grüße a3 b3 b2 a1]",
		"?is_read=true":                                     "[b2]",
		"?read=false":                                       "[Grüße a3 b3 a1]",
		"?is_flagged=true":                                  "[b3]",
		"?filter[is_flagged]=false":                         "[Grüße a3 b2 a1]",
		"?is_flagged=true&is_read=true":                     "[]",
		"?q=body&is_flagged=true":                           "[b3]",
		"?date_from=2026-11-03":                             "[Grüße a3 b3]",
		"?date_to=2026-11-02":                               "[b2 a1]",
		"?date_from=2026-11-02&date_to=2026-11-03":          "[a3 b3 b2]",
		"?date_from=2026-11-03&date_to=2026-11-01":          "[]",
		"?q=GR%C3%9CSSE":                                    "[Grüße]",
		"?q=body+a3":                                        "[a3]",
		"?q=%22body+of+a3%22":                               "[a3]",
		"?q=%22of+body%22":                                  "[]",
		"?q=gina@far.test":                                  "[b3 b2]",
		"?q=@far.test&is_read=true":                         "[b2]",
		"?q=@far.test&limit=2":                              "[Grüße a3]",
		"?q=...":                                            "[]",
		"?q=body+of+b3":                                     "[b3]",
		"?q=body&exclude_warmup=true":                       "[b3 b2 a1]",
		"?q=body&mailbox=bob@boxes.test&date_to=2026-11-02": "[b2]",
		"?thread_id=thr_no":                                 "[]",
		"?thread_id=thr_00112233445566778899aabbcc":         "[]",
		"?q=gr%C3%BC%C3%9Fe":                                "[Grüße]",
		"?q=body+of+b":                                      "[a3 b3 b2 a1]",
		"?from=gina":                                        "[b3 b2]",
		"?from=FRED@far":                                    "[Grüße a3 a1]",
		"?from=@far.test&limit=2":                           "[Grüße a3]",
		"?from=a3":                                          "[]",
		"?from=%3C%3E":                                      "[]",
		"?from=fred&q=a3&is_read=false&date_from=2026-11-03&mailbox=ann@boxes.test": "[a3]",
		"?limit=1000": "[Grüße a3 b3 b2 a1]",
	}
	for _, indexed := range []bool{false, true} {
		if indexed {
			b.IndexMail(t)
		}
		for query, want := range queries {
			if got := subjects("/v1/inbox" + query); got != want {
				t.Errorf("indexed: %v: %s: %s, want %s", indexed, query, got, want)
			}
		}
	}
	b.get("/v1/inbox").has("pagination.limit", "100", "synced_at", "<nil>", "pagination.cursor", "<nil>", "pagination.has_more", "false")
	b.get("/v1/inbox?limit=999").has("pagination.limit", "200")
	b.get("/v1/email-users/"+ann+"/inbox").has("pagination.limit", "25", "pagination.count", "3", "synced_at", "<nil>")
	b.get("/v1/email-users/"+bob+"/inbox?limit=999").has("pagination.limit", "100", "pagination.count", "2")
	if got := subjects("/v1/email-users/" + ann + "/inbox?has_attachments=true"); got != "[Grüße]" {
		t.Errorf("of one mailbox: %s", got)
	}
	for _, bad := range []string{"date_from=2026-13-01", "date_to=yesterday", "date_from=2026-11-01T00:00:00Z", "is_read=maybe", "is_flagged=2", "has_attachments=2", "limit=0", "q=%00", "q=%zz"} {
		b.get("/v1/inbox?"+bad).fails(400, "validation_error")
	}
	b.get("/v1/inbox?cursor=!").fails(400, "invalid_cursor")
	b.get("/v1/email-users/eu_none/inbox").fails(404, "not_found")
}

// TestInboxPagesKeepWhatStays walks pages while messages come and go, in one mailbox and over all.
func TestInboxPagesKeepWhatStays(t *testing.T) {
	b := newSandbox(t, nil)
	ids := []string{b.box("ann"), b.box("bob")}
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var stay []string
	for i := range 60 {
		box := []string{"ann", "bob"}[i%2]
		how := mail{Received: start.Add(time.Duration(i/4) * time.Second)} // four share each instant
		b.Put(t, box+"@boxes.test", fmt.Sprintf("Subject: s%d\n\nx\n", i), how)
		if i%5 != 0 {
			stay = append(stay, fmt.Sprintf("s%d", i))
		}
	}
	slices.Sort(stay)
	var seen []string
	for cursor, page := "", 0; ; page++ {
		r := b.get("/v1/inbox?limit=7&cursor=" + url.QueryEscape(cursor)).is(200)
		seen = append(seen, r.list("data", "subject")...)
		if r.text("pagination.has_more") == "false" {
			break
		}
		cursor = r.text("pagination.cursor")
		b.Put(t, "ann@boxes.test", "Subject: new\n\nx\n", mail{})
		n := page * 5
		b.remove(fmt.Sprintf("/v1/email-users/%s/inbox/%d", ids[n%2], n/2+1)).is(200)
	}
	seen = slices.DeleteFunc(seen, func(s string) bool { return !slices.Contains(stay, s) })
	if !slices.IsSortedFunc(seen, func(a, b string) int { return number(b)/4 - number(a)/4 }) {
		t.Errorf("not newest first: %v", seen)
	}
	slices.Sort(seen)
	if !slices.Equal(seen, stay) {
		t.Errorf("saw %v, want %v", seen, stay)
	}
}

func number(subject string) (n int) {
	_, _ = fmt.Sscanf(subject, "s%d", &n)
	return n
}

// TestInboxSearchIsBounded looks for a text that only the oldest message has: pages may be short,
// but lead there.
func TestInboxSearchIsBounded(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann")
	b.Put(t, "ann@boxes.test", "Subject: needle\n\nx\n", mail{})
	b.PutCopies(t, 2005, "ann@boxes.test", "Subject: hay\n\nx\n", mail{})
	r := b.get("/v1/inbox?q=needle").is(200).has("pagination.count", "0", "pagination.has_more", "true")
	first, pages := r, 1
	for ; r.text("pagination.count") == "0" && pages < 15; pages++ {
		r = b.get("/v1/inbox?q=needle&cursor=" + r.text("pagination.cursor")).is(200)
	}
	r.has("pagination.count", "1", "pagination.has_more", "false")
	b.get("/v1/inbox?q=hay&limit=3").has("pagination.count", "3", "pagination.has_more", "true")
	b.get("/v1/inbox?cursor="+first.text("pagination.cursor")).fails(400, "invalid_cursor")
}

// TestFullFilteredPageIsTheLast has no more behind it that passes the filter.
func TestFullFilteredPageIsTheLast(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann")
	for _, s := range []string{"hay", "needle", "needle", "hay"} {
		b.Put(t, "ann@boxes.test", "Subject: "+s+"\n\nx\n", mail{})
	}
	b.get("/v1/inbox?q=needle&limit=2").has("pagination.count", "2", "pagination.has_more", "false", "pagination.cursor", "<nil>")
	b.get("/v1/inbox?q=needle&limit=1").has("pagination.count", "1", "pagination.has_more", "true")
}

func TestRefreshInbox(t *testing.T) {
	b := newSandbox(t, nil)
	id := b.box("ann")
	r := b.post("/v1/email-users/"+id+"/inbox/refresh", nil).is(200).has("email", "ann@boxes.test")
	if r.text("message") == "" {
		t.Error("no message")
	}
	if at := b.get("/v1/email-users/" + id + "/inbox").text("synced_at"); at == "<nil>" || at != b.get("/v1/email-users/"+id).text("last_sync_at") {
		t.Errorf("synced_at is %s", at)
	}
	b.post("/v1/email-users/eu_none/inbox/refresh", nil).fails(404, "not_found")
	b.post("/v1/inbox/refresh", nil).fails(400, "universal_inbox_disabled")
	b.post("/v1/account/universal-inbox", `{"enabled":true}`).is(200)
	b.post("/v1/inbox/refresh", nil).is(200)
	if at := b.get("/v1/inbox").text("synced_at"); at == "<nil>" {
		t.Error("synced_at of the account is null")
	}
}

// withShop adds a registrar to the configuration.
func withShop(shop servicetest.Registrar) func(*core.Config) {
	return func(c *core.Config) { c.Registrars = append(c.Registrars, shop) }
}

func TestSearchThroughARegistrar(t *testing.T) {
	shop := servicetest.NewShop()
	b, world := newWorld(t, withShop(shop.Registrar(nil)))
	b.get("/v1/account").has("registrars", "[sandbox]")
	b.get("/v1/domains/search?q=Bakery.io").is(200).has("domain", "bakery.io", "available", "true", "currency", "USD", "premium", "false",
		"registrar", "sandbox", "checked_via", "registrar", "purchasable", "true", "error", "<nil>", "price", "35", "renewal_price", "45")
	b.get("/v1/domains/search?domain=b%C3%BCcher.com").is(200).has("domain", "xn--bcher-kva.com", "available", "true")
	b.get("/v1/domains/search?q=xn--bcher-kva.com").is(200).has("domain", "xn--bcher-kva.com", "available", "true")
	b.get("/v1/domains/search?q=example.com").is(200).has("available", "false", "price", "<nil>", "renewal_price", "<nil>", "purchasable", "false", "error", "<nil>")
	b.get("/v1/domains/search?q=premium-bread.com").is(200).has("available", "true", "premium", "true", "price", "1100", "purchasable", "false")
	world.Tell("NS", "bakery.shop", "ns.else.test.")
	b.get("/v1/domains/search?q=bakery.shop").is(200).has("available", "false", "checked_via", "dns", "registrar", "<nil>", "price", "<nil>", "purchasable", "false")
	shop.Set(func() { shop.Meddle = func(string) error { return errors.New("out of order") } })
	b.get("/v1/domains/search?q=bakery.io").is(200).has("available", "<nil>", "checked_via", "dns", "purchasable", "false")
}

func TestSearchWithoutARegistrar(t *testing.T) {
	b, world := newWorld(t, nil)
	b.get("/v1/account").has("registrars", "[]")
	world.Tell("NS", "taken.com", "ns.else.test.")
	b.get("/v1/domains/search?q=taken.com").is(200).has("available", "false", "checked_via", "dns", "error", "<nil>", "currency", "USD", "registrar", "<nil>")
	r := b.get("/v1/domains/search?q=perhaps.com").is(200).has("available", "<nil>", "checked_via", "dns", "price", "<nil>", "purchasable", "false")
	if len(r.text("error")) < 20 {
		t.Errorf("nothing says why it is unknown: %s", r.raw)
	}
	world.Set(func() { world.Dead = "all" })
	b.get("/v1/domains/search?q=taken.com").is(200).has("available", "<nil>", "error", "It could not be looked up. Try again in a minute.")
	for _, q := range []string{"", "com", "co.uk", "no%20name", "www.taken.com", "https://taken.com", "*.com", strings.Repeat("a", 300) + ".com", "192.0.2.1", "a%00.com"} {
		if r := b.get("/v1/domains/search?q=" + q).is(400); r.text("error.code") != "invalid_domain" && !strings.Contains(q, "%00") {
			t.Errorf("%q: %s", q, r.raw)
		}
	}
	b.get("/v1/domains/search").fails(400, "validation_error")
}

func TestSearchInBulk(t *testing.T) {
	b, world := newWorld(t, withShop(servicetest.SandboxRegistrar()))
	world.Tell("NS", "taken.shop", "ns.else.test.")
	r := b.post("/v1/domains/search-bulk", `{"domains":["one.com","not a name","Two.IO","example.net","one.com","taken.shop","www.one.com","bücher.dev"]}`).is(200).
		has("count", "8", "available_count", "4", "results.0.available", "true", "results.0.price", "11", "results.0.error", "<nil>",
			"results.1.domain", "not a name", "results.1.available", "<nil>", "results.1.price", "<nil>", "results.1.checked_via", "registrar",
			"results.2.domain", "two.io", "results.2.price", "35", "results.3.available", "false", "results.4.domain", "one.com", "results.4.available", "true",
			"results.5.available", "false", "results.5.checked_via", "dns", "results.6.available", "<nil>", "results.7.domain", "xn--bcher-kva.dev", "results.7.available", "true")
	for _, i := range []string{"1", "6"} {
		if len(r.text("results."+i+".error")) < 20 {
			t.Errorf("item %s has no useful error: %s", i, r.raw)
		}
	}
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprintf("n%d.shop", i)
	}
	began := time.Now()
	if got := b.post("/v1/domains/search-bulk", map[string]any{"domains": names}).is(200).list("results", "domain"); !slices.Equal(got, names) {
		t.Errorf("the results are not in order: %s", got)
	}
	t.Logf("100 names by DNS in %s", time.Since(began))
	b.post("/v1/domains/search-bulk", map[string]any{"domains": append(names, "x.shop")}).fails(400, "too_many_items")
	for _, body := range []string{`{}`, `{"domains":[]}`, `{"domains":"a.com"}`, `{"domains":[1]}`, `{"domains":null}`} {
		b.post("/v1/domains/search-bulk", body).fails(400, "validation_error")
	}
	b.with(b.Token(t, b.Owner.AccountID, "member", "read")).post("/v1/domains/search-bulk", `{"domains":["one.com"]}`).is(200)
}

func TestSuggest(t *testing.T) {
	b, _ := newWorld(t, withShop(servicetest.SandboxRegistrar()))
	r := b.get("/v1/domains/suggest?keywords=Coffee%20Berlin").is(200).has("keywords", "Coffee Berlin", "count", "20", "suggestions.0.domain", "coffeeberlin.com",
		"suggestions.0.available", "true", "suggestions.0.price", "11", "suggestions.5.domain", "coffee-berlin.com")
	names := r.list("suggestions", "domain")
	if slices.Sort(names); len(slices.Compact(names)) != 20 {
		t.Errorf("suggestions %s", names)
	}
	if again := b.get("/v1/domains/suggest?keywords=Coffee%20Berlin"); string(again.raw) != string(r.raw) {
		t.Error("the same keywords suggest something else")
	}
	b.get("/v1/domains/suggest?keywords=example&tlds=com,.NET&limit=3").is(200).has("count", "3", "suggestions.0.domain", "getexample.com", "suggestions.1.domain", "getexample.net")
	b.get("/v1/domains/suggest?keywords=example&tlds=com&check=false&limit=1").is(200).has("suggestions.0.domain", "example.com", "suggestions.0.available", "<nil>", "suggestions.0.purchasable", "false")
	b.get("/v1/domains/suggest?keywords=b%C3%BCcher&limit=500&tlds=com,co.uk").is(200).has("suggestions.0.domain", "xn--bcher-kva.com", "suggestions.1.domain", "xn--bcher-kva.co.uk")
	for _, query := range []string{"", "?keywords=", "?keywords=%20-%20", "?keywords=x&limit=0", "?keywords=x&limit=many", "?keywords=x&check=perhaps", "?keywords=x&tlds=%20x%20y", "?keywords=x&tlds=com,,net", "?keywords=" + strings.Repeat("x", 201)} {
		b.get("/v1/domains/suggest"+query).fails(400, "validation_error")
	}
	b.with(b.Token(t, b.Owner.AccountID, "member", "read")).get("/v1/domains/suggest?keywords=x").is(200)
}

func TestCheckProvider(t *testing.T) {
	shop := servicetest.NewShop()
	b, _ := newWorld(t, withShop(shop.Registrar(nil)))
	shop.Sell("ours.com", time.Now(), "ns1.example.test")
	member := b.with(b.Token(t, b.Owner.AccountID, "member", "read"))
	member.post("/v1/domains/check-provider", `{"domain":"Ours.com."}`).is(200).has("domain", "ours.com", "registrar", "sandbox", "nameservers", "[ns1.example.test]", "is_edge", "false", "checked_via", "registrar",
		"dns_provider_guess", "builtin", "dns_credential_id", "<nil>")
	unknown := []string{"registrar", "<nil>", "nameservers", "[]", "is_edge", "false", "checked_via", "dns"} // in the sandbox
	member.post("/v1/domains/check-provider", `{"domain":"unknown.com"}`).is(200).has(unknown...)
	shop.Set(func() { shop.Meddle = func(string) error { return errors.New("out of order") } })
	member.post("/v1/domains/check-provider", `{"domain":"ours.com"}`).is(200).has(unknown...)
	member.post("/v1/domains/check-provider", `{"domain":"no name"}`).fails(400, "invalid_domain")
	member.post("/v1/domains/check-provider", `{}`).fails(400, "validation_error")
}

func TestAnswersByRDAP(t *testing.T) {
	b, world := newWorld(t, func(c *core.Config) {
		c.RDAP = servicetest.Registry{"edge.com": "1910", "other.com": "292", "quiet.com": "", "xn--bcher-kva.com": "292"}
	})
	b.get("/v1/domains/search?q=free.com").is(200).has("available", "true", "checked_via", "rdap", "price", "<nil>", "registrar", "<nil>", "purchasable", "false", "error", "<nil>")
	b.get("/v1/domains/search?q=b%C3%BCcher.com").is(200).has("domain", "xn--bcher-kva.com", "available", "false", "checked_via", "rdap", "error", "<nil>")
	world.Tell("NS", "live.bad", "ns.else.test.")
	b.get("/v1/domains/search?q=live.bad").is(200).has("available", "false", "checked_via", "dns", "error", "<nil>")
	r := b.post("/v1/domains/search-bulk", `{"domains":["other.com","a.bad","no name","free.com"]}`).is(200).has("count", "4", "available_count", "1",
		"results.0.available", "false", "results.1.available", "<nil>", "results.1.checked_via", "dns", "results.2.available", "<nil>", "results.3.available", "true")
	if !strings.Contains(r.text("results.1.error"), "RDAP") {
		t.Errorf("nothing says why it is unknown: %s", r.raw)
	}
	b.get("/v1/domains/suggest?keywords=other&tlds=com&limit=2").is(200).has("suggestions.0.domain", "getother.com", "suggestions.0.checked_via", "rdap", "count", "2")
	b.post("/v1/domains/check-provider", `{"domain":"www.Edge.com"}`).is(200).has("domain", "www.edge.com", "registrar", "Registrar 1910", "nameservers", "[ns1.else.test ns2.else.test]", "is_edge", "true", "checked_via", "rdap")
	b.post("/v1/domains/check-provider", `{"domain":"b\u00fccher.com"}`).is(200).has("domain", "xn--bcher-kva.com", "registrar", "Registrar 292", "is_edge", "false")
	for _, name := range []string{"quiet.com", "free.com"} {
		b.post("/v1/domains/check-provider", `{"domain":"`+name+`"}`).is(200).has("domain", name, "registrar", "<nil>", "nameservers", "[]", "is_edge", "false")
	}
	b.post("/v1/domains/check-provider", `{"domain":"live.bad"}`).is(200).has("registrar", "<nil>", "nameservers", "[ns.else.test]", "checked_via", "dns")
	b.Core.Config.Sandbox = false
	b.post("/v1/domains/check-provider", `{"domain":"a.bad"}`).fails(502, "upstream_error").has("error.details.0.field", "rdap")
}
