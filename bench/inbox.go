package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// inboxDays is the number of days over which startWithInbox spreads the dates of messages.
const inboxDays = 1000

// inboxQueries lists the queries of the inbox that inboxWorkload measures. {from} and {to} are
// dates in the middle of the inbox, 10 days apart.
var inboxQueries = []struct{ name, query string }{
	{"newest", ""},
	{"unread", "&is_read=false"},
	{"flagged", "&is_flagged=true"},
	{"unread with attachments", "&is_read=false&has_attachments=true"},
	{"with attachments", "&has_attachments=true"},
	{"10 days of the middle", "&date_from={from}&date_to={to}"},
	{"unread before the middle", "&is_read=false&date_to={to}"},
	{"without warm-up", "&exclude_warmup=true"},
	{"one domain", "&domain=" + domain},
	{"unread in one mailbox", "&is_read=false&mailbox=user2@" + domain},
	{"of an author", "&from=ann"},
	{"a word", "&q=article"},
	{"far cursor", "&date_to={to}"}, // each request is for the next page
}

// inboxWorkload returns a workload of queries of an inbox with 100 000 messages.
func inboxWorkload() workload {
	w := workload{name: "api inbox at 100 000", servers: []string{"mailstead"}}
	for _, q := range inboxQueries {
		w.parts = append(w.parts, q.name)
	}
	w.run = func(b *bench, _ string) (out measurement, err error) {
		m, err := b.startWithInbox(b.scaled(100000, 1000))
		if err != nil {
			return out, err
		}
		defer m.stopAndDelete()
		for _, q := range inboxQueries {
			part, err := m.measureInboxPages(q.query, q.name == "far cursor", min(b.scaled(500, 10), 2000))
			if err != nil {
				return out, fmt.Errorf("%s: %w", q.name, err)
			}
			out.Parts = append(out.Parts, part)
		}
		return out, nil
	}
	return w
}

// measureInboxPages measures requests for the first page of a query, or, if followPages is set, for
// one page after the other. It returns an error if a page is empty.
func (m *mailstead) measureInboxPages(query string, followPages bool, times int) (measurement, error) {
	middle := time.Now().AddDate(0, 0, -inboxDays/2)
	query = strings.NewReplacer("{from}", middle.AddDate(0, 0, -10).Format(time.DateOnly), "{to}", middle.Format(time.DateOnly)).Replace(query)
	client := &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	cursor := ""
	return measureRepeated(m.process, times, func(int) error {
		text, err := m.get(client, "http://"+m.ready.HTTP+"/v1/inbox?limit=50"+query+cursor)
		if err == nil && bytes.Contains(text, []byte(`"data":[]`)) {
			err = errors.New("a page of the inbox is empty")
		}
		if !followPages || err != nil {
			return err
		}
		cursor = ""
		if _, after, some := strings.Cut(string(text), `"pagination":{"cursor":"`); some {
			after, _, _ = strings.Cut(after, `"`)
			cursor = "&cursor=" + url.QueryEscape(after)
		}
		return nil
	})
}

// startWithInbox starts Mailstead and fills eight mailboxes with size messages in total over
// IMAP. One message in 50 is unread, one in 1 000 is flagged, and one in 20 has an attachment.
func (b *bench) startWithInbox(size int) (*mailstead, error) {
	m, err := b.newMailstead("")
	if err != nil {
		return nil, err
	}
	text := plainMessages(b.messages(2<<10, false))
	attached := func(n int) string {
		_, text := text(n)
		head, body, _ := strings.Cut(text, "\r\n\r\n")
		head = strings.Replace(head, "Content-Type: text/plain; charset=utf-8", "Content-Type: multipart/mixed; boundary=b", 1)
		return head + "\r\n\r\n--b\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n" + body +
			"\r\n--b\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename=report.pdf\r\nContent-Transfer-Encoding: base64\r\n\r\nJVBERi0xLjQK\r\n--b--\r\n"
	}
	now := time.Now().UTC()
	err = runEightInParallel(func(user int) error {
		c, err := logIn(m.ready.IMAP, nil, false, address(user), b.limit)
		if err != nil {
			return err
		}
		defer c.Close()
		return c.append(size/8, 100, func(n int) (before, message string) {
			flags, number := "\\Seen", n*8+user
			if number%50 == 0 {
				flags = ""
			}
			if number%1000 == 0 {
				flags += " \\Flagged"
			}
			_, message = text(number)
			if number%20 == 10 || number%1000 == 0 {
				message = attached(number)
			}
			age := time.Duration(size-number) * (inboxDays * 24 * time.Hour / time.Duration(size))
			return fmt.Sprintf(" (%s) \"%s\"", strings.TrimSpace(flags), now.Add(-age).Format("_2-Jan-2006 15:04:05 -0700")), message
		})
	})
	if err == nil {
		err = m.waitIdle(b.limit)
	}
	if err != nil {
		m.stopAndDelete()
		return nil, err
	}
	return m, nil
}

// waitIdle waits until Mailstead has finished its background work, such as indexing new messages.
func (m *mailstead) waitIdle(limit time.Duration) error {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		before := m.cpu()
		time.Sleep(500 * time.Millisecond)
		if m.cpu()-before <= 20*time.Millisecond {
			return nil
		}
	}
	return fmt.Errorf("the server still did background work after %s", limit)
}
