package handlers

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
)

// Suggestions are the people written to, the latest first, by the beginning of the address or of a
// word of the name.
func TestSuggestAddresses(t *testing.T) {
	b := newSandbox(t, nil)
	path := "/v1/email-users/" + b.box("ann")
	b.get(path+"/addresses").is(200).has("count", "0")
	for _, to := range []string{`"Zoe Miller <zoe@far.test>"`, `["bob@far.test","Carla de Mille <carla@far.test>"]`, `"ZOE@far.test"`} {
		b.post(path+"/inbox/send", `{"to":`+to+`,"bcc":"quiet@far.test","subject":"s","text":"t"}`).is(200)
	}
	b.get(path+"/addresses").is(200).has("count", "4", "data.0.email", "ZOE@far.test", "data.0.name", "<nil>", "data.1.email", "quiet@far.test")
	b.get(path+"/addresses?q=MIL").is(200).has("count", "1", "data.0.email", "carla@far.test", "data.0.name", "Carla de Mille")
	b.get(path+"/addresses?q=bo").is(200).has("count", "1")
	b.get(path+"/addresses?q=ob").is(200).has("count", "0")
	b.get(path+"/addresses?limit=1").is(200).has("count", "1")
	b.get(path+"/addresses?limit=0").fails(400, "validation_error")
}

// In a shared mailbox a message says who answered it, in whatever folder it is.
func TestAnsweredBy(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	path := "/v1/email-users/" + ann + "/inbox"
	bob := b.box("bob")
	for n, id := range []string{"one", "two"} {
		b.post("/v1/email-users/"+bob+"/inbox/send", `{"to":"ann@boxes.test","message_id":"<`+id+`@far.test>","subject":"`+id+`","text":"t"}`).is(200)
		b.until(path, "pagination.count", fmt.Sprint(n+1))
	}
	b.get(path+"/1").is(200).has("answered_by", "<nil>", "is_answered", "false")
	b.post("/v1/inbox/bulk-move", `{"to":"archive","messages":[{"uid":"1","mailbox":"ann@boxes.test"}]}`).is(200).has("moved", "1")
	b.post(path+"/send", `{"to":"far@far.test","subject":"Re","text":"t","in_reply_to":"<one@far.test>"}`).is(200)
	b.get(path+"?folder=archive").is(200).has("data.0.is_answered", "true", "data.0.answered_by.kind", "token")
	web := b.browser().signInTo("ann@boxes.test", "correct horse")
	web.ask("POST", path+"/send", `{"to":"far@far.test","subject":"Re","text":"t","in_reply_to":"<two@far.test>"}`).is(200)
	b.get(path+"/2").is(200).has("answered_by.kind", "mailbox", "answered_by.name", "ann@boxes.test")
	team := b.browser().signInTo("owner@example.test", "correct horse")
	team.ask("POST", path+"/send", `{"to":"far@far.test","subject":"Re","text":"t","in_reply_to":"<two@far.test>"}`).is(200)
	b.get(path+"/2").is(200).has("answered_by.kind", "team", "answered_by.name", "owner@example.test")
}

// Unsubscribing is one POST without a redirect, and only where a valid signature covers the offer.
func TestUnsubscribeMessage(t *testing.T) {
	asked, status := []string{}, http.StatusOK
	list := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, r.Method+" "+r.URL.Path+" "+string(body))
		if status == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
	}))
	defer list.Close()
	world := &servicetest.World{}
	b := newSandbox(t, func(c *core.Config) {
		c.Resolver = world
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AddCert(list.Certificate())
	})
	path := "/v1/email-users/" + b.box("ann") + "/inbox/"
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	world.Tell("TXT", "k._domainkey.list.test", "v=DKIM1; k=ed25519; p="+base64.StdEncoding.EncodeToString(public))
	uid := 0
	put := func(url, post string, covered ...string) string {
		t.Helper()
		text := "From: news@list.test\r\nSubject: News\r\nList-Unsubscribe: <mailto:x@list.test>, <" + url + ">\r\n"
		if post != "" {
			text += "List-Unsubscribe-Post: " + post + "\r\n"
		}
		text += "\r\nhello\r\n"
		if len(covered) > 0 {
			var signed strings.Builder
			err := dkim.Sign(&signed, strings.NewReader(text), &dkim.SignOptions{
				Domain: "list.test", Selector: "k", Signer: private, Hash: crypto.SHA256, HeaderKeys: append([]string{"From"}, covered...),
				HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
			})
			if err != nil {
				t.Fatal(err)
			}
			text = signed.String()
		}
		b.Put(t, "ann@boxes.test", strings.ReplaceAll(text, "\r\n", "\n"), mail{})
		uid++
		return path + fmt.Sprint(uid) + "/unsubscribe"
	}
	both := []string{"List-Unsubscribe", "List-Unsubscribe-Post"}
	one := "List-Unsubscribe=One-Click"
	good := put(list.URL+"/off", one, both...)
	for name, bad := range map[string]string{
		"no offer":     put(list.URL+"/off", "", "List-Unsubscribe"),
		"not signed":   put(list.URL+"/off", one),
		"half covered": put(list.URL+"/off", one, "List-Unsubscribe"),
		"plain http":   put("http://list.test/off", one, both...),
		"nobody there": put("https://127.0.0.1:1/off", one, both...),
	} {
		if r := b.post(bad, nil); r.status != 409 || r.text("error.code") != "cannot_unsubscribe" {
			t.Errorf("%s: %d %s", name, r.status, r.raw)
		}
	}
	if len(asked) > 0 {
		t.Errorf("asked %v", asked)
	}
	b.post(good, nil).is(200).has("http_status", "200")
	status = http.StatusFound
	b.post(good, nil).is(200).has("http_status", "302")
	status = http.StatusInternalServerError
	b.post(good, nil).is(200).has("http_status", "500")
	want := "POST /off List-Unsubscribe=One-Click"
	if strings.Join(asked, "; ") != want+"; "+want+"; "+want {
		t.Errorf("asked %v", asked)
	}
	b.post(path+"99/unsubscribe", nil).fails(404, "not_found")
}

// An invitation is shown, answered by a message that calendars read, and not after it was
// cancelled.
func TestAnswerInvitation(t *testing.T) {
	b := newSandbox(t, nil)
	ines := b.box("ines")
	path := "/v1/email-users/" + b.post("/v1/email-users", `{"email":"ann@boxes.test","name":"Ann","aliases":["anna@boxes.test"]}`).is(201).text("user_id") + "/inbox"
	event := func(method, uid, more string) string {
		return "From: ines@boxes.test\nMessage-ID: <" + method + uid + "@boxes.test>\nSubject: Berth\nMIME-Version: 1.0\nContent-Type: multipart/alternative; boundary=b\n\n--b\n\nPlease come.\n--b\n" +
			"Content-Type: text/calendar; charset=utf-8; method=" + method + "\n\nBEGIN:VCALENDAR\nMETHOD:" + method + "\nBEGIN:VEVENT\nUID:" + uid + "\nSEQUENCE:1\nSUMMARY:Berth 14\nDTSTART:20261127T130000Z\nDURATION:PT1H\n" +
			"ORGANIZER:mailto:ines@boxes.test\nATTENDEE;CN=Anna;PARTSTAT=NEEDS-ACTION:mailto:anna@boxes.test\nATTENDEE;PARTSTAT=ACCEPTED:mailto:cleo@far.test\nLOCATION:Pier 3\n" + more + "END:VEVENT\nEND:VCALENDAR\n--b--\n"
	}
	b.Put(t, "ann@boxes.test", event("REQUEST", "one", ""), mail{})
	b.Put(t, "ann@boxes.test", "From: x@far.test\nSubject: no invitation\n\nhello\n", mail{})
	b.get(path+"/1").is(200).has("invitation.summary", "Berth 14", "invitation.starts_at", "2026-11-27T13:00:00.000Z", "invitation.ends_at", "2026-11-27T14:00:00.000Z",
		"invitation.organizer", "ines@boxes.test", "invitation.answer", "<nil>", "invitation.location", "Pier 3", "invitation.all_day", "false",
		"invitation.attendees.0.name", "Anna", "invitation.attendees.0.answer", "<nil>", "invitation.attendees.1.email", "cleo@far.test", "invitation.attendees.1.answer", "accepted")
	b.get(path+"/2").is(200).has("invitation", "<nil>")
	b.post(path+"/2/invitation", `{"answer":"accepted"}`).fails(409, "no_invitation")
	b.post(path+"/1/invitation", `{"answer":"perhaps"}`).fails(400, "validation_error")

	b.post(path+"/1/invitation", `{"answer":"tentative"}`).is(200).has("from", "anna@boxes.test", "recipients.0.email", "ines@boxes.test")
	b.get(path+"/1").has("invitation.answer", "tentative")
	inbox := "/v1/email-users/" + ines + "/inbox"
	b.until(inbox, "pagination.count", "1")
	b.post(path+"/1/invitation", `{"answer":"accepted"}`).is(200)
	b.get(path+"/1").has("invitation.answer", "accepted")
	b.until(inbox, "pagination.count", "2")
	raw := string(b.get(inbox + "/2/raw").is(200).raw)
	for _, want := range []string{"Subject: Accepted: Berth 14", "text/calendar; charset=utf-8; method=REPLY", "METHOD:REPLY", "UID:one", "PARTSTAT=ACCEPTED", "mailto:anna@boxes.test"} {
		if !strings.Contains(raw, want) {
			t.Errorf("the answer has no %s:\n%s", want, raw)
		}
	}
	b.get(inbox+"/2").has("invitation", "<nil>") // it is an answer

	b.Put(t, "ann@boxes.test", event("CANCEL", "other", ""), mail{})
	b.post(path+"/1/invitation", `{"answer":"declined"}`).is(200)
	b.until(inbox, "pagination.count", "3")
	b.Put(t, "ann@boxes.test", event("CANCEL", "one", ""), mail{})
	b.post(path+"/1/invitation", `{"answer":"accepted"}`).fails(409, "no_invitation")
	b.get(path+"/4").has("invitation", "<nil>")

	// An answer has the event's date; nothing can be answered to two organizers.
	days := strings.Replace(event("REQUEST", "days", ""), "DTSTART:20261127T130000Z\nDURATION:PT1H", "DTSTART;VALUE=DATE:20261127", 1)
	days = strings.Replace(days, "text/calendar; charset=utf-8; method=REQUEST", `application/ics; name="invite.ics"`, 1)
	b.Put(t, "ann@boxes.test", days, mail{})
	b.get(path+"/5").has("invitation.starts_at", "2026-11-27T00:00:00.000Z", "invitation.ends_at", "2026-11-28T00:00:00.000Z")
	b.post(path+"/5/invitation", `{"answer":"accepted"}`).is(200)
	b.until(inbox, "pagination.count", "4")
	if raw := string(b.get(inbox + "/4/raw").is(200).raw); !strings.Contains(raw, "\nDTSTART;VALUE=DATE:20261127\r\n") {
		t.Errorf("the answer has no date:\n%s", raw)
	}
	b.Put(t, "ann@boxes.test", strings.Replace(event("REQUEST", "two", ""), "mailto:ines@boxes.test", "mailto:ines@boxes.test,bob@boxes.test", 1), mail{})
	b.get(path+"/6").is(200).has("invitation", "<nil>")
	b.post(path+"/6/invitation", `{"answer":"accepted"}`).fails(409, "no_invitation")
	many := b.Put(t, "ann@boxes.test", event("REQUEST", "many", strings.Repeat("ATTENDEE:mailto:x@far.test\n", 120)), mail{})
	b.get(fmt.Sprint(path, "/", many)).is(200).has("invitation.attendees.99.email", "x@far.test", "invitation.attendees.100", "")
}

// A list by conversations has one row for each, the newest message of the folder, with what is in
// every folder.
func TestThreadsOfAList(t *testing.T) {
	b := newSandbox(t, nil)
	ann, bob := "/v1/email-users/"+b.box("ann")+"/inbox", "/v1/email-users/"+b.box("bob")+"/inbox"
	send := func(from, to, id, answers string) {
		t.Helper()
		time.Sleep(2 * time.Millisecond) // two messages of one millisecond are in no order of time
		body := `{"to":"` + to + `","subject":"Re: ` + id + `","text":"t","message_id":"<` + id + `@boxes.test>"`
		if answers != "" {
			body += `,"in_reply_to":"<` + answers + `@boxes.test>"`
		}
		b.post(from+"/send", body+"}").is(200)
	}
	for n, step := range []struct{ from, to, id, answers string }{
		{bob, "ann@boxes.test", "a", ""}, {bob, "ann@boxes.test", "b", ""}, {bob, "ann@boxes.test", "c", "a"},
	} {
		send(step.from, step.to, step.id, step.answers)
		b.until(ann, "pagination.count", fmt.Sprint(n+1))
	}
	send(ann, "bob@boxes.test", "d", "c")
	b.until(bob, "pagination.count", "1")
	r := b.get(ann + "?threads=true").is(200)
	r.has("pagination.count", "2", "data.0.message_id", "<c@boxes.test>", "data.0.thread.messages", "3", "data.0.thread.unread", "2", "data.0.thread.from.0", "bob@boxes.test", "data.0.thread.from.1", "ann@boxes.test")
	r.has("data.1.message_id", "<b@boxes.test>", "data.1.thread.messages", "1", "data.1.thread.unread", "1")
	b.get(ann+"?threads=true&folder=sent").is(200).has("pagination.count", "1", "data.0.message_id", "<d@boxes.test>", "data.0.thread.messages", "3")
	b.get(ann+"?threads=true&folder=all").is(200).has("pagination.count", "2", "data.0.message_id", "<d@boxes.test>")
	b.get("/v1/inbox?threads=true").is(200).has("pagination.count", "3")

	// Pages, and what the newest one of a conversation is among those that pass the filter.
	first := b.get(ann+"?threads=true&limit=1").is(200).has("pagination.count", "1", "data.0.message_id", "<c@boxes.test>")
	b.get(ann+"?threads=true&limit=1&cursor="+first.text("pagination.cursor")).is(200).has("data.0.message_id", "<b@boxes.test>", "pagination.has_more", "false")
	b.patch(ann+"/3", `{"is_read":true}`).is(200)
	b.get(ann+"?threads=true&is_read=false").is(200).has("pagination.count", "2", "data.1.message_id", "<a@boxes.test>", "data.1.thread.messages", "3", "data.1.thread.unread", "1")
	b.get(ann+"?threads=true&q=word").fails(400, "validation_error")
	if strings.Contains(string(b.get(ann).raw), `"thread":`) {
		t.Error("a list that is not grouped has threads")
	}
}
