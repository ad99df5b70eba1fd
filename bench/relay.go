package main

import (
	"encoding/base64"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// hosts is how many mail hosts of others there are.
const hosts = 40

// relayWorks are mail that users submit, on its way out.
func relayWorks() []work {
	return []work{
		{"submit → relay", []string{"mailstead"}, func(b *bench, _ string) (measured, error) {
			return b.relay(b.times(3000, 8), 0, relayed)
		}},
		{"submit → relay, one answers in 100 ms", []string{"mailstead"}, func(b *bench, _ string) (measured, error) {
			return b.relay(b.times(1500, 8), 100*time.Millisecond, relayed)
		}},
		{"submit → 40 hosts, 100 ms", []string{"mailstead"}, func(b *bench, _ string) (measured, error) {
			return b.relay(b.times(1500, 8), 100*time.Millisecond, direct)
		}},
	}
}

const (
	relayed = "relay"
	direct  = "direct"
)

// relay submits messages over eight connections, and waits until others have taken all of them.
func (b *bench) relay(times int, delay time.Duration, way string) (measured, error) {
	sink, addr, err := b.sink(sinkRelay, "-delay", delay.String(), "-addresses", strconv.Itoa(hosts+1))
	if err != nil {
		return measured{}, err
	}
	defer sink.stop()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return measured{}, err
	}
	config, args := "", []string{"--outbound", way}
	if way == relayed {
		config = fmt.Sprintf("[[relay]]\nname = 'r1'\nkind = 'custom'\nhost = %q\nport = %s\ntls = 'none'\n", host, port)
	} else {
		args = append(args, "--mx-port", port)
	}
	m, err := b.newMailstead(config, args...)
	if err != nil {
		return measured{}, err
	}
	defer m.discard()

	messages := b.messages(2<<10, false)
	before, began := m.cpu(), time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	failed := make(chan error, 8)
	for range 8 {
		all.Go(func() {
			c, err := dialSMTP(m.ready.Submission, false, b.limit)
			if err == nil {
				defer c.Close()
				err = c.say("AUTH PLAIN "+base64.StdEncoding.EncodeToString([]byte("\x00"+address(0)+"\x00"+password)), "235")
			}
			for n := next.Add(1); err == nil && n <= int64(times); n = next.Add(1) {
				// The author of what a user sends is that user.
				text := strings.Replace(string(messages[n%int64(len(messages))]), "ann@"+sender, address(0), 1)
				err = c.send(address(0), fmt.Sprintf("to%d@far%d.test", n, n%hosts), []byte(text))
			}
			if err != nil {
				failed <- err
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return measured{}, err
	default:
	}
	count, err := dialSMTP(addr, false, b.limit)
	if err != nil {
		return measured{}, err
	}
	defer count.Close()
	for taken := 0; taken < times; time.Sleep(5 * time.Millisecond) {
		if taken, err = count.taken(); err != nil {
			return measured{}, fmt.Errorf("%d of %d arrived: %w", taken, times, err)
		}
	}
	return measured{times, time.Since(began), m.cpu() - before, nil}, nil
}

// taken asks a sink how many messages it has taken.
func (c *smtpClient) taken() (n int, err error) {
	if _, err := c.Write([]byte("NOOP\r\n")); err != nil {
		return 0, err
	}
	line, err := c.r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	_, _ = fmt.Sscanf(line, "250 %d", &n)
	return n, nil
}
