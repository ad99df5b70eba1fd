package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/smtp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/internal/soak"
)

// killAfter kills the server once do has counted up to n, or has ended.
func killAfter(i *rig.Instance, n int, do func(count func())) {
	var done atomic.Int64
	reached, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		do(func() {
			if done.Add(1) == int64(n) {
				reached <- struct{}{}
			}
		})
	}()
	select {
	case <-reached:
	case <-ended:
	}
	i.Kill()
	<-ended
}

// TestKillWhileSending: a send with an Idempotency-Key that is repeated after a crash is sent once.
func TestKillWhileSending(t *testing.T) {
	t.Parallel()
	i, ann := rig.StartWithMailbox(t)
	bob := i.AddMailbox("bob@example.test", "battery staple")
	const sends = 200
	post := func(n int) (status int, err error) {
		body, _ := json.Marshal(map[string]any{"to": "bob@example.test", "subject": fmt.Sprint("send ", n), "text": "hello"})
		req, err := http.NewRequest("POST", "http://"+i.Ready.HTTP+"/v1/email-users/"+ann+"/inbox/send", bytes.NewReader(body))
		if err != nil {
			return 0, err
		}
		req.Header.Set("Authorization", "Bearer "+i.Token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", fmt.Sprint("key ", n))
		resp, err := i.HTTP.Do(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	for _, after := range []int{10, 40, 100, sends} {
		killAfter(i, after, func(count func()) {
			var all sync.WaitGroup
			for n := range sends {
				all.Go(func() {
					if status, err := post(n); err == nil && status == 200 {
						count()
					}
				})
			}
			all.Wait()
		})
		i.Start()
	}
	for n := range sends {
		if status, err := post(n); err != nil || status != 200 {
			t.Errorf("send %d in the end: %d, %v", n, status, err)
		}
	}
	arrived := map[string]int{}
	i.Until("everything arrives", func() bool {
		clear(arrived)
		for _, r := range i.Inbox(bob) {
			arrived[r.Subject]++
		}
		return len(arrived) == sends
	})
	rig.WaitUntilSent(i)
	for subject, n := range arrived {
		if n != 1 {
			t.Errorf("%q arrived %d times", subject, n)
		}
	}
	i.Check()
}

// TestKillWhileDeletingADomain: the deletion goes on after each crash, and leaves nothing.
func TestKillWhileDeletingADomain(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits)
	domain := i.AddDomain("example.test")
	var users []map[string]string
	for n := range 30 {
		users = append(users, map[string]string{"username": fmt.Sprint("user", n), "password": "correct horse"})
	}
	var made struct{ Created int }
	i.Want(200, "POST", "/v1/email-users/bulk", map[string]any{"domain": "example.test", "users": users}, &made)
	c := rig.TalkTo(t, i.Ready.SMTP)
	for n := range 67 {
		c.Say("MAIL FROM:<bob@elsewhere.test>")
		for k := range 30 {
			c.Say(fmt.Sprintf("RCPT TO:<user%d@example.test>", k))
		}
		c.Say("DATA")
		if code, text := c.Say(bulk(fmt.Sprint(n), 3000) + "."); code != 250 {
			t.Fatal(text)
		}
	}
	var job struct {
		ID     string `json:"job_id"`
		Status string
	}
	i.Want(202, "DELETE", "/v1/domains/"+domain, nil, &job)
	kills := 0
	for ; kills < 6; kills++ {
		time.Sleep(time.Duration(20+30*kills) * time.Millisecond) // each kill comes a little later
		i.Kill()
		i.Start()
		if i.Want(200, "GET", "/v1/jobs/"+job.ID, nil, &job); job.Status == "completed" {
			break
		}
	}
	i.Until("the job is done", func() bool {
		i.Want(200, "GET", "/v1/jobs/"+job.ID, nil, &job)
		return job.Status == "completed"
	})
	t.Logf("%d mailboxes with 2010 messages deleted through %d crashes", made.Created, kills)
	i.Want(404, "GET", "/v1/domains/"+domain, nil, nil)
	var left struct{ Data []any }
	i.Want(200, "GET", "/v1/email-users", nil, &left)
	var usage struct{ Storage struct{ Messages int } }
	i.Want(200, "GET", "/v1/account/usage", nil, &usage)
	if len(left.Data) != 0 || usage.Storage.Messages != 0 {
		t.Errorf("%d mailboxes and %d messages are left", len(left.Data), usage.Storage.Messages)
	}
	deleted := map[string]int{}
	cursor := ""
	for {
		var page struct {
			Data       []struct{ Data struct{ Email string } }
			Pagination struct{ Cursor *string }
		}
		i.Want(200, "GET", "/v1/events?type=email_user.deleted&limit=100"+cursor, nil, &page)
		for _, e := range page.Data {
			deleted[e.Data.Email]++
		}
		if page.Pagination.Cursor == nil {
			break
		}
		cursor = "&cursor=" + *page.Pagination.Cursor
	}
	for email, n := range deleted {
		if n != 1 {
			t.Errorf("%s was deleted %d times", email, n)
		}
	}
	if len(deleted) != 30 {
		t.Errorf("%d events of 30", len(deleted))
	}
	i.Check()
}

// TestKillWhileIMAPChanges: what was appended is there, what was moved is in one place, what was
// expunged is gone.
func TestKillWhileIMAPChanges(t *testing.T) {
	t.Parallel()
	i, _ := rig.StartWithMailbox(t)
	acked := map[string]string{} // subject to where it must be; "" for nowhere
	var mu sync.Mutex
	for round := range 3 {
		killAfter(i, 40+30*round, func(count func()) {
			var clients sync.WaitGroup
			for n := range 6 {
				clients.Go(func() {
					for k := range 100 {
						id := fmt.Sprintf("round %d client %d message %d", round, n, k)
						where, err := changeOne(i.Ready.IMAP, id, k%3)
						mu.Lock()
						if where != "unknown" {
							acked[id] = where
						}
						mu.Unlock()
						if err != nil {
							return
						}
						count()
					}
				})
			}
			clients.Wait()
		})
		i.Start()
	}
	found := map[string][]string{}
	c := i.ReadMail("ann@example.test", "correct horse")
	for _, folder := range []string{"INBOX", "Archive"} {
		s, err := c.Select(folder, nil).Wait()
		if err != nil {
			t.Fatal(err)
		}
		if s.NumMessages == 0 {
			continue
		}
		got, err := c.Fetch(imap.SeqSet{{Start: 1, Stop: 0}}, &imap.FetchOptions{Envelope: true}).Collect()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range got {
			found[m.Envelope.Subject] = append(found[m.Envelope.Subject], folder)
		}
	}
	for id, where := range acked {
		if got := strings.Join(found[id], " "); got != where {
			t.Errorf("%s is in %q, want %q", id, got, where)
		}
	}
	for id, where := range found {
		if len(where) > 1 {
			t.Errorf("%s is in %v", id, where)
		}
	}
	t.Logf("%d changes acknowledged, %d messages there", len(acked), len(found))
	i.Check()
}

// changeOne appends a message and then leaves it, moves it or expunges it. It tells where the
// message must be by what was acknowledged: "unknown" where the last answer did not come.
func changeOne(addr, id string, what int) (where string, err error) {
	c, err := imapclient.DialInsecure(addr, nil)
	if err != nil {
		return "unknown", err
	}
	defer c.Close()
	if err := c.Login("ann@example.test", "correct horse").Wait(); err != nil {
		return "unknown", err
	}
	text := rig.Letter(id)
	a := c.Append("INBOX", int64(len(text)), nil)
	_, _ = a.Write([]byte(text))
	_ = a.Close()
	data, err := a.Wait()
	if err != nil {
		return "unknown", err
	}
	if what == 0 {
		return "INBOX", nil
	}
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		return "INBOX", err
	}
	uid := imap.UIDSetNum(data.UID)
	if what == 1 {
		if _, err := c.Move(uid, "Archive").Wait(); err != nil {
			return "unknown", err
		}
		return "Archive", nil
	}
	if err := c.Store(uid, &imap.StoreFlags{Op: imap.StoreFlagsAdd, Flags: []imap.Flag{imap.FlagDeleted}}, nil).Close(); err != nil {
		return "INBOX", err
	}
	if err := c.UIDExpunge(uid).Close(); err != nil {
		return "unknown", err
	}
	return "", nil
}

// TestKillWhileTelling: every event reaches its receiver, under one id, however often the server
// dies meanwhile.
func TestKillWhileTelling(t *testing.T) {
	t.Parallel()
	hook := rig.NewWebhookReceiver(t)
	i, _ := rig.StartWithMailbox(t, "--ca-file", hook.CAFile)
	const events = 150
	for n := range events {
		if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter(fmt.Sprint("event ", n))); err != nil {
			t.Fatal(err)
		}
		if n%50 == 0 && n > 0 {
			i.Kill()
			i.Start()
		}
		if n == 0 {
			hook.Subscribe(i, "email.received")
		}
	}
	i.Kill()
	i.Start()
	i.Until("every event is told", func() bool { return len(hook.EventIDs("email.received", "subject")) == events-1 })
	for subject, ids := range hook.EventIDs("email.received", "subject") {
		if len(ids) != 1 {
			t.Errorf("%s was told as %v", subject, ids)
		}
	}
	i.Check()
}

// TestStopUnderLoad: SIGTERM while mail comes and goes ends the server well and soon, and nothing
// acknowledged is lost.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	i, ann := rig.StartWithMailbox(t)
	bob := i.AddMailbox("bob@example.test", "battery staple")
	var mu sync.Mutex
	acked := map[string]bool{}
	var load sync.WaitGroup
	var stopping atomic.Bool
	note := func(id string) {
		mu.Lock()
		defer mu.Unlock()
		acked[id] = true
	}
	for n := range 30 {
		load.Go(func() {
			for k := 0; !stopping.Load() || k < 3; k++ {
				id := fmt.Sprintf("received %d %d", n, k)
				if rig.Transmit(i.Ready.SMTP, "bob@example.test", bulk(id, 1000+n*n*k)) != nil {
					return
				}
				note(id)
			}
		})
	}
	url, token, client := "http://"+i.Ready.HTTP+"/v1/email-users/"+ann+"/inbox/send", i.Token, i.HTTP
	for n := range 10 {
		load.Go(func() {
			for k := 0; ; k++ {
				id := fmt.Sprintf("sent %d %d", n, k)
				body, _ := json.Marshal(map[string]any{"to": "bob@example.test", "subject": id, "text": "hello"})
				req, _ := http.NewRequest("POST", url, bytes.NewReader(body))
				req.Header.Set("Authorization", "Bearer "+token)
				req.Header.Set("Content-Type", "application/json")
				resp, err := client.Do(req)
				if err != nil {
					return
				}
				resp.Body.Close()
				if resp.StatusCode != 200 {
					return
				}
				note(id)
			}
		})
	}
	idle := rig.TalkTo(t, i.Ready.SMTP)
	reader := i.ReadMail("ann@example.test", "correct horse")
	i.Until("mail comes and goes", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(acked) >= 100
	})
	start := time.Now()
	stopping.Store(true)
	_ = i.Cmd.Process.Signal(syscall.SIGTERM)
	if err := i.Cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	took := time.Since(start)
	if took > 25*time.Second {
		t.Errorf("it took %s to stop", took)
	}
	load.Wait()
	t.Logf("stopped after %s with %d acknowledged", took, len(acked))
	idle.Close()
	reader.Close()
	i.Start()
	stored := map[string]int{}
	i.Until("sent mail arrives", func() bool {
		clear(stored)
		for _, r := range i.Inbox(bob) {
			stored[r.Subject]++
		}
		return len(stored) >= len(acked)
	})
	for id := range acked {
		if stored[id] != 1 {
			t.Errorf("%s was acknowledged and is stored %d times", id, stored[id])
		}
	}
	i.Check()
}

// TestStopWhilePeersHang: a host that stalls, a message and a request that do not end and readers
// that stay cost no more than the 20 s that what runs is given.
func TestStopWhilePeersHang(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes the connections
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	world := rig.NewFakeResolver(t)
	_, port, _ := net.SplitHostPort(silent.Addr().String())
	i := rig.Start(t, rig.GenerousLimits, "--resolver", world.Addr, "--outbound", "direct", "--mx-port", port)
	world.Delegate(i.Ready.DNS)
	world.Set(t, "far.test", "MX", "10 mx.far.test.")
	world.Set(t, "mx.far.test", "A", "127.0.0.1")
	world.Set(t, "mx.far.test", "AAAA")
	i.AddDomain("example.test")
	ann := i.AddMailbox("ann@example.test", "correct horse")
	i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": "x@far.test", "subject": "s", "text": "t"}, nil)
	half := rig.TalkTo(t, i.Ready.SMTP)
	half.Envelope(t, "ann@example.test")
	half.Say("DATA")
	_, _ = io.WriteString(half, "Subject: half of it\r\n")
	upload := rig.Dial(t, i.Ready.HTTP)
	fmt.Fprintf(upload, "POST /v1/webhooks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", i.Token)
	reader := i.ReadMail("ann@example.test", "correct horse")
	appending := reader.Append("INBOX", 1000, nil)
	_, _ = io.WriteString(appending, "Subject: half of it\r\n")
	if _, err := i.ReadMail("ann@example.test", "correct horse").Idle(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // so that the server has read each half, which no answer shows
	start := time.Now()
	i.Stop()
	if took := time.Since(start); took > 30*time.Second { // the machine may be busy
		t.Errorf("it took %s to stop", took)
	} else {
		t.Logf("stopped after %s", took)
	}
	i.Start()
	if rows := i.Inbox(ann); len(rows) != 0 {
		t.Errorf("halves are stored: %+v", rows)
	}
	if r := rig.SendingLog(i)["x@far.test"]; r.Status != "queued" && r.Status != "deferred" {
		t.Errorf("the log: %+v", r)
	}
	i.Kill() // rather than wait for the silent host again
	if out, code := rig.Run(t, "check", "--data", i.Dir); code != 0 {
		t.Errorf("check: %s", out)
	}
}

const crashSenders = 500

// TestKillWhileReceiving kills the program in the middle of 500 concurrent deliveries, several
// times. Every message that was acknowledged must be there once, told of once, and the store must
// be whole.
func TestKillWhileReceiving(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	hook, world := rig.NewWebhookReceiver(t), rig.NewFakeResolver(t)
	i := rig.Start(t, rig.GenerousLimits, "--ca-file", hook.CAFile, "--resolver", world.Addr)
	world.Delegate(i.Ready.DNS)
	i.AddDomain("example.test")
	box := i.AddMailbox("ann@example.test", "correct horse")
	hook.Subscribe(i, "email.received")
	acked := map[string]bool{}
	for round := range soak.Size(3, 10) {
		before := len(acked)
		deliverUntilKilled(i, round, acked)
		if len(acked) == before {
			t.Errorf("round %d: nothing was acknowledged before the kill", round)
		}
		i.Start()
		world.Delegate(i.Ready.DNS)
	}
	stored := map[string]int{}
	for _, r := range i.Inbox(box) {
		stored[r.Subject]++
	}
	for id := range acked {
		if stored[id] != 1 {
			t.Errorf("%s was acknowledged and is stored %d times", id, stored[id])
		}
	}
	for id, n := range stored {
		if n > 1 {
			t.Errorf("%s is stored %d times", id, n)
		}
	}
	for told := 0; told < len(stored); { // however many there are, none may take longer than Until waits
		before := told
		i.Until("another stored message was told of", func() bool {
			told = len(hook.EventIDs("email.received", "subject"))
			return told > before
		})
	}
	if told := len(hook.EventIDs("email.received", "subject")); told != len(stored) {
		t.Errorf("%d messages were told of, and %d are stored", told, len(stored))
	}
	for id, events := range hook.EventIDs("email.received", "subject") {
		if len(events) != 1 {
			t.Errorf("%s has the events %v", id, events)
		}
	}
	t.Logf("%d messages acknowledged, %d stored", len(acked), len(stored))
	i.Stop()
	if out, code := rig.Run(t, "check", "--data", i.Dir); code != 0 {
		t.Errorf("check: %s", out)
	}
}

// deliverUntilKilled starts every sender at once, each on a connection of its own, and kills the
// server once some of their messages were acknowledged.
func deliverUntilKilled(i *rig.Instance, round int, acked map[string]bool) {
	var mu sync.Mutex
	var senders sync.WaitGroup
	some := make(chan struct{}, crashSenders*4)
	for n := range crashSenders {
		senders.Go(func() {
			for k := range 4 {
				id := fmt.Sprintf("round %d sender %d message %d", round, n, k)
				if sendOne(i.Ready.SMTP, id) != nil {
					return
				}
				mu.Lock()
				acked[id] = true
				mu.Unlock()
				some <- struct{}{}
			}
		})
	}
	for range 50 + 60*round {
		select {
		case <-some:
		case <-time.After(10 * time.Second):
			i.T.Errorf("round %d: the deliveries stall", round)
		}
	}
	i.Kill()
	senders.Wait()
}

func sendOne(addr, id string) error {
	c, err := smtp.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Mail("bob@elsewhere.test"); err != nil {
		return err
	}
	if err := c.Rcpt("ann@example.test"); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "From: bob@elsewhere.test\r\nSubject: %s\r\n\r\n%04000d\r\n", id, 0)
	return w.Close()
}
