package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A stream is what the program tells a page that listens.
type stream struct {
	mu    sync.Mutex
	heard []streamChange
	ended chan struct{}
}

type streamChange struct{ Kind, ID string }

// listen opens a stream, and keeps what it tells after its hello.
func (i *instance) listen() *stream {
	i.t.Helper()
	req, err := http.NewRequest("GET", "http://"+i.ready.HTTP+"/session/stream", nil)
	if err != nil {
		i.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+i.token)
	resp, err := new(http.Client).Do(req)
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || resp.StatusCode != 200 || lines.Text() != "event: hello" {
		i.t.Fatalf("the stream begins with %d %q", resp.StatusCode, lines.Text())
	}
	s := &stream{ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for lines.Scan() {
			s.hear(lines.Text())
		}
	}()
	return s
}

func (s *stream) hear(line string) {
	data, _ := strings.CutPrefix(line, "data: ")
	var changes []streamChange
	if json.Unmarshal([]byte(data), &changes) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, changes...)
}

func (s *stream) has(kind, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.heard, streamChange{kind, id})
}

func (s *stream) knows(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.heard, func(c streamChange) bool { return c.ID == id })
}

func (s *stream) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = nil
}

// TestStream has pages of two accounts listen to the real program while mail comes, jobs run and
// mail goes out; then it stops, and waits for none of them.
func TestStream(t *testing.T) {
	t.Parallel()
	i := newInstance(t, generousLimits)
	other := i.neighbour()
	page, theirs := i.listen(), other.listen()
	domain := i.addDomain("example.test")
	ann := i.addMailbox("ann@example.test", "correct horse")
	i.until("the domain and the mailbox are told of", func() bool { return page.has("domain", domain) && page.has("mailbox", ann) })

	if err := transmit(i.ready.SMTP, "ann@example.test", letter("news")); err != nil {
		t.Fatal(err)
	}
	i.until("new mail is told of", func() bool { return page.has("inbox", ann) })
	if rows := i.inbox(ann); len(rows) != 1 {
		t.Errorf("the inbox has %d messages when it is told of, want 1", len(rows))
	}
	page.forget()
	i.want(200, "PATCH", "/v1/email-users/"+ann+"/inbox/1", map[string]any{"is_read": true}, nil)
	i.until("a flag is told of", func() bool { return page.has("inbox", ann) })

	i.want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": "x@far.test", "subject": "s", "text": "t"}, nil)
	sent := i.first("/v1/messages")
	i.until("what is sent is told of", func() bool { return page.has("message", sent) })
	var gone struct {
		JobID string `json:"job_id"`
	}
	i.want(200, "DELETE", "/v1/email-users/"+ann, nil, &gone)
	i.until("the end of the job is told of", func() bool {
		if !page.has("job", gone.JobID) {
			return false
		}
		page.forget()
		var job struct{ Status string }
		i.want(200, "GET", "/v1/jobs/"+gone.JobID, nil, &job)
		return job.Status == "completed"
	})

	for _, id := range []string{domain, ann, sent, gone.JobID} {
		if theirs.knows(id) {
			t.Errorf("the other account was told of %s", id)
		}
	}
	began := time.Now()
	i.stop()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the server stopped after %v, with streams open", took)
	}
	<-page.ended
	<-theirs.ended
}
