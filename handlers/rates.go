package handlers

import (
	"strconv"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
)

// requestCounts counts requests by key, separately for each minute of the clock.
type requestCounts struct {
	counts *limit.Counter[string]
}

func newRequestCounts() *requestCounts {
	return &requestCounts{limit.NewCounter[string](time.Minute)}
}

// countCall counts one request of the caller's account and sets the X-RateLimit headers. It returns
// an error if the account is over its burst limit. Dashboard sessions are counted separately from
// tokens. Commands of the operator have no limit, since they mend limits that are too low.
func (s *Server) countCall(c *call) error {
	now := s.now()
	steady, burst := accounts.RateLimits(s.svc.Core.Settings().Limits, c.who.Plan)
	used := s.rates.add(c.who.RateKey(), now)
	reset := now.Truncate(time.Minute).Add(time.Minute)
	c.who.Rate = core.RateUsage{Limit: steady, Remaining: max(steady-used, 0), Reset: reset.Unix()}
	h := c.w.Header()
	h.Set("X-RateLimit-Limit", strconv.Itoa(steady))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(c.who.Rate.Remaining))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(reset.Unix(), 10))
	if used <= burst || c.who.TokenID == core.LocalToken {
		return nil
	}
	return rateLimited(now, "This account has used its %d requests for this minute. Wait for the next minute.", burst)
}

// add counts one request of a key and returns the number of requests in this minute.
func (r *requestCounts) add(key string, now time.Time) int {
	return r.counts.Add(key, now.Truncate(time.Minute))
}

// requestsThisMinute returns the number of requests of a key in this minute.
func (r *requestCounts) requestsThisMinute(key string, now time.Time) int {
	return r.counts.Count(key, now.Truncate(time.Minute))
}

// rateLimited returns the error for a client that must wait for the next minute.
func rateLimited(now time.Time, format string, args ...any) *core.Error {
	e := core.Errorf("rate_limited", format, args...)
	e.RetryAfter = untilNextMinute(now)
	return e
}

func untilNextMinute(now time.Time) time.Duration {
	return now.Truncate(time.Minute).Add(time.Minute).Sub(now)
}

// badTokensPerMinute is how many bad tokens one address may send in a minute.
const badTokensPerMinute = 1000

// badTokens counts bad tokens by address, so that tokens cannot be guessed.
type badTokens struct{ *requestCounts }

func newBadTokens() *badTokens { return &badTokens{newRequestCounts()} }

// count counts one bad token of addr.
func (b *badTokens) count(addr string, now time.Time) { b.add(addr, now) }

// check returns an error if too many bad tokens came from addr in this minute.
func (b *badTokens) check(addr string, now time.Time) error {
	if b.requestsThisMinute(addr, now) <= badTokensPerMinute {
		return nil
	}
	return rateLimited(now, "Too many bad tokens came from %s. Wait for the next minute.", addr)
}
