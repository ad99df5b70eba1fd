package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/smtp"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
	"go.etcd.io/bbolt"
)

// A walk is one domain's way through the states of the interface, seen from outside only.
type walk struct {
	*rig.Instance
	world *rig.FakeResolver
	name  string
	id    string
}

// TestStatesOfDomains walks the state table of the interface for the ways of DNS that need no
// provider. Everything is told of once, and what is deleted leaves nothing behind.
func TestStatesOfDomains(t *testing.T) {
	t.Parallel()
	world := rig.NewFakeResolver(t)
	i := rig.Start(t, rig.GenerousLimits+"[dns]\nlisten = \"127.0.0.1:0\"\n", "--resolver", world.Addr)
	walks := []*walk{{i, world, "builtin.test", ""}, {i, world, "manual.test", ""}, {i, world, "external.test", ""}, {i, world, "setup.test", ""}}
	for n, of := range []func(*walk){(*walk).builtin, (*walk).manual, (*walk).external, (*walk).setUp} {
		of(walks[n])
	}
	for _, w := range walks {
		w.erase()
	}
	i.Stop()
	i.Check()
	for _, w := range walks {
		w.wantNothingLeft()
	}
}

func (w *walk) connect(body map[string]any, status string) {
	w.T.Helper()
	body["domains"] = []string{w.name}
	var got struct{ Domains []edgeResult }
	w.Want(200, "POST", "/v1/domains/connect", body, &got)
	w.id = got.Domains[0].DomainID
	if got.Domains[0].Status != "created" {
		w.T.Fatalf("%s: %+v", w.name, got)
	}
	w.wantStatus(status)
	w.Want(200, "POST", "/v1/domains/connect", body, &got)
	if got.Domains[0].Status != "already_exists" || got.Domains[0].DomainID != w.id {
		w.T.Errorf("%s again: %+v", w.name, got)
	}
}

// wantStatus wants a domain to be in one of two states that follow each other quickly, or in the
// only one.
func (w *walk) wantStatus(any ...string) {
	w.T.Helper()
	var d struct{ Status string }
	if w.Want(200, "GET", "/v1/domains/"+w.id, nil, &d); !slices.Contains(any, d.Status) {
		w.T.Errorf("%s is %s, want %s", w.name, d.Status, any)
	}
}

func (w *walk) reaches(status string) {
	w.T.Helper()
	w.Until(w.name+" is "+status, func() bool {
		var d struct{ Status string }
		w.Want(200, "GET", "/v1/domains/"+w.id, nil, &d)
		return d.Status == status
	})
}

// told gives how often each event about the domain was sent.
func (w *walk) told(want ...string) {
	w.T.Helper()
	var page struct {
		Data []struct {
			Type string
			Data struct{ Domain string }
		}
	}
	w.Want(200, "GET", "/v1/events?limit=100", nil, &page)
	var got []string
	for _, e := range page.Data {
		if e.Data.Domain == w.name && strings.HasPrefix(e.Type, "domain.") {
			got = append(got, strings.TrimPrefix(e.Type, "domain."))
		}
	}
	if slices.Reverse(got); !slices.Equal(got, want) {
		w.T.Errorf("%s: events %s, want %s", w.name, got, want)
	}
}

func (w *walk) checkNS(want string) {
	w.T.Helper()
	var got struct{ Domains []struct{ Status string } }
	if w.Want(200, "POST", "/v1/domains/check-ns", map[string]any{"domains": []string{w.name}}, &got); got.Domains[0].Status != want {
		w.T.Errorf("check-ns %s: %s, want %s", w.name, got.Domains[0].Status, want)
	}
}

// answers gives what our DNS server says now.
func (w *walk) answers(name, typ string) string {
	w.T.Helper()
	q := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.StringToType[typ])
	r, _, err := new(dns.Client).Exchange(q, w.Ready.DNS)
	if err != nil {
		w.T.Fatal(err)
	}
	var out []string
	for _, rr := range r.Answer {
		out = append(out, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	return strings.TrimSpace(dns.RcodeToString[r.Rcode] + " " + strings.Join(out, ", "))
}

func (w *walk) wantAnswer(name, typ, want string) {
	w.T.Helper()
	if got := w.answers(name, typ); got != want {
		w.T.Errorf("%s %s: %s, want %s", name, typ, got, want)
	}
}

// builtin: connect → pending_ns, check-ns → complete, then records, policy and health.
func (w *walk) builtin() {
	w.T.Helper()
	w.connect(map[string]any{}, "pending_ns")
	w.told()
	w.checkNS("failed")
	w.wantStatus("pending_ns")
	w.world.Delegate(w.Ready.DNS)
	w.checkNS("verified")
	w.reaches("complete")
	w.checkNS("already_complete")
	w.told("created", "ready")
	w.records()
	w.health()
}

// records are changed and seen with the next question.
func (w *walk) records() {
	w.T.Helper()
	path := "/v1/domains/" + w.id
	var made struct {
		Record struct {
			RecordID string `json:"record_id"`
			Status   string
		}
	}
	w.Want(200, "POST", path+"/custom-dns-records", map[string]any{"name": "own", "type": "A", "value": "192.0.2.7"}, &made)
	w.wantAnswer("own.builtin.test", "A", "NOERROR 192.0.2.7")
	w.Want(200, "PATCH", path+"/custom-dns-records/"+made.Record.RecordID, map[string]any{"value": "192.0.2.8"}, nil)
	w.wantAnswer("own.builtin.test", "A", "NOERROR 192.0.2.8")
	w.Want(200, "DELETE", path+"/custom-dns-records/"+made.Record.RecordID, nil, nil)
	w.wantAnswer("own.builtin.test", "A", "NXDOMAIN")
	w.Want(200, "POST", path+"/custom-dns-records", map[string]any{"name": "stays", "type": "TXT", "value": "here"}, nil)

	w.wantAnswer("_dmarc.builtin.test", "TXT", `NOERROR "v=DMARC1; p=reject"`)
	w.Want(200, "PUT", path+"/dmarc", map[string]any{"value": "v=DMARC1; p=none"}, nil)
	w.wantAnswer("_dmarc.builtin.test", "TXT", `NOERROR "v=DMARC1; p=none"`)
	if job := setUp(w.Instance, map[string]any{"domain": w.name}); job.Status != "completed" {
		w.T.Errorf("setup again: %+v", job)
	}
	w.wantStatus("complete")
	w.wantAnswer("_dmarc.builtin.test", "TXT", `NOERROR "v=DMARC1; p=none"`)
	w.Want(200, "DELETE", path+"/dmarc", nil, nil)
	w.wantAnswer("_dmarc.builtin.test", "TXT", `NOERROR "v=DMARC1; p=reject"`)
	w.told("created", "ready")
}

// health: two bad looks are told of once, and a good one ends the episode.
func (w *walk) health() {
	w.T.Helper()
	var d struct {
		Status string
		Detail *string `json:"status_detail"`
		Health struct {
			Status string
			Since  *time.Time `json:"failing_since"`
			Issues []struct{ Code string }
		} `json:"dns_health"`
	}
	look := func() {
		w.Want(200, "GET", "/v1/domains/"+w.id+"/dns-status?refresh=true", nil, nil)
		w.Want(200, "GET", "/v1/domains/"+w.id, nil, &d)
	}
	w.world.Set(w.T, w.name, "NS", "ns.elsewhere.test.")
	for n, want := range []string{"degraded", "failing", "failing"} {
		if look(); d.Status != "complete" || d.Health.Status != want || len(d.Health.Issues) == 0 || d.Health.Since == nil {
			w.T.Errorf("bad look %d: %+v", n+1, d)
		}
	}
	w.told("created", "ready", "nameservers_changed", "dns_failed")
	w.world.Set(w.T, w.name, "NS", "ns1.mailstead.test.", "ns2.mailstead.test.")
	if look(); d.Health.Status != "healthy" || d.Detail == nil || !strings.Contains(*d.Detail, "healthy again") {
		w.T.Errorf("recovered: %+v", d)
	}
	w.told("created", "ready", "nameservers_changed", "dns_failed", "nameservers_changed")
}

// manual: connect → pending_dns_records, verify-dns → complete once all critical records are there.
func (w *walk) manual() {
	w.T.Helper()
	w.world.Delegate("")
	w.connect(map[string]any{"manual_dns": true}, "in_progress")
	w.reaches("pending_dns_records")
	path := "/v1/domains/" + w.id
	w.Want(503, "GET", path+"/custom-dns-records", nil, nil)
	w.Want(503, "PUT", path+"/dmarc", map[string]any{"value": "v=DMARC1; p=none"}, nil)
	var list struct {
		Status  string
		Records []struct {
			Type, Host, Value, Purpose string
			Priority                   *int
		}
	}
	if w.Want(200, "GET", path+"/dns-records", nil, &list); list.Status != "ready" {
		w.T.Fatalf("dns-records: %+v", list)
	}
	var seen struct {
		All      bool `json:"all_verified"`
		Critical bool `json:"critical_verified"`
	}
	for _, r := range list.Records {
		if w.Want(200, "POST", path+"/verify-dns", nil, &seen); seen.Critical && r.Purpose != "DMARC" {
			w.T.Errorf("critical records are verified before %s is there", r.Purpose)
		}
		if seen.Critical {
			break // the rest is not
		}
		w.wantStatus("pending_dns_records")
		name, value := r.Host+"."+w.name, r.Value
		if r.Host == "@" {
			name = w.name
		}
		switch r.Type {
		case "TXT":
			value = quoted(value)
		case "MX":
			value = fmt.Sprintf("%d %s.", *r.Priority, value)
		}
		w.world.Set(w.T, name, r.Type, value)
	}
	if !seen.Critical || seen.All {
		w.T.Errorf("without DMARC: %+v", seen)
	}
	w.wantStatus("complete")
	w.told("created", "ready")
}

// quoted is a text in zone-file form.
func quoted(text string) string {
	var out []string
	for part := range slices.Chunk([]byte(text), 255) {
		out = append(out, `"`+string(part)+`"`)
	}
	return strings.Join(out, " ")
}

// external: complete at once, and nothing of it is ours to change.
func (w *walk) external() {
	w.T.Helper()
	w.connect(map[string]any{"external": true}, "complete")
	path := "/v1/domains/" + w.id
	w.Want(503, "POST", path+"/custom-dns-records", map[string]any{"name": "a", "type": "TXT", "value": "x"}, nil)
	w.Want(503, "DELETE", path+"/dmarc", nil, nil)
	w.Want(400, "GET", path+"/dns-records", nil, nil)
	w.Want(400, "POST", path+"/verify-dns", nil, nil)
	w.Want(400, "POST", "/v1/domains/setup", map[string]any{"domain": w.name}, nil)
	w.told("created", "ready")
	w.wantAnswer(w.name, "MX", "REFUSED")
}

// setUp: queued, pending_ns until it is delegated to us, complete.
func (w *walk) setUp() {
	w.T.Helper()
	body := map[string]any{"domain": w.name, "users": []any{map[string]any{"username": "ann"}}, "redirect_url": "https://elsewhere.test/", "forward_address": "x@elsewhere.test"}
	var job rig.Job
	w.Want(202, "POST", "/v1/domains/setup", body, &job)
	w.id = job.Resource.ID
	w.reaches("pending_ns")
	w.told("created")
	w.checkNS("failed")
	w.world.Delegate(w.Ready.DNS)
	w.checkNS("verified")
	job = endOf(w.Instance, job.JobID)
	if job.Status != "completed" {
		w.T.Errorf("setup: %+v", job)
	}
	w.wantStatus("complete")
	w.told("created", "ready")
	w.wantAnswer("www.setup.test", "A", "NOERROR 127.0.0.1")
}

func (w *walk) erase() {
	w.T.Helper()
	var d struct{ Status string }
	if job := erase(w.Instance, w.id); job.Status != "completed" {
		w.T.Errorf("delete %s: %+v", w.name, job)
	}
	w.Want(404, "GET", "/v1/domains/"+w.id, nil, &d)
	for _, name := range []string{w.name, "stays." + w.name, "ms1._domainkey." + w.name} {
		w.wantAnswer(name, "TXT", "REFUSED")
	}
	w.wantAnswer(w.name, "DNSKEY", "REFUSED")
}

// wantNothingLeft looks through every row of the stopped store. What tells of the past stays:
// events, jobs.
func (w *walk) wantNothingLeft() {
	w.T.Helper()
	db, err := bbolt.Open(filepath.Join(w.Dir, "mailstead.db"), 0o600, &bbolt.Options{ReadOnly: true, Timeout: 5 * time.Second})
	if err != nil {
		w.T.Fatal(err)
	}
	defer db.Close()
	var search func(place string, b *bbolt.Bucket) error
	search = func(place string, b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if v == nil {
				return search(place+"/"+string(k), b.Bucket(k))
			}
			for _, of := range []string{w.name, w.id} {
				if bytes.Contains(k, []byte(of)) || bytes.Contains(v, []byte(of)) {
					w.T.Errorf("%s is left in %s: %.100q = %.200q", w.name, place, k, v)
					break
				}
			}
			return nil
		})
	}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if past := []string{"event", "job", "job.key", "audit"}; slices.Contains(past, string(name)) {
				return nil
			}
			return search(string(name), b)
		})
	})
	if err != nil {
		w.T.Fatal(err)
	}
}

var record = flag.Bool("record", false, "fill in the answers that recordings in testdata/compat still lack")

// recordings are what clients of this major version rely on. A recording that was released is never
// changed.
const recordings = "testdata/compat/v1"

// notRecorded are operations that no recording covers yet; only ones that nobody could have called
// so far belong here.
var notRecorded = []string{"create_inbox", "clear_token_taint", "clear_credential_taint", "clear_smtp_credential_taint", "wait_for_message", "wait_for_any_message", "get_health", "list_accounts", "create_account", "get_account_by_id", "update_account_by_id", "delete_account", "get_account_usage", "create_sign_in_link", "list_requests", "get_request", "get_message_attachments", "list_settings", "update_settings", "test_settings", "check_health", "list_backups", "create_backup", "drill_backup", "list_audit", "import_messages", "export_messages", "update_scheduled_message", "update_me", "change_my_password", "unsubscribe_message", "answer_invitation",
	"list_approvals", "get_approval", "get_approval_raw", "approve_message", "reject_message"}

// An exchange is one recorded request and what came back, with what differs from run to run
// replaced by its kind.
type exchange struct {
	Operation string            `json:"operation,omitempty"`
	Method    string            `json:"method,omitempty"`
	Path      string            `json:"path,omitempty"` // {name} stands for something kept from an answer before
	Header    map[string]string `json:"header,omitempty"`
	Request   any               `json:"request,omitempty"` // a text is sent as it stands
	Until     map[string]any    `json:"until,omitempty"`   // the request is repeated until the answer has these values at these places
	Keep      map[string]string `json:"keep,omitempty"`    // names for values at places of the answer
	Status    int               `json:"status,omitempty"`
	Returned  map[string]string `json:"returned,omitempty"` // headers of the answer
	Answer    any               `json:"answer,omitempty"`

	Mail *arrival `json:"mail,omitempty"` // instead of a request: a message comes in over SMTP
}

type arrival struct {
	From    string   `json:"from"`
	To      string   `json:"to"`
	Message []string `json:"message"` // its lines
}

// TestOldClientsStillWork replays every recording: each request must still be taken, and each
// answer must still hold every field that it held, of the same type, with the same value where that
// is not of the moment.
func TestOldClientsStillWork(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(recordings, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			p := newPlayer(t)
			exchanges := readRecording(t, file)
			for n, e := range exchanges {
				p.play(fmt.Sprintf("%s, %d: %s %s", filepath.Base(file), n+1, e.Method, e.Path), e)
			}
			if *record && !t.Failed() {
				writeRecording(t, file, exchanges)
			}
		})
	}
}

// TestEveryOperationIsRecorded asks the program which operations it has.
func TestEveryOperationIsRecorded(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
		}
	}
	if err := json.Unmarshal(description(t, rig.Start(t, "")), &doc); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(recordings, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var done []string
	for _, file := range files {
		for _, e := range readRecording(t, file) {
			if e.Status >= 200 && e.Status < 300 {
				done = append(done, e.Operation)
			}
		}
	}
	for _, methods := range doc.Paths {
		for _, o := range methods {
			switch id := o.OperationID; {
			case !slices.Contains(done, id) && !slices.Contains(notRecorded, id):
				t.Errorf("%s is in no recording: add a request to a file in %s and run: go test -run TestOldClientsStillWork . -record", id, recordings)
			case slices.Contains(done, id) && slices.Contains(notRecorded, id):
				t.Errorf("%s is recorded: take it out of notRecorded", id)
			}
		}
	}
}

func readRecording(t *testing.T, file string) (out []*exchange) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return out
}

func writeRecording(t *testing.T, file string, exchanges []*exchange) {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(exchanges); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A player sends recorded requests to a program of its own.
type player struct {
	*rig.Instance
	kept map[string]string
}

// newPlayer starts a program with a registrar, a relay, which refuses gone@ for good and later@ for
// now, a receiver of events, and Cloudflare, where the mail of edge.test is elsewhere.
func newPlayer(t *testing.T) *player {
	t.Helper()
	host, port, err := net.SplitHostPort(newPicky(t).Addr)
	if err != nil {
		t.Fatal(err)
	}
	front, edge := newTaker(t), newFakeEdge(t, "edge.test")
	edge.put("edge.test", "MX", "edge.test", "10 mail.far.test")
	config := fmt.Sprintf("[cloudflare]\nbase_url=%q\n[registrar.sandbox]\n[[relay]]\nname='r1'\nkind='ses'\nregion='us-east-1'\nhost=%q\nport=%s\ntls='none'\n", edge.url, host, port)
	i := rig.Start(t, config, "--outbound", "relay", "--ca-file", rig.NewWebhookReceiver(t).CAFile)
	return &player{i, map[string]string{"receiver": front.URL}}
}

// play does what an exchange says; where it says what came back, that must be so again, else it is
// noted.
func (p *player) play(where string, e *exchange) {
	p.T.Helper()
	if e.Mail != nil {
		p.receive(e.Mail)
		return
	}
	began := time.Now()
	for {
		status, returned, answer := p.send(where, e)
		if !reached(answer, e.Until) {
			if time.Since(began) > 30*time.Second {
				p.T.Fatalf("%s: it never answered %v, but %d %v", where, e.Until, status, answer)
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		for name, place := range e.Keep {
			p.kept[name] = fmt.Sprint(at(answer, place))
		}
		settled := settle("", answer)
		if *record && e.Status == 0 {
			e.Status, e.Returned, e.Answer = status, returned, settled
		}
		p.compare(where, e, status, returned, settled)
		return
	}
}

func (p *player) compare(where string, e *exchange, status int, returned map[string]string, answer any) {
	p.T.Helper()
	if status != e.Status {
		p.T.Fatalf("%s: status %d, was %d: %v", where, status, e.Status, answer)
	}
	for name, was := range e.Returned {
		if returned[name] != was {
			p.T.Errorf("%s: the header %s is %q, was %q", where, name, returned[name], was)
		}
	}
	if lost := missing("answer", e.Answer, answer); lost != "" {
		p.T.Errorf("%s: %s", where, lost)
	}
}

func (p *player) receive(m *arrival) {
	p.T.Helper()
	c, err := smtp.Dial(p.Ready.SMTP)
	if err != nil {
		p.T.Fatal(err)
	}
	rig.Deliver(p.T, c, m.From, m.To, strings.Join(m.Message, "\r\n")+"\r\n")
	_ = c.Quit()
}

func (p *player) send(where string, e *exchange) (status int, returned map[string]string, answer any) {
	p.T.Helper()
	var body string
	switch content := e.Request.(type) {
	case nil:
	case string:
		body = content
	default:
		text, err := json.Marshal(content)
		if err != nil {
			p.T.Fatal(err)
		}
		body = string(text)
	}
	req, err := http.NewRequest(e.Method, "http://"+p.Ready.HTTP+p.fill(e.Path), strings.NewReader(p.fill(body)))
	if err != nil {
		p.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.Token)
	req.Header.Set("Content-Type", "application/json")
	for name, value := range e.Header {
		req.Header.Set(name, p.fill(value))
	}
	resp, err := p.HTTP.Do(req)
	if err != nil {
		p.T.Fatalf("%s: %v", where, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.T.Fatalf("%s: %v", where, err)
	}
	returned = map[string]string{}
	for _, name := range []string{"Content-Type", "Location", "Idempotent-Replayed", "WWW-Authenticate"} {
		if value := resp.Header.Get(name); value != "" {
			returned[name] = settleText("", value)
		}
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media == "application/json" || media == "application/problem+json" {
		if err := json.Unmarshal(text, &answer); err != nil {
			p.T.Fatalf("%s: %v in %s", where, err, text)
		}
	}
	return resp.StatusCode, returned, answer
}

// fill puts what was kept where its name stands.
func (p *player) fill(text string) string {
	for name, value := range p.kept {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

func reached(answer any, until map[string]any) bool {
	for place, want := range until {
		if !reflect.DeepEqual(at(answer, place), want) {
			return false
		}
	}
	return true
}

// at gives the value at a place such as data.0.email; nil if there is none.
func at(v any, place string) any {
	for name := range strings.SplitSeq(place, ".") {
		switch node := v.(type) {
		case map[string]any:
			v = node[name]
		case []any:
			n, err := strconv.Atoi(name)
			if err != nil || n >= len(node) {
				return nil
			}
			v = node[n]
		default:
			return nil
		}
	}
	return v
}

// missing says what a recorded value has that the present one lacks; "" if it lacks nothing.
// Objects may have new members and lists new items, which are counted; null may have become
// something, as long as its description allows that.
func missing(place string, was, is any) string {
	switch was := was.(type) {
	case nil:
		return ""
	case map[string]any:
		object, ok := is.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s is %v, was an object", place, is)
		}
		for name, value := range was {
			present, ok := object[name]
			if !ok {
				return fmt.Sprintf("%s.%s is gone", place, name)
			}
			counted, isCount := value.(float64)
			if now, isNumber := present.(float64); name == "count" && isCount && isNumber && now > counted {
				continue
			}
			if lost := missing(place+"."+name, value, present); lost != "" {
				return lost
			}
		}
		return ""
	case []any:
		list, ok := is.([]any)
		if !ok {
			return fmt.Sprintf("%s is %v, was a list", place, is)
		}
		for n, item := range was {
			if lost := missingItem(fmt.Sprintf("%s.%d", place, n), item, n, list); lost != "" {
				return lost
			}
		}
		return ""
	}
	if was != is {
		return fmt.Sprintf("%s is %v, was %v", place, is, was)
	}
	return ""
}

// missingItem looks for an item of a recorded list, which may stand elsewhere now.
func missingItem(place string, was any, n int, list []any) string {
	if slices.ContainsFunc(list, func(is any) bool { return missing(place, was, is) == "" }) {
		return ""
	}
	if n < len(list) {
		return missing(place, was, list[n])
	}
	return fmt.Sprintf("%s is gone, was %v", place, was)
}
