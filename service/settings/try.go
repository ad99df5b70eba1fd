package settings

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
)

const triesPerMinute = 10

// TestSettingsIn is the body of test_settings.
type TestSettingsIn struct {
	// What is tried: relay.NAME, registrar.NAME or alerts.url.
	Key string `json:"key" required:"true" max:"300" words:"ours" example:"relay.r1"`
	// Values that the settings would have, as in update_settings. Nothing is changed.
	Values map[string]core.Opt[Value] `json:"values"`
}

// A TestResult says whether something works as the settings have it.
type TestResult struct {
	OK bool `json:"ok"`
	// What was found. More codes may be added.
	Code    string `json:"code" enum:"ok|no_address|not_allowed|no_connection|timeout|tls_failed|login_refused|refused"`
	Message string `json:"message" words:"ours" example:"The relay r1 can be reached and takes the log-in."` // For people; the text may change.
	// What to do; null if it works.
	Mend       *string `json:"mend" words:"ours" example:"Compare user name and password with what the provider shows." rare:"true"`
	DurationMS int64   `json:"duration_ms" example:"412"`
}

// TestSettings tries a relay (it logs in, and sends no mail), a registrar, or the address of alerts
// (it gets a test alert).
func (s *Service) TestSettings(ctx context.Context, who core.Actor, in TestSettingsIn) (*TestResult, error) {
	now := s.Now()
	if s.tries.Add("", now.Truncate(time.Minute)) > triesPerMinute {
		e := core.Errorf("rate_limited", "At most %d things are tried in a minute. Wait for the next minute.", triesPerMinute)
		e.RetryAfter = now.Truncate(time.Minute).Add(time.Minute).Sub(now)
		return nil, e
	}
	try, err := s.planTry(ctx, who, in)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, core.TrialTimeout)
	defer cancel()
	begun := time.Now()
	out, err := try(ctx)
	if err != nil {
		return nil, err
	}
	out.DurationMS = time.Since(begun).Milliseconds()
	return out, nil
}

// planTry returns the function that tries what a request names.
func (s *Service) planTry(ctx context.Context, who core.Actor, in TestSettingsIn) (func(context.Context) (*TestResult, error), error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.file == nil {
		return nil, errNoFile()
	}
	settings := s.joined.Settings
	if len(in.Values) > 0 {
		_, joined, err := s.plan(ctx, in.Values)
		if err != nil {
			return nil, err
		}
		settings = joined.Settings
	}
	if in.Key == "alerts.url" {
		if settings.AlertURL == "" {
			return nil, core.Errorf("invalid_setting", "alerts.url is not set. Give it in values.").With("key", "not_set", "is not set")
		}
		return func(ctx context.Context) (*TestResult, error) { return s.tryAlerts(ctx, who, settings) }, nil
	}
	if name, ok := strings.CutPrefix(in.Key, "registrar."); ok {
		i := slices.IndexFunc(settings.Registrars, func(r registrar.Registrar) bool { return r.Name() == name })
		if i >= 0 {
			return func(ctx context.Context) (*TestResult, error) { return tryRegistrar(ctx, settings.Registrars[i]), nil }, nil
		}
	}
	if k, err := s.file.Key(in.Key); err == nil && k.Whole {
		i := slices.IndexFunc(settings.Relays, func(r core.Relay) bool { return EntryKey("relay", r.Name) == k.Entry })
		if i >= 0 {
			return func(ctx context.Context) (*TestResult, error) { return s.tryRelay(ctx, settings.Relays[i]), nil }, nil
		}
	}
	return nil, core.Errorf("invalid_setting", "%.100q cannot be tried: name a relay or a registrar that is set, such as relay.NAME, or alerts.url.", in.Key).With("key", "invalid", "cannot be tried")
}

func (s *Service) tryRelay(ctx context.Context, r core.Relay) *TestResult {
	err := s.TrialClient(r.Guarded).TryRelay(ctx, r.Hop())
	switch {
	case err == nil && r.Username == "":
		return works("The relay %s can be reached. It has no user name, so nothing was logged in to.", r.Name)
	case err == nil:
		return works("The relay %s can be reached and takes the log-in.", r.Name)
	case errors.Is(err, deliver.ErrLogin):
		return fails("login_refused", "The relay "+r.Name+" refuses the log-in"+strings.TrimPrefix(err.Error(), deliver.ErrLogin.Error()), "Compare the user name and password with what its provider shows.")
	case strings.Contains(err.Error(), r.Host+" answered: "):
		return fails("refused", "The relay "+r.Name+" refuses this host: "+err.Error(), "Ask its provider whether this host may send through it.")
	}
	return unreachable(err, "The relay "+r.Name, "Compare its host, port and tls with what its provider shows, and see that this host may connect to that port.")
}

func tryRegistrar(ctx context.Context, shop registrar.Registrar) *TestResult {
	_, err := shop.Find(ctx, "example.com")
	switch {
	case err == nil || errors.Is(err, registrar.ErrNotFound):
		return works("The registrar %s answers and takes the credentials.", shop.Name())
	case isNetwork(err):
		return unreachable(err, "The registrar "+shop.Name(), "See that this host can reach the registrar's API over HTTPS.")
	}
	return fails("login_refused", "The registrar "+shop.Name()+" refuses the request: "+err.Error(), "Compare the account and the token with what the registrar shows, and the addresses that the token is limited to.")
}

// tryAlerts posts an alert to the address, which says that it is a test.
func (s *Service) tryAlerts(ctx context.Context, who core.Actor, settings core.Settings) (*TestResult, error) {
	now := core.Time{Time: s.Now()}
	data, err := json.Marshal(map[string]any{
		"code": "test", "status": "ok", "subject": s.Hostname(), "message": "This is a test: somebody tried the address of alerts.", "mend": nil, "since": now,
	})
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(events.EventEnvelope{
		ID: s.Store.NewID("evt"), Object: "event", Type: events.EventHostAlert, APIVersion: events.APIVersion, Created: now, AccountID: who.AccountID, Data: data,
	})
	if err != nil {
		return nil, err
	}
	refused, err := s.events.PostAlert(ctx, &settings, body)
	if err != nil {
		return unreachable(err, "The address of alerts", "See that alerts.url is right, and that this host can reach it."), nil
	}
	if refused != "" {
		return fails("refused", "The address of alerts answered "+refused+".", "See what that service expects; its answer must have a status from 200 to 299."), nil
	}
	return works("The address of alerts took a test alert."), nil
}

func works(format string, args ...any) *TestResult {
	return &TestResult{OK: true, Code: "ok", Message: fmt.Sprintf(format, args...)}
}

// maxMessage is the maximum length of a message in bytes; what another server says may be longer.
const maxMessage = 500

func fails(code, message, mend string) *TestResult {
	message = strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
	return &TestResult{Code: code, Message: strings.TrimSuffix(message, ".") + ".", Mend: &mend}
}

// isNetwork reports whether an error means that there was no answer.
func isNetwork(err error) bool {
	var network net.Error
	var op *net.OpError
	return errors.As(err, &network) || errors.As(err, &op) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, netguard.ErrBlocked) || errors.Is(err, netguard.ErrResolve)
}

// unreachable returns the result for something that gave no answer.
func unreachable(err error, what, mend string) *TestResult {
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var network net.Error
	switch {
	case errors.Is(err, netguard.ErrBlocked):
		return fails("not_allowed", what+" has no public address: "+err.Error(), "Use a public address, or set it in mailstead.toml.")
	case errors.As(err, &dns) || errors.Is(err, netguard.ErrResolve):
		return fails("no_address", what+" has no address: "+err.Error(), "Correct its host name. If it is right, see what the check of the resolver says.")
	case errors.As(err, &certificate) || errors.As(err, &record) || strings.Contains(err.Error(), "TLS"):
		return fails("tls_failed", what+" cannot be reached over TLS: "+err.Error(), mend)
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout():
		return fails("timeout", what+" did not answer in time: "+err.Error(), mend)
	}
	return fails("no_connection", what+" cannot be reached: "+err.Error(), mend)
}
