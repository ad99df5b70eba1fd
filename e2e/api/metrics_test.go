package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/smtp"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
)

// families are all families of /metrics; which change by what happens stands behind them.
var families = strings.Fields(`
mailstead_build_info mailstead_ready mailstead_queue_messages mailstead_queue_oldest_seconds mailstead_received_messages_total
mailstead_deliveries_total mailstead_sending_alerts_total mailstead_sending_pauses_total mailstead_logins_total mailstead_http_requests_total mailstead_http_request_duration_seconds
mailstead_dns_queries_total mailstead_dns_checks_total mailstead_certificate_expiry_timestamp_seconds mailstead_store_bytes
mailstead_store_free_bytes mailstead_store_messages mailstead_commit_duration_seconds mailstead_webhook_deliveries_total
mailstead_webhooks_pending mailstead_jobs mailstead_jobs_finished_total mailstead_connections
mailstead_backup_last_success_timestamp_seconds mailstead_backup_failures_total mailstead_backup_drill_last_success_timestamp_seconds mailstead_backup_drill_failed mailstead_objects_pending
mailstead_objects_cache_bytes mailstead_standby_lag_seconds go_goroutines go_memstats_heap_alloc_bytes
process_resident_memory_bytes process_cpu_seconds_total process_open_fds process_start_time_seconds`)

// readMetrics gives the values by their whole names with labels, and the names of the families.
func readMetrics(i *rig.Instance) (values map[string]float64, names []string) {
	i.T.Helper()
	resp, err := http.Get("http://" + i.Ready.HTTP + "/metrics")
	if err != nil {
		i.T.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" {
		i.T.Fatalf("%s %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	values = map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			names = append(names, strings.Fields(name)[0])
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			i.T.Fatalf("%q: %v", line, err)
		}
		values[line[:at]] = v
	}
	return values, names
}

// TestMetrics: every family is there, each counts what happens, and no label names anybody.
func TestMetrics(t *testing.T) {
	hook := rig.NewWebhookReceiver(t)
	backups := t.TempDir()
	i := rig.Start(t, rig.GenerousLimits+"[backup]\nto = \""+backups+"\"\nevery = \"1m\"\n", "--ca-file", hook.CAFile)
	ann := i.AddMailbox("ann@"+i.AddDomainNamed("boxes.test"), "correct horse")
	before, names := readMetrics(i)
	for _, family := range families {
		if !slices.Contains(names, family) {
			t.Errorf("%s is missing", family)
		}
	}
	for _, name := range names {
		if !slices.Contains(families, name) {
			t.Errorf("%s is not documented", name)
		}
	}

	hook.Subscribe(i, "*")
	if err := rig.Transmit(i.Ready.SMTP, "ann@boxes.test", "From: a@far.test\r\nSubject: accepted\r\n\r\nx\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := rig.Transmit(i.Ready.SMTP, "nobody@boxes.test", "From: a@far.test\r\nSubject: rejected\r\n\r\nx\r\n"); err == nil {
		t.Fatal("mail to nobody was taken")
	}
	i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": "bob@far.test", "subject": "out", "text": "x"}, nil)
	i.Want(404, "GET", "/v1/email-users/eu_none", nil, nil)
	for _, password := range []string{"correct horse", "wrong horse"} {
		c, err := imapclient.DialInsecure(i.Ready.IMAP, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Login("ann@boxes.test", password).Wait(); (err == nil) != (password == "correct horse") {
			t.Error(err)
		}
		defer c.Close()
	}
	if err := smtp.SendMail(i.Ready.Submission, rig.PlainAuth{User: "ann@boxes.test", Password: "wrong horse"}, "ann@boxes.test", []string{"b@far.test"}, []byte("x")); err == nil {
		t.Error("a wrong password sent mail")
	}
	query := new(dns.Msg).SetQuestion("boxes.test.", dns.TypeMX)
	if _, err := dns.ExchangeContext(context.Background(), query, i.Ready.DNS); err != nil {
		t.Fatal(err)
	}

	advance(i, 2*time.Minute) // a backup is due
	var after map[string]float64
	for _, series := range []string{
		`mailstead_received_messages_total{result="accepted"}`, `mailstead_received_messages_total{result="rejected"}`,
		`mailstead_deliveries_total{route="capture",result="delivered"}`,
		`mailstead_logins_total{protocol="imap",result="ok"}`, `mailstead_logins_total{protocol="imap",result="failed"}`, `mailstead_logins_total{protocol="smtp",result="failed"}`,
		`mailstead_http_requests_total{operation="send_email",code="200"}`, `mailstead_http_requests_total{operation="get_email_user",code="404"}`,
		`mailstead_http_requests_total{operation="other",code="200"}`, `mailstead_http_request_duration_seconds_count`,
		`mailstead_dns_queries_total{rcode="NOERROR"}`, `mailstead_store_messages`, `mailstead_store_bytes{part="segments"}`, `mailstead_commit_duration_seconds_count`,
		`mailstead_webhook_deliveries_total{result="success"}`, `mailstead_jobs_finished_total{kind="webhook",result="completed"}`,
		`mailstead_connections{protocol="imap"}`, `mailstead_backup_last_success_timestamp_seconds`, `process_cpu_seconds_total`,
	} {
		i.Until(series+" is more than before", func() bool {
			after, _ = readMetrics(i)
			return after[series] > before[series]
		})
	}
	for _, series := range []string{
		`mailstead_build_info{version="dev"}`, `mailstead_ready`, `mailstead_store_bytes{part="database"}`, `mailstead_store_free_bytes`, `mailstead_dns_checks_total{result="healthy"}`,
		`mailstead_jobs{state="queued"}`, `go_goroutines`, `go_memstats_heap_alloc_bytes`, `process_resident_memory_bytes`, `process_open_fds`, `process_start_time_seconds`,
	} {
		if after[series] <= 0 {
			t.Errorf("%s is %v", series, after[series])
		}
	}
	for series := range after {
		if regexp.MustCompile(`@|boxes|far\.test|127\.0|[a-z]+_0[0-9a-z]{20}`).MatchString(series) {
			t.Errorf("%s names somebody", series)
		}
	}

	// What waits, and what fails.
	hook.Server.Close()
	if err := os.RemoveAll(backups); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(backups, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rig.Transmit(i.Ready.SMTP, "ann@boxes.test", "From: a@far.test\r\nSubject: not told\r\n\r\nx\r\n"); err != nil {
		t.Fatal(err)
	}
	advance(i, 2*time.Minute)
	for _, series := range []string{`mailstead_webhooks_pending`, `mailstead_webhook_deliveries_total{result="failed"}`, `mailstead_backup_failures_total`} {
		i.Until(series+" is more than 0", func() bool {
			after, _ = readMetrics(i)
			return after[series] > 0
		})
	}
}

// TestMetricsQueue: a message that waits is seen.
func TestMetricsQueue(t *testing.T) {
	world := rig.NewFakeResolver(t)
	world.PointHere(t, "waits.test")
	i := rig.Start(t, rig.GenerousLimits, "--outbound", "direct", "--mx-port", strconv.Itoa(rig.FreePort(t)), "--resolver", world.Addr)
	world.Delegate(i.Ready.DNS)
	ann := i.AddMailbox("ann@"+i.AddDomainNamed("boxes.test"), "correct horse")
	i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": "bob@waits.test", "subject": "waits", "text": "x"}, nil)
	i.Until("the message waits", func() bool {
		values, _ := readMetrics(i)
		return values[`mailstead_queue_messages{state="deferred"}`]+values[`mailstead_queue_messages{state="queued"}`] == 1
	})
}

// TestMetricsAreNotForAll: who may read them is set.
func TestMetricsAreNotForAll(t *testing.T) {
	i := rig.Start(t, "proxy_protocol = [\"127.0.0.1\"]\n[metrics]\ntoken = \"s3cret-of-prometheus\"\nallowed_networks = [\"192.0.2.0/24\"]\n")
	ask := func(header, token string) int {
		t.Helper()
		conn, err := net.Dial("tcp", i.Ready.HTTP)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn, "%sGET /metrics HTTP/1.1\r\nHost: x\r\n%sConnection: close\r\n\r\n", header, token)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if resp.Body.Close(); err != nil || (resp.StatusCode == 200) != strings.Contains(string(body), "mailstead_ready 1\n") {
			t.Errorf("%s %v %.200s", resp.Status, err, body)
		}
		return resp.StatusCode
	}
	for _, c := range []struct {
		header, token string
		want          int
	}{
		{"PROXY TCP4 192.0.2.7 192.0.2.1 1234 80\r\n", "", 200},
		{"PROXY TCP4 198.51.100.7 192.0.2.1 1234 80\r\n", "", 403},
		{"PROXY TCP4 127.0.0.1 127.0.0.1 1234 80\r\n", "", 403},
		{"PROXY UNKNOWN\r\n", "", 403},
		{"PROXY UNKNOWN\r\n", "Authorization: Bearer s3cret-of-prometheus\r\n", 200},
		{"PROXY UNKNOWN\r\n", "Authorization: Bearer s3cret-of-prometheu\r\n", 403},
		{"PROXY UNKNOWN\r\n", "Authorization: Bearer " + i.Token + "\r\n", 403},
	} {
		if got := ask(c.header, c.token); got != c.want {
			t.Errorf("%q %q: %d, want %d", c.header, c.token, got, c.want)
		}
	}
}

// TestDashboardAndAlertsOfMetrics: what docs/ has for Grafana and Prometheus asks for families
// alone that there are.
func TestDashboardAndAlertsOfMetrics(t *testing.T) {
	name := regexp.MustCompile(`\b(?:mailstead|go|process)_[a-z_]+`)
	for _, file := range []string{"grafana.json", "alerts.yml", "metrics.md"} {
		text, err := os.ReadFile(rig.FromRoot("docs/" + file))
		if err != nil {
			t.Fatal(err)
		}
		if file == "grafana.json" && !json.Valid(text) {
			t.Error("grafana.json is not JSON")
		}
		used := map[string]bool{}
		for _, found := range name.FindAllString(string(text), -1) {
			used[found] = true
			if family := strings.TrimSuffix(strings.TrimSuffix(found, "_bucket"), "_count"); !slices.Contains(families, family) {
				t.Errorf("%s: there is no %s", file, found)
			}
		}
		for _, family := range families {
			if file == "metrics.md" && !used[family] {
				t.Errorf("%s: %s is missing", file, family)
			}
		}
	}
}
