package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	cloudflarePermissions = "Zone → Zone → Read and Zone → DNS → Edit"
	maxWait               = time.Hour // longest delay before a job is retried, if the provider asks for a delay
)

// providerNames has the names of DNS providers in texts.
var providerNames = map[string]string{
	store.DomainProviderCloudflare: "Cloudflare", store.DomainProviderRFC2136: "its nameserver", store.DomainProviderRoute53: "Route 53",
	store.DomainProviderHetzner: "Hetzner", store.DomainProviderDeSEC: "deSEC",
}

// Name returns the name of a DNS provider in texts, within a sentence.
func Name(provider string) string { return providerNames[provider] }

// errNoEdge returns the error for a request that needs a DNS provider which this installation does
// not use.
func errNoEdge(provider string) *core.Error {
	return core.Errorf("not_configured", "This installation does not support the DNS provider %s. Leave it out to use Mailstead's nameservers, or set manual_dns.", provider)
}

// A providerFault marks an error as caused by the DNS provider, not by this program.
type providerFault struct {
	error
	access Access
}

func (f providerFault) Unwrap() error { return f.error }

// failure converts an error of the DNS provider to an error with a text for people. domain is the
// name of the domain.
func (a Access) failure(domain string, err error) *core.Error {
	var wait *dnsprov.Wait
	refused := errorsIn[*dnsprov.Refused](err)
	name, upstream := Name(a.Provider), func(format string, args ...any) *core.Error {
		text := fmt.Sprintf(format, args...)
		return core.Errorf("upstream_error", "%s", strings.ToUpper(text[:1])+text[1:]).Because(err)
	}
	switch conflicts := conflictsIn(err); {
	case len(conflicts) > 0:
		return core.Errorf("zone_conflict",
			"The zone of %s at %s has other records where Mailstead's belong: %s. None of them was changed. %s",
			domain, name, conflictTexts(conflicts), a.conflictAdvice(domain, conflicts)).Because(err)
	case errors.Is(err, dnsprov.ErrCredential) && a.CredentialID != "":
		return core.Errorf("credential_invalid",
			"The DNS credential %s is not accepted for %s, or may not change its records: %s. Change it with PATCH /v1/dns-credentials/%s.", a.CredentialID, domain, reason(err), a.CredentialID).Because(err)
	case errors.Is(err, dnsprov.ErrCredential):
		return core.Errorf("edge_token_invalid",
			"%s does not accept the API token for %s, or the token lacks a permission. It needs %s for that zone. Create such a token there, and give it as edge_api_token.",
			name, domain, cloudflarePermissions).Because(err)
	case errors.Is(err, dnsprov.ErrZoneNotFound) && a.CredentialID != "":
		return core.Errorf("zone_not_found",
			"There is no zone for %s at %s that the DNS credential %s may change: %s. Add the domain there, or give the credential the permission.", domain, name, a.CredentialID, reason(err)).Because(err)
	case errors.Is(err, dnsprov.ErrZoneNotFound):
		return core.Errorf("zone_not_found",
			"%s has no zone for %s that the API token can see. Add the domain there, or give a token with the permissions %s for its zone.",
			name, domain, cloudflarePermissions).Because(err)
	case errors.Is(err, dnsprov.ErrChanged):
		return upstream("the records of %s at %s were changed by somebody else again and again while Mailstead changed them. Try again in a few minutes.", domain, name).
			With(a.Provider, "upstream_error", "has records that change all the time")
	case len(refused) > 0:
		return upstream("%s rejected %s.", name, refusedText(refused)).
			With(a.Provider, "upstream_error", "does not take a record")
	case errors.As(err, &wait):
		return upstream("%s is rate limiting us: retry in %s for %s.", name, wait.For.Round(time.Second), domain).
			With(a.Provider, "upstream_error", "asks to come again later")
	}
	return upstream("%s could not complete the request for %s. Try again in a few minutes.", name, domain).
		With(a.Provider, "upstream_error", "did not answer as it should")
}

// reason returns the text of a provider's error without the name of the package, without the
// request, as in "GET /zones: ", and without what the sentence around it says already.
func reason(err error) string {
	text := err.Error()
	if _, rest, found := strings.Cut(text, ": "); found {
		text = rest
	}
	if method, rest, found := strings.Cut(text, " /"); found && slices.Contains([]string{"GET", "POST", "PUT", "PATCH", "DELETE"}, method) {
		if _, why, found := strings.Cut(rest, ": "); found {
			text = why
		}
	}
	for _, general := range []error{dnsprov.ErrCredential, dnsprov.ErrZoneNotFound} {
		text = strings.TrimPrefix(text, general.Error()+": ")
	}
	return strings.TrimSuffix(ClipName(text), ".") // the sentence around it ends with one
}

// jobError converts an error of the DNS provider of a domain to the error of a job. The job
// ends if a retry cannot help. It is retried at the time that the provider asked for, if it asked
// for one. Otherwise it is retried after the Backoff of its kind.
func (s *Service) jobError(ctx context.Context, domain string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ours := core.AsError(err); ours {
		return jobs.Permanent(err)
	}
	var fault providerFault
	if !errors.As(err, &fault) {
		return err
	}
	e := fault.access.failure(domain, err)
	var wait *dnsprov.Wait
	switch {
	case errors.As(err, &wait):
		return jobs.RetryAt(s.Now().Add(min(max(wait.For, time.Second), maxWait)), e)
	case e.Code == "upstream_error":
		return e
	}
	return jobs.Permanent(e)
}

// conflictsIn returns all conflicts that an error wraps.
func conflictsIn(err error) []*dnsprov.Conflict { return errorsIn[*dnsprov.Conflict](err) }

// errorsIn returns all errors of a type that an error is or wraps.
func errorsIn[T error](err error) []T {
	switch e := err.(type) {
	case nil:
		return nil
	case T:
		return []T{e}
	case interface{ Unwrap() []error }:
		var out []T
		for _, one := range e.Unwrap() {
			out = append(out, errorsIn[T](one)...)
		}
		return out
	}
	return errorsIn[T](errors.Unwrap(err))
}

// conflictAdvice says what to do about conflicts with records at the provider.
func (a Access) conflictAdvice(domain string, conflicts []*dnsprov.Conflict) string {
	isMail := func(c *dnsprov.Conflict) bool {
		return c.Have.Name == domain && (c.Have.Type == "MX" || c.Want.Purpose == dnsprov.PurposeSPF && c.Have.IsSPF())
	}
	if !slices.ContainsFunc(conflicts, isMail) {
		return "Remove them there, or change them to the expected values, then try again."
	}
	advice := "To have Mailstead replace MX and SPF records, connect the domain with replace; they can be put back. To leave its mail where it is until its mailboxes are here, connect it with mx elsewhere."
	switch {
	case a.replaces:
		advice = "They cannot be replaced: they are too many, or one SPF record of all would be too long, or need more lookups than receivers make (RFC 7208 section 4.6.4). Remove what is no longer needed there, then try again."
	case a.replaceCall != "":
		advice = "To have Mailstead replace MX and SPF records, call " + a.replaceCall + "; they can be put back."
	}
	if slices.ContainsFunc(conflicts, func(c *dnsprov.Conflict) bool { return !isMail(c) }) {
		advice += " Remove other records there, or change them to the expected values."
	}
	return advice
}

// ReplaceCall returns the call with which the mail records of others at the DNS provider of a
// domain are replaced.
func ReplaceCall(d *store.Domain) string {
	return "PATCH /v1/domains/" + d.ID + ` with {"mx": {"mode": "here"}, "replace": true}`
}

// moveCall is like ReplaceCall for the provider to which a domain moves.
func moveCall(d *store.Domain) string {
	return "PATCH /v1/domains/" + d.ID + ` with {"dns_credential_id": "` + d.Move.CredentialID + `", "replace": true}`
}

func conflictTexts(conflicts []*dnsprov.Conflict) string {
	const most = 10
	var out []string
	for _, c := range conflicts[:min(len(conflicts), most)] {
		text := recordText(c.Have) + " where " + recordText(c.Want) + " is wanted"
		out = append(out, text)
	}
	if n := len(conflicts) - most; n > 0 {
		out = append(out, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(out, "; ")
}

// refusedText describes records that a provider does not take, for use in a sentence. It says of
// the first ones why.
func refusedText(refused []*dnsprov.Refused) string {
	const most = 5
	var out []string
	for _, r := range refused[:min(len(refused), most)] {
		out = append(out, "the record "+recordText(r.Want)+": "+ClipName(r.Err.Error()))
	}
	text := strings.Join(out, "; ")
	if more := len(refused) - most; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// joinConflicts returns the conflicts as one error.
func joinConflicts(conflicts []*dnsprov.Conflict) error {
	var all []error
	for _, c := range conflicts {
		all = append(all, c)
	}
	return errors.Join(all...)
}

// ClipName shortens a name that is not valid, for use in an error text.
func ClipName(text string) string {
	const most = 253
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// recordText describes a record for use in a sentence. It shortens long values.
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
	if value == "" { // a DKIM record whose key does not exist yet
		return r.Type + " " + r.Name
	}
	return fmt.Sprintf("%s %s %q", r.Type, r.Name, value)
}

// conflictText returns a text that says with which record of a DNS provider a custom record
// conflicts.
func conflictText(provider string, c *dnsprov.Conflict) string {
	return fmt.Sprintf("It conflicts with %s, which exists at %s and is not Mailstead's. Remove that record there, then change this record or run setup again.",
		recordText(c.Have), Name(provider))
}

// conflictDetail returns the status_detail of a complete domain that lacks records because of
// conflicts.
func conflictDetail(d *store.Domain, access Access, conflicts []*dnsprov.Conflict) string {
	if len(conflicts) == 0 {
		return ""
	}
	return fmt.Sprintf("zone_conflict: %s lacks records at %s, since other records are in their place: %s. %s",
		d.Name, Name(d.DNSProvider), conflictTexts(conflicts), access.conflictAdvice(d.Name, conflicts))
}
