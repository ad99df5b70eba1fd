package imapd

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMessagesAreAcknowledgedAtOnce appends as c-client does: Nagle's algorithm is on, a message is
// written in two parts, and what is behind it in a third.
func TestMessagesAreAcknowledgedAtOnce(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	if err := c.conn.(*net.TCPConn).SetNoDelay(false); err != nil {
		t.Fatal(err)
	}
	c.send("m APPEND INBOX {40}\r\n")
	var took []time.Duration
	for i := range 60 {
		if got := c.line(); !strings.HasPrefix(got, "+") {
			t.Fatal(got)
		}
		c.send("From: a@b.test\r\n\r\n")
		c.send(fmt.Sprintf("%022d", i))
		time.Sleep(5 * time.Millisecond) // it reads the next message from elsewhere
		began := time.Now()
		if c.send(" {40}\r\n"); i > 20 {
			c.in.Peek(1)
			took = append(took, time.Since(began))
		}
	}
	slices.Sort(took)
	if median := took[len(took)/2]; median > 30*time.Millisecond { // 40 ms is the delay
		t.Errorf("half of the messages are asked for %v after they were announced", median)
	}
}
