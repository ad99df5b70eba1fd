package handlers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
)

// An ear is an open stream.
type ear struct {
	t      testing.TB
	events chan string // "event data", or ": comment"; closed at the stream's end
	body   io.Closer
	proto  string
}

// listen opens a stream with the client's token and hears its hello.
func (c *client) listen() *ear {
	c.t.Helper()
	return listen(c.t, http.DefaultClient, c.url, c.token)
}

func listen(t testing.TB, hc *http.Client, url, token string) *ear {
	t.Helper()
	return listenBy(t, hc, url, "Authorization", "Bearer "+token)
}

// listenBy shows who asks in a header field.
func listenBy(t testing.TB, hc *http.Client, url, field, value string) *ear {
	t.Helper()
	r, err := http.NewRequest("GET", url+streamPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(field, value)
	resp, err := hc.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("Cache-Control") != "no-store" {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("stream: %d %v %s", resp.StatusCode, resp.Header, text)
	}
	e := &ear{t: t, events: make(chan string, 100), body: resp.Body, proto: resp.Proto}
	go e.read(resp.Body)
	t.Cleanup(func() { resp.Body.Close() })
	if got, want := e.next(), `hello {"version":"test","build":"abc"}`; got != want {
		t.Fatalf("the first event is %q, want %q", got, want)
	}
	return e
}

func (e *ear) read(body io.Reader) {
	defer close(e.events)
	var name string
	for lines := bufio.NewScanner(body); lines.Scan(); {
		line := lines.Text()
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			e.events <- name + " " + data
		} else if rest, ok := strings.CutPrefix(line, "event: "); ok {
			name = rest
		} else if line != "" {
			e.events <- line
		}
	}
}

// next is the next event, "" at the end of the stream.
func (e *ear) next() string {
	e.t.Helper()
	select {
	case event := <-e.events:
		return event
	case <-time.After(30 * time.Second):
		e.t.Fatal("nothing came for 30 s")
		return ""
	}
}

// hears waits for a change of the kind and, unless it is "", the id. It returns everything it
// heard.
func (e *ear) hears(kind, id string) (all []service.FeedChange) {
	e.t.Helper()
	for {
		event := e.next()
		data, isChange := strings.CutPrefix(event, "change ")
		var changes []service.FeedChange
		if err := json.Unmarshal([]byte(data), &changes); !isChange || err != nil {
			e.t.Fatalf("instead of %s %s came %q (%v)", kind, id, event, err)
		}
		all = append(all, changes...)
		if slices.ContainsFunc(changes, func(c service.FeedChange) bool { return c.Kind == kind && (id == "" || c.ID == id) }) {
			return all
		}
	}
}

// ends waits for the end of the stream, within a few seconds.
func (e *ear) ends(why string) {
	e.t.Helper()
	limit := time.After(4 * time.Second)
	for {
		select {
		case _, open := <-e.events:
			if !open {
				return
			}
		case <-limit:
			e.t.Fatalf("%s: the stream goes on", why)
		}
	}
}

func TestStreamTellsWhatChanges(t *testing.T) {
	b := newSandbox(t, nil)
	e := b.listen()
	ann := b.post("/v1/email-users", map[string]any{"email": "ann@boxes.test", "password": "correct horse"}).is(201).text("user_id")
	e.hears("mailbox", ann)
	b.Put(t, "ann@boxes.test", "Subject: s\r\n\r\nhello\r\n", mail{})
	e.hears("inbox", ann)
	b.patch("/v1/email-users/"+ann+"/inbox/1", map[string]any{"is_read": true}).is(200)
	e.hears("inbox", ann)
	job := b.remove("/v1/email-users/" + ann).is(200).text("job_id")
	e.hears("job", job)
}

func TestStreamOfASessionEndsWithIt(t *testing.T) {
	b := newSandbox(t, nil)
	web, elsewhere := b.browser().signIn(), b.browser().signIn()
	one, two := listenBy(t, http.DefaultClient, b.url, "Cookie", web.cookie), listenBy(t, http.DefaultClient, b.url, "Cookie", elsewhere.cookie)
	web.ask("DELETE", "/session", nil).is(200)
	one.ends("the owner signs out")
	two.hears("token", "")
	elsewhere.ask("DELETE", "/session?everywhere=true", nil).is(200)
	two.ends("the owner signs out everywhere")
	web.ask("GET", streamPath, nil).fails(401, "unauthorized")
}

func TestStreamsOfTenantsAreApart(t *testing.T) {
	b := newSandbox(t, nil)
	other := b.Account(t, "other@example.test")
	ours, theirs := b.listen(), b.with(other.Token).listen()
	for n := range 20 {
		b.post("/v1/email-user-templates", map[string]any{"name": fmt.Sprint("ours ", n), "usernames": []string{"a"}}).is(200)
		b.with(other.Token).post("/v1/email-user-templates", map[string]any{"name": fmt.Sprint("theirs ", n), "usernames": []string{"a"}}).is(200)
	}
	mine := b.post("/v1/webhooks", map[string]any{"url": "https://127.0.0.1/", "events": []string{"email.received"}}).is(201).text("id")
	yours := b.with(other.Token).post("/v1/webhooks", map[string]any{"url": "https://127.0.0.1/", "events": []string{"email.received"}}).is(201).text("id")
	heard, seen := ours.hears("webhook", mine), theirs.hears("webhook", yours)
	if len(heard) < 21 || len(seen) < 21 {
		t.Errorf("heard %d and %d changes, want 21 each", len(heard), len(seen))
	}
	for _, c := range heard {
		if slices.Contains(seen, c) {
			t.Errorf("both heard of %v", c)
		}
	}
}

func TestStreamNeedsAToken(t *testing.T) {
	b := newSandbox(t, nil)
	b.with("").get(streamPath).fails(401, "unauthorized")
	b.with("mst_x").get(streamPath).fails(401, "unauthorized")
	b.post(streamPath, nil).fails(405, "method_not_allowed")
	member := b.Token(t, b.Owner.AccountID, "member", "read")
	b.with(member).listen()
}

func TestStreamsOfOnePersonAreBounded(t *testing.T) {
	b := newSandbox(t, nil)
	var open []*ear
	for range 10 {
		open = append(open, b.listen())
	}
	if r := b.get(streamPath).fails(429, "rate_limited"); r.header.Get("Retry-After") == "" {
		t.Error("a 429 without Retry-After")
	}
	open[3].body.Close()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		r, err := http.NewRequest("GET", b.url+streamPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+b.token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == 200 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the place of a stream that was closed stays taken")
		}
	}
}

func TestStreamEndsWithItsToken(t *testing.T) {
	b := newSandbox(t, nil)
	for why, end := range map[string]func(token, user string){
		"the token is revoked": func(token, _ string) { b.remove("/v1/auth/tokens/" + token).is(200) },
		"the user is deleted":  func(_, user string) { b.remove("/v1/account/users/" + user).is(200) },
		"the role changes": func(_, user string) {
			b.patch("/v1/account/users/"+user, map[string]any{"role": "member"}).is(200)
		},
	} {
		value := b.Token(t, b.Owner.AccountID, "admin", "read")
		me := b.with(value).get("/v1/account").is(200)
		e, stays := b.with(value).listen(), b.listen()
		end(me.text("api_token.id"), me.text("user.id"))
		e.ends(why)
		b.post("/v1/email-user-templates", map[string]any{"name": why, "usernames": []string{"a"}}).is(200)
		stays.hears("template", "")
		stays.body.Close()
	}
}

// TestStreamsEndWithTheirAccount: when the operator suspends an account, every stream of it ends at
// once, also of one without mailboxes; those of others go on.
func TestStreamsEndWithTheirAccount(t *testing.T) {
	b := newSandbox(t, nil)
	other := b.Account(t, "other@example.test")
	web := b.browser().signIn()
	mine := map[string]*ear{"with a token": b.listen(), "in a browser": listenBy(t, http.DefaultClient, b.url, "Cookie", web.cookie)}
	theirs := b.with(other.Token).listen()
	set := func(status string) {
		t.Helper()
		if _, err := b.Accounts.SetAccountStatus(t.Context(), accounts.AccountIn{Account: b.Owner.AccountID, Status: status}); err != nil {
			t.Fatal(err)
		}
	}
	set("suspended")
	began := time.Now()
	for name, e := range mine {
		e.ends("the account is suspended, " + name)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the streams ended after %v", took)
	}
	b.get(streamPath).fails(403, "account_suspended")
	web.ask("GET", "/session", nil).fails(403, "account_suspended")
	b.with(other.Token).post("/v1/email-user-templates", map[string]any{"name": "still here", "usernames": []string{"a"}}).is(200)
	theirs.hears("template", "")
	set("active")
	b.listen()
	web.ask("GET", "/session", nil).is(200)
}

// TestStreamOutlivesTheTimeouts has a server whose deadlines for requests are shorter than a
// stream.
func TestStreamOutlivesTheTimeouts(t *testing.T) {
	b := newSandbox(t, nil)
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		srv := httptest.NewUnstartedServer(b.server)
		srv.EnableHTTP2 = proto == "HTTP/2.0"
		srv.Config.ReadTimeout, srv.Config.WriteTimeout, srv.Config.IdleTimeout = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
		srv.StartTLS()
		t.Cleanup(srv.Close)
		e := listen(t, srv.Client(), srv.URL, b.token)
		if e.proto != proto {
			t.Fatalf("spoke %s, want %s", e.proto, proto)
		}
		for n := range 3 {
			time.Sleep(400 * time.Millisecond)
			b.post("/v1/email-user-templates", map[string]any{"name": fmt.Sprint(proto, n), "usernames": []string{"a"}}).is(200)
			e.hears("template", "")
		}
	}
}

func TestStreamsEndAtOnceWhenTheServerStops(t *testing.T) {
	b := newSandbox(t, nil)
	for _, http2 := range []bool{false, true} {
		api := New(b.Service)
		api.Build = "abc"
		srv := httptest.NewUnstartedServer(api)
		srv.EnableHTTP2 = http2
		srv.Config.RegisterOnShutdown(api.EndStreams)
		srv.StartTLS()
		t.Cleanup(srv.Close)
		e := listen(t, srv.Client(), srv.URL, b.token)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := srv.Config.Shutdown(ctx); err != nil {
			t.Errorf("http2 %v: %v after %v", http2, err, time.Since(began))
		}
		e.ends("the server stops")
	}
	b.server.EndStreams()
	b.server.EndStreams()
	b.get(streamPath).fails(503, "shutting_down")
}

// pipes is a listener for connections in memory, which synctest can see wait.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// piped runs a server for fn with simulated time, and passes it connections.
func piped(t *testing.T, fn func(t *testing.T, b *servicetest.Sandbox, dial func() net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		b := servicetest.New(t, nil)
		s := New(b.Service)
		s.Log, s.Build = slog.New(slog.DiscardHandler), "abc"
		in := make(pipes)
		srv := &http.Server{Handler: s, ReadTimeout: 2 * time.Minute, WriteTimeout: 5 * time.Minute, Protocols: new(http.Protocols)}
		srv.Protocols.SetHTTP1(true)
		srv.Protocols.SetUnencryptedHTTP2(true)
		done := make(chan error, 1)
		go func() { done <- srv.Serve(in) }()
		fn(t, b, func() net.Conn {
			client, server := net.Pipe()
			in <- server
			return client
		})
		close(in)
		s.EndStreams()
		if err := srv.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		<-done
	})
}

// asked returns a connection on which the stream has been requested.
func asked(t *testing.T, conn net.Conn, token string) net.Conn {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", streamPath, token); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestStreamPings listens for longer than any deadline of the server.
func TestStreamPings(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		piped(t, func(t *testing.T, b *servicetest.Sandbox, dial func() net.Conn) {
			tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil }, Protocols: new(http.Protocols)}
			tr.Protocols.SetHTTP1(proto == "HTTP/1.1")
			tr.Protocols.SetUnencryptedHTTP2(proto == "HTTP/2.0")
			defer tr.CloseIdleConnections()
			e := listen(t, &http.Client{Transport: tr}, "http://api.test", b.Owner.Token)
			defer e.body.Close()
			if e.proto != proto {
				t.Fatalf("spoke %s, want %s", e.proto, proto)
			}
			began := time.Now()
			for n := range 40 {
				got, at, want := e.next(), time.Since(began), time.Duration(n+1)*20*time.Second
				if got != "ping {}" || at != want {
					t.Fatalf("%s: %q came after %v, want a ping after %v", proto, got, at, want)
				}
			}
		})
	}
}

func TestStreamEndsWhenItsTokenExpires(t *testing.T) {
	piped(t, func(t *testing.T, b *servicetest.Sandbox, dial func() net.Conn) {
		owner, err := b.Accounts.Authenticate(t.Context(), b.Owner.Token, "")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		short, err := b.Accounts.CreateToken(t.Context(), owner, accounts.CreateTokenIn{ExpiresAt: core.Opt[time.Time]{Set: true, Value: began.Add(time.Minute)}})
		if err != nil {
			t.Fatal(err)
		}
		conn := asked(t, dial(), short.Value)
		defer conn.Close()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		if after := time.Since(began); after < time.Minute || after > 65*time.Second {
			t.Errorf("the stream ended after %v, 60 s of which its token was good", after)
		}
	})
}

// TestStreamLeavesWhoDoesNotRead has a client that asks and never reads: it keeps neither the
// committer nor its place.
func TestStreamLeavesWhoDoesNotRead(t *testing.T) {
	piped(t, func(t *testing.T, b *servicetest.Sandbox, dial func() net.Conn) {
		var deaf []net.Conn
		for range 10 {
			deaf = append(deaf, asked(t, dial(), b.Owner.Token))
		}
		time.Sleep(time.Second)
		began := time.Now()
		for n := range 1000 {
			b.Template(t, b.Owner.AccountID, fmt.Sprint("t", n), "a")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("writes waited %v for listeners", took)
		}
		time.Sleep(15 * time.Second)
		again := asked(t, dial(), b.Owner.Token)
		line, err := bufio.NewReader(again).ReadString('\n')
		if err != nil || line != "HTTP/1.1 200 OK\r\n" {
			t.Errorf("after the deaf have been left: %q %v", line, err)
		}
		for _, conn := range append(deaf, again) {
			conn.Close()
		}
	})
}

// TestEventIDCombinesWithFilters lists one event by its id, and by each other filter at once.
func TestEventIDCombinesWithFilters(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("anna")
	b.box("boris")
	event := b.get("/v1/events?type=email_user.created").is(200).text("data.0.id")
	past, future := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for query, want := range map[string]string{
		"":                         "1",
		"&type=email_user.created": "1",
		"&type=email.received":     "0",
		"&created_after=" + past:   "1",
		"&created_after=" + future: "0",
		"&type=email_user.created&created_after=" + future: "0",
	} {
		b.get("/v1/events?event_id="+event+query).is(200).has("pagination.count", want, "pagination.has_more", "false")
	}
	b.get("/v1/events?event_id="+event[:20]).is(200).has("pagination.count", "0")
	b.get("/v1/events?event_id="+event+"&cursor=x").fails(400, "invalid_cursor")
	cursor := b.get("/v1/events?limit=1").is(200).text("pagination.cursor")
	b.get("/v1/events?event_id="+event+"&cursor="+cursor).fails(400, "invalid_cursor")
	other := b.with(b.Account(t, "other@example.test").Token)
	other.get("/v1/events?event_id="+event).is(200).has("pagination.count", "0")
}

// TestRedeliverBeforeTheFirstAttempt finds events whose first attempt still waits: a test, and one
// that was announced.
func TestRedeliverBeforeTheFirstAttempt(t *testing.T) {
	b := newSandbox(t, nil) // its queue does not run
	hook := func(events ...string) string {
		return b.post("/v1/webhooks", map[string]any{"url": "https://example.com/hook", "events": events}).is(201).text("id")
	}
	all, bounces := hook("*"), hook("email.bounced")
	again := func(hook, event string) *reply {
		t.Helper()
		return b.post("/v1/webhooks/"+hook+"/deliveries/"+event+"/redeliver", nil)
	}
	ping := b.post("/v1/webhooks/"+bounces+"/test", nil).is(200).text("event_id")
	again(bounces, ping).is(200).has("event_id", ping, "queued", "true")
	again(all, ping).fails(404, "not_found")
	b.box("anna")
	made := b.get("/v1/events?type=email_user.created").is(200).text("data.0.id")
	again(all, made).is(200)
	again(bounces, made).fails(404, "not_found")
	time.Sleep(2 * time.Millisecond)
	again(hook("*"), made).fails(404, "not_found")
}
