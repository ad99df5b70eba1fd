package api

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/smtp"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// A simulatedRow is what a test reads of a row of the sending log.
type simulatedRow struct {
	ID, Status, Transport string
	AttemptsLog           []struct{ Code int } `json:"attempts_log"`
}

// simulated reads the row of a recipient with its attempts.
func simulated(i *rig.Instance, recipient string) (row simulatedRow) {
	i.T.Helper()
	var page struct{ Data []simulatedRow }
	i.Want(200, "GET", "/v1/messages?recipient="+strings.ReplaceAll(recipient, "+", "%2B"), nil, &page)
	if len(page.Data) != 1 {
		i.T.Fatalf("%s has %d rows", recipient, len(page.Data))
	}
	i.Want(200, "GET", "/v1/messages/"+page.Data[0].ID, nil, &row)
	return row
}

// refusal is the code of an SMTP answer with its enhanced status; "" for none.
func refusal(err error) string {
	answer := new(textproto.Error)
	if !errors.As(err, &answer) {
		return ""
	}
	status, _, _ := strings.Cut(answer.Msg, " ")
	return fmt.Sprint(answer.Code, " ", status)
}

func (r simulatedRow) codes() string {
	var out []int
	for _, a := range r.AttemptsLog {
		out = append(out, a.Code)
	}
	return strings.Trim(fmt.Sprint(out), "[]")
}

// TestSimulator: mail to the simulator by submission and by the API, with capture on, has the real
// rows, events, webhooks and answers, also when the server is killed and stopped between attempts.
func TestSimulator(t *testing.T) {
	t.Parallel()
	const at = "@simulator.mail.mailstead.test"
	h := rig.NewWebhookReceiver(t)
	i := rig.Start(t, rig.GenerousLimits, "--ca-file", h.CAFile)
	i.AddDomain("example.test")
	ann := i.AddMailbox("ann@example.test", "correct horse")
	i.Want(200, "PATCH", "/v1/email-users/"+ann, map[string]any{"daily_send_limit": 1}, nil)
	h.Subscribe(i, "email.delivered", "email.delayed", "email.bounced", "email.complained", "email.received")
	var refused struct{ Error struct{ Code string } }
	if status := i.Do("POST", "/v1/domains/setup", map[string]any{"domain": "below." + at[1:]}, &refused); status != 400 || refused.Error.Code != "invalid_domain" {
		t.Errorf("a domain below the simulator: %d %+v", status, refused)
	}

	// From outside nobody is there, and our senders learn at once of whom there is not.
	c, err := smtp.Dial(i.Ready.SMTP)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Mail("x@far.test"); err != nil {
		t.Fatal(err)
	}
	if err := c.Rcpt("ok" + at); refusal(err) != "550 5.1.1" {
		t.Errorf("from outside: %v", err)
	}
	own, err := smtp.Dial(i.Ready.Submission)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if err := own.Auth(rig.PlainAuth{User: "ann@example.test", Password: "correct horse"}); err != nil {
		t.Fatal(err)
	}
	if err := own.Mail("ann@example.test"); err != nil {
		t.Fatal(err)
	}
	if err := own.Rcpt("nobody" + at); refusal(err) != "550 5.1.1" {
		t.Errorf("RCPT of an unknown recipient: %v", err)
	}

	names := strings.Fields("ok bounce defer3 slow complain reply full")
	var all []string
	for _, way := range []string{"smtp", "api"} {
		var to []string
		for _, name := range names {
			to = append(to, name+"+"+way+at)
		}
		all = append(all, to...)
		if way == "smtp" {
			rig.Submit(t, i, "ann@example.test", "correct horse", to, "From: ann@example.test\r\nTo: you\r\nSubject: by smtp\r\n\r\nHello.\r\n")
			continue
		}
		var sent struct{ Transport string }
		i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": to, "subject": "by api", "text": "Hello."}, &sent)
		if sent.Transport != "simulator" {
			t.Errorf("sent by %s", sent.Transport)
		}
	}
	codes := func(name, want string) {
		t.Helper()
		for _, way := range []string{"smtp", "api"} {
			recipient, got := name+"+"+way+at, ""
			i.Until(recipient+" has "+want, func() bool { got = simulated(i, recipient).codes(); return got == want })
		}
	}
	codes("ok", "250")
	codes("defer3", "451")
	codes("full", "452")
	i.Kill()
	i.Start()
	advance(i, 70*time.Second)
	codes("slow", "250")
	codes("full", "452 552")
	codes("defer3", "451 451")
	i.Stop()
	i.Start()
	codes("defer3", "451 451")
	advance(i, 6*time.Minute)
	codes("defer3", "451 451 451")
	i.Kill()
	i.Start()
	advance(i, 20*time.Minute)
	codes("defer3", "451 451 451 250")

	status := map[string]string{
		"ok": "sent", "bounce": "bounced", "defer3": "sent", "slow": "sent", "complain": "complained", "reply": "sent", "full": "bounced",
	}
	for _, recipient := range all {
		name, _, _ := strings.Cut(recipient, "+")
		i.Until(recipient+" is "+status[name], func() bool { return simulated(i, recipient).Status == status[name] })
		if row := simulated(i, recipient); row.Transport != "simulator" {
			t.Errorf("%s went by %s", recipient, row.Transport)
		}
	}
	for kind, want := range map[string]string{
		"email.delivered": "complain defer3 ok reply slow", "email.delayed": "defer3 full", "email.bounced": "bounce full", "email.complained": "complain",
	} {
		var expected []string
		for _, name := range strings.Fields(want) {
			expected = append(expected, name+"+api"+at, name+"+smtp"+at)
		}
		slices.Sort(expected)
		var got []string
		i.Until(kind+" came by webhook", func() bool {
			got = nil
			for recipient, ids := range h.EventIDs(kind, "recipient") {
				got = append(got, recipient)
				if len(ids) != 1 {
					t.Errorf("%s for %s has %d events", kind, recipient, len(ids))
				}
			}
			slices.Sort(got)
			return slices.Equal(got, expected)
		})
	}

	// The reports of bounces, and the answers in their conversations.
	var page struct {
		Data []struct{ Subject, From string }
	}
	subjects := func() (out []string) {
		i.Want(200, "GET", "/v1/email-users/"+ann+"/inbox?limit=100", nil, &page)
		for _, m := range page.Data {
			out = append(out, m.Subject)
			if !strings.Contains(m.From, at) {
				t.Errorf("%s is from %s", m.Subject, m.From)
			}
		}
		slices.Sort(out)
		return out
	}
	want := []string{"Re: by api", "Re: by smtp"}
	for range 4 {
		want = append(want, "Undelivered mail returned to sender")
	}
	i.Until("reports and answers are there", func() bool { return slices.Equal(subjects(), want) })
	var suppressed struct{ Data []any }
	if i.Want(200, "GET", "/v1/suppressions", nil, &suppressed); len(suppressed.Data) != 0 {
		t.Errorf("suppressed: %v", suppressed.Data)
	}
}

// TestSimulatorUnderKills: the server is killed while it makes attempts. Each message is deferred
// three times and accepted once, each complaint is told once, and each answer comes once.
func TestSimulatorUnderKills(t *testing.T) {
	t.Parallel()
	const at = "@simulator.mail.mailstead.test"
	each, kills := 12, 8
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		each, kills = 40, 80
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	i := rig.Start(t, rig.GenerousLimits)
	i.AddDomain("example.test")
	ann := i.AddMailbox("ann@example.test", "correct horse")
	recipients := func(name string) (out []string) {
		for n := range each {
			out = append(out, fmt.Sprintf("%s+%d%s", name, n, at))
		}
		return out
	}
	for n := range kills {
		if n < 3 { // all of a kind at once, so that they are under way when the kill comes
			to := recipients([]string{"defer3", "complain", "reply"}[n])
			for _, r := range to {
				i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": []string{r}, "subject": r, "text": "Hello."}, nil)
			}
		}
		advance(i, 40*time.Second)
		time.Sleep(time.Duration(random.IntN(25)) * time.Millisecond) // the kill comes at any moment
		i.Kill()
		i.Start()
	}
	for range 3 {
		advance(i, 20*time.Minute)
	}
	for _, r := range recipients("defer3") {
		got := ""
		i.Until(r+" is accepted", func() bool {
			row := simulated(i, r)
			got = row.codes()
			if row.Status == "deferred" {
				advance(i, 20*time.Minute)
			}
			return row.Status == "sent"
		})
		if got != "451 451 451 250" {
			t.Errorf("%s: %s", r, got)
		}
	}
	var page struct {
		Data []struct{ Subject string }
	}
	i.Until("all complaints and answers are there", func() bool {
		for _, r := range recipients("complain") {
			if simulated(i, r).Status != "complained" {
				return false
			}
		}
		i.Want(200, "GET", "/v1/email-users/"+ann+"/inbox?limit=100", nil, &page)
		return len(page.Data) >= each
	})
	answers := map[string]int{}
	for _, m := range page.Data {
		answers[m.Subject]++
	}
	for _, r := range recipients("reply") {
		if answers["Re: "+r] != 1 {
			t.Errorf("%s has answered %d times", r, answers["Re: "+r])
		}
	}
	if len(answers) != each {
		t.Errorf("%d subjects in the inbox", len(answers))
	}
	for _, name := range []string{"complain", "reply"} {
		for _, r := range recipients(name) {
			if got := simulated(i, r).codes(); got != "250" {
				t.Errorf("%s: %s", r, got)
			}
		}
	}
}
