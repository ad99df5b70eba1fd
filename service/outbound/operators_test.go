package outbound_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestOperatorsLimits: domains hosted by the same operator share its connections and rate; domains
// of other operators do not.
func TestOperatorsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections, perMinute := 2, 60
		var mu sync.Mutex
		open, most := 0, 0
		h := &servicetest.Host{T: t}
		slow := func(c net.Conn) { // it takes 300 ms for a message
			defer c.Close()
			r, data := bufio.NewReader(c), false
			fmt.Fprint(c, "220 big\r\n")
			for {
				line, err := r.ReadString('\n')
				answer := "250 ok"
				switch {
				case err != nil:
					return
				case data && line != ".\r\n":
					continue
				case data:
					mu.Lock()
					open--
					mu.Unlock()
					data = false
				case strings.HasPrefix(line, "MAIL"):
					mu.Lock()
					open++
					most = max(most, open)
					mu.Unlock()
					time.Sleep(300 * time.Millisecond)
				case strings.HasPrefix(line, "DATA"):
					answer, data = "354 go on", true
				}
				fmt.Fprint(c, answer+"\r\n")
			}
		}
		i := servicetest.Install(t, core.Config{Settings: core.Settings{Destinations: []core.Destination{{Operator: "big.test", Connections: &connections}, {Operator: "rated.test", PerMinute: &perMinute}}}})
		piped(i, map[string]func(net.Conn){"127.0.0.2": slow, "127.0.0.1": h.Serve})
		i.DNS.IP = map[string]string{"mx1.big.test": "127.0.0.2", "mx2.big.test": "127.0.0.2"}
		var big, rated []string
		for n := range 8 {
			domain := fmt.Sprintf("hosted%d.test", n)
			i.DNS.MX[domain] = fmt.Sprintf("mx%d.big.test", 1+n%2)
			for m := range 5 {
				big = append(big, fmt.Sprintf("x%d@%s", m, domain))
			}
			domain = fmt.Sprintf("other%d.test", n)
			i.DNS.MX[domain] = "mx.rated.test"
			for m := range 5 {
				rated = append(rated, fmt.Sprintf("x%d@%s", m, domain))
			}
		}
		ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
		i.MustSubmit(ann, servicetest.PlainMessage, big...)
		i.MustSubmit(ann, servicetest.PlainMessage, rated...)
		i.Run()
		sentTo := func(list []string) (n int) {
			for _, to := range list {
				if i.Row(to).Status == store.OutgoingSent {
					n++
				}
			}
			return n
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := sentTo(rated); n < 18 || n > 21 {
			t.Errorf("%d were sent in 20 s to the operator with 60 a minute", n)
		}
		time.Sleep(40 * time.Second)
		synctest.Wait()
		i.Stop()
		i.Svc.Close()
		if n, m := sentTo(big), sentTo(rated); n != len(big) || m != len(rated) {
			t.Errorf("%d of %d and %d of %d were sent in a minute", n, len(big), m, len(rated))
		}
		if mu.Lock(); most != connections {
			t.Errorf("the operator got %d messages at once, want %d", most, connections)
		}
		mu.Unlock()
	})
}

// TestPauseAndRelayOfAnOperator: after an answer that asks for less, an operator gets no mail
// during its pause; mail for an operator with a relay takes that relay.
func TestPauseAndRelayOfAnOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pause := 5 * time.Minute
		var mu sync.Mutex
		var asked []time.Time
		h := &servicetest.Host{T: t, Answer: func(n int, _ servicetest.Taken) string {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, time.Now())
			if len(asked) == 1 {
				return "421 4.7.0 too much mail, slow down"
			}
			return "250 ok"
		}}
		relay := &servicetest.Host{T: t}
		at := relay.Relay("custom")
		at.Host = "127.0.0.3"
		i := servicetest.Install(t, core.Config{
			Settings: core.Settings{Outbound: core.ViaDirect, Relays: []core.Relay{at}, Destinations: []core.Destination{{Operator: "touchy.test", Pause: &pause}, {Operator: "closed.test", Relay: "r1"}}},
		})
		piped(i, map[string]func(net.Conn){"127.0.0.1": h.Serve, "127.0.0.3": relay.Serve})
		i.DNS.MX["a.test"], i.DNS.MX["b.test"], i.DNS.MX["c.test"] = "mx.touchy.test", "mx.touchy.test", "mx.closed.test"
		ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
		i.MustSubmit(ann, servicetest.PlainMessage, "x@a.test")
		i.Run()
		time.Sleep(time.Second)
		synctest.Wait()
		i.MustSubmit(ann, servicetest.PlainMessage, "x@b.test", "x@c.test")
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		i.Stop()
		i.Svc.Close()
		if len(asked) != 3 || asked[1].Sub(asked[0]) < pause {
			t.Errorf("the host was asked at %v", asked)
		}
		if row := i.Row("x@c.test"); row.Status != store.OutgoingRelayed || row.Provider != "r1" || len(relay.Mails()) != 1 {
			t.Errorf("the one that takes the relay: %+v", row)
		}
	})
}
