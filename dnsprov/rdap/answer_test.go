package rdap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestReadDomain(t *testing.T) {
	head := `{"objectClassName":"domain","ldhName":"a.example"`
	registrar := `{"handle":"H1","roles":["registrar"],"publicIds":[{"type":"IANA Registrar ID","identifier":"292"}]`
	card := func(fn string) string {
		return `,"vcardArray":["vcard",[["version",{},"text","4.0"],["fn",{},"text",` + fn + `]]]`
	}
	for body, want := range map[string]Domain{
		head + `}`: {},
		head + `,"entities":[` + registrar + `}]}`:                                                                         {Registrar: "H1", IANAID: "292"},
		head + `,"entities":[` + registrar + card(`"Name\u0000\n Ltd"`) + `}]}`:                                            {Registrar: "Name Ltd", IANAID: "292"},
		head + `,"entities":[` + registrar + card(`["x"]`) + `}]}`:                                                         {Registrar: "H1", IANAID: "292"},
		head + `,"entities":[{"roles":["reseller"],"entities":[` + registrar + `}]}]}`:                                     {Registrar: "H1", IANAID: "292"},
		head + `,"entities":[{"roles":["registrar"],"handle":"1910","publicIds":[{"type":"other","identifier":"1910"}]}]}`: {Registrar: "1910"},
		head + `,"entities":[{"roles":["registrant"],"handle":"R"}]}`:                                                      {},
		`{"objectClassName":"domain","unicodeName":"bücher.example"}`:                                                      {Name: "xn--bcher-kva.example"},
		`{"objectClassName":"domain","ldhName":"bücher.example."}`:                                                         {Name: "xn--bcher-kva.example"},
	} {
		if want.Name == "" {
			want.Name = "a.example"
		}
		got, err := readDomain([]byte(body), want.Name)
		if err != nil || got.Name != want.Name || got.Registrar != want.Registrar || got.IANAID != want.IANAID {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
	for _, body := range []string{
		``, `null`, `{}`, `[]`, `"a.example"`, head, `{"ldhName":"a.example"}`, `{"objectClassName":"domain","ldhName":"b.example"}`,
		`{"objectClassName":"domain","ldhName":["b.example","a.example"]}`, `{"errorCode":404}`, `{"objectClassName":"nameserver","ldhName":"a.example"}`,
	} {
		if got, err := readDomain([]byte(body), "a.example"); err == nil {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

// TestNestingCostsNothing would take minutes if every level were decoded again.
func TestNestingCostsNothing(t *testing.T) {
	filler := `"` + strings.Repeat("x", maxAnswer-200_000) + `"`
	body := `{"objectClassName":"domain","ldhName":"a.example","entities":` + strings.Repeat(`[{"entities":`, 4900) + filler + strings.Repeat("}]", 4900) + "}"
	began := time.Now()
	if d, err := readDomain([]byte(body), "a.example"); err != nil || d.Registrar != "" {
		t.Errorf("%+v, %v", d, err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestListsAreBounded(t *testing.T) {
	var servers, states []string
	for i := range 5000 {
		servers = append(servers, fmt.Sprintf(`{"ldhName":"ns%d.example"}`, i))
		states = append(states, `"s"`)
	}
	body := `{"objectClassName":"domain","ldhName":"a.example","nameservers":[` + strings.Join(servers, ",") + `],"status":[` + strings.Join(states, ",") + `]}`
	d, err := readDomain([]byte(body), "a.example")
	if err != nil || len(d.Nameservers) != maxNameservers || len(d.Status) != maxStatus {
		t.Errorf("%d nameservers, %d states, %v", len(d.Nameservers), len(d.Status), err)
	}
}

func TestParseRegistry(t *testing.T) {
	r, err := parseRegistry(must(builtInRegistry()))
	if err != nil || len(r) < 1100 {
		t.Fatalf("the copy has %d endings, %v", len(r), err)
	}
	for name, want := range map[string]string{
		"example.com": "https://rdap.verisign.com/com/v1/", "a.example.org": "https://rdap.publicinterestregistry.org/rdap/",
		"x.co.uk": "https://rdap.nominet.uk/uk/", "x.dev": "https://pubapi.registry.google/rdap/", "x.xn--fiq228c5hs": "https://rdap.teleinfo.cn/xn--fiq228c5hs/",
	} {
		if got := r.serversFor(name); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %s", name, got)
		}
	}
	r, err = parseRegistry([]byte(`{"services":[[["A.","ÄB"],["http://a/","https://b","https://b/","https://u:p@c/","ftp://d/","https://e/?q","mailto:x"]],
		[["c"],["http://c"]],[["c.d"],"https://cd/"],[["e"],[]],[["f"]],"no",[["h"],[7]]]}`))
	want := bootstrapRegistry{"a": {"https://b/"}, "xn--b-zfa": {"https://b/"}, "c": {"http://c/"}, "c.d": {"https://cd/"}}
	if text, _ := json.Marshal(r); err != nil || fmt.Sprint(r) != fmt.Sprint(want) {
		t.Errorf("%s, %v", text, err)
	}
	if got := r.serversFor("a.c.d"); !slices.Equal(got, []string{"https://cd/"}) {
		t.Errorf("the longest ending does not count: %s", got)
	}
	for _, body := range []string{``, `{}`, `[]`, `{"services":[]}`, `{"services":{"com":"https://x/"}}`, `<html>`} {
		if r, err := parseRegistry([]byte(body)); err == nil {
			t.Errorf("%s: %v", body, r)
		}
	}
}

func TestLifetimeAndPauseAreBounded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for cacheControl, want := range map[string]time.Duration{
		"": defaultLifetime, "public, max-age=7200": 2 * time.Hour, "max-age=0": minLifetime, "max-age=99999999": maxLifetime, "max-age=x": defaultLifetime,
	} {
		if got := cacheLifetime(http.Header{"Cache-Control": {cacheControl}}, now); got != want {
			t.Errorf("Cache-Control %q: %s", cacheControl, got)
		}
	}
	if got := cacheLifetime(http.Header{"Expires": {now.Add(3 * time.Hour).Format(http.TimeFormat)}}, now); got != 3*time.Hour {
		t.Errorf("Expires: %s", got)
	}
	for retryAfter, want := range map[string]time.Duration{
		"": defaultPause, "5": 5 * time.Second, "0": time.Second, "-1": defaultPause, "999999": maxPause, "soon": defaultPause,
		now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Hour).Format(http.TimeFormat): time.Second,
	} {
		if got := parseRetryAfter(retryAfter, now); got != want {
			t.Errorf("Retry-After %q: %s", retryAfter, got)
		}
	}
}

// TestTurns tests a burst, and the pace after it.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := newServer("a.example"), time.Now()
		take := func(n int) {
			for range n {
				if err := s.acquireTurn(t.Context(), time.Now); err != nil {
					t.Fatal(err)
				}
				s.releaseTurn()
			}
		}
		if take(queryBurst); time.Since(began) != 0 {
			t.Errorf("the burst took %s", time.Since(began))
		}
		if take(10); time.Since(began) != 10*queryInterval {
			t.Errorf("ten more took %s", time.Since(began))
		}
	})
}

// TestNobodyWaitsForLong: a server that does not answer holds a few queries, and the others are
// refused in time.
func TestNobodyWaitsForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := newServer("a.example"), time.Now()
		for range maxParallel {
			if err := s.acquireTurn(t.Context(), time.Now); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.acquireTurn(t.Context(), time.Now); !errors.Is(err, ErrBusy) || time.Since(began) != maxSlotWait {
			t.Errorf("%v, after %s", err, time.Since(began))
		}
		s.recordResult(&pauseError{429, time.Minute}, began, time.Now())
		for range maxParallel {
			s.releaseTurn()
		}
		if err := s.acquireTurn(t.Context(), time.Now); !errors.Is(err, ErrBusy) {
			t.Errorf("in a pause: %v", err)
		}
		time.Sleep(time.Minute)
		if err := s.acquireTurn(t.Context(), time.Now); err != nil || len(s.slots) != 1 {
			t.Errorf("after the pause: %v, %d places are taken", err, len(s.slots))
		}
	})
}

// TestSilenceIsTrustedAtOnce: one query without an answer pauses a server, unless the server has
// answered another since that query was sent.
func TestSilenceIsTrustedAtOnce(t *testing.T) {
	s, put := newServer("a.example"), time.Now()
	late := put.Add(queryTimeout)
	s.recordResult(nil, put, put.Add(time.Second))
	s.recordResult(context.DeadlineExceeded, put, late)
	if err := s.checkPause(late); err != nil {
		t.Errorf("a server that answers others: %v", err)
	}
	s.recordResult(context.DeadlineExceeded, late, late.Add(queryTimeout))
	if err := s.checkPause(late.Add(queryTimeout)); !errors.Is(err, ErrBusy) {
		t.Errorf("a silent server: %v", err)
	}
	if err := s.checkPause(late.Add(queryTimeout + failurePause)); err != nil {
		t.Errorf("after the rest: %v", err)
	}
}

func TestServersAreForgotten(t *testing.T) {
	c := New(Config{})
	kept, err := c.serverAt("https://kept.example/")
	if err != nil {
		t.Fatal(err)
	}
	kept.recordResult(&pauseError{429, time.Minute}, c.now(), c.now())
	for i := range 3 * maxServers {
		if _, err := c.serverAt(fmt.Sprintf("https://s%d.example/", i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.servers) > maxServers {
		t.Errorf("%d servers are remembered", len(c.servers))
	}
	if again, _ := c.serverAt("https://kept.example/x/"); again != kept {
		t.Error("a server that asked for a pause is forgotten")
	}
}

func FuzzReadDomain(f *testing.F) {
	f.Add([]byte(`{"objectClassName":"domain","ldhName":"a.example","status":["ok"],"nameservers":[{"ldhName":"NS.A."}],"events":[{"eventAction":"expiration","eventDate":"2030-01-01"}],"entities":[{"roles":["registrar"],"publicIds":[{"type":"IANA Registrar ID","identifier":1910}],"vcardArray":["vcard",[["fn",{},"text","R"]]]}]}`))
	f.Add([]byte(`{"objectClassName":"domain","unicodeName":"a.example","entities":{"entities":{"roles":"registrar"}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := readDomain(body, "a.example")
		if err != nil {
			return
		}
		if d.Name != "a.example" || len([]rune(d.Registrar)) > maxText || strings.ContainsAny(d.Registrar+d.IANAID, "\n\x00") || !slices.IsSorted(d.Nameservers) {
			t.Errorf("%+v", d)
		}
		for _, ns := range d.Nameservers {
			if !isDomainName(ns) {
				t.Errorf("a nameserver %q", ns)
			}
		}
	})
}

func FuzzParseRegistry(f *testing.F) {
	f.Add([]byte(`{"services":[[["com"],["https://a.example/"]]]}`))
	f.Add([]byte(`{"services":[["com","https://a.example"],[["É"],[1,"http://b"]]]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := parseRegistry(body)
		if err == nil && len(r) == 0 {
			t.Error("an empty list is no error")
		}
		for ending, bases := range r {
			if ending == "" || len(bases) == 0 || len(bases) > maxBases {
				t.Errorf("%q: %q", ending, bases)
			}
			for _, base := range bases {
				if _, err := http.NewRequest(http.MethodGet, base+"domain/a", nil); err != nil || !strings.HasSuffix(base, "/") {
					t.Errorf("%q: %v", base, err)
				}
			}
		}
	})
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}
