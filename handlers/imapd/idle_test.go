package imapd

import (
	"runtime"
	"testing"
	"time"
)

// inUse is the memory that the process needs now.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestIdleConnectionsAreCheap measures a thousand clients that idle, the test's own end of each
// included. Their number is bounded, so this bounds what they take.
func TestIdleConnectionsAreCheap(t *testing.T) {
	for name, tc := range map[string]struct {
		compress bool
		clients  int
		most     int64 // bytes for each
	}{
		"plain":      {false, 1000, 64 << 10},
		"compressed": {true, 200, 192 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, func(s *Server) { s.MaxPerAddress, s.MaxPerMailbox = 2000, 2000 })
			before := inUse()
			clients := make([]*talker, tc.clients)
			for i := range clients {
				clients[i] = h.idle(t, tc.compress)
			}
			each := (inUse() - before) / int64(tc.clients)
			t.Logf("%d idle clients: %d bytes each, so %d MB for 5000", tc.clients, each, each*5000>>20)
			if each > tc.most {
				t.Errorf("an idle connection takes %d bytes", each)
			}
			runtime.KeepAlive(clients)
			h.put(t, "INBOX", letter("wake"), 0)
			for _, c := range clients {
				if got := c.line(); got != "* 1 EXISTS" {
					t.Fatalf("told %q", got)
				}
			}
		})
	}
}

// idle logs in, compresses if asked to, and idles in INBOX.
func (h *host) idle(t *testing.T, compress bool) *talker {
	t.Helper()
	c := h.login(t)
	c.conn.SetDeadline(time.Now().Add(2 * time.Minute))
	if compress {
		c = deflated(t, c)
	}
	c.ok("SELECT INBOX")
	c.send("i IDLE\r\n")
	c.line()
	if packed, ok := c.conn.(flateConn); ok {
		c.conn = packed.Conn // the test's compressor is no part of what is measured
	}
	return c
}
