package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// visibleWorks measures the time from the RCPT command until the recipient can see the message, in
// an IDLE session or in the API's list.
func visibleWorks() (list []work) {
	for _, beside := range []int{0, 500} {
		name := "RCPT → visible, 50 a second"
		if beside > 0 {
			name += fmt.Sprintf(", beside %d", beside)
		}
		list = append(list, work{name: name, servers: []string{"mailstead"}, parts: []string{"EXISTS", "list_inbox"}, run: func(b *bench, _ string) (measured, error) {
			byIMAP, err := b.visible(b.times(500, 25), beside, (*mailstead).watchIdle)
			if err != nil {
				return measured{}, err
			}
			byAPI, err := b.visible(b.times(500, 25), beside, (*mailstead).watchList)
			return measured{Parts: []measured{byIMAP, byAPI}}, err
		}})
	}
	return list
}

// A watch calls tell with the number of messages in a mailbox: at the beginning, and after each
// increase. It ends when end is closed.
type watch func(m *mailstead, tell func(messages int), end <-chan struct{}) error

// visible sends messages to a mailbox, fifty a second, over one connection, so that the n-th
// message sent is the n-th of the mailbox. In addition it sends beside messages a second to other
// mailboxes. The processor time includes these and the watch.
func (b *bench) visible(times, beside int, look watch) (measured, error) {
	m, err := b.newMailstead("")
	if err != nil {
		return measured{}, err
	}
	defer m.discard()
	messages := b.messages(2<<10, false)
	end, failed := make(chan struct{}), make(chan error, 9)
	var all sync.WaitGroup
	defer all.Wait()
	defer close(end)
	run := func(do func() error) {
		all.Go(func() {
			if err := do(); err != nil {
				failed <- err
			}
		})
	}
	for n := range min(beside, 8) {
		run(func() error {
			return b.sendSteadily(m, n, 8*time.Second/time.Duration(beside), messages, end)
		})
	}
	sent, seen, ready := make([]time.Time, times), make(chan time.Time, times), make(chan struct{}, 1)
	known := 0
	run(func() error {
		return look(m, func(messages int) {
			for ; known < min(messages, times); known++ {
				seen <- time.Now()
			}
			select {
			case ready <- struct{}{}:
			default:
			}
		}, end)
	})
	select {
	case <-ready:
	case err := <-failed:
		return measured{}, err
	}
	c, err := dialSMTP(m.ready.SMTP, false, b.limit)
	if err != nil {
		return measured{}, err
	}
	defer c.Close()
	before, began := m.cpu(), time.Now()
	for n := range times {
		time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / 50)))
		sent[n] = time.Now()
		if err := c.send("bounce@"+sender, address(0), messages[n%len(messages)]); err != nil {
			return measured{}, err
		}
	}
	out := measured{Ops: times}
	for n := range times {
		select {
		case at := <-seen:
			out.Took = append(out.Took, at.Sub(sent[n]))
		case err := <-failed:
			return measured{}, err
		case <-time.After(30 * time.Second):
			return measured{}, fmt.Errorf("%d of %d messages became visible", n, times)
		}
	}
	out.Wall, out.CPU = time.Since(began), m.cpu()-before
	select {
	case err = <-failed:
	default:
	}
	return out, err
}

// sendSteadily is one of eight senders that take turns. It sends a message at each interval, until
// end is closed, to all mailboxes except the first.
func (b *bench) sendSteadily(m *mailstead, which int, interval time.Duration, messages [][]byte, end <-chan struct{}) error {
	c, err := dialSMTP(m.ready.SMTP, false, b.limit)
	if err != nil {
		return err
	}
	defer c.Close()
	began := time.Now().Add(time.Duration(which) * interval / 8)
	for n := 0; ; n++ {
		select {
		case <-end:
			return nil
		case <-time.After(time.Until(began.Add(time.Duration(n) * interval))):
		}
		if err := c.send("bounce@"+sender, address(1+which%(users-1)), messages[n%len(messages)]); err != nil {
			return err
		}
	}
}

// watchIdle is a watch that uses an IDLE session.
func (m *mailstead) watchIdle(tell func(int), end <-chan struct{}) error {
	c, err := logIn(m.ready.IMAP, nil, false, address(0), m.b.limit)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.run("SELECT INBOX"); err != nil {
		return err
	}
	if _, err := io.WriteString(c.Conn, "i IDLE\r\n"); err != nil {
		return err
	}
	go func() {
		<-end
		c.Close()
	}()
	lines := bufio.NewScanner(c.r)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "+") {
			tell(0)
		}
		var n int
		if _, err := fmt.Sscanf(lines.Text(), "* %d EXISTS", &n); err == nil {
			tell(n)
		}
	}
	select {
	case <-end:
		return nil
	default:
		return errors.Join(errors.New("the IDLE session ended"), lines.Err())
	}
}

// watchList is a watch that polls the API for the newest message, whose UID is the number of
// messages.
func (m *mailstead) watchList(tell func(int), end <-chan struct{}) error {
	client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	for {
		text, err := m.get(client, "http://"+m.ready.HTTP+"/v1/email-users/"+m.users[0]+"/inbox?limit=1")
		if err != nil {
			return err
		}
		var page struct{ Data []struct{ UID string } }
		if err := json.Unmarshal(text, &page); err != nil {
			return err
		}
		n := 0
		for _, row := range page.Data {
			n, err = strconv.Atoi(row.UID)
			if err != nil {
				return err
			}
		}
		tell(n)
		select {
		case <-end:
			return nil
		case <-time.After(time.Millisecond):
		}
	}
}
