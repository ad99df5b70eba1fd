package deliver

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

func chunked(t *testing.T, h *host, offers ...string) *Client {
	h.offers = append([]string{"CHUNKING"}, offers...)
	n := newInternet(t)
	n.host("mx.example", h)
	n.domain("them.example", "mx.example")
	return n.client()
}

func TestChunking(t *testing.T) {
	long := strings.Repeat(strings.Repeat("all work ", 7)+"\r\n", 4000) // 260 000 bytes
	for name, tc := range map[string]struct {
		sent, want string
		chunks     int
	}{
		"short":          {"Subject: x\r\n\r\n.\r\n..\r\nhello\r\n", "Subject: x\r\n\r\n.\r\n..\r\nhello\r\n", 1},
		"bare line ends": {"a\nb\rc\r\n\r\nd", "a\r\nb\r\nc\r\n\r\nd\r\n", 1},
		"ends in CR":     {"a\r", "a\r\n", 1},
		"empty":          {"", "", 1},
		"long":           {long, long, 3},
	} {
		for _, offers := range [][]string{{"PIPELINING"}, nil} {
			h := &host{}
			c := chunked(t, h, offers...)
			for range 2 {
				want(t, c.Direct(t.Context(), "them.example", envelope(), text(tc.sent)), Delivered, 250, "2.0.0")
			}
			if got := h.received(); len(got) != 2 || got[1] != tc.want && tc.sent != "" || h.connections() != 1 {
				t.Errorf("%s: %d messages over %d connections, the second is %.100q", name, len(got), h.connections(), got[len(got)-1])
			}
			if n := len(h.chunks) / 2; n != tc.chunks || !strings.HasSuffix(h.chunks[n-1], " LAST") || slices.Contains(h.heard(), "DATA") {
				t.Errorf("%s: chunks %q", name, h.chunks)
			}
		}
	}
}

// TestRefusedRecipientOfAChunk: the message has gone out before its recipient is refused, and the
// connection serves the next.
func TestRefusedRecipientOfAChunk(t *testing.T) {
	for _, offers := range [][]string{{"PIPELINING"}, nil} {
		var known atomic.Bool
		h := &host{hook: func(p *peer, verb string) bool {
			if verb != "RCPT" || known.Load() {
				return false
			}
			p.say("550 5.1.1 no such user")
			return true
		}}
		c := chunked(t, h, offers...)
		r := c.Direct(t.Context(), "them.example", envelope(), hello)
		want(t, r, Permanent, 550, "5.1.1")
		if !r.RecipientFault {
			t.Error("the recipient is not at fault")
		}
		known.Store(true)
		want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Delivered, 250, "2.0.0")
		if h.connections() != 1 || !slices.Contains(h.heard(), "RSET") || len(h.received()) != 1 {
			t.Errorf("%d connections, %q", h.connections(), h.heard())
		}
	}
}

func TestRefusedChunkEndsTheMessage(t *testing.T) {
	h := &host{answers: map[string]string{"BDAT": "552 5.3.4 too big"}}
	c := chunked(t, h, "PIPELINING")
	want(t, c.Direct(t.Context(), "them.example", envelope(), text(strings.Repeat("line\r\n", 50000))), Permanent, 552, "5.3.4")
	if len(h.chunks) != 1 {
		t.Errorf("it went on after the refusal: %q", h.chunks)
	}
}

// TestShortChunkedMessageIsNotCompleted: nothing of a message that cannot be read to its end may
// count as one.
func TestShortChunkedMessageIsNotCompleted(t *testing.T) {
	for _, size := range []int{10, 200000} {
		h := &host{}
		c := chunked(t, h, "PIPELINING")
		m := text(strings.Repeat("x", size))
		m.Size++
		if r := c.Direct(t.Context(), "them.example", envelope(), m); r.Status != Temporary || !errors.Is(r.Attempts[0].Err, errWrongSize) {
			t.Errorf("result %+v", r)
		}
		if len(h.received()) != 0 || slices.ContainsFunc(h.chunks, func(s string) bool { return strings.HasSuffix(s, "LAST") }) {
			t.Errorf("the host took %q", h.chunks)
		}
	}
}

func TestAnswerLostAfterAChunk(t *testing.T) {
	h := &host{hook: func(p *peer, verb string) bool {
		if verb != "BDAT" {
			return false
		}
		p.hangUp()
		return true
	}}
	c := chunked(t, h, "PIPELINING")
	r := c.Direct(t.Context(), "them.example", envelope(), hello)
	if r.Status != Temporary || !errors.Is(r.Attempts[0].Err, ErrOutcomeUnknown) {
		t.Errorf("result %+v", r)
	}
}

func FuzzChunks(f *testing.F) {
	f.Add([]byte("a\r\nb\rc\n.\r\n"), uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		c := newChunker(slow{strings.NewReader(string(data)), int(step) + 1})
		var all strings.Builder
		for {
			chunk, last, err := c.next()
			if err != nil {
				t.Fatal(err)
			}
			all.Write(chunk)
			if last {
				break
			}
		}
		flat := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data))
		if flat != "" && !strings.HasSuffix(flat, "\n") {
			flat += "\n"
		}
		if got, want := all.String(), strings.ReplaceAll(flat, "\n", "\r\n"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// slow reads a few bytes at a time.
type slow struct {
	io.Reader
	step int
}

func (s slow) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(len(p), s.step)]) }
