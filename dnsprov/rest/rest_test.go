package rest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rest"
	"github.com/mailstead/mailstead/dnsprov/rest/resttest"
)

const testToken = "a-secret-token"

func reason(status int, body []byte) (string, bool) { return string(body), status == 401 }

// start returns a server that counts to one, and a client of it without a network between them.
func start() (*resttest.Server, *rest.Client) {
	api := &resttest.Server{
		API: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "1") }),
		TooMany: func(w http.ResponseWriter, after time.Duration) {
			if after > 0 {
				w.Header().Set("Retry-After", fmt.Sprint(int(after.Seconds())))
			} else {
				w.Header().Set("RateLimit-Reset", fmt.Sprint(time.Now().Add(7*time.Second).Unix()))
			}
			w.WriteHeader(http.StatusTooManyRequests)
		},
	}
	return api, rest.New(rest.Config{Service: "test", BaseURL: "http://api.test/v1/", Scheme: "Bearer", Token: testToken, HTTP: api.HTTP(), Reason: reason})
}

func TestTooManyRequests(t *testing.T) {
	for _, tc := range []struct {
		name   string
		after  time.Duration // Retry-After
		times  int
		within time.Duration // the caller's patience
		took   time.Duration
		wait   time.Duration // in the error; 0: there is none
	}{
		{"a short one is waited for", 4 * time.Second, 1, time.Minute, 4 * time.Second, 0},
		{"again and again", 4 * time.Second, 9, time.Minute, 8 * time.Second, 4 * time.Second},
		{"a long one is the caller's", 90 * time.Second, 1, time.Minute, 0, 90 * time.Second},
		{"longer than the caller has", 4 * time.Second, 1, 3 * time.Second, 0, 4 * time.Second},
		{"it says when it begins anew", 0, 1, time.Minute, 7 * time.Second, 0},
		{"for ever", 1e6 * time.Second, 1, time.Minute, 0, 24 * time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, c := start()
				api.Fail(resttest.Fault{Kind: resttest.TooMany, Times: tc.times, After: tc.after})
				ctx, cancel := context.WithTimeout(t.Context(), tc.within)
				defer cancel()
				began := time.Now()
				out := 0
				_, err := c.Call(ctx, rest.Request{Method: http.MethodPost, Path: "/x", Body: 1}, &out)
				if took := time.Since(began); took != tc.took {
					t.Errorf("took %s, want %s", took, tc.took)
				}
				var wait *dnsprov.Wait
				if errors.As(err, &wait) != (tc.wait > 0) || wait != nil && wait.For != tc.wait || wait == nil && (err != nil || out != 1) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// TestOnlyWhatMayBeRepeatedIs: a read is tried three times, whatever the failure, and a write only
// once.
func TestOnlyWhatMayBeRepeatedIs(t *testing.T) {
	for _, kind := range append([]string{resttest.Hang}, resttest.Failures...) {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, c := start()
				api.Fail(resttest.Fault{Kind: kind, Times: 100})
				for method, want := range map[string]int{http.MethodGet: 3, http.MethodPost: 1} {
					out := 0
					_, err := c.Call(t.Context(), rest.Request{Method: method, Path: "/x", Repeat: method == http.MethodGet}, &out)
					if err == nil || errors.As(err, new(*rest.Error)) || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), testToken) {
						t.Errorf("%s: %v", method, err)
					}
					if n := api.Count(method, ""); n != want {
						t.Errorf("%s was sent %d times", method, n)
					}
				}
			})
		})
	}
}

func TestTheCallersEndIsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, c := start()
		api.Fail(resttest.Fault{Kind: resttest.Hang, Times: 100})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		if _, err := c.Call(ctx, rest.Request{Method: http.MethodGet, Repeat: true}, new(int)); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// TestTheTokenGoesNowhereElse: redirects are not followed, the token is removed from error texts of
// the API, and what cannot be a token is not sent.
func TestTheTokenGoesNowhereElse(t *testing.T) {
	seen := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen++ }))
	defer other.Close()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
			return
		}
		w.WriteHeader(map[string]int{http.MethodPost: 400, http.MethodPut: 401}[r.Method])
		fmt.Fprintf(w, "bad\n%s%s", r.Header.Get("Authorization"), strings.Repeat("x", 10_000))
	}))
	defer api.Close()
	c := rest.New(rest.Config{Service: "test", BaseURL: api.URL, Scheme: "Bearer", Token: testToken, Reason: reason, Pause: 1})
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
		_, err := c.Call(t.Context(), rest.Request{Method: method, Path: "/x", Repeat: true}, new(int))
		if err == nil || strings.Contains(err.Error(), testToken) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 1000 || errors.Is(err, dnsprov.ErrCredential) != (method == http.MethodPut) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if seen != 0 {
		t.Error("the redirect was followed")
	}
	c = rest.New(rest.Config{Service: "test", BaseURL: "http://user:pass@127.0.0.1:1/x", Token: testToken, Reason: reason, Pause: 1})
	if _, err := c.Call(t.Context(), rest.Request{Method: http.MethodGet}, nil); err == nil || strings.Contains(err.Error(), "pass") {
		t.Errorf("nobody answers: %v", err)
	}
	for _, token := range []string{"", "two words", "line\nbreak", "ünïcode", strings.Repeat("a", 1000)} {
		c := rest.New(rest.Config{BaseURL: api.URL, Token: token})
		if _, err := c.Call(t.Context(), rest.Request{}, nil); !errors.Is(err, dnsprov.ErrCredential) {
			t.Errorf("%.20q: %v", token, err)
		}
	}
}
