package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

func otherWorks() []work {
	return []work{
		mailsteadWork("dns MX, UDP", func(b *bench) (measured, error) { return b.dnsQueries(8, b.times(20000, 8)) }),
		mailsteadWork("start, 10 000 messages", func(b *bench) (measured, error) { return b.starts(b.times(10000, 100), 5) }),
		mailsteadWork("idle, MiB", (*bench).idle),
	}
}

// dnsQueries queries the program's DNS server about a domain that it hosts.
func (b *bench) dnsQueries(clients, times int) (measured, error) {
	m, err := b.newMailstead("")
	if err != nil {
		return measured{}, err
	}
	defer m.discard()
	var next atomic.Int64
	var mu sync.Mutex
	var all sync.WaitGroup
	var errs []error
	var out measured
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
						return fmt.Errorf("no answer: %s", dns.RcodeToString[answer.Rcode])
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

// starts measures the time from the start of the process until all listeners accept connections.
func (b *bench) starts(size, times int) (out measured, err error) {
	m, err := b.filled(size)
	if err != nil {
		return out, err
	}
	defer func() { m.discard() }()
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

// idle measures the memory of an idle server: p50 is in MiB instead of milliseconds.
func (b *bench) idle() (measured, error) {
	m, err := b.newMailstead("")
	if err != nil {
		return measured{}, err
	}
	defer m.discard()
	time.Sleep(20 * time.Second)
	size := time.Duration(float64(m.memory()) / (1 << 20) * float64(time.Millisecond))
	return measured{Ops: 1, Wall: time.Second, CPU: m.cpu(), Took: []time.Duration{size}}, nil
}
