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

// apiWorkloads returns workloads of requests to the REST API. The server net/http is a sink that
// answers every request with the same JSON.
func apiWorkloads() (list []workload) {
	for _, w := range []struct{ name, path string }{
		{"get_email_user", "/v1/email-users/{user}"},
		{"list_inbox", "/v1/inbox?limit=50"},
		{"list_inbox unread", "/v1/inbox?limit=50&is_read=false"},
		{"list_email_user_inbox", "/v1/email-users/{user}/inbox?limit=50"},
		{"get_inbox_message", "/v1/email-users/{user}/inbox/1"},
		{"search", "/v1/inbox?limit=20&q=article"},
		{"list_messages", "/v1/messages?limit=50"},
	} {
		list = append(list, workload{name: "api " + w.name, servers: []string{"mailstead", sinkHTTP}, run: func(b *bench, server string) (measurement, error) {
			return b.measureGet(server, w.path, 8, b.scaled(8000, 64))
		}})
	}
	return append(list,
		mailsteadWorkload("api send_email, local", func(b *bench) (measurement, error) { return b.measureSend(8, b.scaled(2000, 8)) }),
		mailsteadWorkload("api mixed 64", func(b *bench) (measurement, error) { return b.measureMixed(64, b.scaled(8000, 64)) }),
		mailsteadWorkload("api list_inbox, 1 000 a second", func(b *bench) (measurement, error) {
			return b.measureGetAtRate("/v1/inbox?limit=50", 1000, b.scaled(10000, 100))
		}),
		mailsteadWorkload("api search, 30 a second", func(b *bench) (measurement, error) {
			return b.measureGetAtRate("/v1/inbox?limit=20&q=article", 30, b.scaled(300, 10))
		}),
		inboxWorkload(),
	)
}

// measureGet measures GET requests for a path.
func (b *bench) measureGet(server, path string, clients, times int) (measurement, error) {
	m, err := b.startFilled(b.scaled(2000, 100))
	if err != nil {
		return measurement{}, err
	}
	defer m.stopAndDelete()
	url, p := "http://"+m.ready.HTTP+strings.ReplaceAll(path, "{user}", m.users[0]), m.process
	if server == sinkHTTP {
		text, err := m.get(http.DefaultClient, url)
		if err != nil {
			return measurement{}, err
		}
		file := filepath.Join(m.dir, "answer.json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return measurement{}, err
		}
		var addr string
		p, addr, err = b.startSink(sinkHTTP, "-file", file, "-token", m.token)
		if err != nil {
			return measurement{}, err
		}
		defer p.stop()
		url = "http://" + addr + "/"
	}
	return runClients(p, clients, times, b.limit, func(client *http.Client, _ int) error {
		_, err := m.get(client, url)
		return err
	})
}

// get makes a GET request and returns the body of the response.
func (m *mailstead) get(client *http.Client, url string) ([]byte, error) {
	return m.do(client, "GET", url, "")
}

// do makes a request to the API and returns the body of the response. It returns an error unless
// the status is 200.
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
		err = fmt.Errorf("%s %s: the API answered %s %s", method, url, resp.Status, text)
	}
	return text, err
}

// measureSend measures requests that send a message to a local mailbox.
func (b *bench) measureSend(clients, times int) (measurement, error) {
	m, err := b.newMailstead("")
	if err != nil {
		return measurement{}, err
	}
	defer m.stopAndDelete()
	return runClients(m.process, clients, times, b.limit, m.send)
}

// send sends message n from one mailbox of the server to another.
func (m *mailstead) send(client *http.Client, n int) error {
	body := fmt.Sprintf(`{"to":%q,"subject":"report %d","text":%q}`, address(1+n%(users-1)), n, strings.Join(messageWords, " "))
	_, err := m.do(client, "POST", "http://"+m.ready.HTTP+"/v1/email-users/"+m.users[0]+"/inbox/send", body)
	return err
}

// measureMixed measures clients that use eight different requests in turn.
func (b *bench) measureMixed(clients, times int) (measurement, error) {
	size := b.scaled(2000, 100)
	m, err := b.startFilled(size)
	if err != nil {
		return measurement{}, err
	}
	defer m.stopAndDelete()
	at := "http://" + m.ready.HTTP
	return runClients(m.process, clients, times, b.limit, func(client *http.Client, n int) (err error) {
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
			_, err = m.get(client, at+"/v1/inbox?limit=20&q="+messageWords[n/8%len(messageWords)])
		case 7:
			_, err = m.get(client, at+"/v1/messages?limit=50")
		}
		return err
	})
}

// measureGetAtRate measures GET requests for a page of an inbox with 20 000 messages, at a fixed
// rate per second.
func (b *bench) measureGetAtRate(path string, perSecond, times int) (measurement, error) {
	m, err := b.startWithInbox(b.scaled(20000, 1000))
	if err != nil {
		return measurement{}, err
	}
	defer m.stopAndDelete()
	return callAtRate(m.process, perSecond, times, b.limit, func(client *http.Client) error {
		_, err := m.get(client, "http://"+m.ready.HTTP+path)
		return err
	})
}

// callAtRate calls do a number of times at a fixed rate per second, even if earlier calls have not
// ended. The time of each call counts from when the call was due. So if the server pauses, all
// calls that were due during the pause take longer.
func callAtRate(p *process, perSecond, times int, limit time.Duration, do func(client *http.Client) error) (measurement, error) {
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 256, MaxIdleConnsPerHost: 256}, Timeout: limit}
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	took, errs := make([]time.Duration, times), make([]error, times)
	before, began := p.cpu(), time.Now()
	for n := range times {
		due := began.Add(time.Duration(n) * time.Second / time.Duration(perSecond))
		time.Sleep(time.Until(due))
		all.Go(func() {
			errs[n] = do(client)
			took[n] = time.Since(due)
		})
	}
	all.Wait()
	return measurement{Ops: times, Wall: time.Since(began), CPU: p.cpu() - before, Took: took}, errors.Join(errs...)
}

// runClients runs a number of clients in parallel, each with its own connection. Together they call
// do the given number of times.
func runClients(p *process, clients, times int, limit time.Duration, do func(client *http.Client, n int) error) (out measurement, err error) {
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
