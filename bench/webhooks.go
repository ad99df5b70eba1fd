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

// endpointCount is the number of webhook endpoints. The last one never accepts a delivery.
const endpointCount = 10

// webhookWorkloads returns workloads of deliveries of events to webhook endpoints.
func webhookWorkloads() []workload {
	return []workload{
		mailsteadWorkload("webhooks, 1 of 10 refuses", func(b *bench) (measurement, error) {
			return b.measureWebhooks(b.scaled(1500, 8), "https://127.0.0.1:1/")
		}),
		mailsteadWorkload("webhooks, 1 of 10 hangs", func(b *bench) (measurement, error) { return b.measureWebhooks(b.scaled(1500, 8), "") }),
	}
}

// measureWebhooks measures webhook deliveries. It sends messages, each of which causes one event
// for every endpoint. Then it waits until all endpoints except the last have all events.
// lastEndpoint is the URL of the last one; if it is "", that endpoint accepts requests and never
// answers.
func (b *bench) measureWebhooks(times int, lastEndpoint string) (measurement, error) {
	cert, key, err := writeCertificate(b.dir)
	if err != nil {
		return measurement{}, err
	}
	sink, addr, err := b.startSink(sinkHooks, "-cert", cert, "-key", key, "-addresses", strconv.Itoa(endpointCount))
	if err != nil {
		return measurement{}, err
	}
	defer sink.stop()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return measurement{}, err
	}
	m, err := b.newMailstead("", "--ca-file", cert)
	if err != nil {
		return measurement{}, err
	}
	defer m.stopAndDelete()
	for n := range endpointCount {
		url := fmt.Sprintf("https://127.0.0.%d:%s/take", n+1, port)
		switch {
		case n == endpointCount-1 && lastEndpoint != "":
			url = lastEndpoint
		case n == endpointCount-1:
			url = strings.Replace(url, "take", "hang", 1)
		}
		if err := m.call("POST", "/v1/webhooks", map[string]any{"url": url, "events": []string{"email.received"}}, nil); err != nil {
			return measurement{}, err
		}
	}
	before, began := m.cpu(), time.Now()
	if _, err := sendAll(m.ready.SMTP, b.messages(2<<10, false), 8, times, false, b.limit); err != nil {
		return measurement{}, err
	}
	want := (endpointCount - 1) * times
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: 10 * time.Second} // the certificate is self-signed
	defer client.CloseIdleConnections()
	var got hookCounts
	for got.Events < want {
		time.Sleep(5 * time.Millisecond)
		text, err := m.get(client, "https://"+addr+"/counts")
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err == nil && time.Since(began) > b.limit {
			err = fmt.Errorf("only %d of %d webhook events arrived in %s", got.Events, want, b.limit)
		}
		if err != nil {
			return measurement{}, err
		}
	}
	out := measurement{Ops: want, Wall: time.Since(began), CPU: m.cpu() - before}
	if got.Unsigned > 0 || got.Events > want {
		err = fmt.Errorf("webhook deliveries: %d had no signature, and %d events arrived instead of %d", got.Unsigned, got.Events, want)
	}
	return out, err
}

// hookCounts is what a hookSink has counted.
type hookCounts struct {
	Events   int // number of events over all endpoints, without repeated deliveries
	Unsigned int // number of deliveries without a signature or an event ID
}

// A hookSink is a receiver of webhooks. It accepts deliveries at /take, never answers at /hang, and
// returns its counts at /counts.
type hookSink struct {
	mu     sync.Mutex
	counts hookCounts
	seen   map[string]bool // by host and event ID
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
