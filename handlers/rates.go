package handlers

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/mailstead/mailstead/service"
)

// rates counts the requests of each account in fixed windows of one minute. Dashboard sessions have
// a budget of their own.
type rates struct {
	limits  service.Limits
	mu      sync.Mutex
	windows map[string]*window
	minute  int64
}

type window struct{ used int }

func newRates(l service.Limits) *rates { return &rates{limits: l, windows: map[string]*window{}} }

// count takes one request and sets the headers; past the burst cap it is an error.
func (r *rates) count(c *call, now time.Time) error {
	steady, burst := service.RateLimits(r.limits, c.who.Plan)
	used := r.take(c.who.RateKey(), now)
	reset := now.Truncate(time.Minute).Add(time.Minute)
	c.who.Rate = service.RateUsage{Limit: steady, Remaining: max(steady-used, 0), Reset: reset.Unix()}
	h := c.w.Header()
	h.Set("X-RateLimit-Limit", strconv.Itoa(steady))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(c.who.Rate.Remaining))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(reset.Unix(), 10))
	if used <= burst {
		return nil
	}
	e := service.Errorf(http.StatusTooManyRequests, "rate_limited",
		"This account has used its %d requests of this minute. Wait for the next one.", burst)
	e.RetryAfter = reset.Sub(now)
	return e
}

// take counts one request in the key's window and says how many that makes.
func (r *rates) take(key string, now time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if minute := now.Unix() / 60; minute != r.minute {
		r.minute = minute
		clear(r.windows)
	}
	w := r.windows[key]
	if w == nil {
		w = &window{}
		r.windows[key] = w
	}
	w.used++
	return w.used
}

// used says how many requests of this minute an account has made.
func (r *rates) used(key string, now time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.windows[key]; w != nil && r.minute == now.Unix()/60 {
		return w.used
	}
	return 0
}

// badTokenLimit is how many bad tokens one address may show in a minute.
const badTokenLimit = 1000

// badTokens counts bad tokens by address, so that nobody can guess for long.
type badTokens struct{ rates }

func newBadTokens() *badTokens { return &badTokens{*newRates(service.Limits{})} }

func (b *badTokens) count(addr string, now time.Time) { b.take(addr, now) }

func (b *badTokens) check(addr string, now time.Time) error {
	if b.used(addr, now) <= badTokenLimit {
		return nil
	}
	e := service.Errorf(http.StatusTooManyRequests, "rate_limited", "Too many bad tokens came from %s. Wait for the next minute.", addr)
	e.RetryAfter = now.Truncate(time.Minute).Add(time.Minute).Sub(now)
	return e
}
