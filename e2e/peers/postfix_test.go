package peers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/smtp"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// postfixMain is main.cf: a host on an address of the loopback that no other test uses, which takes
// mail for some domains into one directory, and gives what is for ours to us, over TLS that it
// verifies.
const postfixMain = `compatibility_level = 3.6
queue_directory = %[1]s/queue
data_directory = %[1]s/data
maillog_file = %[1]s/log
maillog_file_prefixes = %[1]s
mail_owner = postfix
setgid_group = postdrop
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
shlib_directory = /usr/lib/postfix
meta_directory = /etc/postfix
myhostname = mx.them.test
mydestination =
mynetworks = 127.0.0.0/8
inet_interfaces = loopback-only
inet_protocols = ipv4
smtpd_peername_lookup = no
smtpd_client_connection_count_limit = 0
smtpd_tls_security_level = may
smtpd_tls_cert_file = %[1]s/cert.pem
smtpd_tls_key_file = %[1]s/key.pem
smtpd_tls_received_header = yes
virtual_mailbox_domains = them.test sts.test stsname.test stscert.test dane.test danebad.test
virtual_mailbox_base = %[1]s
virtual_mailbox_maps = static:mail/
virtual_uid_maps = static:65534
virtual_gid_maps = static:65534
transport_maps = inline:{example.test=smtp:[127.0.0.1]:%[2]s}
smtp_tls_security_level = encrypt
smtp_tls_CAfile = %[1]s/ours.pem
smtp_tls_policy_maps = inline:{ {[127.0.0.1]:%[2]s = secure match=mail.mailstead.test} }
smtp_host_lookup = native
minimal_backoff_time = 1s
maximal_backoff_time = 2s
queue_run_delay = 1s
relay_domains =
`

// postfixMaster is master.cf, its one listener at the port.
const postfixMaster = `127.77.25.1:%s inet n - n - - smtpd
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
error unix - - n - - error
retry unix - - n - - error
virtual unix - n n - - virtual
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
showq unix n - n - - showq
flush unix n - n 1000? 0 flush
postlog unix-dgram n - n - 1 postlogd
`

// A postfix is Debian's, at work on a configuration of its own.
type postfix struct {
	t         *testing.T
	program   string
	dir, port string
	jail      *jail // nil: it sees the machine's files
}

// startPostfix runs Postfix until the test ends; ours is where our SMTP listens.
func startPostfix(t *testing.T, ours, cert, key, ourCert, port string) *postfix {
	t.Helper()
	p := newPostfix(t, port)
	_, ourPort, _ := net.SplitHostPort(ours)
	p.write("main.cf", fmt.Sprintf(postfixMain, p.dir, ourPort))
	for name, from := range map[string]string{"cert.pem": cert, "key.pem": key, "ours.pem": ourCert} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		p.write(name, string(text))
	}
	p.start()
	return p
}

// newPostfix makes the directory of one that listens at the port, without its main.cf.
func newPostfix(t *testing.T, port string) *postfix {
	t.Helper()
	program := rig.Peer(t, "postfix")
	if os.Getuid() != 0 {
		t.Skip("postfix must be started by root")
	}
	dir, err := os.MkdirTemp("", "postfix")
	if err != nil {
		t.Fatal(err)
	}
	p := &postfix{t: t, program: program, dir: dir, port: port}
	p.write("master.cf", fmt.Sprintf(postfixMaster, port))
	for _, name := range []string{"queue", "data", "mail"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("chown", "postfix", filepath.Join(dir, "data")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chown(filepath.Join(dir, "mail"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

// start runs it until the test ends.
func (p *postfix) start() {
	p.t.Helper()
	start := exec.Command(p.program, "-c", p.dir, "start")
	if p.jail != nil {
		start = p.jail.command(start.Args...)
	}
	if out, err := start.CombinedOutput(); err != nil {
		p.t.Fatalf("postfix start: %v: %s\n%s", err, out, p.log())
	}
	p.t.Cleanup(func() {
		if p.t.Failed() {
			log := p.log()
			p.t.Logf("postfix says:\n%s", log[max(0, len(log)-4000):])
		}
		p.stop()
		os.RemoveAll(p.dir)
	})
}

// stop ends it. Its programs wait for ever for a log server that has died, so they get a bounded
// time.
func (p *postfix) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	stop := exec.CommandContext(ctx, p.program, "-c", p.dir, "stop")
	stop.WaitDelay = time.Second
	out, err := stop.CombinedOutput()
	if ctx.Err() == nil {
		if err != nil {
			p.t.Errorf("postfix stop: %v: %s", err, out)
		}
		return
	}
	p.t.Log("postfix does not stop, so it is killed")
	text, err := os.ReadFile(filepath.Join(p.dir, "queue", "pid", "master.pid"))
	if err != nil {
		p.t.Error(err)
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		p.t.Errorf("kill postfix %q: %v", text, err)
	}
}

func (p *postfix) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(p.dir, name), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *postfix) log() string {
	text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return string(text)
}

func (p *postfix) addr() string { return "127.77.25.1:" + p.port }

// mail counts what arrived, by recipient and subject; over says how many of them came over TLS.
func (p *postfix) mail() (got map[string]int, over int) {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.dir, "mail", "new", "*"))
	if err != nil {
		p.t.Fatal(err)
	}
	got = map[string]int{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			p.t.Fatal(err)
		}
		got[headerField(text, "Delivered-To")+" "+headerField(text, "Subject")]++
		if bytes.Contains(text, []byte("using TLSv1.3")) {
			over++
		}
	}
	return got, over
}

// headerField is the first field of a name, unless it is folded.
func headerField(text []byte, name string) string {
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// inject has Postfix take messages for ann@example.test, over some connections at once.
func (p *postfix) inject(messages int) {
	p.t.Helper()
	var wg sync.WaitGroup
	const connections = 8
	for n := range connections {
		wg.Go(func() {
			c, err := smtp.Dial(p.addr())
			if err != nil {
				p.t.Error(err)
				return
			}
			defer c.Close()
			for k := n; k < messages; k += connections {
				if err := rig.SendMail(c, "bob@them.test", []string{"ann@example.test"}, fmt.Sprintf("From: bob@them.test\r\nSubject: in-%d\r\nMessage-ID: <%d@them.test>\r\n\r\nhello\r\n", k, k)); err != nil {
					p.t.Errorf("message %d: %v", k, err)
					return
				}
			}
			_ = c.Quit()
		})
	}
	wg.Wait()
}

// exchangeSize is how many messages go through Postfix in all; fewer of them where the race
// detector slows us down.
func exchangeSize(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("MAILSTEAD_TEST_MESSAGES"))
	switch {
	case err == nil:
		return n
	case rig.Race:
		return 1000
	}
	return 5000
}

// mailWorld is Mailstead beside Postfix, in a DNS that both are in.
type mailWorld struct {
	*rig.Instance
	world   *rig.FakeResolver
	postfix *postfix
	ann     string // mailbox
}

// newMailWorld starts both. Their certificate is for mx.them.test and mx.sts.test. Port 443 of the
// IP address policies serves policies; no two tests may share it.
func newMailWorld(t *testing.T, policies string) *mailWorld {
	t.Helper()
	rig.Peer(t, "postfix")
	if os.Getuid() != 0 {
		t.Skip("postfix must be started by root")
	}
	cert, key, _ := rig.SelfSigned(t, "mx.them.test", "mx.sts.test", "mx.stsname.test", "mta-sts.sts.test", "mta-sts.stsname.test", "mta-sts.stscert.test")
	ourCert, ourKey, _ := rig.SelfSigned(t, "mail.mailstead.test")
	w := &mailWorld{world: rig.NewFakeResolver(t)}
	w.world.Vouches = true
	port := rig.FreePortOn(t, "127.77.25.1")
	w.publish(t, policies)
	w.Instance = rig.Start(t, rig.GenerousLimits, "--resolver", w.world.Addr, "--ca-file", cert, "--outbound", "direct", "--mx-port", port,
		"--tls-cert", ourCert, "--tls-key", ourKey)
	w.world.Delegate(w.Ready.DNS)
	w.postfix = startPostfix(t, w.Ready.SMTP, cert, key, ourCert, port)
	w.AddDomain("example.test")
	w.ann = w.AddMailbox("ann@example.test", "correct horse")
	w.servePolicies(policies, cert, key)
	return w
}

// publish puts their names into the DNS.
func (w *mailWorld) publish(t *testing.T, policies string) {
	for _, d := range []string{"them", "sts", "stsname", "stscert", "dane", "danebad"} {
		w.world.Set(t, d+".test", "MX", "10 mx."+d+".test.")
		w.world.Set(t, d+".test", "TXT", `"v=spf1 ip4:127.0.0.0/8 -all"`)
		w.world.Set(t, "mx."+d+".test", "A", "127.77.25.1")
	}
	for _, d := range []string{"sts", "stsname", "stscert"} {
		w.world.Set(t, "_mta-sts."+d+".test", "TXT", `"v=STSv1; id=1"`)
		w.world.Set(t, "mta-sts."+d+".test", "A", policies)
	}
}

// servePolicies answers for the policies: that of stsname.test names another host.
func (w *mailWorld) servePolicies(addr, cert, key string) {
	t := w.T
	ln, err := net.Listen("tcp", addr+":443")
	if err != nil {
		t.Skipf("port 443 of %s cannot be had: %v", addr, err)
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		domain := strings.TrimPrefix(r.Host, "mta-sts.")
		mx := map[string]string{"stsname.test": "mx.elsewhere.test"}[domain]
		if mx == "" {
			mx = "mx." + domain
		}
		out.Header().Set("Content-Type", "text/plain")
		fmt.Fprintf(out, "version: STSv1\r\nmode: enforce\r\nmx: %s\r\nmax_age: 86400\r\n", mx)
	})}
	go func() { _ = server.ServeTLS(ln, cert, key) }()
	t.Cleanup(func() { server.Close() })
}

// tlsa is the DANE-EE record for the certificate in a file.
func tlsa(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("3 1 1 %x", sha256.Sum256(cert.RawSubjectPublicKeyInfo))
}

// submitTLS sends messages as a mail client does, over STARTTLS, each to several recipients.
func (w *mailWorld) submitTLS(messages, each int) {
	w.T.Helper()
	c, err := smtp.Dial(w.Ready.Submission)
	if err != nil {
		w.T.Fatal(err)
	}
	defer c.Close()
	if err := c.StartTLS(&tls.Config{InsecureSkipVerify: true}); err != nil {
		w.T.Fatal(err)
	}
	if err := c.Auth(rig.PlainAuth{User: "ann@example.test", Password: "correct horse"}); err != nil {
		w.T.Fatal(err)
	}
	for n := range messages {
		var to []string
		for k := range each {
			to = append(to, fmt.Sprintf("u%d@them.test", k))
		}
		if err := rig.SendMail(c, "ann@example.test", to, fmt.Sprintf("From: ann@example.test\r\nSubject: out-%d\r\n\r\nhello\r\n", n)); err != nil {
			w.T.Fatal(err)
		}
	}
}

// TestPostfixBothWays exchanges messages with Postfix over STARTTLS, which verifies our certificate
// or sends nothing; each arrives once.
func TestPostfixBothWays(t *testing.T) {
	t.Parallel()
	w := newMailWorld(t, "127.77.25.2")
	const each = 50
	half := exchangeSize(t) / 2
	start := time.Now()
	w.postfix.inject(half)
	w.submitTLS(half/each, each)
	in, out := map[string]int{}, map[string]int{}
	for end := start.Add(2 * time.Minute); len(out) < half/each*each || w.messages() < half; time.Sleep(200 * time.Millisecond) {
		out, _ = w.postfix.mail()
		if time.Now().After(end) {
			t.Fatalf("after two minutes %d of %d have arrived there, %d here", len(out), half, w.messages())
		}
	}
	t.Logf("%d messages in %s", 2*half, time.Since(start).Round(time.Millisecond))
	time.Sleep(500 * time.Millisecond) // a second copy would come in this time
	for _, r := range w.Inbox(w.ann) {
		in[r.Subject]++
	}
	out, over := w.postfix.mail()
	once(t, "in", in, half)
	once(t, "out", out, half/each*each)
	if over != half/each*each {
		t.Errorf("%d of %d went out over TLS 1.3", over, half)
	}
}

func once(t *testing.T, way string, got map[string]int, want int) {
	t.Helper()
	for what, n := range got {
		if n != 1 {
			t.Errorf("%s: %s arrived %d times", way, what, n)
		}
	}
	if len(got) != want {
		t.Errorf("%s: %d messages, want %d", way, len(got), want)
	}
}

// messages is how many messages ann has.
func (w *mailWorld) messages() int {
	var usage struct {
		Storage struct{ Messages int }
	}
	w.Want(200, "GET", "/v1/account/usage", nil, &usage)
	return usage.Storage.Messages
}

// A detail is what the tests read of one row of the sending log.
type detail struct {
	Status      string
	AttemptsLog []struct {
		Host, IP, Authenticated, Reply string
		TLS                            *string
		Code                           *int
	} `json:"attempts_log"`
}

// TestPostfixUnderPolicies: with MTA-STS and with DANE mail gets through where what Postfix shows
// is what was promised, and not where it is not.
func TestPostfixUnderPolicies(t *testing.T) {
	t.Parallel()
	w := newMailWorld(t, "127.77.25.3")
	port := w.postfix.port
	record := tlsa(t, filepath.Join(w.postfix.dir, "cert.pem"))
	w.world.Set(t, "_"+port+"._tcp.mx.dane.test", "TLSA", record)
	w.world.Set(t, "_"+port+"._tcp.mx.danebad.test", "TLSA", record[:len(record)-4]+"0000")
	cases := map[string]struct{ status, by, says string }{
		"them.test":    {"sent", "certificate", "250 "},
		"sts.test":     {"sent", "mta-sts", "250 "},
		"dane.test":    {"sent", "dane", "250 "},
		"stsname.test": {"deferred", "none", "the MTA-STS policy does not name this MX host"},
		"stscert.test": {"deferred", "none", "the MTA-STS policy of stscert.test is enforced"},
		"danebad.test": {"deferred", "none", "no TLSA record matches the certificate"},
	}
	for domain := range cases {
		w.Want(200, "POST", "/v1/email-users/"+w.ann+"/inbox/send", map[string]any{"to": "u@" + domain, "subject": "to " + domain, "text": "hello"}, nil)
	}
	for domain, want := range cases {
		var d detail
		w.Until(domain+" has been tried", func() bool {
			var page struct{ Data []rig.LogRow }
			w.Want(200, "GET", "/v1/messages?recipient="+url.QueryEscape("u@"+domain), nil, &page)
			w.Want(200, "GET", "/v1/messages/"+page.Data[0].ID, nil, &d)
			return d.Status != "queued"
		})
		last := d.AttemptsLog[len(d.AttemptsLog)-1]
		if d.Status != want.status || last.Authenticated != want.by || !strings.Contains(last.Reply, want.says) {
			t.Errorf("%s: %+v, want %+v", domain, d, want)
		}
	}
	// Postfix has said 250 by now; it puts the message into the mailbox after that.
	w.Until("postfix has delivered what it took", func() bool {
		got, _ := w.postfix.mail()
		return len(got) >= 3
	})
	got, _ := w.postfix.mail()
	for domain, want := range cases {
		if n := got["u@"+domain+" to "+domain]; (n == 1) != (want.status == "sent") || n > 1 {
			t.Errorf("postfix took %d messages for %s, which is %s", n, domain, want.status)
		}
	}
}
