package api

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestFirstStart: `serve` in an empty directory makes an account and prints a curl command that
// works.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	curl := rig.Peer(t, "curl")
	path, err := rig.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	readyFile := filepath.Join(dir, "ready")
	cmd := exec.Command(path, "serve", "--data", filepath.Join(dir, "data"), "--ready-file", readyFile, "--http", "127.0.0.1:0",
		"--smtp", "127.0.0.1:0", "--submission", "127.0.0.1:0", "--imap", "127.0.0.1:0", "--dns", "127.0.0.1:0")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	}()
	for !rig.IsFile(readyFile) {
		if time.Since(start) > 20*time.Second {
			t.Fatal("it did not become ready")
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Logf("ready after %s", time.Since(start))
	printed := make([]byte, 4096)
	n, err := stdout.Read(printed)
	if err != nil {
		t.Fatal(err)
	}
	text := string(printed[:n])
	commands := regexp.MustCompile(`(?m)^\s+((?:export|curl) .*)$`).FindAllString(text, -1)
	if len(commands) != 2 || !strings.Contains(text, "owner@mailstead.test") || !strings.Contains(text, "  dashboard   http://") {
		t.Fatalf("the first start printed %q", text)
	}
	if link, secret := strings.Index(text, "/welcome?token="), strings.Index(text, "mst_"); link < 0 || secret < link || strings.Count(text, "mst_") != 1 {
		t.Errorf("the link comes first, and the token once: %q", text)
	}
	answer, err := exec.Command("sh", "-c", strings.Replace(strings.Join(commands, "\n"), "curl", curl+" -sS", 1)).CombinedOutput()
	if err != nil || !strings.Contains(string(answer), `"owner@mailstead.test"`) {
		t.Errorf("the printed curl answered %s, %v", answer, err)
	}
}

// TestEachStartSaysWhereTheDashboardIs: the first one of an initialised store, and every later one.
func TestEachStartSaysWhereTheDashboardIs(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, "")
	for start := 1; start <= 2; start++ {
		said, err := os.ReadFile(i.Log.Name())
		if err != nil {
			t.Fatal(err)
		}
		if want := "dashboard   http://" + i.Ready.HTTP + "/\n"; strings.Count(string(said), want) != 1 || strings.Contains(string(said), "mst_") {
			t.Errorf("start %d should say %q, and no secret: %s", start, want, said)
		}
		i.Stop()
		if err := os.Truncate(i.Log.Name(), 0); err != nil {
			t.Fatal(err)
		}
		i.Start()
	}
}

// TestInitLeadsToTheHost: the link is the host's own where its name is known, else a path alone.
func TestInitLeadsToTheHost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config string
		args   []string
		want   string
	}{
		"no name":      {want: "welcome   /welcome?token="},
		"another port": {config: "http = '127.0.0.1:9000'\n", want: "welcome   /welcome?token="},
		"a flag":       {args: []string{"--hostname", "mail.example.com"}, want: "welcome   https://mail.example.com/welcome?token="},
		"in the file":  {config: "hostname = 'mail.example.com'\n", want: "welcome   https://mail.example.com/welcome?token="},
		"behind a proxy": {config: "hostname = 'mail.example.com'\nhttp = '127.0.0.1:8080'\nhttp_tls = 'off'\ntrusted_proxy = ['127.0.0.1']\n",
			want: "welcome   https://mail.example.com/welcome?token="},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "mailstead.toml"), []byte(test.config), 0o600); err != nil {
			t.Fatal(err)
		}
		out, code := rig.Run(t, append([]string{"init", "--data", dir, "--owner-email", "a@example.org"}, test.args...)...)
		if code != 0 || !strings.HasPrefix(out, test.want) {
			t.Errorf("%s: exit %d, printed %q, want first %q", name, code, out, test.want)
		}
	}
}

// readmeWalk is the first example of README, from its line about the token to the next paragraph.
var readmeWalk = regexp.MustCompile(`(?m)^    T=.*\n(?:    .*\n)+`)

// TestReadmeWalk runs the first example of README as it is written, but for the ports.
func TestReadmeWalk(t *testing.T) {
	t.Parallel()
	rig.Peer(t, "curl")
	text, err := os.ReadFile(rig.FromRoot("README.md"))
	if err != nil {
		t.Fatal(err)
	}
	i := rig.StartExisting(t, t.TempDir(), "")
	said, err := os.ReadFile(i.Log.Name())
	if err != nil {
		t.Fatal(err)
	}
	export := regexp.MustCompile(`export TOKEN=\S+`).FindString(string(said))
	walk := strings.NewReplacer("localhost:8080", i.Ready.HTTP, "localhost:2525", i.Ready.SMTP, "localhost:2587", i.Ready.Submission).Replace(readmeWalk.FindString(string(text)))
	if export == "" || walk == "" {
		t.Fatalf("the export is %q, the walk %q", export, walk)
	}
	script := "set -eu\n" + export + "\n" + strings.ReplaceAll(walk, "\n    curl", "\nsleep 1; curl -sS -f") // a person takes longer
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"subject":"Hello"`) || !strings.Contains(string(out), `"subject":"Re: Hello"`) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestSandboxTellsClientsAHostThatWorks: a name that only its own DNS knows is of no use to a mail
// client.
func TestSandboxTellsClientsAHostThatWorks(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits)
	i.AddDomain("example.test")
	var box, account struct {
		SMTPHost string `json:"smtp_host"`
		IMAPHost string `json:"imap_host"`
		Mail     struct {
			Hostname string
			SMTPHost string `json:"smtp_host"`
			IMAPHost string `json:"imap_host"`
		}
	}
	i.Want(201, "POST", "/v1/email-users", map[string]any{"email": "ann@example.test"}, &box)
	i.Want(200, "GET", "/v1/account", nil, &account)
	if box.SMTPHost != "127.0.0.1" || box.IMAPHost != "127.0.0.1" {
		t.Errorf("a mailbox: %+v", box)
	}
	if m := account.Mail; m.SMTPHost != "127.0.0.1" || m.IMAPHost != "127.0.0.1" || m.Hostname != "mail.mailstead.test" {
		t.Errorf("the account: %+v", m)
	}
	resp, err := http.Get("http://" + i.Ready.HTTP + "/mail/config-v1.1.xml?emailaddress=ann@example.test") // which the page's own links lead to
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	config, err := io.ReadAll(resp.Body)
	if err != nil || strings.Count(string(config), "<hostname>127.0.0.1</hostname>") != 2 {
		t.Errorf("autoconfig: %v %s", err, config)
	}
}

// TestCommandsWithAndWithoutAServer: tokens and calls work over the socket of a running server and
// on a stopped one.
func TestCommandsWithAndWithoutAServer(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits)
	commands := func(when string) {
		out, code := rig.Run(t, "token", "create", "--data", i.Dir, "--user", "owner@example.org", "--permissions", "read", "--json")
		var token struct{ ID, Token string }
		if err := json.Unmarshal([]byte(out), &token); err != nil || code != 0 || !strings.HasPrefix(token.Token, "mst_") {
			t.Fatalf("%s: token create: %d %v %s", when, code, err, out)
		}
		var account struct{ Email string }
		out, code = rig.Run(t, "call", "--data", i.Dir, "get_account")
		if err := json.Unmarshal([]byte(out), &account); err != nil || code != 0 || account.Email != "owner@example.org" {
			t.Errorf("%s: call get_account: %d %v %s", when, code, err, out)
		}
		_, code = rig.Run(t, "call", "--data", i.Dir, "get_domain", `{"domain_id":"dom_x"}`)
		if code != 1 {
			t.Errorf("%s: call of what is not there: exit %d, want 1", when, code)
		}
		_, code = rig.Run(t, "call", "--data", i.Dir, "no_such_operation")
		if code != 2 {
			t.Errorf("%s: call of no operation: exit %d, want 2", when, code)
		}
		email := strings.ReplaceAll(when, " ", "") + "@example.net"
		out, code = rig.Run(t, "account", "create", "--data", i.Dir, "--owner-email", email, "--json")
		if code != 0 {
			t.Errorf("%s: account create: %d %s", when, code, out)
		}
		out, code = rig.Run(t, "user", "reset-password", "--data", i.Dir, "--user", email, "--json")
		if code != 0 || !strings.Contains(out, "password") {
			t.Errorf("%s: user reset-password: %d %s", when, code, out)
		}
		for _, to := range []struct{ verb, status string }{{"suspend", "suspended"}, {"resume", "active"}} {
			var account struct {
				AccountID string `json:"account_id"`
				Status    string
			}
			out, code = rig.Run(t, "account", to.verb, "--data", i.Dir, "--account", email, "--json")
			if err := json.Unmarshal([]byte(out), &account); err != nil || code != 0 || account.Status != to.status || !strings.HasPrefix(account.AccountID, "acc_") {
				t.Errorf("%s: account %s: %d %v %s", when, to.verb, code, err, out)
			}
			out, code = rig.Run(t, "account", "list", "--data", i.Dir)
			if code != 0 || !strings.Contains(out, account.AccountID+"  "+to.status) {
				t.Errorf("%s: account list: %d %s", when, code, out)
			}
		}
		_, code = rig.Run(t, "account", "suspend", "--data", i.Dir)
		if code != 2 {
			t.Errorf("%s: account suspend of none: exit %d, want 2", when, code)
		}
		_, code = rig.Run(t, "account", "suspend", "--data", i.Dir, "--account", "nobody@example.net")
		if code != 1 {
			t.Errorf("%s: account suspend of nobody: exit %d, want 1", when, code)
		}
	}
	commands("with a server")
	if _, code := rig.Run(t, "check", "--data", i.Dir); code != 1 {
		t.Errorf("check of a store in use: exit %d, want 1", code)
	}
	i.Stop()
	commands("without a server")
	if _, code := rig.Run(t, "init", "--data", i.Dir, "--owner-email", "again@example.org"); code != 1 {
		t.Errorf("a second init: exit %d, want 1", code)
	}
	if out, code := rig.Run(t, "check", "--data", i.Dir); code != 0 || out != "ok\n" {
		t.Errorf("check: %d %q", code, out)
	}
	for _, wrong := range [][]string{{"serve", "--data", i.Dir, "--outbound", "pigeon"}, {"serve", "extra"}, {"nothing"}, {"serve", "--no-such-flag"}} {
		if _, code := rig.Run(t, wrong...); code != 2 {
			t.Errorf("%v: exit %d, want 2", wrong, code)
		}
	}
	if info, err := os.Stat(filepath.Join(i.Dir, "master.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("master.key: %v, %v", info, err)
	}
}

// TestProfile: a running server writes each kind of profile to a file; a stopped one writes none.
func TestProfile(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, "")
	dir := t.TempDir()
	for kind, begin := range map[string]string{"cpu": "\x1f\x8b", "heap": "\x1f\x8b", "goroutine": "\x1f\x8b", "trace": "go 1."} {
		file := filepath.Join(dir, kind)
		_, code := rig.Run(t, "profile", kind, "--data", i.Dir, "--to", file, "--seconds", "1")
		text, err := os.ReadFile(file)
		if err != nil || code != 0 || !strings.HasPrefix(string(text), begin) {
			t.Errorf("profile %s: exit %d, %v, %.20q", kind, code, err, text)
		}
	}
	if n := i.Profile("goroutine", 0); n < 10 || n > 100 {
		t.Errorf("a server at rest has %.0f goroutines", n)
	}
	if _, code := rig.Run(t, "profile", "cpu", "--data", i.Dir); code != 2 {
		t.Errorf("without --to: exit %d, want 2", code)
	}
	i.Stop()
	file := filepath.Join(dir, "stopped")
	if _, code := rig.Run(t, "profile", "heap", "--data", i.Dir, "--to", file); code != 1 || rig.IsFile(file) {
		t.Errorf("of a stopped server: exit %d, want 1 and no file", code)
	}
}

// TestHealth needs no token.
func TestHealth(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, "")
	resp, err := http.Get("http://" + i.Ready.HTTP + "/healthz")
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("healthz: %v, %v", resp, err)
	}
	resp.Body.Close()
	resp, err = http.Get("http://" + i.Ready.HTTP + "/")
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Security-Policy") == "" {
		t.Fatalf("the page: %v, %v", resp, err)
	}
	resp.Body.Close()
}

// TestDashboardBehindNginx: with the configuration that docs/proxy.md shows people sign in over the
// proxy's TLS, and their own addresses count, whatever they say to be; who goes around the proxy is
// believed nothing.
func TestDashboardBehindNginx(t *testing.T) {
	t.Parallel()
	nginx := rig.Peer(t, "nginx")
	const name, password = "mail.example.test", "the cat sat on the mat"
	i := rig.Start(t, fmt.Sprintf("hostname = %q\nhttp_tls = \"off\"\nsubmissions = \"off\"\nimaps = \"off\"\nacme_directory = \"off\"\noutbound = \"capture\"\n"+
		"public_ip = [\"192.0.2.1\"]\ntrusted_proxy = [\"127.0.0.1\"]\n%s", name, rig.GenerousLimits))
	if _, code := rig.Run(t, "user", "reset-password", "--data", i.Dir, "--user", "owner@example.org", "--password", password); code != 0 {
		t.Fatal("the owner's password could not be set")
	}
	cert, key, trust := rig.SelfSigned(t, name)
	plain, secure := startNginx(t, nginx, i.Ready.HTTP, cert, key)

	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	visitor := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	at := map[string]string{name + ":443": secure, name + ":80": plain, "direct:80": i.Ready.HTTP}
	browser := &http.Client{
		Jar: jar, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: trust}, ForceAttemptHTTP2: true,
			DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
				return visitor.DialContext(ctx, "tcp", at[addr])
			},
		},
	}
	defer browser.CloseIdleConnections()
	ask := func(method, url, body string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for field, value := range map[string]string{"Content-Type": "application/json", "Sec-Fetch-Site": "same-origin", "X-Forwarded-For": "203.0.113.5",
			"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.test"} {
			r.Header.Set(field, value)
		}
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if strings.HasSuffix(url, "/stream") {
			line, _ := bufio.NewReader(resp.Body).ReadString('\n')
			return resp, line
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(text)
	}
	login := fmt.Sprintf(`{"email":"owner@example.org","password":%q}`, password)
	for _, url := range []string{"http://" + name, "http://direct"} {
		if resp, text := ask("POST", url+"/session", login); resp.StatusCode != 403 || !strings.Contains(text, "https_required") {
			t.Errorf("%s: %d %s", url, resp.StatusCode, text)
		}
	}
	if resp, _ := ask("GET", "http://"+name+"/inbox?a=b", ""); resp.StatusCode != 307 || resp.Header.Get("Location") != "https://"+name+"/inbox?a=b" {
		t.Errorf("in the clear: %d, to %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	resp, text := ask("POST", "https://"+name+"/session", login)
	if resp.StatusCode != 200 || !strings.Contains(text, `"api_base":"https://`+name+`"`) || !strings.HasPrefix(resp.Header.Get("Set-Cookie"), "__Host-mailstead=") {
		t.Fatalf("sign in: %d %s %q", resp.StatusCode, text, resp.Header.Get("Set-Cookie"))
	}
	if resp, text := ask("GET", "https://"+name+"/session/list", ""); resp.StatusCode != 200 || !strings.Contains(text, `"ip":"127.0.0.9"`) {
		t.Errorf("sessions: %d %s", resp.StatusCode, text)
	}
	if resp, text := ask("GET", "https://"+name+"/session/stream", ""); resp.StatusCode != 200 || text != "event: hello\n" {
		t.Errorf("stream: %d %q", resp.StatusCode, text)
	}
	if resp, text := ask("GET", "https://"+name+"/", ""); resp.StatusCode != 200 || resp.Header.Get("Strict-Transport-Security") == "" || !strings.Contains(text, "<div id=\"app\">") {
		t.Errorf("page: %d %v", resp.StatusCode, resp.Header)
	}
}

var nginxExample = regexp.MustCompile("(?s)```nginx\n(.*?)```")

// startNginx runs the example of docs/proxy.md before a server, and says where it listens.
func startNginx(t *testing.T, program, backend, cert, key string) (plain, secure string) {
	t.Helper()
	doc, err := os.ReadFile(rig.FromRoot("docs/proxy.md"))
	if err != nil {
		t.Fatal(err)
	}
	example := nginxExample.FindSubmatch(doc)
	if example == nil {
		t.Fatal("docs/proxy.md has no example for nginx")
	}
	plain, secure = fmt.Sprintf("127.0.0.1:%d", rig.FreePort(t)), fmt.Sprintf("127.0.0.1:%d", rig.FreePort(t))
	const live = "/etc/letsencrypt/live/mail.example.com/"
	server := strings.NewReplacer("listen 80 ", "listen "+plain+" ", "listen 443 ", "listen "+secure+" ", "127.0.0.1:8080", backend,
		live+"fullchain.pem", cert, live+"privkey.pem", key).Replace(string(example[1]))
	dir := t.TempDir()
	temp := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temp += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	file := filepath.Join(dir, "nginx.conf")
	config := fmt.Sprintf("daemon off;\nmaster_process off;\npid %s/pid;\nerror_log stderr warn;\nevents {}\nhttp {\naccess_log off;\n%s%s}\n", dir, temp, server)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-p", dir, "-e", "stderr", "-c", file)
	said := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("nginx said:\n%s", said)
		}
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", secure)
		if err == nil {
			c.Close()
			return plain, secure
		}
		if time.Now().After(deadline) {
			t.Fatalf("nginx does not listen: %v", err)
		}
	}
}
