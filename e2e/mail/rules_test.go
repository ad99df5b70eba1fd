package mail

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/smtp"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestRulesUnderKills kills the server while mail arrives in two mailboxes that file, copy, forward
// and answer it by themselves: each copy is filed once, and each reply and forward is queued once.
// A second one leaves only where the kill fell between the end of DATA and the commit of its
// answer. The full size is `make soak-rules`.
func TestRulesUnderKills(t *testing.T) {
	t.Parallel()
	messages, kills := 10, 5
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		messages, kills = 300, 120
	}
	const inFlight = 36
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var mu, starting sync.Mutex
	got := map[string]int{} // by recipient and subject
	relay := rig.Serve(t, func(c net.Conn) { rig.KeepSubjects(c, &mu, got) })
	host, port, _ := net.SplitHostPort(relay)
	world := rig.NewFakeResolver(t) // automatic replies go to senders that SPF proves
	world.Set(t, "far.test", "TXT", `"v=spf1 ip4:127.0.0.0/8 -all"`)
	world.Set(t, "example.test", "NS", "ns1.mailstead.test.", "ns2.mailstead.test.")
	i := rig.Start(t, rig.GenerousLimits+fmt.Sprintf("[[relay]]\nname='r1'\nkind='custom'\nhost=%q\nport=%s\ntls='none'\ndkim=false\n", host, port), "--outbound", "relay", "--resolver", world.Addr)
	world.Delegate(i.Ready.DNS)
	i.AddDomain("example.test")
	ann, bob := i.AddMailbox("ann@example.test", "correct horse"), i.AddMailbox("bob@example.test", "correct horse")
	action := func(kind, value string) map[string]any { return map[string]any{"type": kind, "value": value} }
	i.Want(201, "POST", "/v1/email-users/"+ann+"/rules", map[string]any{"name": "All", "actions": []any{
		action("copy", "archive"), action("forward", "onward@far.test"), action("reply", "I answer everything."),
	}}, nil)
	i.Want(201, "POST", "/v1/email-users/"+bob+"/rules", map[string]any{"name": "Moved", "actions": []any{action("move", "archive")}}, nil)
	i.Want(200, "PUT", "/v1/email-users/"+bob+"/vacation", map[string]any{"enabled": true, "text": "I am away."}, nil)

	// Bring the messages, each until it is acknowledged, while the server is killed.
	brought := make(chan struct{})
	acknowledged := map[string]bool{}
	go func() {
		defer close(brought)
		for n := range messages {
			for try := 0; ; try++ {
				subject := fmt.Sprintf("s%d.%d", n, try)
				sender := subject + "@far.test"
				text := "From: " + sender + "\r\nTo: ann@example.test, bob@example.test\r\nSubject: " + subject + "\r\nMessage-ID: <" + sender + ">\r\n\r\nhello\r\n"
				starting.Lock()
				addr := i.Ready.SMTP
				starting.Unlock()
				err := smtp.SendMail(addr, nil, sender, []string{"ann@example.test", "bob@example.test"}, []byte(text))
				if err == nil {
					acknowledged[subject] = true
					break
				}
				time.Sleep(20 * time.Millisecond) // between two tries
			}
			time.Sleep(30 * time.Millisecond) // messages come until the last kill
		}
	}()
	for range kills {
		time.Sleep(time.Duration(50+random.IntN(300)) * time.Millisecond) // the kill comes at any moment
		i.Kill()
		starting.Lock()
		i.Start()
		starting.Unlock()
	}
	<-brought
	sent := func(subject string) []string {
		return []string{"onward@far.test " + subject, subject + "@far.test Auto: " + subject}
	}
	leaves := func(key string) int { // each mailbox sends one of the automatic replies
		if strings.Contains(key, "Auto: ") {
			return 2
		}
		return 1
	}
	complete := func() bool {
		mu.Lock()
		defer mu.Unlock()
		for subject := range acknowledged {
			for _, key := range sent(subject) {
				if got[key] < leaves(key) {
					return false
				}
			}
		}
		return true
	}
	for end := time.Now().Add(time.Minute + time.Duration(messages)*time.Second); !complete(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			mu.Lock()
			defer mu.Unlock()
			t.Fatalf("a reply or forward has not left: %v of %v", got, acknowledged)
		}
	}

	for _, place := range []string{ann + "/inbox?", ann + "/inbox?folder=archive&", bob + "/inbox?folder=archive&"} {
		held := map[string]int{}
		i.EachRow("/v1/email-users/"+place, func(subject, _ string) { held[subject]++ })
		for subject, n := range held {
			if n != 1 {
				t.Errorf("%s has %s %d times", place, subject, n)
			}
		}
		for subject := range acknowledged {
			if held[subject] != 1 {
				t.Errorf("%s has %s %d times", place, subject, held[subject])
			}
		}
	}
	queued := map[string]int{}
	count := func() (wrong string) {
		clear(queued)
		i.EachRow("/v1/messages?", func(subject, recipient string) { queued[recipient+" "+subject]++ })
		for key, n := range queued {
			if n != leaves(key) {
				wrong = fmt.Sprintf("%s was queued %d times, want %d", key, n, leaves(key))
			}
		}
		return wrong
	}
	// What was accepted and not acknowledged is answered too.
	for end := time.Now().Add(20 * time.Second); count() != "" && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
	}
	if wrong := count(); wrong != "" {
		t.Error(wrong)
	}
	second := 0
	mu.Lock()
	for key := range queued {
		second += max(0, got[key]-leaves(key))
	}
	mu.Unlock()
	if len(queued) < 2*len(acknowledged) {
		t.Errorf("%d messages and replies were queued for %d messages", len(queued), len(acknowledged))
	}
	t.Logf("%d messages, %d kills: %d second copies", len(acknowledged), kills, second)
	if second > kills*inFlight {
		t.Errorf("%d second copies", second)
	}
	i.Stop()
	i.Check()
}

// TestServersThatAnswerEachOther: two servers have mailboxes that answer every message, by a rule
// and by an automatic reply. A message from one to the other is answered once, and then there is
// silence, although nothing but the messages tells one server of the other.
func TestServersThatAnswerEachOther(t *testing.T) {
	t.Parallel()
	smtpOf := [2]string{rig.FreePortOn(t, "127.0.0.1"), rig.FreePortOn(t, "127.0.0.1")}
	var servers [2]*rig.Instance
	var boxes [2]string
	for n, domain := range []string{"near.test", "far.test"} {
		config := fmt.Sprintf("[[relay]]\nname='other'\nkind='custom'\nhost='127.0.0.1'\nport=%s\ntls='none'\n", smtpOf[1-n])
		world := rig.NewFakeResolver(t) // automatic replies go to senders that SPF proves
		world.Set(t, []string{"far.test", "near.test"}[n], "TXT", `"v=spf1 ip4:127.0.0.0/8 -all"`)
		world.Set(t, domain, "NS", "ns1.mailstead.test.", "ns2.mailstead.test.")
		i := rig.Start(t, rig.GenerousLimits+config, "--outbound", "relay", "--smtp", "127.0.0.1:"+smtpOf[n], "--resolver", world.Addr)
		world.Delegate(i.Ready.DNS)
		i.AddDomain(domain)
		boxes[n] = i.AddMailbox("me@"+domain, "correct horse")
		i.Want(200, "PUT", "/v1/email-users/"+boxes[n]+"/vacation", map[string]any{"enabled": true, "text": "I am away from " + domain}, nil)
		i.Want(201, "POST", "/v1/email-users/"+boxes[n]+"/rules", map[string]any{"name": "Answer", "actions": []any{
			map[string]any{"type": "reply", "value": "I answer from " + domain},
		}}, nil)
		servers[n] = i
	}
	sent := func(n int) (subjects []string) {
		var list struct {
			Data []struct{ Subject, Status string }
		}
		servers[n].Want(200, "GET", "/v1/messages?limit=100", nil, &list)
		for _, m := range list.Data {
			subjects = append(subjects, m.Subject+" "+m.Status)
		}
		slices.Sort(subjects)
		return subjects
	}
	servers[0].Want(200, "POST", "/v1/email-users/"+boxes[0]+"/inbox/send", map[string]any{"to": "me@far.test", "subject": "Hello", "text": "Are you there?"}, nil)
	servers[1].Until("the other has answered", func() bool { return len(sent(1)) == 1 })
	servers[0].Until("the answer is there", func() bool { return len(servers[0].Inbox(boxes[0])) == 1 })
	time.Sleep(2 * time.Second) // a loop would be at its tenth round
	if got := strings.Join(sent(0), ", "); got != "Hello relayed" {
		t.Errorf("the first server has sent: %s", got)
	}
	if got := strings.Join(sent(1), ", "); got != "Auto: Hello relayed" {
		t.Errorf("the other server has sent: %s", got)
	}

	// The other way, it is the same; and whoever has been answered is not answered again.
	for range 2 {
		servers[1].Want(200, "POST", "/v1/email-users/"+boxes[1]+"/inbox/send", map[string]any{"to": "me@near.test", "subject": "And you", "text": "Are you there?"}, nil)
	}
	servers[0].Until("the first has answered", func() bool { return len(sent(0)) == 2 })
	servers[1].Until("the answer is there", func() bool { return len(servers[1].Inbox(boxes[1])) == 2 })
	time.Sleep(2 * time.Second) // a needless answer would come in this time
	if a, b := len(sent(0)), len(sent(1)); a != 2 || b != 3 {
		t.Errorf("sent by the first %v, by the other %v", sent(0), sent(1))
	}
}
