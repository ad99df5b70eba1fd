package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// BeginMove notes in a domain that it moves to the DNS provider of a credential. The caller writes
// the domain. If the provider stays the same, our records may be in the same zone, and stay ours.
func BeginMove(d *store.Domain, c *store.DNSCredential) {
	d.Move = &store.DomainMove{Provider: c.Provider, CredentialID: c.ID, Place: newPlace(d), CopyRecords: d.DNSProvider == c.Provider}
}

// EndMove makes the provider to which a domain moves its DNS provider. The caller writes the
// domain.
func EndMove(d *store.Domain) {
	d.DNSProvider, d.DNSCredentialID, d.EdgeToken, d.EdgePlace = d.Move.Provider, d.Move.CredentialID, nil, d.Move.Place
	d.Move, d.NSStatus, d.ForeignMX = nil, store.DomainNSNotRequired, nil
}

// WriteMove writes all records of a domain at the provider to which it moves, and returns nil when
// that shows them. It writes none if another record conflicts with a managed record.
func (s *Service) WriteMove(ctx context.Context, d *store.Domain) error {
	err := s.withMoveLock(ctx, d.ID, func(w *zoneSync) error {
		if err := w.sync(true); err != nil {
			return err
		}
		have, err := w.read(w.wanted())
		if err != nil {
			return err
		}
		mine, want, _ := takeOver(w.d, have, w.wanted())
		fits, err := w.compatibleRecords(mine, want)
		if err == nil && len(dnsprov.Plan(mine, fits)) > 0 {
			err = w.access.fault(errors.New("it does not show the records that were written"))
		}
		return err
	})
	switch {
	case errors.Is(err, errNotAtEdge):
		return nil // the move was given up
	case err != nil:
		return s.jobError(ctx, d.Name, err)
	}
	return nil
}

// MoveTarget returns the name of the provider to which a domain moves, for texts.
func MoveTarget(d *store.Domain) string {
	if d.Move == nil {
		return ""
	}
	return Name(d.Move.Provider)
}

// CredentialIssue returns why the DNS provider of a domain refuses its credential; "" if it does
// not.
func CredentialIssue(tx *store.Tx, d *store.Domain) (string, error) {
	if d.DNSCredentialID == "" {
		return "", nil
	}
	c, err := store.DNSCredentials.FindShared(tx, d.DNSCredentialID)
	if c == nil || err != nil || c.Error == "" {
		return "", err
	}
	return fmt.Sprintf("The records of %s at %s cannot be changed: the DNS credential %q (%s) has an error. %s Change it with PATCH /v1/dns-credentials/%s.",
		d.Name, Name(d.DNSProvider), c.Name, c.ID, c.Error, c.ID), nil
}

// CheckMove returns an error if a domain cannot move to the DNS provider of a credential.
func CheckMove(d *store.Domain, c *store.DNSCredential) error {
	switch {
	case d.DNSProvider == store.DomainProviderExternal:
		return core.Invalid("dns_credential_id", "not_allowed", "%s is connected as hosted elsewhere, so there are no records to keep; delete it first to host it here", d.Name)
	case d.ClaimEnded():
		return core.Invalid("dns_credential_id", "not_allowed", "%s does not belong to this account: %s", d.Name, d.ErrorMessage)
	case d.DNSCredentialID == c.ID:
		return core.Invalid("dns_credential_id", "not_allowed", "is what %s uses already", d.Name)
	case slices.Contains([]string{store.DomainPending, store.DomainInProgress}, d.Status):
		return core.DomainBusy(d, "is being set up")
	}
	return nil
}
