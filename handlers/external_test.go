package handlers

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/pull/pulltest"
)

// TestExternalInbox: a mailbox that lives elsewhere answers as one that lives here, is changed
// where it lives first, and a server that is down is a 502 that names it.
func TestExternalInbox(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	remote := pulltest.Serve(t, ln)
	remote.Change(func() {
		for n := range 4 {
			remote.Add(fmt.Sprintf("From: A <a@far.test>\r\nTo: me@away.test\r\nSubject: m%d\r\n\r\nhello\r\n", n))
		}
	})
	b := newSandbox(t, nil)
	b.Domain(t, b.Owner.AccountID, "away.test", "external", "complete")
	imap := fmt.Sprintf(`"imap":{"host":"127.0.0.1","port":%d,"security":"none","username":"me","password":"s3cret"}`, remote.Port)
	id := b.post("/v1/email-users", `{"email":"me@away.test","type":"external",`+imap+`}`).is(201).text("id")
	inbox := "/v1/email-users/" + id + "/inbox"
	b.get(inbox).is(200).has("pagination.count", "0", "synced_at", "<nil>")
	b.post(inbox+"/refresh", nil).is(200).has("email", "me@away.test")
	b.until("/v1/jobs?type=inbox_sync", "data.0.status", "completed")
	b.get("/v1/jobs?type=inbox_sync").has("data.0.progress.completed", "4", "data.0.progress.percent", "100")
	list := b.get(inbox).is(200)
	list.has("pagination.count", "4", "data.0.subject", "m3", "data.0.uid", "4", "data.0.uid_validity", "7")
	for _, problem := range compare("external inbox", list.json, parseShape(long(messageShape)+" synced_at|null")) {
		t.Error(problem)
	}
	if list.text("synced_at") == "<nil>" {
		t.Error("synced_at is null after a sync")
	}
	b.get("/v1/events?type=email.received").has("pagination.count", "0")

	b.patch(inbox+"/4", `{"is_read":true}`).is(200).has("is_read", "true", "uid", "4", "mailbox", "me@away.test")
	if m := remote.Find(4); strings.Join(m.Flags, " ") != `\Seen` {
		t.Errorf("flags there: %q", m.Flags)
	}
	b.get(inbox+"/4").has("is_read", "true")
	b.patch(inbox+"/4", `{"is_flagged":true}`).is(200).has("is_flagged", "true", "is_read", "true")
	b.post("/v1/inbox/bulk-mark", `{"is_read":true,"messages":[{"uid":"1","mailbox":"me@away.test"},{"uid":"2","mailbox":"me@away.test"},
		{"uid":"2","mailbox":"me@away.test"},{"uid":"9","mailbox":"me@away.test"}]}`).is(200).has("marked", "3", "failed", "1", "errors.0.uid", "9")
	if got := fmt.Sprint(remote.Find(1).Flags, remote.Find(2).Flags, remote.Find(4).Flags); got != `[\Seen] [\Seen] [\Seen \Flagged]` {
		t.Errorf("flags there: %s", got)
	}
	if n := remote.Count("UID STORE 1:2"); n != 1 {
		t.Errorf("%d commands marked two messages", n)
	}
	remote.Change(func() {
		remote.Manners = func(tag, verb string, _ net.Conn, w io.Writer) bool {
			if verb == "UID STORE" { // and changes nothing
				fmt.Fprintf(w, "%s OK done\r\n", tag)
			}
			return verb == "UID STORE"
		}
	})
	b.patch(inbox+"/4", `{"is_flagged":false}`).fails(502, "upstream_error")
	b.post("/v1/inbox/bulk-mark", `{"is_read":false,"messages":[{"uid":"4","mailbox":"me@away.test"}]}`).is(200).has("marked", "0", "failed", "1")
	remote.Change(func() { remote.Manners = nil })
	b.get(inbox+"/4").has("is_flagged", "true", "is_read", "true")
	b.remove("/v1/inbox/3?mailbox=me@away.test").is(200).has("uid", "3")
	b.post("/v1/inbox/bulk-delete", `{"messages":[{"uid":"2","mailbox":"me@away.test"},{"uid":"2","mailbox":"me@away.test"},{"uid":"3","mailbox":"me@away.test"}]}`).
		is(200).has("deleted", "1", "failed", "2")
	if remote.Find(3) != nil || remote.Find(2) != nil {
		t.Error("what was deleted is still there")
	}
	b.get(inbox).has("pagination.count", "2")

	ln.Close()
	b.patch(inbox+"/4", `{"is_read":false}`).fails(502, "upstream_error").has("error.details.0.field", "127.0.0.1")
	b.remove(inbox+"/4").fails(502, "upstream_error")
	b.post("/v1/inbox/bulk-delete", `{"messages":[{"uid":"4","mailbox":"me@away.test"}]}`).is(200).has("deleted", "0", "failed", "1")
	b.post("/v1/inbox/bulk-mark", `{"is_read":false,"messages":[{"uid":"4","mailbox":"me@away.test"}]}`).is(200).has("marked", "0", "failed", "1")
	b.get(inbox).has("pagination.count", "2", "data.0.is_read", "true")
	b.post("/v1/email-users/"+id+"/inbox/send", `{"to":"a@far.test","subject":"s","text":"t"}`).fails(400, "validation_error")
}
