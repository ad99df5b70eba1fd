package peers

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
)

// bindConf is a BIND that answers for its zones alone. Its gaps are its directory and its
// port.
const bindConf = `options {
	directory "%[1]s";
	listen-on port %[2]s { 127.0.0.1; };
	listen-on-v6 { none; };
	pid-file none;
	session-keyfile none;
	managed-keys-directory "%[1]s";
	recursion no;
	dnssec-validation no;
	notify no;
	minimal-responses yes;
	allow-transfer { none; };
};
controls {};
dnssec-policy chain {
	keys { csk lifetime unlimited algorithm ecdsap256sha256; };
};
`

// startBIND runs BIND on a port of 127.0.0.1 until the test ends, and returns its address. more is
// what its configuration has beside the options; zones has the text of each zone by name, which is
// in the file NAME.zone.
func startBIND(t *testing.T, more string, zones map[string]string) (addr string) {
	t.Helper()
	program, dir, port := rig.Peer(t, "named"), t.TempDir(), rig.FreePortOn(t, "127.0.0.1")
	files := map[string]string{"conf": fmt.Sprintf(bindConf, dir, port) + more}
	for name, text := range zones {
		files[name+".zone"] = text
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-g", "-c", filepath.Join(dir, "conf"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stopProgram(t, cmd)
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("named says:\n%s", text[max(0, len(text)-2000):])
		}
	})
	addr = net.JoinHostPort("127.0.0.1", port)
	client := dns.Client{Timeout: time.Second}
	for name := range zones {
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			m, _, err := client.Exchange(new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeSOA), addr)
			if err == nil && m.Authoritative {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("named does not serve %s: %v", name, err)
			}
		}
	}
	return addr
}

// passOn carries what comes to port 53 of eight loopback addresses to a nameserver, and returns
// the addresses. Nameservers of others are asked on port 53, and BIND takes only addresses that an
// interface has. A scan asks an address 20 times a second, so it is eight times as fast as at one.
// Each n stands for other addresses.
func passOn(t *testing.T, n int, server string) (ips []string) {
	t.Helper()
	for host := range 8 {
		ip := fmt.Sprintf("127.53.%d.%d", n, host+1)
		stream, err := net.Listen("tcp", net.JoinHostPort(ip, "53"))
		if err != nil {
			t.Skipf("port 53 is not free here: %v", err)
		}
		t.Cleanup(func() { stream.Close() })
		packets, err := net.ListenPacket("udp", net.JoinHostPort(ip, "53"))
		if err != nil {
			t.Skipf("port 53 is not free here: %v", err)
		}
		t.Cleanup(func() { packets.Close() })
		go carryStreams(stream, server)
		go carryPackets(packets, server)
		ips = append(ips, ip)
	}
	return ips
}

func carryStreams(l net.Listener, server string) {
	for {
		near, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer near.Close()
			far, err := net.Dial("tcp", server)
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(far, near)
				far.Close()
			}()
			_, _ = io.Copy(near, far)
		}()
	}
}

func carryPackets(l net.PacketConn, server string) {
	for {
		question := make([]byte, 4096)
		n, from, err := l.ReadFrom(question)
		if err != nil {
			return
		}
		go func() {
			far, err := net.Dial("udp", server)
			if err != nil {
				return
			}
			defer far.Close()
			_ = far.SetDeadline(time.Now().Add(5 * time.Second))
			answer := make([]byte, 4096)
			if _, err = far.Write(question[:n]); err == nil {
				n, err = far.Read(answer)
			}
			if err == nil {
				_, _ = l.WriteTo(answer[:n], from)
			}
		}()
	}
}
