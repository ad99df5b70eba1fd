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

// visibleWorkloads returns workloads that measure the time from the start of sending a message
// until the recipient can see it, in an IDLE session or in a list of the API.
func visibleWorkloads() (list []workload) {
	for _, beside := range []int{0, 500} {
		name := "RCPT → visible, 50 a second"
		if beside > 0 {
			name += fmt.Sprintf(", beside %d", beside)
		}
		list = append(list, workload{name: name, servers: []string{"mailstead"}, parts: []string{"EXISTS", "list_inbox"}, run: func(b *bench, _ string) (measurement, error) {
			byIMAP, err := b.measureVisible(b.scaled(500, 25), beside, (*mailstead).watchIdle)
			if err != nil {
				return measurement{}, err
			}
			byAPI, err := b.measureVisible(b.scaled(500, 25), beside, (*mailstead).watchList)
			return measurement{Parts: []measurement{byIMAP, byAPI}}, err
		}})
	}
	return list
}

// A watcher observes the first mailbox until end is closed. It calls report with the number of
// messages in the mailbox, at the beginning and after each increase.
type watcher func(m *mailstead, report func(messages int), end <-chan struct{}) error

// measureVisible measures how long messages to the first mailbox take until observe sees them. It
// sends 50 a second over one connection, so that the mailbox has them in the order in which they
// were sent. It also sends backgroundRate messages a second to the other mailboxes. The processor
// time includes all of this.
func (b *bench) measureVisible(times, backgroundRate int, observe watcher) (measurement, error) {
	m, err := b.newMailstead("")
	if err != nil {
		return measurement{}, err
	}
	defer m.stopAndDelete()
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
	for n := range min(backgroundRate, 8) {
		run(func() error {
			return b.sendSteadily(m, n, 8*time.Second/time.Duration(backgroundRate), messages, end)
		})
	}
	sent, seen, ready := make([]time.Time, times), make(chan time.Time, times), make(chan struct{}, 1)
	known := 0
	run(func() error {
		return observe(m, func(messages int) {
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
		return measurement{}, err
	}
	c, err := dialSMTP(m.ready.SMTP, false, b.limit)
	if err != nil {
		return measurement{}, err
	}
	defer c.Close()
	before, began := m.cpu(), time.Now()
	for n := range times {
		time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / 50)))
		sent[n] = time.Now()
		if err := c.send("bounce@"+senderDomain, address(0), messages[n%len(messages)]); err != nil {
			return measurement{}, err
		}
	}
	out := measurement{Ops: times}
	for n := range times {
		select {
		case at := <-seen:
			out.Took = append(out.Took, at.Sub(sent[n]))
		case err := <-failed:
			return measurement{}, err
		case <-time.After(30 * time.Second):
			return measurement{}, fmt.Errorf("only %d of %d messages became visible", n, times)
		}
	}
	out.Wall, out.CPU = time.Since(began), m.cpu()-before
	select {
	case err = <-failed:
	default:
	}
	return out, err
}

// sendSteadily is one of eight senders, numbered by senderNumber. It sends a message in each
// interval, until end is closed, to one of the mailboxes except the first.
func (b *bench) sendSteadily(m *mailstead, senderNumber int, interval time.Duration, messages [][]byte, end <-chan struct{}) error {
	c, err := dialSMTP(m.ready.SMTP, false, b.limit)
	if err != nil {
		return err
	}
	defer c.Close()
	began := time.Now().Add(time.Duration(senderNumber) * interval / 8)
	for n := 0; ; n++ {
		select {
		case <-end:
			return nil
		case <-time.After(time.Until(began.Add(time.Duration(n) * interval))):
		}
		if err := c.send("bounce@"+senderDomain, address(1+senderNumber%(users-1)), messages[n%len(messages)]); err != nil {
			return err
		}
	}
}

// watchIdle is a watcher that uses an IMAP session in IDLE.
func (m *mailstead) watchIdle(report func(int), end <-chan struct{}) error {
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
			report(0)
		}
		var n int
		if _, err := fmt.Sscanf(lines.Text(), "* %d EXISTS", &n); err == nil {
			report(n)
		}
	}
	select {
	case <-end:
		return nil
	default:
		return errors.Join(errors.New("the IDLE session ended"), lines.Err())
	}
}

// watchList is a watcher that polls a list of the API for the newest message. The UID of that
// message is the number of messages.
func (m *mailstead) watchList(report func(int), end <-chan struct{}) error {
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
		report(n)
		select {
		case <-end:
			return nil
		case <-time.After(time.Millisecond):
		}
	}
}
