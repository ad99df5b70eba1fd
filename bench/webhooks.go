package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// endpoints is the number of webhook endpoints; the last one accepts nothing.
const endpoints = 10

// webhookWorks lists deliveries of events, which are durable jobs.
func webhookWorks() []work {
	return []work{
		mailsteadWork("webhooks, 1 of 10 refuses", func(b *bench) (measured, error) { return b.webhooks(b.times(1500, 8), "https://127.0.0.1:1/") }),
		mailsteadWork("webhooks, 1 of 10 hangs", func(b *bench) (measured, error) { return b.webhooks(b.times(1500, 8), "") }),
	}
}

// webhooks sends messages, each of which causes one event for each endpoint, and waits until all
// endpoints except the last have all events. dead is the last one's URL; if it is empty, the last
// one accepts requests and never answers.
func (b *bench) webhooks(times int, dead string) (measured, error) {
	cert, key, err := writeCertificate(b.dir)
	if err != nil {
		return measured{}, err
	}
	sink, addr, err := b.sink(sinkHooks, "-cert", cert, "-key", key, "-addresses", strconv.Itoa(endpoints))
	if err != nil {
		return measured{}, err
	}
	defer sink.stop()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return measured{}, err
	}
	m, err := b.newMailstead("", "--ca-file", cert)
	if err != nil {
		return measured{}, err
	}
	defer m.discard()
	for n := range endpoints {
		url := fmt.Sprintf("https://127.0.0.%d:%s/take", n+1, port)
		switch {
		case n == endpoints-1 && dead != "":
			url = dead
		case n == endpoints-1:
			url = strings.Replace(url, "take", "hang", 1)
		}
		if err := m.call("POST", "/v1/webhooks", map[string]any{"url": url, "events": []string{"email.received"}}, nil); err != nil {
			return measured{}, err
		}
	}
	before, began := m.cpu(), time.Now()
	if _, err := sendAll(m.ready.SMTP, b.messages(2<<10, false), 8, times, false, b.limit); err != nil {
		return measured{}, err
	}
	want := (endpoints - 1) * times
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: 10 * time.Second} // the certificate is self-made
	defer client.CloseIdleConnections()
	var got hookCounts
	for got.Events < want {
		time.Sleep(5 * time.Millisecond)
		text, err := m.get(client, "https://"+addr+"/counts")
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err == nil && time.Since(began) > b.limit {
			err = fmt.Errorf("%d of %d arrived in %s", got.Events, want, b.limit)
		}
		if err != nil {
			return measured{}, err
		}
	}
	out := measured{Ops: want, Wall: time.Since(began), CPU: m.cpu() - before}
	if got.Unsigned > 0 || got.Events > want {
		err = fmt.Errorf("%d deliveries without a signature, %d events instead of %d", got.Unsigned, got.Events, want)
	}
	return out, err
}

// hookCounts holds the counts of a hookSink.
type hookCounts struct {
	Events   int // sum over all endpoints, without repeats
	Unsigned int // deliveries without a signature or an id
}

// A hookSink accepts deliveries at /take, never answers at /hang, and returns its counts at
// /counts.
type hookSink struct {
	mu     sync.Mutex
	counts hookCounts
	seen   map[string]bool // by host and event id
}

func (s *hookSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/hang":
		<-r.Context().Done()
		return
	case "/counts":
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(s.counts)
		return
	}
	_, err := io.Copy(io.Discard, r.Body)
	id, timestamp := r.Header.Get("X-Service-Event-Id"), r.Header.Get("X-Service-Timestamp")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch name := r.Host + " " + id; {
	case err != nil || id == "" || timestamp == "" || !strings.HasPrefix(r.Header.Get("X-Service-Signature"), "v1="):
		s.counts.Unsigned++
	case !s.seen[name]:
		s.seen[name] = true
		s.counts.Events++
	}
	w.WriteHeader(http.StatusNoContent)
}
