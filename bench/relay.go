package main

import (
	"encoding/base64"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Routes of outgoing mail.
const (
	routeRelay    = "relay"    // through a relay
	routeUnsigned = "unsigned" // through a relay, without our DKIM signatures
	routeDirect   = "direct"   // to the MX hosts of the recipients
)

// relayWorkloads returns workloads in which users submit mail for recipients elsewhere.
func relayWorkloads() (list []workload) {
	add := func(name, way string, times int, delay time.Duration, servers ...string) {
		list = append(list, workload{name: name, servers: servers, run: func(b *bench, server string) (measurement, error) {
			return b.measureRelay(server, way, b.scaled(times, 8), delay)
		}})
	}
	add("submit → relay", routeRelay, 3000, 0, "mailstead", sinkSign)
	add("submit → relay, unsigned", routeUnsigned, 6000, 0, "mailstead")
	add("submit → relay, one answers in 100 ms", routeRelay, 1500, 100*time.Millisecond, "mailstead")
	add("submit → 40 hosts, 100 ms", routeDirect, 1500, 100*time.Millisecond, "mailstead")
	return list
}

// measureRelay measures outgoing mail. It submits messages over eight connections and waits until
// all have arrived at a sink. delay is how long the sink waits before it answers a message.
func (b *bench) measureRelay(server, route string, times int, delay time.Duration) (measurement, error) {
	sink, addr, err := b.startSink(sinkRelay, "-delay", delay.String(), "-addresses", strconv.Itoa(recipientDomains+1))
	if err != nil {
		return measurement{}, err
	}
	defer sink.stop()
	var p *process
	var submission string
	if server == sinkSign {
		p, submission, err = b.startSink(sinkSign, "-relay", addr)
		if err != nil {
			return measurement{}, err
		}
		defer p.stop()
	} else {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return measurement{}, err
		}
		config, args := "", []string{"--outbound", routeDirect, "--mx-port", port}
		if route != routeDirect {
			config = fmt.Sprintf("[[relay]]\nname = 'r1'\nkind = 'custom'\nhost = %q\nport = %s\ntls = 'none'\ndkim = %t\n", host, port, route != routeUnsigned)
			args = []string{"--outbound", routeRelay}
		}
		m, err := b.newMailstead(config, args...)
		if err != nil {
			return measurement{}, err
		}
		defer m.stopAndDelete()
		p, submission = m.process, m.ready.Submission
	}

	messages := b.messages(2<<10, false)
	before, began := p.cpu(), time.Now()
	var next atomic.Int64
	err = runEightInParallel(func(int) error {
		c, err := dialSMTP(submission, false, b.limit)
		if err != nil {
			return err
		}
		defer c.Close()
		err = c.command("AUTH PLAIN "+base64.StdEncoding.EncodeToString([]byte("\x00"+address(0)+"\x00"+password)), "235")
		for n := next.Add(1); err == nil && n <= int64(times); n = next.Add(1) {
			// The author must be the user who submits.
			text := strings.Replace(string(messages[n%int64(len(messages))]), "ann@"+senderDomain, address(0), 1)
			err = c.send(address(0), fmt.Sprintf("to%d@far%d.test", n, n%recipientDomains), []byte(text))
		}
		return err
	})
	if err != nil {
		return measurement{}, err
	}
	count, err := dialSMTP(addr, false, b.limit)
	if err != nil {
		return measurement{}, err
	}
	defer count.Close()
	var taken, signatures int
	for taken < times {
		time.Sleep(5 * time.Millisecond)
		taken, signatures, err = count.askReceived()
		if err != nil {
			return measurement{}, fmt.Errorf("%d of %d messages arrived at the sink: %w", taken, times, err)
		}
	}
	out := measurement{Ops: times, Wall: time.Since(began), CPU: p.cpu() - before}
	if want := 2 * taken; route != routeUnsigned && signatures != want || route == routeUnsigned && signatures != 0 {
		err = fmt.Errorf("%d messages arrived at the sink with %d DKIM signatures", taken, signatures)
	}
	return out, err
}

// askReceived asks a sink, by NOOP, how many messages it has received, and how many DKIM signatures
// these have.
func (c *smtpClient) askReceived() (n, signatures int, err error) {
	if _, err := c.Write([]byte("NOOP\r\n")); err != nil {
		return 0, 0, err
	}
	line, err := c.r.ReadString('\n')
	if err != nil {
		return 0, 0, err
	}
	_, err = fmt.Sscanf(line, "250 %d %d", &n, &signatures)
	return n, signatures, err
}
