package e2e

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
)

var record = flag.Bool("record", false, "fill in the answers that recordings in testdata/compat still lack")

// recordings are what clients of this major version rely on. A recording that was released is never
// changed.
const recordings = "testdata/compat/v1"

// notRecorded are operations that no recording covers yet; only ones that nobody could have called
// so far belong here.
var notRecorded = []string{}

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
	if err := json.Unmarshal(description(t, newInstance(t, "")), &doc); err != nil {
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
	*instance
	kept map[string]string
}

// newPlayer starts a program with a registrar, a relay, which refuses gone@ for good and later@ for
// now, and a receiver of events.
func newPlayer(t *testing.T) *player {
	t.Helper()
	host, port, err := net.SplitHostPort(newPicky(t).addr)
	if err != nil {
		t.Fatal(err)
	}
	front := newTaker(t)
	config := fmt.Sprintf("[registrar.sandbox]\n[[relay]]\nname='r1'\nkind='ses'\nregion='us-east-1'\nhost=%q\nport=%s\ntls='none'\n", host, port)
	i := newInstance(t, config, "--outbound", "relay", "--ca-file", newHook(t).caFile)
	return &player{i, map[string]string{"receiver": front.URL}}
}

// play does what an exchange says; where it says what came back, that must be so again, else it is
// noted.
func (p *player) play(where string, e *exchange) {
	p.t.Helper()
	if e.Mail != nil {
		p.receive(e.Mail)
		return
	}
	began := time.Now()
	for {
		status, returned, answer := p.send(where, e)
		if !reached(answer, e.Until) {
			if time.Since(began) > 30*time.Second {
				p.t.Fatalf("%s: it never answered %v, but %d %v", where, e.Until, status, answer)
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
	p.t.Helper()
	if status != e.Status {
		p.t.Fatalf("%s: status %d, was %d: %v", where, status, e.Status, answer)
	}
	for name, was := range e.Returned {
		if returned[name] != was {
			p.t.Errorf("%s: the header %s is %q, was %q", where, name, returned[name], was)
		}
	}
	if lost := missing("answer", e.Answer, answer); lost != "" {
		p.t.Errorf("%s: %s", where, lost)
	}
}

func (p *player) receive(m *arrival) {
	p.t.Helper()
	c, err := smtp.Dial(p.ready.SMTP)
	if err != nil {
		p.t.Fatal(err)
	}
	deliver(p.t, c, m.From, m.To, strings.Join(m.Message, "\r\n")+"\r\n")
	_ = c.Quit()
}

func (p *player) send(where string, e *exchange) (status int, returned map[string]string, answer any) {
	p.t.Helper()
	var body string
	switch content := e.Request.(type) {
	case nil:
	case string:
		body = content
	default:
		text, err := json.Marshal(content)
		if err != nil {
			p.t.Fatal(err)
		}
		body = string(text)
	}
	req, err := http.NewRequest(e.Method, "http://"+p.ready.HTTP+p.fill(e.Path), strings.NewReader(p.fill(body)))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Content-Type", "application/json")
	for name, value := range e.Header {
		req.Header.Set(name, p.fill(value))
	}
	resp, err := p.http.Do(req)
	if err != nil {
		p.t.Fatalf("%s: %v", where, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatalf("%s: %v", where, err)
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
			p.t.Fatalf("%s: %v in %s", where, err, text)
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
// Objects may have new members and lists new items; null may have become something, as long as its
// description allows that.
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
