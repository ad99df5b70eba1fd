package peers

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/smtp"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gosmtp "github.com/emersion/go-smtp"
	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/store"
)

// enforcerMain is main.cf of a Postfix in the directory 1 that looks everything up and delivers to
// those whom it finds.
const enforcerMain = `compatibility_level = 3.6
queue_directory = %[1]s/queue
data_directory = %[1]s/data
maillog_file_prefixes = %[1]s
maillog_file = %[1]s/log
myhostname = mx.them.test
mydestination =
inet_interfaces = loopback-only
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
smtpd_relay_restrictions = permit_mynetworks, reject
smtpd_peername_lookup = no
smtp_host_lookup = dns
smtp_tls_loglevel = 1
minimal_backoff_time = 1s
maximal_backoff_time = 1s
queue_run_delay = 1s
%[2]s`

// A published is Mailstead in production on an address of its own, with the ports that others
// expect, certificates by ACME and a DNS of its own, so that others can find and enforce what it
// publishes.
type published struct {
	*rig.Instance
	world  *rig.FakeResolver
	pebble *pebble
	ip     string // all addresses are of its /24: .1 is ours
	sender *postfix
	ann    string // a mailbox
}

// newPublished starts one on the addresses net+".x", hosting a domain.
func newPublished(t *testing.T, net, domain string) *published {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("port 25 is root's")
	}
	w := &published{world: acmeWorld(t), ip: net + ".1"}
	for _, name := range []string{acmeHost, "ns1.acme.test", "ns2.acme.test"} {
		w.world.Set(t, name, "A", w.ip)
	}
	w.world.Set(t, "them.test", "TXT", `"v=spf1 ip4:127.0.0.0/8 -all"`)
	port := rig.FreePort(t)
	w.pebble = startPebble(t, w.world, port, 0, "PEBBLE_VA_NOSLEEP=1")
	w.Instance = rig.Start(t, rig.GenerousLimits, "--hostname", acmeHost, "--http", fmt.Sprintf("%s:%d", w.ip, port), "--http-tls", w.ip+":443",
		"--submissions", "127.0.0.1:0", "--imaps", "127.0.0.1:0", "--dns", w.ip+":53", "--public-ip", w.ip, "--resolver", w.world.Addr, "--acme-directory", w.pebble.directory, "--ca-file", w.pebble.caFile,
		"--allow-private-destinations", "--outbound", "capture", "--smtp", w.ip+":25")
	w.world.Delegate(w.Ready.DNS)
	w.host(domain)
	w.ann = w.AddMailbox("ann@"+domain, "correct horse")
	w.Until("the host has its certificate", func() bool { return w.pebble.shown(w.Ready.HTTPTLS, acmeHost) != nil })
	return w
}

// host adds a domain that is delegated to us.
func (w *published) host(domain string) (id string) {
	w.T.Helper()
	w.world.Set(w.T, domain, "NS", "ns1.acme.test.", "ns2.acme.test.")
	return w.AddDomain(domain)
}

// startSender runs a Postfix that asks a nameserver at port 53, with further settings and files of
// authorities.
func (w *published) startSender(nameserver, settings string, trust ...string) {
	t := w.T
	t.Helper()
	p := newPostfix(t, rig.FreePortOn(t, "127.77.25.1"))
	p.jail = newJail(t)
	p.jail.file("/etc/resolv.conf", "nameserver "+nameserver+"\noptions edns0 trust-ad\n")
	var all bytes.Buffer
	for _, file := range trust {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	if p.write("ca.pem", all.String()); len(trust) > 0 {
		settings += "smtp_tls_CAfile = " + filepath.Join(p.dir, "ca.pem") + "\n"
	}
	p.write("main.cf", fmt.Sprintf(enforcerMain, p.dir, settings))
	p.start()
	w.sender = p
}

// sends has Postfix send to a recipient, and gives what it logs of the attempt.
func (w *published) sends(to string) (fate string) {
	w.T.Helper()
	c, err := smtp.Dial(w.sender.addr())
	if err != nil {
		w.T.Fatal(err)
	}
	defer c.Close()
	if err := rig.SendMail(c, "bob@them.test", []string{to}, "From: bob@them.test\r\nSubject: to "+to+"\r\n\r\nhello\r\n"); err != nil {
		w.T.Fatal(err)
	}
	w.Until("postfix has tried "+to, func() bool {
		for line := range strings.Lines(w.sender.log()) {
			if strings.Contains(line, "to=<"+to+">") && strings.Contains(line, "status=") {
				fate = line
			}
		}
		return fate != ""
	})
	return fate
}

// delivers demands that a message arrives, over TLS with a host that Postfix has verified.
func (w *published) delivers(to string) {
	w.T.Helper()
	verified := func() int {
		return strings.Count(w.sender.log(), "Verified TLS connection established to "+acmeHost+"["+w.ip+"]:25")
	}
	before := verified()
	if fate := w.sends(to); !strings.Contains(fate, "status=sent") {
		w.T.Errorf("%s: %s", to, fate)
	}
	if verified() == before {
		w.T.Errorf("%s: postfix has verified nothing", to)
	}
	for _, r := range w.Inbox(w.ann) {
		if r.Subject == "to "+to {
			return
		}
	}
	w.T.Errorf("%s: the message is not here", to)
}

// keeps demands that Postfix puts a message off, for a reason that it logs, and that nobody gets
// it.
func (w *published) keeps(to, why string, by *impostor) {
	w.T.Helper()
	fate := w.sends(to)
	if log := w.sender.log(); !strings.Contains(fate, "status=deferred (Server certificate not verified)") || !strings.Contains(log, why) {
		w.T.Errorf("%s: %s, and not %q", to, fate, why)
	}
	if by.greeted.Load() == 0 || by.took.Load() > 0 {
		w.T.Errorf("%s: the impostor was asked %d times and got %d messages", to, by.greeted.Load(), by.took.Load())
	}
	for _, r := range w.Inbox(w.ann) {
		if r.Subject == "to "+to {
			w.T.Errorf("%s: the message is here", to)
		}
	}
}

// An impostor takes everybody's mail, over TLS with the certificate that it has.
type impostor struct{ greeted, took atomic.Int32 }

func newImpostor(t *testing.T, addr, cert, key string) *impostor {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	im := &impostor{}
	server := gosmtp.NewServer(gosmtp.BackendFunc(func(*gosmtp.Conn) (gosmtp.Session, error) {
		im.greeted.Add(1)
		return im, nil
	}))
	server.ErrorLog = log.New(io.Discard, "", 0) // that connections are cut is no news
	server.Domain, server.TLSConfig = acmeHost, &tls.Config{Certificates: []tls.Certificate{pair}}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { server.Close() })
	return im
}

func (im *impostor) Reset() {}

func (im *impostor) Logout() error { return nil }

func (im *impostor) Mail(string, *gosmtp.MailOptions) error { return nil }

func (im *impostor) Rcpt(string, *gosmtp.RcptOptions) error { return nil }

func (im *impostor) Data(r io.Reader) error {
	im.took.Add(1)
	_, err := io.Copy(io.Discard, r)
	return err
}

// daneConf is unbound's, with three gaps: its address, the trust anchor, ours. It keeps what it has
// found.
const daneConf = `server:
  interface: %[1]s@53
  outgoing-interface: 127.0.0.1
  do-ip6: no
  do-not-query-localhost: no
  module-config: "validator iterator"
  trust-anchor: "%[2]s"
  local-zone: "test." nodefault
  target-fetch-policy: "0 0 0 0 0"
  val-log-level: 2
  do-daemonize: no
  use-syslog: no
  chroot: ""
  username: ""
  pidfile: ""
  directory: "."
  num-threads: 1
remote-control:
  control-enable: no
stub-zone:
  name: "acme.test."
  stub-addr: %[3]s
`

// TestPostfixEnforcesOurDANE: a Postfix that sends nothing without DANE delivers to the keys that
// we publish, also to one that was published in advance when all that it has looked up is from
// before; whoever has our address without our key gets nothing.
func TestPostfixEnforcesOurDANE(t *testing.T) { // alone: beside many others it has failed
	const us = "127.77.26"
	program(t, "unbound", "/usr/sbin/unbound")
	w := newPublished(t, us, "acme.test")
	ds := readSigned(w.Instance, w.FirstID("/v1/domains")).DNSSEC.DS[0].Value
	runUnbound(t, func(string) string { return fmt.Sprintf(daneConf, us+".53", "acme.test. DS "+ds, w.ip) })
	w.Until("unbound validates the keys", func() bool {
		m, _, err := new(dns.Client).Exchange(new(dns.Msg).SetQuestion("_25._tcp."+acmeHost+".", dns.TypeTLSA).SetEdns0(4096, true), us+".53:53")
		return err == nil && m.AuthenticatedData && len(m.Answer) == 3 // the key, the next key, their signature
	})
	w.startSender(us+".53", "smtp_tls_security_level = dane-only\nsmtp_dns_support_level = dnssec\n")
	w.delivers("ann@acme.test")

	before := keyShown(t, w.Ready.SMTP)
	w.Stop()
	w.age(3 * time.Hour)
	w.Start()
	w.Until("the certificate has the next key", func() bool { return keyShown(t, w.Ready.SMTP) != before })
	w.delivers("ann+next@acme.test")

	w.Stop()
	cert, key, _ := rig.SelfSigned(t, acmeHost)
	im := newImpostor(t, w.ip+":25", cert, key)
	w.Args[len(w.Args)-1] = us + ".3:25"
	w.Start()
	w.keeps("ann+stolen@acme.test", "no matching DANE TLSA records", im)
}

// keyShown is the digest of the key that an SMTP listener shows.
func keyShown(t *testing.T, addr string) [32]byte {
	t.Helper()
	cert := overSTARTTLS(t, addr, &tls.Config{InsecureSkipVerify: true, ServerName: acmeHost})
	return sha256.Sum256(cert.RawSubjectPublicKeyInfo)
}

// age makes the stopped server's certificate due for its renewal, so long after its next key was
// published.
func (w *published) age(by time.Duration) {
	w.T.Helper()
	st, err := store.Open(w.Dir, store.Options{})
	if err != nil {
		w.T.Fatal(err)
	}
	err = st.Update(func(tx *store.Tx) error {
		row, err := store.Certificates.Get(tx, "host")
		if err != nil {
			return err
		}
		row.NextSince, row.RenewAt = row.NextSince.Add(-by), time.Now()
		return store.Certificates.Put(tx, row)
	})
	if err != nil {
		w.T.Fatal(err)
	}
	if err := st.Close(); err != nil {
		w.T.Fatal(err)
	}
}

// TestPostfixEnforcesOurMTASTS: a Postfix with a resolver of policies delivers to us by the policy
// that we serve over HTTPS. Forged DNS answers do not lead its mail elsewhere: not to a host that
// the policy does not name, whatever certificate it has, and not to one that takes our name without
// a certificate for it.
func TestPostfixEnforcesOurMTASTS(t *testing.T) {
	t.Parallel()
	const us, evil = "127.77.28", "mx.evil.test"
	daemon := rig.Peer(t, "mta-sts-daemon")
	w := newPublished(t, us, "shop.test")
	w.host("spoofed.test")
	cert, key, _ := rig.SelfSigned(t, evil)
	im := newImpostor(t, us+".2:25", cert, key)
	w.world.Set(t, evil, "A", us+".2")
	w.world.ListenAt(t, us+".53:53")
	for _, d := range []string{"shop.test", "spoofed.test"} {
		w.Until("the policy's host has its certificate", func() bool { return w.pebble.shown(w.Ready.HTTPTLS, "mta-sts."+d) != nil })
	}
	w.startPolicies(daemon, us+".5", us+".53")
	for _, d := range []string{"shop.test", "spoofed.test"} { // mail to a domain whose policy is not known yet is not protected (RFC 8461 section 10)
		w.Until("the sender knows the policy of "+d, func() bool { return strings.Contains(w.policyAt(us+".5:8461", d), ":OK secure ") })
	}
	w.startSender(us+".53", "smtp_tls_security_level = may\nsmtp_tls_policy_maps = socketmap:inet:"+us+".5:8461:postfix\n", w.pebble.rootFile, cert)
	w.delivers("ann@shop.test")

	w.world.Set(t, "spoofed.test", "MX", "10 "+evil+".")
	w.keeps("ann@spoofed.test", "failed for "+evil+"["+us+".2]:25: num=62:hostname mismatch", im)
	w.world.Set(t, acmeHost, "A", us+".2")
	w.keeps("ann+moved@shop.test", "failed for "+acmeHost+"["+us+".2]:25: num=62:hostname mismatch", im)
	w.world.Set(t, acmeHost, "A", w.ip)
	w.Until("what was put off arrives", func() bool { return len(w.Inbox(w.ann)) == 2 })
}

// policyAt asks a resolver of policies for that of a domain, as a Postfix does: by the socketmap
// protocol, whose messages are netstrings.
func (w *published) policyAt(addr, domain string) string {
	w.T.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		w.T.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	question := "postfix " + domain
	_, _ = fmt.Fprintf(c, "%d:%s,", len(question), question)
	answer := make([]byte, 1000)
	n, _ := c.Read(answer)
	return string(answer[:n])
}

// startPolicies runs Debian's postfix-mta-sts-resolver, which trusts the authority of our
// certificates.
func (w *published) startPolicies(daemon, ip, nameserver string) {
	w.T.Helper()
	j := newJail(w.T)
	j.file("/etc/resolv.conf", "nameserver "+nameserver+"\n")
	conf := filepath.Join(j.dir(), "daemon.yml")
	text := fmt.Sprintf("host: %s\nport: 8461\ndefault_zone: {strict_testing: true, timeout: 4}\n", ip)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		w.T.Fatal(err)
	}
	j.start("env", "SSL_CERT_FILE="+w.pebble.rootFile, daemon, "-c", conf, "-v", "debug")
	w.Until("it answers", func() bool {
		c, err := net.Dial("tcp", ip+":8461")
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
}
