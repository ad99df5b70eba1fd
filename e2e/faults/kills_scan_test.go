package faults

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
)

// oldHosts is how many hosts the scanned zone has.
const oldHosts = 300

// An oldServer is a nameserver of others, with the zone killed.test.
type oldServer struct {
	zone []dns.RR
	ip   string

	mu    sync.Mutex
	asked int
	open  bool          // it gives its zone away
	hold  chan struct{} // it answers when this is closed; nil: at once
}

// startOldServer runs a nameserver on port 53 of a loopback address of its own until the test
// ends.
func startOldServer(t *testing.T) *oldServer {
	t.Helper()
	s := &oldServer{}
	text := "$ORIGIN killed.test.\n$TTL 300\n@ SOA ns1.elsewhere.test. hostmaster.elsewhere.test. 1 3600 600 86400 60\n@ NS ns1.elsewhere.test.\nwww A 192.0.2.1\n"
	for n := range oldHosts {
		text += fmt.Sprintf("host%d A 192.0.2.%d\n", n, n%250+1)
	}
	for p := dns.NewZoneParser(strings.NewReader(text), "", ""); ; {
		rr, ok := p.Next()
		if !ok {
			break
		}
		s.zone = append(s.zone, rr)
	}
	for n := 1; n < 250 && s.ip == ""; n++ {
		ip := fmt.Sprintf("127.54.0.%d", n)
		stream, err := net.Listen("tcp", net.JoinHostPort(ip, "53"))
		if err != nil {
			continue
		}
		packets, err := net.ListenPacket("udp", net.JoinHostPort(ip, "53"))
		if err != nil {
			stream.Close()
			continue
		}
		s.ip = ip
		for _, one := range []*dns.Server{{Listener: stream, Handler: s}, {PacketConn: packets, Handler: s}} {
			go func() { _ = one.ActivateAndServe() }()
			t.Cleanup(func() { _ = one.Shutdown() })
		}
	}
	if s.ip == "" {
		t.Skip("port 53 of loopback addresses is not free here")
	}
	return s
}

func (s *oldServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// ServeDNS answers a question.
func (s *oldServer) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	s.mu.Lock()
	s.asked++
	open, hold := s.open, s.hold
	s.mu.Unlock()
	if hold != nil {
		<-hold
	}
	m := new(dns.Msg).SetReply(q)
	m.Authoritative = true
	asked, exists := q.Question[0], false
	for _, rr := range s.zone {
		switch same := strings.EqualFold(rr.Header().Name, asked.Name); {
		case asked.Qtype == dns.TypeAXFR && open:
			m.Answer, exists = append(m.Answer, rr), true
		case same && rr.Header().Rrtype == asked.Qtype:
			m.Answer, exists = append(m.Answer, rr), true
		case same:
			exists = true
		}
	}
	switch {
	case asked.Qtype == dns.TypeAXFR && open:
		m.Answer = append(m.Answer, s.zone[0])
	case asked.Qtype == dns.TypeAXFR:
		m.Rcode = dns.RcodeRefused
	case !exists:
		m.Rcode, m.Ns = dns.RcodeNameError, s.zone[:1]
	case len(m.Answer) == 0:
		m.Ns = s.zone[:1]
	}
	_ = w.WriteMsg(m)
}

// scanZone kills a server that scans the zone of a domain, first while it asks, then at a point.
// After each start the scan begins anew. Until it has ended, nothing of it can be seen or imported.
func (w *killWorld) scanZone(t *testing.T, name string, n int) bool {
	if n > 1 {
		return false // each scan comes to a point once
	}
	old, world, dir := startOldServer(t), rig.NewFakeResolver(t), t.TempDir()
	world.Set(t, "killed.test", "NS", "ns1.elsewhere.test.")
	world.Set(t, "ns1.elsewhere.test", "A", old.ip)
	world.Set(t, "ns1.elsewhere.test", "AAAA")
	out, err := exec.Command(w.path, "init", "--data", dir, "--owner-email", "owner@example.org", "--json").Output()
	var made struct{ Token string }
	if err != nil || json.Unmarshal(out, &made) != nil {
		t.Fatalf("init: %v %s", err, out)
	}
	i := rig.Prepare(t, dir, made.Token, "--outbound", "capture", "--resolver", world.Addr)
	i.Program = w.path
	i.Start()
	var connected struct {
		Domains []struct {
			ID string `json:"domain_id"`
		}
	}
	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"killed.test"}}, &connected)
	domain := "/v1/domains/" + connected.Domains[0].ID
	var job struct {
		JobID  string `json:"job_id"`
		Status string
		Result *struct {
			Method   string
			Complete bool
			Records  []any
		}
	}
	i.Want(202, "POST", domain+"/zone/scan", map[string]any{}, &job) // that of the connection
	id := job.JobID
	zone := i.GetText(domain + "/zone")
	nothing := func(when string) {
		t.Helper()
		if i.Want(200, "GET", "/v1/jobs/"+id, nil, &job); job.Status == "completed" || job.Result != nil {
			t.Errorf("%s: the job is %s with %+v", when, job.Status, job.Result)
		}
		var failed struct{ Error struct{ Message string } }
		i.Want(400, "POST", domain+"/zone/import", map[string]any{"scan": id}, &failed)
		if !strings.Contains(failed.Error.Message, "not ended yet") {
			t.Errorf("%s: an import says %q", when, failed.Error.Message)
		}
		if now := i.GetText(domain + "/zone"); now != zone {
			t.Errorf("%s: the zone was %s and is %s", when, zone, now)
		}
	}
	i.Until("the scan asks", func() (begun bool) {
		old.set(func() { begun = old.asked > 40 })
		return begun
	})
	nothing("while it asks")
	i.Kill()

	old.set(func() { old.open = true })
	i.Env = []string{"MAILSTEAD_KILL_AT=" + name + ":1"}
	i.Launch()
	for end := time.Now().Add(20 * time.Second); !i.Died(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			i.Kill()
			return false
		}
	}
	_ = i.Cmd.Wait() // by the signal
	if i.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the server ended with %v", i.Cmd.ProcessState)
	}
	i.Cmd, i.Env = nil, nil

	hold := make(chan struct{})
	old.set(func() { old.hold = hold })
	i.Start()
	nothing("after " + name)
	old.set(func() { old.hold = nil })
	close(hold)
	i.Until("the scan ends", func() bool {
		i.Want(200, "GET", "/v1/jobs/"+id+"?wait=2", nil, &job)
		return job.Status == "completed"
	})
	if r := job.Result; r == nil || r.Method != "axfr" || !r.Complete || len(r.Records) != oldHosts+2 {
		t.Errorf("the scan has found %+v", r)
	}
	var imported struct{ Imported int }
	if i.Want(200, "POST", domain+"/zone/import", map[string]any{"scan": id}, &imported); imported.Imported != oldHosts+1 {
		t.Errorf("%d records were imported", imported.Imported)
	}
	i.Check()
	return true
}
