package zones

import (
	"context"
	"strings"

	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

// SetDMARCIn is the body of set_dmarc.
type SetDMARCIn struct {
	DomainID string `path:"domain_id"`
	Value    string `json:"value" required:"true" example:"v=DMARC1; p=quarantine" log:"true"`
	// At a DNS provider by API: replace a DMARC record there that is not Mailstead's. It stays in
	// the domain's replaced.
	Replace bool `json:"replace" log:"true"`
}

// DMARCSet is the answer of set_dmarc.
type DMARCSet struct {
	DMARCOverride DMARCOverride `json:"dmarc_override"`
}

// DMARCOverrideOf returns the DMARC policy that the owner of a domain has set; nil if it is the
// default.
func DMARCOverrideOf(d *store.Domain) *DMARCOverride {
	if d.DMARC == "" {
		return nil
	}
	return &DMARCOverride{d.DMARC, core.Time{Time: d.DMARCAt}}
}

// SetDMARC publishes a DMARC policy that the owner of a domain has chosen. Later setups keep it.
func (s *Service) SetDMARC(ctx context.Context, who core.Actor, in SetDMARCIn) (*DMARCSet, error) {
	value := strings.TrimSpace(in.Value)
	bad := dmarc.Check(value)
	var (
		out *DMARCSet
		d   *store.Domain
	)
	job := ""
	err := s.Store.Update(func(tx *store.Tx) (err error) {
		d, err = zonedata.ChangeableDomain(tx, who, in.DomainID)
		if err != nil {
			return err
		}
		if bad != nil {
			return core.Errorf("invalid_dmarc", "value: %s", bad).With("value", "invalid_dmarc", bad.Error())
		}
		if err := edge.ChoosePolicy(d, value, in.Replace, tx.Now()); err != nil {
			return err
		}
		out = &DMARCSet{*DMARCOverrideOf(d)}
		job, err = s.putZoneWithJob(tx, d)
		if err != nil {
			return err
		}
		return core.Audit(tx, who, core.DomainTarget(d))
	})
	if err != nil {
		return nil, err
	}
	s.awaitZone(ctx, d, job)
	return out, nil
}

// ResetDMARCIn names the domain that gets the default policy again.
type ResetDMARCIn struct {
	DomainID string `path:"domain_id"`
}

// DMARCReset is the answer of reset_dmarc.
type DMARCReset struct {
	Reset          bool   `json:"reset" example:"true"` // Always true.
	AppliedDefault string `json:"applied_default" words:"ours" example:"v=DMARC1; p=reject"`
}

// ResetDMARC publishes the default DMARC policy instead of the owner's.
func (s *Service) ResetDMARC(ctx context.Context, who core.Actor, in ResetDMARCIn) (*DMARCReset, error) {
	var d *store.Domain
	job := ""
	err := s.Store.Update(func(tx *store.Tx) (err error) {
		d, err = zonedata.ChangeableDomain(tx, who, in.DomainID)
		if err != nil {
			return err
		}
		if err := edge.ChoosePolicy(d, "", false, tx.Now()); err != nil {
			return err
		}
		job, err = s.putZoneWithJob(tx, d)
		if err != nil {
			return err
		}
		return core.Audit(tx, who, core.DomainTarget(d))
	})
	if err != nil {
		return nil, err
	}
	s.awaitZone(ctx, d, job)
	return &DMARCReset{true, dmarc.Default}, nil
}

// A DMARCOverride is the policy that the owner has set instead of the default.
type DMARCOverride struct {
	Value     string    `json:"value" words:"ours" example:"v=DMARC1; p=quarantine"`
	UpdatedAt core.Time `json:"updated_at"`
}
