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

// apiWorks are requests to the REST API. net/http is a bare server that answers with the same JSON.
func apiWorks() (list []work) {
	for _, w := range []struct{ name, path string }{
		{"get_email_user", "/v1/email-users/{user}"},
		{"list_inbox", "/v1/inbox?limit=50"},
		{"list_inbox unread", "/v1/inbox?limit=50&unread=true"},
		{"list_email_user_inbox", "/v1/email-users/{user}/inbox?limit=50"},
		{"get_inbox_message", "/v1/email-users/{user}/inbox/1"},
		{"search", "/v1/inbox?limit=20&q=article"},
		{"list_messages", "/v1/messages?limit=50"},
	} {
		list = append(list, work{"api " + w.name, []string{"mailstead", sinkHTTP}, func(b *bench, server string) (measured, error) {
			return b.gets(server, w.path, 8, b.times(8000, 64))
		}})
	}
	return append(list, work{"api send_email, local", []string{"mailstead"}, func(b *bench, _ string) (measured, error) {
		return b.sends(8, b.times(2000, 8))
	}})
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
		if p, addr, err = b.sink(sinkHTTP, "-file", file, "-token", m.token); err != nil {
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
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+m.token)
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s %s", url, resp.Status, text)
	}
	return text, err
}

func (b *bench) sends(clients, times int) (measured, error) {
	m, err := b.newMailstead("")
	if err != nil {
		return measured{}, err
	}
	defer m.discard()
	url := "http://" + m.ready.HTTP + "/v1/email-users/" + m.users[0] + "/inbox/send"
	return together(m.process, clients, times, b.limit, func(client *http.Client, n int) error {
		body := fmt.Sprintf(`{"to":%q,"subject":"report %d","text":%q}`, address(1+n%(users-1)), n, strings.Join(words, " "))
		req, err := http.NewRequest("POST", url, strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+m.token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("send: %s %s", resp.Status, text)
		}
		return err
	})
}

// together has clients do something so many times in all, each over a connection of its own.
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
