package domains

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	nsChecksAtOnce = 10               // of one request
	nsChecksFor    = 45 * time.Second // all of one request
)

// CheckNameserversIn is the body of check_nameservers.
type CheckNameserversIn struct {
	Domains []string `json:"domains" required:"true" min:"1" max:"100" items:"judged"`
}

// NameserversChecked is the answer of check_nameservers.
type NameserversChecked struct {
	Domains     []NameserverCheck `json:"domains"`
	AllVerified bool              `json:"all_verified"`
}

// A NameserverCheck says where one domain is delegated to.
type NameserverCheck struct {
	Domain      string   `json:"domain" words:"ours"`
	DomainID    *string  `json:"domain_id" words:"ours"`
	Status      string   `json:"status" enum:"verified|failed|not_found|already_complete|error"`
	Message     string   `json:"message" words:"theirs"`
	Verified    bool     `json:"verified"`
	Nameservers []string `json:"nameservers" words:"ours"`
	CurrentNS   []string `json:"current_ns" words:"theirs"`

	look bool // the delegation must be looked up

	domain    *store.Domain
	contested bool   // another account claims the name too
	proof     string // of its claim
}

// CheckNameservers looks up where domains are delegated to, and queues those that are delegated to
// us for provisioning.
func (s *Service) CheckNameservers(ctx context.Context, who core.Actor, in CheckNameserversIn) (*NameserversChecked, error) {
	names := candidates(in.Domains)
	checks := make([]NameserverCheck, len(names))
	err := s.Store.View(func(tx *store.Tx) error {
		for i, name := range names {
			if err := s.beginNSCheck(tx, who, name, &checks[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.lookUpDelegations(ctx, checks)
	if err := s.keepDelegations(who, checks); err != nil {
		return nil, err
	}
	out := &NameserversChecked{Domains: checks, AllVerified: true}
	for _, c := range checks {
		out.AllVerified = out.AllVerified && c.Verified
	}
	return out, nil
}

// beginNSCheck answers what needs no look-up.
func (s *Service) beginNSCheck(tx *store.Tx, who core.Actor, name candidate, c *NameserverCheck) error {
	*c = NameserverCheck{Domain: name.name, Status: "error", Message: name.problem, Nameservers: []string{}, CurrentNS: []string{}}
	if name.problem != "" {
		return nil
	}
	d, err := claimOf(tx, who.AccountID, name.name)
	if errors.Is(err, store.ErrNotFound) {
		c.Status, c.Message = "not_found", name.name+" is not a domain of this account. Connect it first."
		return nil
	}
	if err != nil {
		return err
	}
	c.DomainID, c.Nameservers, c.CurrentNS = &d.ID, s.nameserversOf(d.DNSProvider), append([]string{}, d.CurrentNS...)
	switch {
	case d.Status == core.DomainComplete:
		c.Status, c.Verified, c.Message = "already_complete", true, d.Name+" is complete; nothing is left to do."
	case d.Status == core.DomainDeleting:
		c.Message = d.Name + " is being deleted."
	case d.DNSProvider == core.ProviderEdge:
		c.Message = d.Name + " keeps its nameservers: its records are made at " + edgeName + ". If its job " + d.JobID + " did not succeed, run setup again."
	case d.DNSProvider != dnsprov.Builtin:
		c.Message = d.Name + " keeps its nameservers. Enter the records of dns-records where its DNS is, then call verify-dns."
	case d.Status == core.DomainPending, d.Status == core.DomainInProgress:
		c.Status, c.Verified, c.Message = "verified", true, d.Name+" is being provisioned by the job "+d.JobID+"."
	default:
		c.look, c.domain, c.contested = true, d, d.Claim != store.ClaimProven && contested(tx, d)
	}
	return nil
}

// lookUpDelegations asks the resolver, a bounded number at a time and for a bounded time in all.
func (s *Service) lookUpDelegations(ctx context.Context, checks []NameserverCheck) {
	ctx, cancel := context.WithTimeout(ctx, nsChecksFor)
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, nsChecksAtOnce)
	for i := range checks {
		c := &checks[i]
		if !c.look {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			s.lookUpDelegation(ctx, c)
		})
	}
	wg.Wait()
}

func (s *Service) lookUpDelegation(ctx context.Context, c *NameserverCheck) {
	var found dnsprov.Delegation
	err := s.Looking(ctx, func() (err error) {
		found, err = dnsprov.CheckDelegation(ctx, s.Resolver, c.Domain, s.Config.Nameservers)
		if err == nil && found.Verified {
			c.proof = provenByDelegation
		}
		if err == nil && c.contested {
			c.proof, err = s.claimByText(ctx, c.domain)
		}
		return err
	})
	ours := strings.Join(s.Config.Nameservers, ", ")
	switch {
	case err != nil:
		c.look = false
		c.Message = "The nameservers of " + c.Domain + " could not be looked up just now. Try again in a minute."
		return
	case found.Verified:
		c.Status, c.Verified, c.Message = "verified", true, c.Domain+" is delegated to us and is provisioned now."
	case len(found.Current) == 0:
		c.Status, c.Message = "failed", c.Domain+" has no nameservers yet. Set these at its registrar: "+ours+"."
	default:
		c.Status = "failed"
		c.Message = c.Domain + " is delegated to " + strings.Join(found.Current, ", ") + ". Set only these at its registrar: " + ours +
			". It can take some hours until the change is seen everywhere."
	}
	c.CurrentNS = found.Current
}

// keepDelegations writes what was found in one transaction, and queues what is verified.
func (s *Service) keepDelegations(who core.Actor, checks []NameserverCheck) error {
	found := slices.Clone(checks)
	return s.Store.Update(func(tx *store.Tx) error {
		copy(checks, found) // this may run twice
		for i := range checks {
			c := &checks[i]
			if !c.look {
				continue
			}
			d, err := core.DomainOf(tx, who, *c.DomainID)
			if e := new(core.Error); errors.As(err, &e) { // deleted meanwhile
				c.Status, c.Verified, c.Message = "not_found", false, c.Domain+" is not a domain of this account any more."
				continue
			}
			if err != nil {
				return err
			}
			if err := s.keepDelegation(tx, who, d, c); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Service) keepDelegation(tx *store.Tx, who core.Actor, d *store.Domain, c *NameserverCheck) error {
	changed := !slices.Equal(d.CurrentNS, c.CurrentNS)
	d.CurrentNS = c.CurrentNS
	if d.Claim != store.ClaimProven {
		changed = true
		if err := s.keepProof(tx, d, c); err != nil || core.ClaimEnded(d) {
			return err
		}
	}
	if !c.Verified && !changed {
		return nil
	}
	if !c.Verified {
		return s.putDomain(tx, d)
	}
	if d.Status != core.DomainPendingNS && d.Status != core.DomainError { // another request was faster
		return nil
	}
	d.Status, d.NSStatus, d.StatusDetail = core.DomainPending, NSVerified, ""
	woken, err := s.wakeSetup(tx, d)
	if err == nil && !woken {
		err = s.addProvision(tx, d, who.UserID)
	}
	if err != nil {
		return err
	}
	return s.putDomain(tx, d)
}

// keepProof brings the claim of a domain to what was looked up, and says in c what is lacking.
func (s *Service) keepProof(tx *store.Tx, d *store.Domain, c *NameserverCheck) error {
	elsewhere := func(e *core.Error) { c.Status, c.Verified, c.Message = "error", false, e.Message }
	reopened, err := s.reopenClaim(tx, d)
	if e, lost := core.AsError(err); lost {
		elsewhere(e)
		return nil
	}
	if err != nil {
		return err
	}
	if reopened {
		d.Status, d.StatusDetail, d.ErrorCode, d.ErrorMessage = core.DomainPendingNS, "", "", ""
		if err := errors.Join(s.putDomain(tx, d), s.claimsChanged(tx, d)); err != nil {
			return err
		}
	}
	if c.proof != "" {
		if _, err := s.prove(tx, d, c.proof); err != nil {
			return err
		}
	}
	switch {
	case core.ClaimEnded(d):
		elsewhere(errClaimEnded(d))
	case d.Claim == store.ClaimProven:
	case c.Verified:
		c.Status, c.Verified, c.Message = "failed", false, contestedText(d)
	case contested(tx, d):
		c.Message += " " + contestedText(d)
	}
	return nil
}
