package domains

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// UpdateDomainIn is the body of update_domain. Null removes the catch-all, the relay or the notes.
type UpdateDomainIn struct {
	DomainID    string           `path:"domain_id"`
	Tags        *[]string        `json:"tags" max:"50"`
	AutoRenew   *bool            `json:"auto_renew" log:"true"`
	SendingMode *string          `json:"sending_mode" enum:"direct|relay" log:"true"`
	Relay       core.Opt[string] `json:"relay" max:"100" log:"true"`           // The name of the relay for this mail; null for the default route.
	ListUnsub   *bool            `json:"list_unsubscribe" log:"true"`          // Whether the domain's outgoing mail offers one-click unsubscribe (RFC 8058).
	CatchAll    core.Opt[string] `json:"catch_all" example:"info@example.com"` // Gets mail that matches no mailbox.
	Notes       core.Opt[string] `json:"notes" max:"5000"`

	SendingPaused core.Opt[core.SendingPause] `json:"sending_paused" rare:"true"` // Accepts only null, which resumes sending.
	// `required`: the domain's outgoing mail is sent only to hosts with a valid certificate. Mail
	// to other hosts stays in the queue.
	TLSPolicy *string `json:"tls_policy" enum:"opportunistic|required" log:"true"`

	// Other servers that send mail of the domain, with the selector of the DKIM key by which each
	// signs. Mail that comes from one of them and has a valid signature by its key counts as sent
	// by the account itself.
	SendsElsewhere *[]SendingPlaceIn `json:"sends_elsewhere" max:"20"`
	places         []store.SendingPlace

	// Moves the records of the domain to the DNS provider of this DNS credential. A job writes them
	// there, and the domain moves when that provider shows them.
	DNSCredentialID *string `json:"dns_credential_id" log:"true"`

	Apex *ApexIn `json:"apex"` // Where visitors of the domain itself go.
	MX   *MXIn   `json:"mx"`   // Which hosts take the mail.
	// At a DNS provider by API, with mx here or dns_credential_id: replace MX records of others at
	// the domain itself, and merge their SPF record with ours. What was there stays in the domain's
	// replaced.
	Replace bool `json:"replace" log:"true"`
}

// check validates what can be validated without the store. It normalizes tags, sending places and
// the catch-all.
func (in *UpdateDomainIn) check(c *core.Settings) (err error) {
	if in.SendingPaused.Set && !in.SendingPaused.Null {
		return core.Invalid("sending_paused", "invalid", "can only be set to null, which resumes sending")
	}
	if in.SendingMode != nil && *in.SendingMode == "relay" && len(c.Relays) == 0 && c.Outbound != "capture" {
		return core.Invalid("sending_mode", "not_allowed", "cannot be relay: this installation has no relay; its operator can add one in the settings")
	}
	if in.Tags != nil {
		*in.Tags, err = cleanTags(*in.Tags)
		if err != nil {
			return err
		}
	}
	if in.SendsElsewhere != nil {
		in.places, err = parseSendingPlaces(*in.SendsElsewhere)
		if err != nil {
			return err
		}
	}
	if in.MX != nil {
		if err := in.MX.check(); err != nil {
			return err
		}
	}
	if in.Replace && in.DNSCredentialID == nil && (in.MX == nil || in.MX.Mode != store.MXHere) {
		return core.Invalid("replace", "not_allowed", "needs mx with the mode here, or dns_credential_id")
	}
	if in.CatchAll.Value != "" {
		in.CatchAll.Value, err = core.NormalizeEmail("catch_all", in.CatchAll.Value)
	}
	return err
}

// UpdateDomain changes settings of a domain. For a domain that was bought here, auto_renew is
// changed at the registrar first.
func (s *Service) UpdateDomain(ctx context.Context, who core.Actor, in UpdateDomainIn) (*Domain, error) {
	if err := in.check(s.Settings()); err != nil {
		return nil, err
	}
	if err := s.CheckRelay(in.Relay.Value); err != nil {
		return nil, err
	}
	if in.AutoRenew != nil {
		if err := s.setAutoRenew(ctx, who, in); err != nil {
			return nil, err
		}
	}
	known, err := s.readDomain(who, in.DomainID)
	if err != nil {
		return nil, err
	}
	var site presentSite // asked for the MX records of before
	if in.MX != nil && in.MX.Mode == store.MXElsewhere && known.MXMode() == store.MXHere && s.findsSites() {
		site = s.lookAtSite(ctx, known.AccountID, known.Name)
	}
	broughtMail := false
	apply := func(tx *store.Tx, d *store.Domain) error {
		if err := in.apply(tx, d); err != nil {
			return err
		}
		if in.Replace && !d.AtEdge() && in.DNSCredentialID == nil {
			return core.Invalid("replace", "not_allowed", "the DNS of %s is served by %s, where no records of others are replaced", d.Name, d.DNSProvider)
		}
		if in.DNSCredentialID != nil {
			if err := s.beginMove(tx, who, d, *in.DNSCredentialID); err != nil {
				return err
			}
			d.Replace = in.Replace
		}
		if in.SendingPaused.Set && d.SendingPaused != nil {
			if err := s.reputation.ResumeDomain(tx, d); err != nil {
				return err
			}
		}
		if in.MX == nil {
			return nil
		}
		broughtMail = in.MX.Mode == store.MXHere && d.MXMode() == store.MXElsewhere
		return s.changeMX(tx, who, d, in.MX.Mode, in.Replace, site)
	}
	var out Domain
	var changed *store.Domain
	if in.Apex != nil {
		changed, err = s.changeApex(ctx, who, known, *in.Apex, apply)
	} else {
		err = s.Store.Update(func(tx *store.Tx) error {
			d, err := core.DomainOf(tx, who, in.DomainID)
			if err != nil {
				return err
			}
			if d.Gone() {
				return core.DomainBusy(d, "is being deleted, so it cannot be changed")
			}
			if err := apply(tx, d); err != nil {
				return err
			}
			changed = d
			write := s.putDomain
			if in.MX != nil {
				write = s.zones.PutZone
			}
			return errors.Join(write(tx, d), core.Audit(tx, who, core.DomainTarget(d)))
		})
	}
	if err != nil {
		return nil, err
	}
	err = s.Store.View(func(tx *store.Tx) (err error) { // domainOut counts mailboxes, which takes too long for a write transaction
		out, err = s.domainOut(tx, changed)
		return err
	})
	if err == nil && broughtMail {
		out.Warnings, err = s.mxWarnings(ctx, changed, in.MX.ExpectedAddresses)
	}
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// apply changes the fields of a domain that the request sets.
func (in *UpdateDomainIn) apply(tx *store.Tx, d *store.Domain) error {
	if in.Tags != nil {
		d.Tags = *in.Tags
	}
	if in.AutoRenew != nil {
		d.AutoRenew = *in.AutoRenew
	}
	if in.SendingMode != nil {
		d.SendingMode = *in.SendingMode
	}
	if in.Relay.Set {
		d.Relay = in.Relay.Value
	}
	if in.ListUnsub != nil {
		d.ListUnsub = *in.ListUnsub
	}
	if in.Notes.Set {
		d.Notes = in.Notes.Value
	}
	if in.TLSPolicy != nil {
		d.TLSPolicy = ""
		if *in.TLSPolicy == store.TLSRequired {
			d.TLSPolicy = store.TLSRequired
		}
	}
	if in.SendsElsewhere != nil {
		if err := checkSelectors(d, in.places); err != nil {
			return err
		}
		d.SendsElsewhere = in.places
	}
	if in.CatchAll.Set {
		d.CatchAll = in.CatchAll.Value
		return checkCatchAll(tx, d)
	}
	return nil
}

// checkCatchAll returns an error if the catch-all is an address in the domain itself but not a
// mailbox: mail to it would loop. A catch-all address in another domain is allowed; mail is
// forwarded to it.
func checkCatchAll(tx *store.Tx, d *store.Domain) error {
	if _, at, _ := msg.SplitEmail(d.CatchAll); d.CatchAll == "" || at != d.Name {
		return nil
	}
	mb, err := store.MailboxByAddress.Get(tx, store.AddressKey(d.ID, d.CatchAll))
	if errors.Is(err, store.ErrNotFound) || err == nil && mb.Gone() {
		return core.Invalid("catch_all", "not_found", "%s is not a mailbox; create it first, or give an address of another domain", d.CatchAll)
	}
	return err
}

// setAutoRenew turns auto-renewal on or off at the registrar of a domain that was bought here, if
// the rest of the request is valid. It is called before the domain's record is changed.
func (s *Service) setAutoRenew(ctx context.Context, who core.Actor, in UpdateDomainIn) error {
	var d *store.Domain
	err := s.Store.View(func(tx *store.Tx) (err error) {
		d, err = core.DomainOf(tx, who, in.DomainID)
		if err != nil {
			return err
		}
		changed := *d
		return in.apply(tx, &changed)
	})
	if err != nil || d.Source != store.DomainSourceRegistered || d.Gone() || d.AutoRenew == *in.AutoRenew {
		return err
	}
	shop := s.registrarNamed(d.Registrar)
	if shop == nil {
		return core.Errorf("not_configured", "The registrar %s of %s is no longer configured here, so the renewal cannot be changed. The operator of this installation must add it again.", d.Registrar, d.Name)
	}
	renewer, ok := shop.(registrar.AutoRenewer)
	if !ok {
		return core.Invalid("auto_renew", "not_allowed", "cannot be changed from here: change it at %s", shop.Name())
	}
	ctx, cancel := context.WithTimeout(ctx, renewalTimeout)
	defer cancel()
	err = renewer.SetAutoRenew(ctx, d.Name, *in.AutoRenew)
	if errors.Is(err, registrar.ErrNotFound) {
		return core.Invalid("auto_renew", "not_allowed", "cannot be changed: %s is no longer in the account at %s", d.Name, shop.Name())
	}
	if err != nil {
		return core.Errorf("upstream_error", "%s did not change the renewal of %s. Nothing was changed. Try again later.", shop.Name(), d.Name).
			With(shop.Name(), "upstream_error", "did not change the renewal").Because(err)
	}
	return nil
}
