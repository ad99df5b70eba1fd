package domains

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

const maxURL = 2048 // characters

// SetRedirectIn is the body of set_redirect.
type SetRedirectIn struct {
	DomainID     string `path:"domain_id"`
	RedirectURL  string `json:"redirect_url" alias:"url" required:"true" max:"2048"`
	Permanent    *bool  `json:"permanent" log:"true"`
	PreservePath bool   `json:"preserve_path" log:"true"`
}

// A DomainRedirect says where visitors of a domain are redirected to, as set by set_redirect.
type DomainRedirect struct {
	URL       string `json:"url" words:"ours" example:"https://www.example.net/" format:"uri"` // Where visitors are sent, as in the domain's redirect_url.
	Permanent bool   `json:"permanent" example:"true"`                                         // Whether the answer is 301, which browsers remember, and not 302.
	// Whether the path and query of the request are appended to the url.
	PreservePath bool `json:"preserve_path" example:"false"`
}

// redirectOf returns the redirect of a domain; nil if there is none.
func redirectOf(d *store.Domain) *DomainRedirect {
	if d.RedirectURL == "" {
		return nil
	}
	return &DomainRedirect{d.RedirectURL, d.RedirectCode == http.StatusMovedPermanently, d.RedirectPath}
}

// RedirectSet is the answer of set_redirect.
type RedirectSet struct {
	Domain      string `json:"domain" words:"ours"`
	RedirectURL string `json:"redirect_url" words:"ours"`
	Queued      bool   `json:"queued"`
	Message     string `json:"message" words:"ours" example:"Visitors of example.com are sent to https://www.example.net/."` // For people; the text may change.
	JobID       string `json:"job_id" words:"ours"`
}

// A Queued says whether a change was recorded and a job was queued that applies it. If there was
// nothing to change, queued is false and job_id is null.
type Queued struct {
	Message string  `json:"message" words:"ours" example:"The job was started."` // For people; the text may change.
	Queued  bool    `json:"queued"`
	JobID   *string `json:"job_id" words:"ours"`
}

// cleanRedirectURL validates the URL of a redirect and returns it with its host in ASCII.
func cleanRedirectURL(text, domain string) (string, error) {
	text = strings.TrimSpace(text)
	u, err := url.Parse(text)
	switch {
	case err != nil || len(text) > maxURL || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "":
		return "", core.Invalid("redirect_url", "invalid", "must be an address of a web page, as https://www.example.com/")
	case u.User != nil:
		return "", core.Invalid("redirect_url", "not_allowed", "must not hold a user name or password: every visitor would see it")
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if ascii, _, err := idn.Registrable(host); err == nil && ascii != host {
		text = strings.Replace(text, u.Hostname(), ascii, 1)
		host = ascii
	}
	if !isWebHost(host) || !hasValidPort(u) {
		return "", core.Invalid("redirect_url", "invalid", "names no host or port that there can be; write it like https://www.example.com/")
	}
	if host == domain {
		return "", core.Invalid("redirect_url", "not_allowed", "leads back to %s, which would be redirected for ever", host)
	}
	return text, nil
}

// isWebHost reports whether browsers accept a host: an IP address, or labels of letters, digits,
// hyphens and underscores.
func isWebHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	odd := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' }
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || strings.HasSuffix(label, "-") || strings.ContainsFunc(label, odd) {
			return false
		}
	}
	return len(host) <= 253
}

// hasValidPort reports whether a URL has either a valid port or no port.
func hasValidPort(u *url.URL) bool {
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return u.Port() == "" || err == nil && n > 0
}

// setRedirect sets the redirect of a domain. The caller writes the domain's record.
func setRedirect(d *store.Domain, target string, permanent, preservePath bool) {
	d.RedirectURL, d.RedirectCode, d.RedirectPath = target, 301, preservePath
	if !permanent {
		d.RedirectCode = 302
	}
	if d.Apex != nil {
		d.Apex.Mode, d.Apex.Chosen = store.ApexHere, d.Apex.Chosen || !d.AtEdge()
	}
}

// SetRedirect sets where visitors of a domain, and of its www, are redirected to. It queues a job
// that checks whether the domain's records lead here.
func (s *Service) SetRedirect(_ context.Context, who core.Actor, in SetRedirectIn) (*RedirectSet, error) {
	var out *RedirectSet
	err := s.changeRouting(who, in.DomainID, "redirect_update", func(d *store.Domain) (bool, error) {
		if d.DNSProvider == store.DomainProviderExternal {
			return false, core.Invalid("redirect_url", "not_allowed", "the website of %s is hosted elsewhere; redirect it there", d.Name)
		}
		target, err := cleanRedirectURL(in.RedirectURL, d.Name)
		if err != nil {
			return false, err
		}
		if d.ApexMode() != store.ApexHere {
			return false, zones.ErrApexElsewhere(d)
		}
		setRedirect(d, target, in.Permanent == nil || *in.Permanent, in.PreservePath)
		return true, nil
	}, func(d *store.Domain, jobID string) {
		message := "Visitors of " + d.Name + " are sent to " + d.RedirectURL + "."
		if !d.RedirectsWWW() {
			message += " The records of www." + d.Name + " are yours: see that they lead to your website."
		}
		out = &RedirectSet{d.Name, d.RedirectURL, true, message, jobID}
	})
	return out, err
}

// DeleteRedirect removes a redirect. If there is none it does nothing.
func (s *Service) DeleteRedirect(_ context.Context, who core.Actor, in DomainIn) (*Queued, error) {
	var out *Queued
	err := s.changeRouting(who, in.DomainID, "redirect_update", func(d *store.Domain) (bool, error) {
		had := d.RedirectURL != ""
		d.RedirectURL, d.RedirectCode, d.RedirectPath = "", 0, false
		if had && d.AtEdge() && d.Apex != nil && !d.Apex.Chosen {
			d.Apex.Mode = store.ApexElsewhere // as before the redirect
		}
		return had, nil
	}, func(d *store.Domain, jobID string) {
		out = removalAnswer(jobID, "The redirect of "+d.Name+" has ended.", d.Name+" has no redirect.")
	})
	return out, err
}

// removalAnswer returns the answer to a request that removes a redirect or a forward. jobID is ""
// if there was nothing to remove.
func removalAnswer(jobID, doneText, nothingText string) *Queued {
	if jobID == "" {
		return &Queued{Message: nothingText}
	}
	return &Queued{doneText, true, &jobID}
}

// SetForwardIn is the body of set_forward.
type SetForwardIn struct {
	DomainID       string `path:"domain_id"`
	ForwardAddress string `json:"forward_address" alias:"address" required:"true"`
}

// ForwardSet is the answer of set_forward.
type ForwardSet struct {
	Domain         string `json:"domain" words:"ours"`
	ForwardAddress string `json:"forward_address" words:"ours"`
	Queued         bool   `json:"queued"`
	// For people; the text may change.
	Message string `json:"message" words:"ours" example:"Mail of example.com that matches no mailbox is forwarded to team@example.net."`
	JobID   string `json:"job_id" words:"ours"`
}

// cleanForwardAddress validates and normalizes the address that a domain forwards to.
func cleanForwardAddress(text, domain string) (string, error) {
	address, err := core.NormalizeEmail("forward_address", text)
	if err != nil {
		return "", err
	}
	if _, at, _ := msg.SplitEmail(address); at == domain {
		return "", core.Invalid("forward_address", "not_allowed", "must not be in %s itself; use catch_all for a mailbox of the domain", domain)
	}
	return address, nil
}

// SetForward sets the address that receives the mail that matches no mailbox of a domain. It
// applies to the next message.
func (s *Service) SetForward(_ context.Context, who core.Actor, in SetForwardIn) (*ForwardSet, error) {
	var out *ForwardSet
	err := s.changeRouting(who, in.DomainID, "forward_update", func(d *store.Domain) (bool, error) {
		if d.DNSProvider == store.DomainProviderExternal {
			return false, core.Invalid("forward_address", "not_allowed", "the mail of %s is hosted elsewhere, so it does not arrive here; forward it there", d.Name)
		}
		address, err := cleanForwardAddress(in.ForwardAddress, d.Name)
		d.Forward = address
		return true, err
	}, func(d *store.Domain, jobID string) {
		out = &ForwardSet{d.Name, d.Forward, true, "Mail for " + d.Name + " that matches no mailbox is forwarded to " + d.Forward + ".", jobID}
	})
	return out, err
}

// DeleteForward removes a domain's forward. If there is none it does nothing.
func (s *Service) DeleteForward(_ context.Context, who core.Actor, in DomainIn) (*Queued, error) {
	var out *Queued
	err := s.changeRouting(who, in.DomainID, "forward_update", func(d *store.Domain) (bool, error) {
		had := d.Forward != ""
		d.Forward = ""
		return had, nil
	}, func(d *store.Domain, jobID string) {
		out = removalAnswer(jobID, "Mail for "+d.Name+" is no longer forwarded.", d.Name+" has no forward.")
	})
	return out, err
}

// changeRouting lets change set the redirect or the forward of a domain. If change returns true,
// changeRouting writes the domain and queues a job of the given kind. done receives the domain and
// the job's ID, which is "" if there was nothing to change.
func (s *Service) changeRouting(who core.Actor, id, kind string, change func(*store.Domain) (bool, error), done func(d *store.Domain, jobID string)) error {
	return s.Store.Update(func(tx *store.Tx) error {
		d, err := core.DomainOf(tx, who, id)
		if err != nil {
			return err
		}
		if d.Gone() {
			return core.DomainBusy(d, "is being deleted, so it cannot be changed")
		}
		redirected, redirectedWWW := d.RedirectURL != "", d.RedirectsWWW()
		changed, err := change(d)
		if err != nil {
			return err
		}
		if !changed {
			done(d, "")
			return nil
		}
		steps, write := []string{stepVerify}, s.putDomain
		if redirected != (d.RedirectURL != "") || redirectedWWW != d.RedirectsWWW() {
			write = s.zones.ServeZone
		}
		if kind == "redirect_update" && edge.IsSynced(d) {
			steps = []string{stepEdgeRecords, stepVerify}
		}
		j, err := s.Queue.Add(tx, jobs.New{
			AccountID: d.AccountID, Kind: kind, Key: d.ID, Lane: "routing " + d.AccountID, CreatedBy: who.UserID, Args: domainArgs{d.ID},
			Resource: store.JobResource{Type: "domain", ID: d.ID, Name: d.Name}, Steps: steps, Total: len(steps),
		})
		if err != nil {
			return err
		}
		done(d, j.ID)
		return errors.Join(write(tx, d), core.Audit(tx, who, core.DomainTarget(d)))
	})
}

// routingKind returns the kind of job that is queued after a change of a redirect or forward. The
// job checks whether the domain's records with the given purpose lead here.
func (s *Service) routingKind(name, purpose string) jobs.Kind {
	return jobs.Kind{Name: name, Max: 10, PerLane: 4, Visible: true, Work: func(ctx context.Context, j *store.Job) (jobs.Writes, error) {
		return s.checkRouting(ctx, j, purpose)
	}}
}

// checkRouting works on a redirect_update or forward_update job: it makes a live check of the
// domain's records. The job's detail then says whether the change has taken effect.
func (s *Service) checkRouting(ctx context.Context, j *store.Job, purpose string) (jobs.Writes, error) {
	args, err := jobs.Args[domainArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	d, err := s.DomainByID(args.DomainID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if purpose == dnsprov.PurposeA && edge.IsSynced(d) {
		jobs.Step(ctx, stepEdgeRecords, "in_progress", "")
		if err := s.edge.ApplyRedirect(ctx, d); err != nil {
			jobs.Step(ctx, stepEdgeRecords, "error", stepErrorText(err))
			return nil, err
		}
		jobs.Step(ctx, stepEdgeRecords, "completed", "")
	}
	jobs.Step(ctx, stepVerify, "in_progress", "")
	l := s.checkNow(ctx, d)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	jobs.Step(ctx, stepVerify, "completed", "")
	jobs.Progress(ctx, j.Total, j.Total, routingDetail(d, l, purpose))
	return func(tx *store.Tx, _ *store.Job) error {
		d, err := store.Domains.Get(tx, d.ID)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return s.saveRequestedCheck(tx, d, l)
	}, nil
}

// routingDetail returns a text that says whether visitors or mail of the domain arrive here.
func routingDetail(d *store.Domain, l *dnsCheck, purpose string) string {
	what := "Visitors"
	if purpose == dnsprov.PurposeMX {
		what = "Mail"
	}
	switch {
	case d.Status != store.DomainComplete:
		return "It takes effect once " + d.Name + " is complete."
	case allVerified(l.checks, purpose):
		return "It is in effect: the " + purpose + " records of " + d.Name + " lead here."
	}
	return what + " of " + d.Name + " may not come here yet: see its dns-status for the " + purpose + " records."
}

// A Redirect is the answer to a visitor who is redirected.
type Redirect struct {
	URL  string
	Code int // HTTP status: 301 or 302
}

// RedirectOf returns the redirect for visitors of a host, which is taken from a request; nil if
// there is none. The redirect of a domain also applies to its www.
func (s *Service) RedirectOf(host string, at *url.URL) (*Redirect, error) {
	host = mailboxes.RequestHost(host)
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || !strings.Contains(host, ".") || host == s.Config.Hostname {
		return nil, nil
	}
	d, err := s.redirectingDomain(host)
	if d == nil || err != nil {
		return nil, err
	}
	return &Redirect{redirectTarget(d, at), d.RedirectCode}, nil
}

// redirectingDomain returns the domain whose redirect applies to a host; nil if there is none. A
// domain whose claim is not proven redirects nothing, because its owner may be somebody else.
func (s *Service) redirectingDomain(host string) (*store.Domain, error) {
	var found *store.Domain
	err := s.Store.View(func(tx *store.Tx) error {
		for _, name := range []string{host, strings.TrimPrefix(host, "www.")} {
			d, err := store.DomainByName.Get(tx, name)
			if err == nil && d.RedirectURL != "" && d.Hosted() && (name == host || d.RedirectsWWW()) {
				found = d
			}
			if err == nil || !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		return nil
	})
	return found, err
}

// redirectTarget returns the URL to which a visitor is redirected: that of the redirect and, if the
// redirect keeps them, the path and query of the request.
func redirectTarget(d *store.Domain, at *url.URL) string {
	to, err := url.Parse(d.RedirectURL)
	if err != nil || !d.RedirectPath {
		return d.RedirectURL
	}
	path, rest := strings.TrimSuffix(to.EscapedPath(), "/"), at.EscapedPath()
	if !strings.HasPrefix(rest, "/") {
		rest = "/" + rest
	}
	to.Path, to.RawPath = "", ""
	query := to.RawQuery
	to.RawQuery, to.Fragment, to.RawFragment = "", "", ""
	if query != "" && at.RawQuery != "" {
		query += "&"
	}
	query += at.RawQuery
	if query != "" {
		query = "?" + query
	}
	return to.String() + path + rest + query
}
