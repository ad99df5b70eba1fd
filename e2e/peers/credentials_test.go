package peers

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/smtp"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/xdg-go/scram"
)

// TestCredentialClients: programs of others log in with an app password, by a plain log-in and by
// SCRAM-SHA-256, and so does the mailbox's own password by SCRAM.
func TestCredentialClients(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits)
	i.AddDomain("example.test")
	box := i.AddMailbox(rig.AnnsAddress, rig.AnnsPassword)
	app := i.AppPassword(box, nil)
	host, port, _ := net.SplitHostPort(i.Ready.IMAP)
	smtpHost, smtpPort, _ := net.SplitHostPort(i.Ready.Submission)
	c := &rig.MailClient{Instance: i, Name: "credentials", Box: box, Host: host, Port: port}
	c.Put("INBOX", "one")
	home := t.TempDir()
	python := rig.Peer(t, "python3")

	t.Run("imaplib", func(t *testing.T) {
		runTool(c, home, python, "-c", "import imaplib,sys\nm=imaplib.IMAP4(sys.argv[1],int(sys.argv[2]))\nm.login(sys.argv[3],sys.argv[4])\n"+
			"assert m.select('INBOX')[1]==[b'1'], 'INBOX'\nm.logout()\n", host, port, rig.AnnsAddress, app.Password)
	})
	t.Run("smtplib", func(t *testing.T) {
		runTool(c, home, python, "-c", "import smtplib,sys\nm=smtplib.SMTP(sys.argv[1],int(sys.argv[2]))\nm.login(sys.argv[3],sys.argv[4])\n"+
			"m.sendmail(sys.argv[3],[sys.argv[3]],'From: '+sys.argv[3]+'\\r\\nSubject: by smtplib\\r\\n\\r\\nhello\\r\\n')\nm.quit()\n", smtpHost, smtpPort, rig.AnnsAddress, app.Password)
		i.Until("it has arrived", func() bool { return len(mail(c)["INBOX"]) == 2 })
	})
	for _, password := range []string{app.Password, rig.AnnsPassword} {
		which := map[bool]string{true: "own", false: "app"}[password == rig.AnnsPassword]
		for _, mechanism := range []string{"SCRAM-SHA-256", "PLAIN"} {
			t.Run("mbsync "+mechanism+" "+which, func(t *testing.T) {
				near, spoken := t.TempDir(), newRecorder(t, i.Ready.IMAP)
				spokenHost, spokenPort, _ := net.SplitHostPort(spoken.addr)
				config := fmt.Sprintf("IMAPAccount a\nHost %s\nPort %s\nUser %s\nPass %q\nSSLType None\nAuthMechs %s\n\nIMAPStore far\nAccount a\n\n"+
					"MaildirStore near\nPath %[6]s/\nInbox %[6]s/INBOX\n\nChannel c\nFar :far:\nNear :near:\nPatterns INBOX\nCreate Near\nSyncState *\n",
					spokenHost, spokenPort, rig.AnnsAddress, password, mechanism, near)
				rc := filepath.Join(t.TempDir(), "rc")
				if err := os.WriteFile(rc, []byte(config), 0o600); err != nil {
					t.Fatal(err)
				}
				runTool(c, near, rig.Peer(t, "mbsync"), "-c", rc, "-a")
				if !spoken.has("AUTHENTICATE "+mechanism) || len(maildir{t, near}.letters("INBOX")) == 0 {
					t.Errorf("mbsync did not log in by %s", mechanism)
				}
			})
			t.Run("gsasl "+mechanism+" "+which, func(t *testing.T) {
				gsasl := rig.Peer(t, "gsasl")
				runTool(c, home, gsasl, "--imap", "--no-starttls", "--connect="+i.Ready.IMAP, "--mechanism="+mechanism, "--authentication-id="+rig.AnnsAddress, "--authorization-id=", "--password="+password)
				runTool(c, home, gsasl, "--smtp", "--no-starttls", "--connect="+i.Ready.Submission, "--mechanism="+mechanism, "--authentication-id="+rig.AnnsAddress, "--authorization-id=", "--password="+password)
			})
		}
		t.Run("mutt "+which, func(t *testing.T) {
			m := &mutt{MailClient: c, program: rig.Peer(t, "mutt"), script: rig.Peer(t, "script"), home: t.TempDir(), spoken: newRecorder(t, i.Ready.IMAP)}
			config := fmt.Sprintf("set folder = \"imap://ann%%40example.test@%s/\"\nset spoolfile = \"+INBOX\"\nset imap_pass = %q\nset record = \"\"\n"+
				"set ssl_starttls = no\nset ssl_force_tls = no\nset confirmappend = no\nset confirmcreate = no\nset move = no\nset wait_key = no\n"+
				"set imap_authenticators = \"scram-sha-256\"\nset imap_deflate = no\n", m.spoken.addr, password)
			if err := os.WriteFile(filepath.Join(m.home, "rc"), []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			m.keys("<limit>~s one<enter><flag-message><sync-mailbox>")
			if !m.spoken.has("AUTHENTICATE SCRAM-SHA-256") || !m.spoken.has(" SELECT ") && !m.spoken.has(" SELECT") {
				t.Error("mutt did not log in by SCRAM")
			}
		})
	}
	t.Run("nodemailer", func(t *testing.T) {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		module := filepath.Join(cache, "mailstead-peers", "npm", "node_modules", "nodemailer")
		if _, err := os.Stat(module); err != nil {
			t.Skip("nodemailer is not installed")
		}
		before := len(mail(c)["INBOX"])
		runTool(c, home, rig.Peer(t, "node"), "-e", "const t=require(process.argv[1]).createTransport({host:process.argv[2],port:+process.argv[3],secure:false,"+
			"auth:{user:process.argv[4],pass:process.argv[5]}});t.sendMail({from:process.argv[4],to:process.argv[4],subject:'by nodemailer',text:'x'}).then(()=>process.exit(0),e=>{console.error(e);process.exit(1)})",
			module, smtpHost, smtpPort, rig.AnnsAddress, app.Password)
		i.Until("it has arrived", func() bool { return len(mail(c)["INBOX"]) == before+1 })
	})
	t.Run("bearer", func(t *testing.T) {
		bearer := func(mechanism, token string) error {
			text := "user=" + rig.AnnsAddress + "\x01auth=Bearer " + token + "\x01\x01"
			if mechanism == "OAUTHBEARER" {
				text = "n,a=" + rig.AnnsAddress + ",\x01host=" + host + "\x01auth=Bearer " + token + "\x01\x01"
			}
			c := dialIMAP(t, i.Ready.IMAP, nil)
			return c.authenticate(mechanism, func(challenge []byte, n int) []byte {
				if n == 0 {
					return []byte(text)
				}
				return []byte{1} // after a refusal
			})
		}
		for _, mechanism := range []string{"OAUTHBEARER", "XOAUTH2"} {
			if err := bearer(mechanism, app.Password); err != nil {
				t.Errorf("%s with a credential: %v", mechanism, err)
			}
			if err := bearer(mechanism, rig.AnnsPassword); err == nil || !strings.Contains(err.Error(), "AUTHENTICATIONFAILED") {
				t.Errorf("%s with the mailbox's password: %v", mechanism, err)
			}
		}
	})

	// The app password is used, the time of it is told, and it is for what it is for.
	mailOnly := i.AppPassword(box, map[string]any{"protocols": []string{"imap"}, "name": "reader"})
	elsewhere := i.AppPassword(box, map[string]any{"allowed_networks": []string{"192.0.2.0/24", "2001:db8::1"}, "name": "elsewhere"})
	for password, want := range map[string]string{mailOnly.Password: "", elsewhere.Password: "AUTHENTICATIONFAILED", app.Password: "", "wrong": "AUTHENTICATIONFAILED"} {
		err := dialIMAP(t, i.Ready.IMAP, nil).scram(false, password, nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("IMAP by SCRAM with %s: %v", password, err)
		}
	}
	for password, ok := range map[string]bool{mailOnly.Password: false, elsewhere.Password: false, app.Password: true} {
		if err := logInBySMTP(i.Ready.Submission, rig.AnnsAddress, password); (err == nil) != ok {
			t.Errorf("SMTP with %s: %v", password, err)
		}
	}
}

// TestRevokedCredential: within a second after a credential is revoked, or the password of the
// mailbox is changed, what is connected with it ends, over IMAP and SMTP, whether it idles or
// waits; what is connected with another one stays.
func TestRevokedCredential(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits)
	domain := i.AddDomain("example.test")
	box := i.AddMailbox(rig.AnnsAddress, rig.AnnsPassword)
	gone, kept := i.AppPassword(box, nil), i.AppPassword(box, nil)
	connect := func(password string) ([]*imapConn, *textproto.Conn) {
		waits, idles := dialIMAP(t, i.Ready.IMAP, nil), dialIMAP(t, i.Ready.IMAP, nil)
		for _, c := range []*imapConn{waits, idles} {
			if err := c.scram(false, password, nil); err != nil {
				t.Fatal(err)
			}
		}
		idles.command("SELECT INBOX")
		idles.send("i IDLE")
		idles.line()
		return []*imapConn{waits, idles}, smtpLogin(t, i.Ready.Submission, rig.AnnsAddress, password)
	}
	ended := func(what string, list []*imapConn, submission *textproto.Conn) {
		t.Helper()
		before := time.Now()
		for n, c := range list {
			if line := c.line(); !strings.HasPrefix(line, "* BYE ") {
				t.Errorf("%s, IMAP %d: %q", what, n, line)
			}
		}
		if line, err := submission.ReadLine(); !strings.HasPrefix(line, "421 ") {
			t.Errorf("%s, SMTP: %q, %v", what, line, err)
		}
		if took := time.Since(before); took > time.Second {
			t.Errorf("%s took %v", what, took)
		}
	}
	alive := func(what string, list []*imapConn, submission *textproto.Conn) {
		t.Helper()
		list[1].send("DONE")
		for line := list[1].line(); !strings.HasPrefix(line, "i OK"); line = list[1].line() {
			if line == "" || strings.HasPrefix(line, "* BYE") {
				t.Fatalf("%s: IMAP ended with %q", what, line)
			}
		}
		for _, c := range list {
			c.command("NOOP")
		}
		if _, err := submission.Cmd("NOOP"); err != nil {
			t.Error(err)
		}
		if line, err := submission.ReadLine(); !strings.HasPrefix(line, "250 ") {
			t.Errorf("%s, SMTP: %q, %v", what, line, err)
		}
	}
	ofGone, smtpOfGone := connect(gone.Password)
	ofKept, smtpOfKept := connect(kept.Password)
	ofOwn, smtpOfOwn := connect(rig.AnnsPassword)
	i.Want(200, "DELETE", "/v1/email-users/"+box+"/credentials/"+gone.ID, nil, nil)
	ended("a revoked credential", ofGone, smtpOfGone)
	if err := dialIMAP(t, i.Ready.IMAP, nil).scram(false, gone.Password, nil); err == nil {
		t.Error("a revoked credential logs in")
	}
	i.Want(200, "PATCH", "/v1/email-users/"+box, map[string]any{"password": "another horse"}, nil)
	ended("the old password", ofOwn, smtpOfOwn)
	alive("another credential", ofKept, smtpOfKept)

	// A domain's credential: it sends as any address of the domain, and as no other.
	var shop rig.Credential
	i.Want(201, "POST", "/v1/domains/"+domain+"/smtp-credentials", map[string]any{"name": "shop"}, &shop)
	if shop.Username != shop.ID {
		t.Errorf("its user name is %q", shop.Username)
	}
	send := func(from string) string {
		c := smtpLogin(t, i.Ready.Submission, shop.Username, shop.Password)
		defer c.Close()
		for _, line := range []string{"MAIL FROM:<" + from + ">", "RCPT TO:<" + rig.AnnsAddress + ">", "DATA"} {
			if answer := say(t, c, line); answer[0] > '3' {
				return answer
			}
		}
		return say(t, c, "From: "+from+"\r\nSubject: order\r\n\r\nthanks\r\n.")
	}
	for from, want := range map[string]string{"orders@example.test": "250", "no-reply+1@example.test": "250", "ann@other.test": "550", "orders@sub.example.test": "550"} {
		if answer := send(from); !strings.HasPrefix(answer, want) {
			t.Errorf("as %s: %s, want %s", from, answer, want)
		}
	}
	i.Until("both have arrived", func() bool {
		var page struct{ Data []struct{ From string } }
		i.Want(200, "GET", "/v1/email-users/"+box+"/inbox", nil, &page)
		return len(page.Data) == 2
	})
	c := smtpLogin(t, i.Ready.Submission, shop.Username, shop.Password)
	i.Want(200, "DELETE", "/v1/domains/"+domain+"/smtp-credentials/"+shop.ID, nil, nil)
	if line, err := c.ReadLine(); !strings.HasPrefix(line, "421 ") {
		t.Errorf("a revoked credential of a domain: %q, %v", line, err)
	}
	if dialIMAP(t, i.Ready.IMAP, nil).scram(false, shop.Password, nil) == nil {
		t.Error("a domain's credential logs in to IMAP")
	}
}

// TestChannelBinding: over TLS a client binds its log-in to the connection, in both ways, with the
// mailbox's password and an app password; one that is bound to another connection is refused, and
// so is a client that was not shown the offer.
func TestChannelBinding(t *testing.T) {
	t.Parallel()
	cert, key, trust := rig.SelfSigned(t, "mail.example.test")
	i := rig.Start(t, rig.GenerousLimits, "--submissions", "127.0.0.1:0", "--imaps", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)
	i.AddDomain("example.test")
	app := i.AppPassword(i.AddMailbox(rig.AnnsAddress, rig.AnnsPassword), nil)
	config := &tls.Config{RootCAs: trust, ServerName: "mail.example.test"}
	for _, password := range []string{rig.AnnsPassword, app.Password} {
		for _, kind := range []string{"exporter", "end-point"} {
			c := dialIMAP(t, i.Ready.IMAPS, config)
			if err := c.scram(true, password, bindingOf(t, c.conn, kind)); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			other := dialIMAP(t, i.Ready.IMAPS, config)
			if kind != "exporter" {
				continue
			}
			if err := other.scram(true, password, bindingOf(t, c.conn, kind)); err == nil {
				t.Error("a log-in that is bound to another connection is taken")
			}
		}
	}
	if err := dialIMAP(t, i.Ready.IMAPS, config).scram(true, "wrong", bindingOf(t, dialIMAP(t, i.Ready.IMAPS, config).conn, "end-point")); err == nil {
		t.Error("a wrong password is taken")
	}
	c := dialIMAP(t, i.Ready.IMAPS, config)
	client, err := scram.SHA256.NewClient(rig.AnnsAddress, rig.AnnsPassword, "")
	if err != nil {
		t.Fatal(err)
	}
	conv := client.NewConversationAdvertisingChannelBinding()
	if err := c.authenticate("SCRAM-SHA-256", func(challenge []byte, _ int) []byte {
		answer, _ := conv.Step(string(challenge))
		return []byte(answer)
	}); err == nil {
		t.Error("a client that would bind and saw no offer is taken")
	}
}

func bindingOf(t *testing.T, conn net.Conn, kind string) *scram.ChannelBinding {
	t.Helper()
	state := conn.(*tls.Conn).ConnectionState()
	binding, err := scram.NewTLSExporterBinding(&state)
	if kind == "end-point" {
		binding, err = scram.NewTLSServerEndpointBinding(&state)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &binding
}

// An imapConn speaks IMAP line by line.
type imapConn struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dialIMAP(t *testing.T, addr string, config *tls.Config) *imapConn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		secure := tls.Client(conn, config)
		if err := secure.Handshake(); err != nil {
			t.Fatal(err)
		}
		conn = secure
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	c := &imapConn{t, conn, bufio.NewReader(conn)}
	c.line()
	return c
}

func (c *imapConn) send(line string) { fmt.Fprintf(c.conn, "%s\r\n", line) }

// line reads a line; "" where there is none any more.
func (c *imapConn) line() string {
	line, err := c.in.ReadString('\n')
	if err != nil && err != io.EOF {
		c.t.Log(err)
	}
	return strings.TrimRight(line, "\r\n")
}

func (c *imapConn) command(text string) {
	c.t.Helper()
	c.send("t " + text)
	for {
		switch line := c.line(); {
		case strings.HasPrefix(line, "t OK"):
			return
		case line == "", strings.HasPrefix(line, "t "), strings.HasPrefix(line, "* BYE"):
			c.t.Fatalf("%s: %q", text, line)
		}
	}
}

// authenticate logs in by a mechanism; answer gives the n-th answer of the client, from 0.
func (c *imapConn) authenticate(mechanism string, answer func(challenge []byte, n int) []byte) error {
	c.send("a AUTHENTICATE " + mechanism)
	for n := 0; ; n++ {
		line := c.line()
		challenge, more := strings.CutPrefix(line, "+")
		if !more {
			if strings.HasPrefix(line, "a OK") {
				return nil
			}
			return fmt.Errorf("answered %q", line)
		}
		text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(challenge))
		if err != nil {
			return err
		}
		c.send(base64.StdEncoding.EncodeToString(answer(text, n)))
	}
}

// scram logs in by another implementation of SCRAM.
func (c *imapConn) scram(plus bool, password string, binding *scram.ChannelBinding) error {
	client, err := scram.SHA256.NewClient(rig.AnnsAddress, password, "")
	if err != nil {
		return err
	}
	mechanism, conv := "SCRAM-SHA-256", client.NewConversation()
	if plus {
		mechanism, conv = "SCRAM-SHA-256-PLUS", client.NewConversationWithChannelBinding(*binding)
	}
	var wrong error
	err = c.authenticate(mechanism, func(challenge []byte, _ int) []byte {
		answer, err := conv.Step(string(challenge))
		if err != nil && wrong == nil {
			wrong = err
		}
		return []byte(answer)
	})
	if err == nil && (wrong != nil || !conv.Valid()) {
		return fmt.Errorf("the server proved nothing: %w", wrong)
	}
	return err
}

// smtpLogin connects to submission and logs in.
func smtpLogin(t *testing.T, addr, username, password string) *textproto.Conn {
	t.Helper()
	c, err := textproto.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, _, err := c.ReadResponse(220); err != nil {
		t.Fatal(err)
	}
	if answer := say(t, c, "EHLO client.test"); answer[0] != '2' {
		t.Fatal(answer)
	}
	if answer := say(t, c, "AUTH PLAIN "+base64.StdEncoding.EncodeToString([]byte("\x00"+username+"\x00"+password))); answer[0] != '2' {
		t.Fatal(answer)
	}
	return c
}

// say sends a line, or several, and gives the answer.
func say(t *testing.T, c *textproto.Conn, line string) string {
	t.Helper()
	if err := c.PrintfLine("%s", line); err != nil {
		t.Fatal(err)
	}
	code, text, err := c.ReadResponse(0)
	if code == 0 {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", code, text)
}

func logInBySMTP(addr, username, password string) error {
	c, err := smtp.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Auth(smtp.PlainAuth("", username, password, "127.0.0.1"))
}
