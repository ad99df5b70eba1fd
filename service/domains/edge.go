package domains

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
)

const (
	edgeName     = "Cloudflare" // the edge provider, for people
	edgeRights   = "Zone → Zone → Read and Zone → DNS → Edit"
	maxEdgeToken = 500 // characters
	edgeWaitMost = time.Hour
)

// givenEdgeToken gives the token of a request in its one form; "" if there is none.
func givenEdgeToken(given *string) (string, error) {
	if given == nil {
		return "", nil
	}
	token := strings.TrimSpace(*given)
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case token == "":
		return "", core.Invalid("edge_api_token", "invalid", "is empty; leave it out to use our own nameservers")
	case len(token) > maxEdgeToken || strings.ContainsFunc(token, odd):
		return "", core.Invalid("edge_api_token", "invalid", "is no API token: it has at most %d letters, digits and signs, without spaces", maxEdgeToken)
	}
	return token, nil
}

func errNoEdge() *core.Error {
	return core.Errorf("not_configured", "This installation has no edge provider. Leave edge_api_token out, to use our nameservers, or set manual_dns.")
}

// edgeFailure says to people, in the error of a job or of a name, what became of a question to the
// edge provider.
func edgeFailure(domain string, err error) *core.Error {
	var (
		wait    *dnsprov.Wait
		refused *dnsprov.Refused
	)
	switch conflicts := conflictsIn(err); {
	case len(conflicts) > 0:
		return core.Errorf("zone_conflict",
			"The zone of %s at %s has records of somebody else's in the place of ours: %s. None of them was touched. Remove them there, or change them to what is wanted, then try again.",
			domain, edgeName, conflictTexts(conflicts)).Because(err)
	case errors.Is(err, dnsprov.ErrCredential):
		return core.Errorf("edge_token_invalid",
			"%s does not take the API token for %s, or the token lacks a right. It needs %s for that zone. Make such a token there, and give it as edge_api_token.",
			edgeName, domain, edgeRights).Because(err)
	case errors.Is(err, dnsprov.ErrZoneNotFound):
		return core.Errorf("zone_not_found",
			"%s has no zone for %s that the API token may see. Add the domain there, or give a token with the rights %s for its zone.",
			edgeName, domain, edgeRights).Because(err)
	case errors.As(err, &refused):
		return core.Errorf("upstream_error", "%s does not take the record %s: %s.", edgeName, recordText(refused.Want), clip(refused.Err.Error())).
			With(core.ProviderEdge, "upstream_error", "does not take a record").Because(err)
	case errors.As(err, &wait):
		return core.Errorf("upstream_error", "%s asks to come again in %s for %s.", edgeName, wait.For.Round(time.Second), domain).
			With(core.ProviderEdge, "upstream_error", "asks to come again later").Because(err)
	}
	return core.Errorf("upstream_error", "%s did not do what was asked for %s. Try again in a few minutes.", edgeName, domain).
		With(core.ProviderEdge, "upstream_error", "did not answer as it should").Because(err)
}

// An edgeFault is an error of the edge provider's, in contrast to our own.
type edgeFault struct{ error }

func (f edgeFault) Unwrap() error { return f.error }

// edgeOutcome is the error of a job that an error of the edge provider leads to: given up at once,
// at another time, or as the kind has it.
func (s *Service) edgeOutcome(ctx context.Context, domain string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ours := core.AsError(err); ours {
		return jobs.Permanent(err)
	}
	if !errors.As(err, new(edgeFault)) {
		return err
	}
	e := edgeFailure(domain, err)
	var wait *dnsprov.Wait
	switch {
	case errors.As(err, &wait):
		return jobs.RetryAt(s.Now().Add(min(max(wait.For, time.Second), edgeWaitMost)), e)
	case e.Code == "upstream_error":
		return e
	}
	return jobs.Permanent(e)
}

// conflictsIn finds every conflict in the tree of an error.
func conflictsIn(err error) []*dnsprov.Conflict {
	switch e := err.(type) {
	case nil:
		return nil
	case *dnsprov.Conflict:
		return []*dnsprov.Conflict{e}
	case interface{ Unwrap() []error }:
		var out []*dnsprov.Conflict
		for _, one := range e.Unwrap() {
			out = append(out, conflictsIn(one)...)
		}
		return out
	}
	return conflictsIn(errors.Unwrap(err))
}

func conflictTexts(conflicts []*dnsprov.Conflict) string {
	var out []string
	for _, c := range conflicts {
		text := recordText(c.Have) + " where " + recordText(c.Want) + " is wanted"
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// recordText is a record as a person knows it. The value of a text is cut.
func recordText(r dnsprov.Record) string {
	const most = 80
	value := r.Value
	if r.Type == dnsprov.Flattened {
		r.Type = "CNAME"
	}
	if r.Type == "MX" {
		value = strconv.Itoa(int(r.Priority)) + " " + value
	}
	if len(value) > most {
		value = strings.ToValidUTF8(value[:most], "") + "…"
	}
	if value == "" { // of a key that is not made yet
		return r.Type + " " + r.Name
	}
	return fmt.Sprintf("%s %s %q", r.Type, r.Name, value)
}
