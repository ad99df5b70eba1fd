package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// otherWorkloads returns workloads of DNS queries, starts and an idle server.
func otherWorkloads() []workload {
	return []workload{
		mailsteadWorkload("dns MX, UDP", func(b *bench) (measurement, error) { return b.measureDNS(8, b.scaled(20000, 8)) }),
		mailsteadWorkload("start, 10 000 messages", func(b *bench) (measurement, error) { return b.measureStart(b.scaled(10000, 100), 5) }),
		mailsteadWorkload("idle, MiB", (*bench).measureIdle),
	}
}

// measureDNS measures queries to Mailstead's DNS server for the MX of a hosted domain.
func (b *bench) measureDNS(clients, times int) (measurement, error) {
	m, err := b.newMailstead("")
	if err != nil {
		return measurement{}, err
	}
	defer m.stopAndDelete()
	var next atomic.Int64
	var mu sync.Mutex
	var all sync.WaitGroup
	var errs []error
	var out measurement
	before, began := m.cpu(), time.Now()
	for range clients {
		all.Go(func() {
			var mine []time.Duration
			err := func() error {
				conn, err := dns.Dial("udp", m.ready.DNS)
				if err != nil {
					return err
				}
				defer conn.Close()
				for next.Add(1) <= int64(times) {
					q := new(dns.Msg).SetQuestion(domain+".", dns.TypeMX)
					start := time.Now()
					_ = conn.SetDeadline(start.Add(5 * time.Second))
					if err := conn.WriteMsg(q); err != nil {
						return err
					}
					answer, err := conn.ReadMsg()
					if err != nil {
						return err
					}
					if len(answer.Answer) == 0 {
						return fmt.Errorf("the DNS answer has no records: %s", dns.RcodeToString[answer.Rcode])
					}
					mine = append(mine, time.Since(start))
				}
				return nil
			}()
			mu.Lock()
			defer mu.Unlock()
			out.Took, errs = append(out.Took, mine...), append(errs, err)
		})
	}
	all.Wait()
	out.Ops, out.Wall, out.CPU = len(out.Took), time.Since(began), m.cpu()-before
	return out, errors.Join(errs...)
}

// measureStart measures the time from the start of the process until all its listeners accept
// connections. The store has size messages.
func (b *bench) measureStart(size, times int) (out measurement, err error) {
	m, err := b.startFilled(size)
	if err != nil {
		return out, err
	}
	defer func() { m.stopAndDelete() }()
	for range times {
		m.stop()
		began := time.Now()
		if err := m.start(); err != nil {
			return out, err
		}
		took := time.Since(began)
		out.Took, out.Wall, out.CPU = append(out.Took, took), out.Wall+took, out.CPU+m.cpu()
	}
	out.Ops = times
	return out, nil
}

// measureIdle measures the memory of an idle server. The result is the p50, in MiB instead of
// milliseconds.
func (b *bench) measureIdle() (measurement, error) {
	m, err := b.newMailstead("")
	if err != nil {
		return measurement{}, err
	}
	defer m.stopAndDelete()
	time.Sleep(20 * time.Second)
	size := time.Duration(float64(m.residentBytes()) / (1 << 20) * float64(time.Millisecond))
	return measurement{Ops: 1, Wall: time.Second, CPU: m.cpu(), Took: []time.Duration{size}}, nil
}
