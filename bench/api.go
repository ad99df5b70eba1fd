package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// apiWorks lists requests to the REST API. The server net/http is a bare server that answers with
// the same JSON.
func apiWorks() (list []work) {
	for _, w := range []struct{ name, path string }{
		{"get_email_user", "/v1/email-users/{user}"},
		{"list_inbox", "/v1/inbox?limit=50"},
		{"list_inbox unread", "/v1/inbox?limit=50&is_read=false"},
		{"list_email_user_inbox", "/v1/email-users/{user}/inbox?limit=50"},
		{"get_inbox_message", "/v1/email-users/{user}/inbox/1"},
		{"search", "/v1/inbox?limit=20&q=article"},
		{"list_messages", "/v1/messages?limit=50"},
	} {
		list = append(list, work{name: "api " + w.name, servers: []string{"mailstead", sinkHTTP}, run: func(b *bench, server string) (measured, error) {
			return b.gets(server, w.path, 8, b.times(8000, 64))
		}})
	}
	return append(list,
		mailsteadWork("api send_email, local", func(b *bench) (measured, error) { return b.sends(8, b.times(2000, 8)) }),
		mailsteadWork("api mixed 64", func(b *bench) (measured, error) { return b.mixed(64, b.times(8000, 64)) }),
		mailsteadWork("api list_inbox, 1 000 a second", func(b *bench) (measured, error) {
			return b.getsOnSchedule("/v1/inbox?limit=50", 1000, b.times(10000, 100))
		}),
		mailsteadWork("api search, 30 a second", func(b *bench) (measured, error) {
			return b.getsOnSchedule("/v1/inbox?limit=20&q=article", 30, b.times(300, 10))
		}),
		inboxWork(),
	)
}

func (b *bench) gets(server, path string, clients, times int) (measured, error) {
	m, err := b.filled(b.times(2000, 100))
	if err != nil {
		return measured{}, err
	}
	defer m.discard()
	url, p := "http://"+m.ready.HTTP+strings.ReplaceAll(path, "{user}", m.users[0]), m.process
	if server == sinkHTTP {
		text, err := m.get(http.DefaultClient, url)
		if err != nil {
			return measured{}, err
		}
		file := filepath.Join(m.dir, "answer.json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return measured{}, err
		}
		var addr string
		p, addr, err = b.sink(sinkHTTP, "-file", file, "-token", m.token)
		if err != nil {
			return measured{}, err
		}
		defer p.stop()
		url = "http://" + addr + "/"
	}
	return together(p, clients, times, b.limit, func(client *http.Client, _ int) error {
		_, err := m.get(client, url)
		return err
	})
}

func (m *mailstead) get(client *http.Client, url string) ([]byte, error) {
	return m.do(client, "GET", url, "")
}

// do makes a request, and returns an error unless the status is 200.
func (m *mailstead) do(client *http.Client, method, url, body string) ([]byte, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+m.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s %s", method, url, resp.Status, text)
	}
	return text, err
}

func (b *bench) sends(clients, times int) (measured, error) {
	m, err := b.newMailstead("")
	if err != nil {
		return measured{}, err
	}
	defer m.discard()
	return together(m.process, clients, times, b.limit, m.send)
}

// send sends the n-th message to another mailbox of the server.
func (m *mailstead) send(client *http.Client, n int) error {
	body := fmt.Sprintf(`{"to":%q,"subject":"report %d","text":%q}`, address(1+n%(users-1)), n, strings.Join(words, " "))
	_, err := m.do(client, "POST", "http://"+m.ready.HTTP+"/v1/email-users/"+m.users[0]+"/inbox/send", body)
	return err
}

// mixed makes each client do what programs do: one of eight actions after the other.
func (b *bench) mixed(clients, times int) (measured, error) {
	size := b.times(2000, 100)
	m, err := b.filled(size)
	if err != nil {
		return measured{}, err
	}
	defer m.discard()
	at := "http://" + m.ready.HTTP
	return together(m.process, clients, times, b.limit, func(client *http.Client, n int) (err error) {
		message := fmt.Sprintf("%s/v1/email-users/%s/inbox/%d", at, m.users[0], 1+n*7%size)
		switch n % 8 {
		case 0:
			_, err = m.get(client, at+"/v1/email-users/"+m.users[n/8%users])
		case 1:
			_, err = m.get(client, at+"/v1/inbox?limit=50")
		case 2:
			_, err = m.get(client, at+"/v1/inbox?limit=50&is_read=false")
		case 3:
			_, err = m.get(client, message)
		case 4:
			_, err = m.do(client, "PATCH", message, fmt.Sprintf(`{"is_read":%t}`, n/8%2 == 0))
		case 5:
			err = m.send(client, n)
		case 6:
			_, err = m.get(client, at+"/v1/inbox?limit=20&q="+words[n/8%len(words)])
		case 7:
			_, err = m.get(client, at+"/v1/messages?limit=50")
		}
		return err
	})
}

// getsOnSchedule requests a page of an inbox of 20 000 messages at a fixed rate.
func (b *bench) getsOnSchedule(path string, rate, times int) (measured, error) {
	m, err := b.stocked(b.times(20000, 1000))
	if err != nil {
		return measured{}, err
	}
	defer m.discard()
	return onSchedule(m.process, rate, times, b.limit, func(client *http.Client) error {
		_, err := m.get(client, "http://"+m.ready.HTTP+path)
		return err
	})
}

// onSchedule calls do a number of times at a fixed rate per second, whether or not earlier calls
// have ended. The time of each call counts from when it was due, so that a stall counts for every
// call that falls into it.
func onSchedule(p *process, rate, times int, limit time.Duration, do func(client *http.Client) error) (measured, error) {
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 256, MaxIdleConnsPerHost: 256}, Timeout: limit}
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	took, errs := make([]time.Duration, times), make([]error, times)
	before, began := p.cpu(), time.Now()
	for n := range times {
		due := began.Add(time.Duration(n) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(due))
		all.Go(func() {
			errs[n] = do(client)
			took[n] = time.Since(due)
		})
	}
	all.Wait()
	return measured{Ops: times, Wall: time.Since(began), CPU: p.cpu() - before, Took: took}, errors.Join(errs...)
}

// together runs clients that call do a number of times in total. Each client has its own
// connection.
func together(p *process, clients, times int, limit time.Duration, do func(client *http.Client, n int) error) (out measured, err error) {
	var next atomic.Int64
	var mu sync.Mutex
	var all sync.WaitGroup
	var errs []error
	before, began := p.cpu(), time.Now()
	for range clients {
		all.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: limit}
			defer client.CloseIdleConnections()
			var mine []time.Duration
			var err error
			for n := next.Add(1); err == nil && n <= int64(times); n = next.Add(1) {
				start := time.Now()
				err = do(client, int(n))
				mine = append(mine, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			out.Took, errs = append(out.Took, mine...), append(errs, err)
		})
	}
	all.Wait()
	out.Ops, out.Wall, out.CPU = len(out.Took), time.Since(began), p.cpu()-before
	return out, errors.Join(errs...)
}
