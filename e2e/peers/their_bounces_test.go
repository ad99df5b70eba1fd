package peers

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestBouncesOfPostfix sends to a real Postfix that takes everything and then finds that it cannot
// deliver: its bounces come back to the return path.
func TestBouncesOfPostfix(t *testing.T) {
	t.Parallel()
	p := newPostfix(t, strconv.Itoa(rig.FreePort(t)))
	i := rig.StartOutgoing(t, rig.NewFakeResolver(t), p.addr(), rig.GenerousLimits)
	host, port, _ := net.SplitHostPort(i.Ready.SMTP)
	p.write("main.cf", fmt.Sprintf(bouncerMain, p.dir, host, port))
	p.start()
	ann := i.AddMailbox("ann@example.test", "correct horse")
	for _, to := range []string{"hard@far.test", "full@far.test"} {
		i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": to, "subject": "s", "text": "hello"}, nil)
	}
	i.Until("both have come back", func() bool {
		log := rig.SendingLog(i)
		return log["hard@far.test"].Status == "bounced" && log["full@far.test"].Status == "bounced"
	})
	i.WantSuppressed(map[string]string{"hard@far.test": "bounce"})
	if rows := i.Inbox(ann); len(rows) != 2 || !rows[0].IsBounce || !rows[1].IsBounce {
		t.Errorf("the sender's inbox: %+v", rows)
	}
	var events struct {
		Data []struct {
			Data struct {
				Recipient, Diagnostic, Status string
				BounceType                    string `json:"bounce_type"`
			}
		}
	}
	i.Want(200, "GET", "/v1/events?type=email.bounced", nil, &events)
	for _, e := range events.Data {
		if e.Data.BounceType != "hard" || e.Data.Diagnostic == "" || e.Data.Status != map[string]string{"hard@far.test": "5.1.1", "full@far.test": "5.2.2"}[e.Data.Recipient] {
			t.Errorf("event %+v", e.Data)
		}
	}
}

// bouncerMain is main.cf of a Postfix in the directory 1 that takes mail for far.test, cannot
// deliver it, and hands what it writes about that to the host 2 and its port 3.
const bouncerMain = `compatibility_level = 3.6
queue_directory = %[1]s/queue
data_directory = %[1]s/data
maillog_file_prefixes = %[1]s
maillog_file = %[1]s/log
myhostname = mx.far.test
mydestination =
inet_interfaces = loopback-only
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
relay_domains = far.test
smtpd_relay_restrictions = permit_mynetworks, reject
smtpd_peername_lookup = no
transport_maps = inline:{ {hard@far.test = error:5.1.1 no such user} {full@far.test = error:5.2.2 mailbox is full} }
relayhost = [%[2]s]:%[3]s
smtp_tls_security_level =
`

// A refuser is the mail server of far.test, behind the one that takes mail for it: what it says
// depends on the recipient.
type refuser struct{ addr string }

func newRefuser(t *testing.T) *refuser {
	t.Helper()
	return &refuser{rig.Serve(t, refuse)}
}

// atRCPT is what a refuser answers to a recipient; others have to wait for the message.
func atRCPT(recipient string) string {
	user, _, _ := strings.Cut(recipient, "@")
	return map[string]string{
		"gone": "550 5.1.1 there is no such user", "full": "552 5.2.2 the mailbox is full", "plain": "550 unknown", "later": "451 4.7.1 come again later",
	}[user]
}

func refuse(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	r := bufio.NewReader(c)
	for reply := "220 inner.far.test ESMTP"; ; {
		if _, err := io.WriteString(c, reply+"\r\n"); err != nil {
			return
		}
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		switch verb, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(line)), " "); verb {
		case "EHLO", "HELO":
			reply = "250-inner.far.test\r\n250-ENHANCEDSTATUSCODES\r\n250 8BITMIME"
		case "RCPT":
			reply = atRCPT(rig.BetweenBrackets(line))
			if reply == "" {
				reply = "250 2.1.5 ok"
			}
		case "DATA":
			if _, err := io.WriteString(c, "354 go on\r\n"); err != nil {
				return
			}
			if _, err := rig.ReadDots(r); err != nil {
				return
			}
			reply = "552 5.3.4 the message is too large"
		case "QUIT":
			return
		default:
			reply = "250 2.0.0 ok"
		}
	}
}

// A bouncer is somebody's mail server between us and a refuser: it takes all mail for far.test,
// finds that it cannot deliver it, and writes about that to us.
type bouncer struct {
	t           *testing.T
	dir         string
	port        string // where it listens, at its address
	far, inner  string // host and port of the refuser
	home, ready string // host and port of ours
}

func newBouncer(t *testing.T) *bouncer {
	t.Helper()
	b := &bouncer{t: t, port: strconv.Itoa(rig.FreePort(t))}
	b.far, b.inner, _ = net.SplitHostPort(newRefuser(t).addr)
	return b
}

func (b *bouncer) write(name, text string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// eximConf is exim4's configuration: directory, port, ours, refuser's.
const eximConf = `primary_hostname = mx.far.test
spool_directory = %[1]s/spool
log_file_path = %[1]s/%%slog
local_interfaces = 127.0.0.1
daemon_smtp_ports = %[2]s
tls_advertise_hosts =
host_lookup =
rfc1413_hosts =
keep_environment =
acl_smtp_rcpt = accept
acl_smtp_data = accept
delay_warning = 1s
begin routers
far:
  driver = manualroute
  domains = far.test
  transport = far
  route_list = * 127.0.0.1 byname
  self = send
home:
  driver = manualroute
  domains = example.test
  transport = home
  route_list = * 127.0.0.1 byname
  self = send
begin transports
far:
  driver = smtp
  port = %[4]s
  hosts_try_dane =
home:
  driver = smtp
  port = %[3]s
  hosts_try_dane =
  hosts_avoid_tls = *
begin retry
* * F,3s,1s
`

func (b *bouncer) exim() {
	j := newJail(b.t, "exim4-daemon-light")
	j.users("Debian-exim")
	b.dir = j.dir()
	conf := b.write("exim.conf", fmt.Sprintf(eximConf, b.dir, b.port, b.ready, b.inner))
	j.run("chown", "Debian-exim", b.dir)
	j.start("/usr/sbin/exim4", "-C", conf, "-bdf", "-q1s")
}

// smtpdConf is OpenSMTPD's.
const smtpdConf = `queue ttl 3s
bounce warn-interval 1s
listen on 127.0.0.1 port %[1]s hostname mx.far.test
action "far" relay host smtp://127.0.0.1:%[3]s
action "home" relay host smtp://127.0.0.1:%[2]s
match from any for domain "far.test" action "far"
match from any for domain "example.test" action "home"
`

func (b *bouncer) openSMTPD() {
	j := newJail(b.t, "opensmtpd")
	j.users("opensmtpd", "opensmtpq")
	b.dir = j.dir()
	for _, path := range []string{"/var/spool", "/var/lib", "/var/run"} {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			j.over[real] = j.dir()
		}
	}
	if err := os.MkdirAll(filepath.Join(j.over["/var/lib"], "opensmtpd", "empty"), 0o711); err != nil {
		b.t.Fatal(err)
	}
	j.start("/usr/sbin/smtpd", "-d", "-f", b.write("smtpd.conf", fmt.Sprintf(smtpdConf, b.port, b.ready, b.inner)))
}

// sendmailMC is sendmail's, before m4.
const sendmailMC = "include(`/usr/share/sendmail/cf/m4/cf.m4')\n" +
	"OSTYPE(`linux')\n" +
	"define(`confDOMAIN_NAME', `mx.far.test')\ndefine(`confDONT_BLAME_SENDMAIL', `TrustStickyBit,GroupWritableDirPathSafe,MapInUnsafeDirPath')\n" +
	"define(`confTO_QUEUERETURN', `3s')\ndefine(`confTO_QUEUEWARN', `1s')\ndefine(`confTO_IDENT', `0')\ndefine(`confMIN_QUEUE_AGE', `0')\n" +
	"define(`confQUEUE_LA', `1000')\ndefine(`confREFUSE_LA', `1000')\n" + // a busy machine is no reason to wait
	"define(`QUEUE_DIR', `%[1]s/queue')\ndefine(`STATUS_FILE', `')\ndefine(`confPID_FILE', `%[1]s/pid')\ndefine(`ALIAS_FILE', `')\n" +
	"define(`ESMTP_MAILER_ARGS', `TCP $h %[4]s')\ndefine(`RELAY_MAILER_ARGS', `TCP $h %[3]s')\n" +
	"FEATURE(`no_default_msa')\nFEATURE(`nocanonify')\nFEATURE(`promiscuous_relay')\nFEATURE(`accept_unresolvable_domains')\n" +
	"DAEMON_OPTIONS(`Port=%[2]s, Addr=127.0.0.1, Name=MTA')\nMAILER(`smtp')\nLOCAL_RULE_0\n" +
	"R$* < @ far.test $* > $*\t$#esmtp $@ [127.0.0.1] $: $1 < @ far.test > $3\n" +
	"R$* < @ example.test $* > $*\t$#relay $@ [127.0.0.1] $: $1 < @ example.test > $3\n"

func (b *bouncer) sendmail() {
	j := newJail(b.t, "sendmail-bin", "sendmail-cf")
	rig.Peer(b.t, "m4")
	host, err := os.Hostname()
	if err != nil {
		b.t.Fatal(err)
	}
	j.file("/etc/hosts", "127.0.0.1 localhost\n127.0.0.2 mx.far.test "+host+"\n") // else it sleeps for a minute
	j.file("/etc/resolv.conf", "nameserver 127.0.0.2\n")                          // nobody
	b.dir = j.dir()
	if err := os.Mkdir(filepath.Join(b.dir, "queue"), 0o700); err != nil {
		b.t.Fatal(err)
	}
	mc := b.write("sendmail.mc", fmt.Sprintf(sendmailMC, b.dir, b.port, b.ready, b.inner))
	j.start("/usr/libexec/sendmail/sendmail", "-bD", "-q1s", "-C", b.write("sendmail.cf", j.run("m4", mc)))
}

// impatientMain is main.cf of a Postfix, see bouncerMain, that gives up soon.
const impatientMain = bouncerMain + `transport_maps = inline:{far.test=smtp:[127.0.0.1]:%[4]s}
smtp_host_lookup = native
minimal_backoff_time = 1s
maximal_backoff_time = 1s
queue_run_delay = 1s
maximal_queue_lifetime = 3s
delay_warning_time = 1s
`

func (b *bouncer) postfix() {
	p := newPostfix(b.t, b.port)
	p.write("main.cf", fmt.Sprintf(impatientMain, p.dir, b.home, b.ready, b.inner))
	p.start()
}

// A cameBack is what is told of one recipient.
type cameBack struct{ kind, status, subtype string }

// TestBouncesOfRealServers: what Debian's mail servers write when the next one refuses, or takes
// nothing for too long, is understood: for good or not, of whom, why.
func TestBouncesOfRealServers(t *testing.T) {
	t.Parallel()
	want := map[string]cameBack{
		"gone@far.test": {"hard", "5.1.1", "no_such_mailbox"}, "full@far.test": {"hard", "5.2.2", "mailbox_full"},
		"big@far.test": {"hard", "5.3.4", "message_too_large"}, "plain@far.test": {"hard", "5.0.0", "general"},
		"later@far.test": {"soft", "4.7.1", "policy"},
	}
	for _, tc := range []struct {
		name  string
		ip    string
		start func(*bouncer)
		but   map[string]cameBack // what it says otherwise
	}{
		{"postfix", "127.77.25.1", (*bouncer).postfix, nil},
		{"exim", "127.0.0.1", (*bouncer).exim, nil},
		{"sendmail", "127.0.0.1", (*bouncer).sendmail, map[string]cameBack{"later@far.test": {"soft", "4.4.7", "expired"}}},
		{"opensmtpd", "127.0.0.1", (*bouncer).openSMTPD, map[string]cameBack{"later@far.test": {"soft", "4.4.7", "expired"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBouncer(t)
			i := rig.StartOutgoing(t, rig.NewFakeResolver(t), net.JoinHostPort(tc.ip, b.port), rig.GenerousLimits)
			b.home, b.ready, _ = net.SplitHostPort(i.Ready.SMTP)
			tc.start(b)
			ann := i.AddMailbox("ann@example.test", "correct horse")
			i.Until("it listens", func() bool {
				c, err := net.Dial("tcp", net.JoinHostPort(tc.ip, b.port))
				if err != nil {
					return false
				}
				c.Close()
				return true
			})
			expect := maps.Clone(want)
			maps.Copy(expect, tc.but)
			bouncesAs(i, ann, expect)
		})
	}
}

// bouncesAs sends to each recipient and demands what comes back: one event each, the rows bounced,
// only those addresses suppressed that are not there, and every notice in the sender's inbox,
// delays too.
func bouncesAs(i *rig.Instance, ann string, want map[string]cameBack) {
	t := i.T
	t.Helper()
	recipients := slices.Sorted(maps.Keys(want))
	for _, to := range recipients {
		i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": to, "subject": "to " + to, "text": "hello"}, nil)
	}
	i.Until("all have come back", func() bool {
		log := rig.SendingLog(i)
		return !slices.ContainsFunc(recipients, func(to string) bool { return log[to].Status != "bounced" })
	})
	var events struct {
		Data []struct {
			Data struct {
				Recipient, Diagnostic, Status string
				BounceType                    string `json:"bounce_type"`
				BounceSubtype                 string `json:"bounce_subtype"`
			}
		}
	}
	i.Want(200, "GET", "/v1/events?type=email.bounced", nil, &events)
	if len(events.Data) != len(want) {
		t.Errorf("%d events for %d recipients", len(events.Data), len(want))
	}
	for _, e := range events.Data {
		if got := (cameBack{e.Data.BounceType, e.Data.Status, e.Data.BounceSubtype}); got != want[e.Data.Recipient] || e.Data.Diagnostic == "" {
			t.Errorf("%s: %+v, want %+v: %q", e.Data.Recipient, got, want[e.Data.Recipient], e.Data.Diagnostic)
		}
	}
	away := map[string]string{}
	for to, b := range want {
		if strings.HasPrefix(b.status, "5.1.") {
			away[to] = "bounce"
		}
	}
	i.WantSuppressed(away)
	delays := 0
	for _, r := range i.Inbox(ann) {
		if !r.IsBounce {
			t.Errorf("%q is taken for mail of a person", r.Subject)
		}
		delays++
	}
	delays -= len(want)
	if delays < 1 {
		t.Errorf("%d notices are of delays", delays)
	}
}
