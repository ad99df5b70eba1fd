package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/operator"
)

// TestProgressShowsRateAndTimeLeft: done, total, rate and time left, of each task from its own
// beginning; the line is as wide as what it overwrites.
func TestProgressShowsRateAndTimeLeft(t *testing.T) {
	now := time.Unix(1000, 0)
	var out bytes.Buffer
	p := &progressLine{out: &out, now: func() time.Time { return now }}
	shown := func(after time.Duration, task string, done, all int64) string {
		out.Reset()
		now = now.Add(after)
		p.show(task, done, all)
		return strings.TrimRight(strings.TrimPrefix(out.String(), "\r"), " ")
	}
	for _, c := range []struct {
		after     time.Duration
		task      string
		done, all int64
		want      string
	}{
		{0, "bytes of the backup", 0, 0, "the backup …"},
		{100 * time.Millisecond, "bytes of the backup", 10, 20, ""}, // too early for another line
		{time.Second, "bytes of the backup", 50e6, 200e6, "the backup: 50.0 MB of 200 MB (25 %)"},
		{3900 * time.Millisecond, "bytes of the backup", 100e6, 200e6, "the backup: 100 MB of 200 MB (50 %), 20.0 MB/s, 5 s left"},
		{time.Second, "bytes of the backup", 210e6, 200e6, "the backup: 210 MB of 200 MB (100 %), 35.0 MB/s"},
		{time.Second, "messages of a.mbox", 1000, 0, "messages of a.mbox: 1000"},
		{10 * time.Second, "messages of a.mbox", 1300, 0, "messages of a.mbox: 1300, 30/s"},
		{time.Second, "batches", 1, 10, "batches: 1 of 10 (10 %)"},
		{20 * time.Second, "batches", 2, 10, "batches: 2 of 10 (20 %), 3/min, 2 min 40 s left"},
		{time.Second, "messages of \x1b]0;x\a.mbox", 1, 0, "messages of  ]0;x .mbox: 1"},
	} {
		if got := shown(c.after, c.task, c.done, c.all); got != c.want {
			t.Errorf("%s %d of %d: %q, want %q", c.task, c.done, c.all, got, c.want)
		}
	}
	out.Reset()
	p.show("a long text that is then overwritten", 0, 0)
	now = now.Add(time.Second)
	out.Reset()
	p.show("short", 0, 0)
	if !strings.HasPrefix(out.String(), "\rshort …    ") {
		t.Errorf("%q does not overwrite what was there", out.String())
	}
	quiet := &progressLine{now: time.Now}
	quiet.show("x", 1, 2)
	quiet.say("x")
	quiet.end()
}

// TestProgressComesFromTheServer: a long command that the server does shows its progress, and its
// result or its error at the end.
func TestProgressComesFromTheServer(t *testing.T) {
	var out bytes.Buffer
	line := &progressLine{out: &out, now: time.Now}
	e := &env{dir: "/data", stderr: io.Discard}
	for name, c := range map[string]struct {
		lines []operator.ProgressLine
		want  string // of the error
	}{
		"a result":     {[]operator.ProgressLine{{What: "bytes of the copy", Done: 1e6, All: 2e6}, {Result: json.RawMessage(`{"version":"9"}`)}}, ""},
		"an error":     {[]operator.ProgressLine{{What: "bytes of the copy", Done: 1e6, All: 2e6}, {Error: "the disk is full"}}, "the disk is full"},
		"no end of it": {[]operator.ProgressLine{{What: "bytes of the copy", Done: 1e6, All: 2e6}}, "the server on /data ended before it answered, but may have done the request: EOF"},
	} {
		out.Reset()
		line.shownAt = time.Time{}
		var asked string
		send := func(r *http.Request) (*http.Response, error) {
			asked = r.URL.String()
			w := httptest.NewRecorder()
			for _, l := range c.lines {
				if err := json.NewEncoder(w).Encode(l); err != nil {
					return nil, err
				}
			}
			return w.Result(), nil
		}
		var result operator.CopyOut
		err := e.askWithProgress(context.Background(), send, line, operator.CopyPath, struct{}{}, &result)
		if asked != operator.CopyPath+"?progress" || !strings.Contains(out.String(), "the copy: 1.0 MB of 2.0 MB (50 %)") {
			t.Errorf("%s: asked %s, showed %q", name, asked, out.String())
		}
		if c.want == "" && (err != nil || result.Version != "9") || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
	}
	failed := errors.New("away")
	if err := e.askWithProgress(context.Background(), func(*http.Request) (*http.Response, error) { return nil, failed }, line, "/x", nil, nil); !errors.Is(err, failed) {
		t.Error(err)
	}
}
