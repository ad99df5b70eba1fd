package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// An approver is a person who is signed in to the dashboard.
type approver struct {
	url, cookie string
	http        *http.Client
}

// ask calls the API; the status is 0 where the server is not there.
func (a *approver) ask(method, path string, body, out any) (status int) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0
	}
	req, err := http.NewRequest(method, a.url+path, bytes.NewReader(text))
	if err != nil {
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Cookie", a.cookie)
	resp, err := a.http.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if out != nil && json.NewDecoder(resp.Body).Decode(out) != nil {
		return 0
	}
	return resp.StatusCode
}

// A heldMessage is what the test reads of an approval.
type heldMessage struct {
	ApprovalID  string `json:"approval_id"`
	Status      string
	Subject     string
	ContentHash string `json:"content_hash"`
}

// number is that of the message that a subject such as s12.0 is of; -1 for another one.
func (m *heldMessage) number() int {
	n, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, "s"), ".")
	number, err := strconv.Atoi(n)
	if err != nil {
		return -1
	}
	return number
}

// TestApprovalsUnderKills kills the server while programs send over the API and SMTP under a policy
// that wants approval, and a person approves every second message and rejects the others. Each
// message that was acknowledged is held once; each that was approved goes out, and none that was
// rejected ever does. A second copy leaves only where the kill fell between the end of DATA and the
// commit of its answer. The full size is `make soak-approvals`.
func TestApprovalsUnderKills(t *testing.T) {
	t.Parallel()
	messages, kills := 16, 6
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		messages, kills = 600, 200
	}
	const inFlight = 36
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var mu, starting sync.Mutex
	got := map[string]int{} // by recipient and subject
	relay := rig.Serve(t, func(c net.Conn) { rig.KeepSubjects(c, &mu, got) })
	host, port, _ := net.SplitHostPort(relay)
	i := rig.Start(t, rig.GenerousLimits+fmt.Sprintf("[[relay]]\nname='r1'\nkind='custom'\nhost=%q\nport=%s\ntls='none'\ndkim=false\n", host, port), "--outbound", "relay")
	i.AddDomain("example.test")
	ann := i.AddMailbox(rig.AnnsAddress, rig.AnnsPassword)
	policy := map[string]any{"send": "approval"}
	var token struct{ Token string }
	i.Want(201, "POST", "/v1/auth/tokens", map[string]any{"name": "agent", "policy": policy}, &token)
	program := i.AppPassword(ann, map[string]any{"policy": policy})
	cookie := owner(i).cookie

	// What a program hears by SMTP.
	first := "From: " + rig.AnnsAddress + "\r\nTo: x@far.test\r\nSubject: first\r\n\r\nhello\r\n"
	if answer, err := sendBySMTP(i.Ready.Submission, program, first); err != nil || !regexp.MustCompile(`^2\.0\.0 OK: held for approval as apr_\w+$`).MatchString(answer) {
		t.Errorf("by SMTP: %q, %v", answer, err)
	}

	now := func() (person, agent *approver, submission string) {
		starting.Lock()
		defer starting.Unlock()
		url, client := "http://"+i.Ready.HTTP, &http.Client{Timeout: 20 * time.Second}
		return &approver{url, cookie, client}, &approver{url: url, http: client}, i.Ready.Submission
	}

	// Programs send each message until it is acknowledged, and the person decides, while the server
	// is killed.
	sent := make(chan struct{})
	acknowledged := map[string]bool{}
	go func() {
		defer close(sent)
		for n := range messages {
			for try := 0; ; try++ {
				subject := fmt.Sprintf("s%d.%d", n, try)
				_, agent, submission := now()
				ok := false
				if n%4 < 2 {
					ok = sendAs(agent, token.Token, ann, subject)
				} else {
					_, err := sendBySMTP(submission, program, strings.Replace(first, "first", subject, 1))
					ok = err == nil
				}
				if ok {
					acknowledged[subject] = true
					break
				}
				time.Sleep(20 * time.Millisecond) // between two tries
			}
			time.Sleep(100 * time.Millisecond) // messages come until the last kill
		}
	}()
	stop, decided := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(decided)
		for {
			last := false
			select {
			case <-stop:
				last = true
			default:
			}
			person, _, _ := now()
			var page struct{ Data []heldMessage }
			person.ask("GET", "/v1/approvals?status=pending&limit=100", nil, &page)
			for _, m := range page.Data {
				if m.number()%2 == 0 {
					person.ask("POST", "/v1/approvals/"+m.ApprovalID+"/approve", map[string]any{"content_hash": m.ContentHash}, nil)
				} else {
					person.ask("POST", "/v1/approvals/"+m.ApprovalID+"/reject", map[string]any{"note": "no"}, nil)
				}
			}
			if last && len(page.Data) == 0 {
				return
			}
			time.Sleep(10 * time.Millisecond) // between two looks
		}
	}()
	for range kills {
		time.Sleep(time.Duration(50+random.IntN(300)) * time.Millisecond) // the kill comes at any moment
		starting.Lock()
		i.Kill()
		i.Start()
		starting.Unlock()
	}
	<-sent
	close(stop)
	<-decided

	// Each was held once, and was decided as the person did.
	person, _, _ := now()
	approvals, approved := map[string]int{}, 0
	for cursor := ""; ; {
		var page struct {
			Data       []heldMessage
			Pagination struct{ Cursor *string }
		}
		if status := person.ask("GET", "/v1/approvals?limit=100"+cursor, nil, &page); status != 200 {
			t.Fatalf("the approvals: %d", status)
		}
		for _, m := range page.Data {
			approvals[m.Subject]++
			want := "rejected"
			if m.number()%2 == 0 {
				approved++
				want = "approved"
			}
			if m.Status != want {
				t.Errorf("%s is %s, want %s", m.Subject, m.Status, want)
			}
		}
		if page.Pagination.Cursor == nil {
			break
		}
		cursor = "&cursor=" + *page.Pagination.Cursor
	}
	for subject, n := range approvals {
		if n != 1 {
			t.Errorf("%s was held %d times", subject, n)
		}
	}
	for subject := range acknowledged {
		if approvals[subject] != 1 {
			t.Errorf("%s was acknowledged, and held %d times", subject, approvals[subject])
		}
	}
	rows := func(status string) (n int) {
		i.EachRow("/v1/messages?status="+status+"&recipient=x@far.test&", func(string, string) { n++ })
		return n
	}
	for end := time.Now().Add(time.Minute); rows("relayed") != approved; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("of %d that were approved %d have gone out: %s", approved, rows("relayed"), i.GetText("/v1/messages?limit=100"))
		}
	}
	if n := rows("rejected"); n != len(approvals)-approved {
		t.Errorf("%d rows are rejected, want %d", n, len(approvals)-approved)
	}
	mu.Lock()
	second := 0
	for subject := range approvals {
		copies := got["x@far.test "+subject]
		m := heldMessage{Subject: subject}
		if m.number()%2 == 0 && copies == 0 {
			t.Errorf("%s was approved, and has not gone out", subject)
		}
		if m.number()%2 != 0 && copies > 0 {
			t.Errorf("%s was rejected, and has gone out", subject)
		}
		second += max(0, copies-1)
	}
	mu.Unlock()
	t.Logf("%d messages, %d approved, %d kills: %d second copies", len(approvals), approved, kills, second)
	if second > kills*inFlight {
		t.Errorf("%d second copies", second)
	}
	i.Stop()
	i.Check()
}

// sendAs sends a message with a token over the API.
func sendAs(to *approver, token, box, subject string) bool {
	text, err := json.Marshal(map[string]any{"to": "x@far.test", "subject": subject, "text": "hello"})
	if err != nil {
		return false
	}
	req, err := http.NewRequest("POST", to.url+"/v1/email-users/"+box+"/inbox/send", bytes.NewReader(text))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := to.http.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == 200
}

// sendBySMTP submits a message of ann's to x@far.test with a password of a program, and gives the
// answer to it. Unlike net/smtp it asks for no SMTPUTF8.
func sendBySMTP(addr string, program rig.Credential, text string) (answer string, err error) {
	c, err := textproto.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, _, err = c.ReadResponse(220)
	for _, line := range []string{
		"EHLO me.test", "AUTH PLAIN " + base64.StdEncoding.EncodeToString([]byte("\x00"+program.Username+"\x00"+program.Password)),
		"MAIL FROM:<" + rig.AnnsAddress + ">", "RCPT TO:<x@far.test>", "DATA", text + ".",
	} {
		if err == nil {
			err = c.PrintfLine("%s", line)
		}
		if err != nil {
			return "", err
		}
		want := 2
		if line == "DATA" {
			want = 3
		}
		_, answer, err = c.ReadResponse(want)
	}
	return answer, err
}
