package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
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
)

// TestDashboardBehindNginx: with the configuration that docs/proxy.md shows people sign in over the
// proxy's TLS, and their own addresses count, whatever they say to be; who goes around the proxy is
// believed nothing.
func TestDashboardBehindNginx(t *testing.T) {
	t.Parallel()
	nginx := peer(t, "nginx")
	const name, password = "mail.example.test", "the cat sat on the mat"
	i := newInstance(t, fmt.Sprintf("hostname = %q\nhttp_tls = \"off\"\nsubmissions = \"off\"\nimaps = \"off\"\nacme_directory = \"off\"\noutbound = \"capture\"\n"+
		"public_ip = [\"192.0.2.1\"]\ntrusted_proxy = [\"127.0.0.1\"]\n%s", name, generousLimits))
	if _, code := mailstead(t, "user", "reset-password", "--data", i.dir, "--user", "owner@example.org", "--password", password); code != 0 {
		t.Fatal("the owner's password could not be set")
	}
	cert, key, trust := testCert(t, name)
	plain, secure := startNginx(t, nginx, i.ready.HTTP, cert, key)

	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	visitor := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	at := map[string]string{name + ":443": secure, name + ":80": plain, "direct:80": i.ready.HTTP}
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
	doc, err := os.ReadFile("../docs/proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	example := nginxExample.FindSubmatch(doc)
	if example == nil {
		t.Fatal("docs/proxy.md has no example for nginx")
	}
	plain, secure = fmt.Sprintf("127.0.0.1:%d", freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t))
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
