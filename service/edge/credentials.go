package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/store"
)

const (
	maxDNSCredentials = 100 // of one account
	maxNamedDomains   = 10  // domains that one text names
	tryTimeout        = 45 * time.Second
	useInterval       = time.Minute // how much last_used_at may lag
)

// secretFields lists the secret fields of the credentials of each DNS provider.
var secretFields = map[string][]string{
	store.DomainProviderCloudflare: {"token"},
	store.DomainProviderRFC2136:    {"server", "key_name", "algorithm", "secret"},
	store.DomainProviderRoute53:    {"access_key_id", "secret_access_key"},
	store.DomainProviderHetzner:    {"token"},
	store.DomainProviderDeSEC:      {"token"},
}

// optionalSecret is the only secret field that may be missing.
const optionalSecret = "algorithm"

// A DNSCredential lets Mailstead change records at a DNS provider. The API never shows its secret
// fields.
type DNSCredential struct {
	ID         string    `json:"id" words:"ours" example:"dnsc_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Provider   string    `json:"provider" enum:"cloudflare|rfc2136|route53|hetzner|desec"`
	Name       string    `json:"name" words:"ours" example:"Nameserver in Bern"`
	Zones      []string  `json:"zones" words:"ours" example:"example.com"` // The zones that it is for; empty if the provider tells them.
	Error      *string   `json:"error" words:"theirs" rare:"true"`         // Why the provider refuses it; null if it was accepted the last time.
	CreatedAt  core.Time `json:"created_at"`
	LastUsedAt core.Time `json:"last_used_at"` // May lag by a minute.
}

func dnsCredentialOut(c *store.DNSCredential) DNSCredential {
	return DNSCredential{
		ID: c.ID, Provider: c.Provider, Name: c.Name, Zones: append([]string{}, c.Zones...), Error: core.OrNull(c.Error),
		CreatedAt: core.Time{Time: c.CreatedAt}, LastUsedAt: core.Time{Time: c.LastUsedAt},
	}
}

// DNSSecrets are the secret fields of a DNS credential in a request. They are stored encrypted and
// never shown.
type DNSSecrets struct {
	Token           *string `json:"token" min:"1" max:"500" example:"v1.0-4f1c9d2e7a"` // For cloudflare, hetzner and desec: an API token that may change records.
	AccessKeyID     *string `json:"access_key_id" min:"1" max:"200" example:"AKIAIOSFODNN7EXAMPLE"`
	SecretAccessKey *string `json:"secret_access_key" min:"1" max:"500" example:"wJalrXUtnFEMI"` // With access_key_id, for route53.
	// For rfc2136: the nameserver that takes dynamic updates (RFC 2136), as host or host:port. The
	// port is 53 by default.
	Server    *string `json:"server" min:"1" max:"300" example:"ns1.example.com"`
	KeyName   *string `json:"key_name" min:"1" max:"255" example:"mailstead.key"`  // For rfc2136: the name of the TSIG key (RFC 8945).
	Algorithm *string `json:"algorithm" min:"1" max:"100" example:"hmac-sha256"`   // For rfc2136: hmac-sha224, hmac-sha256 (the default), hmac-sha384 or hmac-sha512.
	Secret    *string `json:"secret" min:"1" max:"500" example:"c2VjcmV0IGtleQ=="` // For rfc2136: the secret of the key in base64.
}

// fields returns the fields that are given, by their name.
func (in *DNSSecrets) fields() map[string]string {
	out := map[string]string{}
	for name, given := range map[string]*string{
		"token": in.Token, "access_key_id": in.AccessKeyID, "secret_access_key": in.SecretAccessKey,
		"server": in.Server, "key_name": in.KeyName, "algorithm": in.Algorithm, "secret": in.Secret,
	} {
		if given != nil {
			out[name] = strings.TrimSpace(*given)
		}
	}
	return out
}

// checkSecrets returns an error if secret fields are missing, or belong to another provider.
func checkSecrets(provider string, secrets map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		if !slices.Contains(secretFields[provider], name) {
			return core.Invalid(name, "not_allowed", "is no field of a credential for %s", provider)
		}
		if secrets[name] == "" || strings.ContainsFunc(secrets[name], func(r rune) bool { return r < ' ' || r > '~' }) {
			return core.Invalid(name, "invalid", "must have letters, digits and signs")
		}
	}
	for _, name := range secretFields[provider] {
		if secrets[name] == "" && name != optionalSecret {
			return core.Invalid(name, "required", "is required for %s", provider)
		}
	}
	return nil
}

// cleanZones normalizes the names of zones.
func cleanZones(given []string) ([]string, error) {
	var out []string
	for _, name := range given {
		zone := strings.ToLower(strings.TrimSuffix(strings.TrimSpace(name), "."))
		if zone == "" || len(zone) > 253 || strings.ContainsFunc(zone, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, core.Invalid("zones", "invalid", "has %.80q, which is not the name of a zone", name)
		}
		if !slices.Contains(out, zone) {
			out = append(out, zone)
		}
	}
	return out, nil
}

// CreateDNSCredentialIn is the body of create_dns_credential.
type CreateDNSCredentialIn struct {
	Provider string   `json:"provider" required:"true" enum:"cloudflare|rfc2136|route53|hetzner|desec" log:"true"`
	Name     string   `json:"name" required:"true" min:"1" max:"100" example:"Nameserver in Bern"`
	Zones    []string `json:"zones" max:"100" example:"example.com" log:"true"` // The zones that it is for. Required for rfc2136; else all zones of the provider if it is left out.
	DNSSecrets
}

// CreateDNSCredential adds a credential to the account. It is tried first: the error is
// credential_invalid if the provider refuses it.
func (s *Service) CreateDNSCredential(ctx context.Context, who core.Actor, in CreateDNSCredentialIn) (*DNSCredential, error) {
	if err := core.CheckLine("name", in.Name); err != nil {
		return nil, err
	}
	zones, err := cleanZones(in.Zones)
	if err != nil {
		return nil, err
	}
	c := &store.DNSCredential{ID: s.Store.NewID("dnsc"), AccountID: who.AccountID, Provider: in.Provider, Name: in.Name, Zones: zones}
	full := func(tx *store.Tx) error {
		if store.DNSCredentialsByAccount.Count(tx, who.AccountID, maxDNSCredentials) >= maxDNSCredentials {
			return core.Errorf("too_many_items", "There are %d DNS credentials already, which is the limit. Delete one that is not used any more.", maxDNSCredentials)
		}
		return nil
	}
	if err := s.Store.View(full); err != nil {
		return nil, err
	}
	if err := s.setSecrets(ctx, c, in.fields()); err != nil {
		return nil, err
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		if err := full(tx); err != nil {
			return err
		}
		c.CreatedAt, c.UpdatedAt = tx.Now(), tx.Now()
		return errors.Join(store.DNSCredentials.Put(tx, c), core.Audit(tx, who, dnsCredentialTarget(c)))
	})
	if err != nil {
		return nil, err
	}
	out := dnsCredentialOut(c)
	return &out, nil
}

// setSecrets tries a credential with secret fields, and seals them in it.
func (s *Service) setSecrets(ctx context.Context, c *store.DNSCredential, secrets map[string]string) error {
	if err := checkSecrets(c.Provider, secrets); err != nil {
		return err
	}
	open := s.Config.DNS[c.Provider]
	if open == nil {
		return errNoEdge(c.Provider)
	}
	p, err := open(core.DNSAccess{Secrets: secrets, Zones: c.Zones})
	if wrong := new(dnsprov.FieldError); errors.As(err, &wrong) {
		return core.Invalid(wrong.Field, "invalid", "%s", wrong.Why)
	}
	if err != nil {
		return err
	}
	trying, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	err = checkToken(trying, p)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch {
	case err == nil:
	case c.Provider == store.DomainProviderRFC2136 && errors.Is(err, netguard.ErrBlocked):
		return core.Errorf("credential_invalid", "Mailstead does not connect to %s, since its address is not public. The operator of this server can allow private destinations in its settings.", secrets["server"]).Because(err)
	case c.Provider == store.DomainProviderRFC2136 && errors.Is(err, netguard.ErrResolve):
		return core.Errorf("credential_invalid", "The nameserver %s has no address in the DNS, or the lookup failed.", secrets["server"]).Because(err)
	case c.Provider == store.DomainProviderRFC2136, errors.Is(err, dnsprov.ErrCredential), errors.Is(err, dnsprov.ErrZoneNotFound):
		return core.Errorf("credential_invalid", "The DNS provider does not accept these credentials: %s.", reason(err)).Because(err)
	default:
		return Access{Provider: c.Provider, CredentialID: c.ID}.failure("this credential", err)
	}
	text, err := json.Marshal(secrets)
	if err != nil {
		return err
	}
	c.Sealed, c.Error = s.Keys.Seal(store.DNSCredentialBinding(c.ID), text), ""
	return nil
}

// openCredential returns the client of a DNS provider that uses a credential.
func (s *Service) openCredential(c *store.DNSCredential) (dnsprov.Provider, error) {
	open := s.Config.DNS[c.Provider]
	if open == nil {
		return nil, errNoEdge(c.Provider)
	}
	secrets, err := s.secretsOf(c)
	if err != nil {
		return nil, err
	}
	return open(core.DNSAccess{Secrets: secrets, Zones: c.Zones})
}

// secretsOf returns the secret fields of a credential.
func (s *Service) secretsOf(c *store.DNSCredential) (secrets map[string]string, err error) {
	text, err := s.Keys.Open(store.DNSCredentialBinding(c.ID), c.Sealed)
	if err == nil {
		err = json.Unmarshal(text, &secrets)
	}
	if err != nil {
		return nil, fmt.Errorf("open DNS credential %s: %w", c.ID, err)
	}
	return secrets, nil
}

// ListDNSCredentials lists the DNS credentials of the account, the oldest first.
func (s *Service) ListDNSCredentials(_ context.Context, who core.Actor) (*core.List[DNSCredential], error) {
	var out []DNSCredential
	err := s.Store.View(func(tx *store.Tx) error {
		for _, c := range store.DNSCredentialsByAccount.Asc(tx, who.AccountID, "") {
			out = append(out, dnsCredentialOut(c))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return core.ListOf(out), nil
}

// UpdateDNSCredentialIn is the body of update_dns_credential. Secret fields that are left out keep
// their values.
type UpdateDNSCredentialIn struct {
	CredentialID string    `path:"credential_id"`
	Name         *string   `json:"name" min:"1" max:"100" example:"Nameserver in Bern"`
	Zones        *[]string `json:"zones" max:"100" example:"example.com" log:"true"` // The zones that it is for; empty for all zones of the provider, except for rfc2136.
	DNSSecrets
}

// UpdateDNSCredential changes a credential. If secret fields or zones change, it is tried first.
func (s *Service) UpdateDNSCredential(ctx context.Context, who core.Actor, in UpdateDNSCredentialIn) (*DNSCredential, error) {
	var c *store.DNSCredential
	err := s.Store.View(func(tx *store.Tx) (err error) {
		c, err = dnsCredentialOf(tx, who, in.CredentialID)
		return err
	})
	if err != nil {
		return nil, err
	}
	before := c.UpdatedAt
	if in.Name != nil {
		if err := core.CheckLine("name", *in.Name); err != nil {
			return nil, err
		}
		c.Name = *in.Name
	}
	if in.Zones != nil {
		c.Zones, err = cleanZones(*in.Zones)
		if err != nil {
			return nil, err
		}
	}
	given := in.fields()
	if len(given) > 0 || in.Zones != nil {
		secrets, err := s.secretsOf(c)
		if err != nil {
			return nil, err
		}
		maps.Copy(secrets, given)
		if err := s.setSecrets(ctx, c, secrets); err != nil {
			return nil, err
		}
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		now, err := dnsCredentialOf(tx, who, in.CredentialID)
		if err != nil {
			return err
		}
		if !now.UpdatedAt.Equal(before) {
			return core.Errorf("domain_busy", "The credential was changed at the same time. Try again.")
		}
		c.LastUsedAt, c.UpdatedAt = now.LastUsedAt, tx.Now()
		if len(given) == 0 && in.Zones == nil {
			c.Error = now.Error
		}
		return errors.Join(store.DNSCredentials.Put(tx, c), core.Audit(tx, who, dnsCredentialTarget(c)))
	})
	if err != nil {
		return nil, err
	}
	out := dnsCredentialOut(c)
	return &out, nil
}

// DNSCredentialIn is a request that names one credential.
type DNSCredentialIn struct {
	CredentialID string `path:"credential_id"`
}

// DNSCredentialDeleted is the answer of delete_dns_credential.
type DNSCredentialDeleted struct {
	Message string `json:"message" words:"ours" example:"The DNS credential was deleted."` // For people; the text may change.
	ID      string `json:"id" words:"ours" example:"dnsc_01k9a2b3c4d5e6f7g8h9j0k1m2"`
}

// DeleteDNSCredential deletes a credential. The error is in_use while a domain needs it, also one
// that is being deleted.
func (s *Service) DeleteDNSCredential(_ context.Context, who core.Actor, in DNSCredentialIn) (*DNSCredentialDeleted, error) {
	err := s.Store.Update(func(tx *store.Tx) error {
		c, err := dnsCredentialOf(tx, who, in.CredentialID)
		if err != nil {
			return err
		}
		if names := domainsOfCredential(tx, c.ID); len(names) > 0 {
			return core.Errorf("in_use", "The DNS credential is used by %s. Give these domains another one with PATCH /v1/domains/{domain_id}, or delete them first.", strings.Join(names, ", "))
		}
		return errors.Join(store.DNSCredentials.Delete(tx, c.ID), core.Audit(tx, who, dnsCredentialTarget(c)))
	})
	if err != nil {
		return nil, err
	}
	return &DNSCredentialDeleted{"The DNS credential was deleted.", in.CredentialID}, nil
}

// domainsOfCredential returns the names of domains that use a credential, at most maxNamedDomains.
func domainsOfCredential(tx *store.Tx, id string) (names []string) {
	for _, index := range []*store.Index[store.Domain]{store.DomainsByDNSCredential, store.DomainsByDNSMove} {
		for _, d := range index.Asc(tx, id, "") {
			if len(names) == maxNamedDomains {
				return names
			}
			if !slices.Contains(names, d.Name) {
				names = append(names, d.Name)
			}
		}
	}
	return names
}

// dnsCredentialOf returns a DNS credential of the actor's account. For any other id the error is
// not_found.
func dnsCredentialOf(tx *store.Tx, who core.Actor, id string) (*store.DNSCredential, error) {
	c, err := store.DNSCredentials.Find(tx, id)
	if err == nil && (c == nil || c.AccountID != who.AccountID) {
		return nil, core.NotFound("DNS credential")
	}
	return c, err
}

// CredentialFor returns the DNS credential that a request names for domains. The error names the
// field dns_credential_id if the account has no such credential, or if it is not for a domain.
func CredentialFor(tx *store.Tx, who core.Actor, id string, domains ...string) (*store.DNSCredential, error) {
	c, err := dnsCredentialOf(tx, who, id)
	if _, unknown := core.AsError(err); unknown {
		return nil, core.Invalid("dns_credential_id", "not_found", "is not a DNS credential of this account")
	}
	if err != nil {
		return nil, err
	}
	for _, name := range domains {
		if !CoversDomain(c, name) {
			return nil, core.Invalid("dns_credential_id", "not_allowed", "is not for %s: its zones are %s", ClipName(name), strings.Join(c.Zones, ", "))
		}
	}
	return c, nil
}

// CoversDomain reports whether a domain is in a zone that a DNS credential is for.
func CoversDomain(c *store.DNSCredential, name string) bool {
	has := func(zone string) bool { return dnsprov.IsWithin(name, zone) }
	return len(c.Zones) == 0 || slices.ContainsFunc(c.Zones, has)
}

func dnsCredentialTarget(c *store.DNSCredential) store.AuditTarget {
	return store.AuditTarget{Type: "dns_credential", ID: c.ID, Name: c.Name}
}

// noteUse records that a credential was used with the result err, and whether the provider has
// refused it. If it is refused for the first time since it was accepted, the owner of the account
// gets an alert.
func (s *Service) noteUse(a Access, err error) error {
	if a.CredentialID == "" {
		return nil
	}
	refused := ""
	accepted := err == nil || len(conflictsIn(err)) > 0
	if errors.Is(err, dnsprov.ErrCredential) {
		refused = "The DNS provider refuses it: " + reason(err) + "."
	}
	known := func(c *store.DNSCredential, now time.Time) bool {
		return c == nil || now.Sub(c.LastUsedAt) < useInterval && (refused == "" || c.Error != "") && (!accepted || c.Error == "")
	}
	var c *store.DNSCredential
	err = s.Store.View(func(tx *store.Tx) (err error) {
		c, err = store.DNSCredentials.FindShared(tx, a.CredentialID)
		return err
	})
	if err != nil || known(c, s.Now()) {
		return err
	}
	return s.Store.Update(func(tx *store.Tx) error {
		c, err := store.DNSCredentials.Find(tx, a.CredentialID)
		if err != nil || known(c, tx.Now()) {
			return err
		}
		first := refused != "" && c.Error == ""
		c.LastUsedAt = tx.Now()
		if refused != "" || accepted {
			c.Error = refused
		}
		if err := store.DNSCredentials.Put(tx, c); err != nil || !first {
			return err
		}
		return s.alertRefused(tx, c)
	})
}

// alertRefused plans the alert that a DNS provider refuses a credential.
func (s *Service) alertRefused(tx *store.Tx, c *store.DNSCredential) error {
	a, err := store.Accounts.Read(tx, c.AccountID)
	if err != nil {
		return err
	}
	text := c.Error + "\n\nUntil it is changed, the records of these domains stay as they are: " + strings.Join(domainsOfCredential(tx, c.ID), ", ") +
		".\nChange the credential with PATCH /v1/dns-credentials/" + c.ID + ".\n"
	return alert.Plan(s.Core, tx, alert.HostMail{About: a.ID, To: a.Email, Subject: fmt.Sprintf("The DNS credential %q is refused", c.Name), Text: text})
}
