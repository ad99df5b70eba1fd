package scans

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/scan"
	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/mtasts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

const (
	scansAtOnce     = 4
	scansOfAccount  = 2
	scanTimeout     = 15 * time.Minute // of an attempt; the scan itself takes at most 10 minutes
	scanTries       = 3
	scanAgain       = 10 * time.Minute // between two scans of one domain
	addressesTwice  = 20               // names that are asked for their addresses a second time
	askAgainTimeout = 20 * time.Second // for all of them
	policyTimeout   = 20 * time.Second
	maxNameservers  = 13
	stsLabel        = "_mta-sts."
)

// ScanZoneIn is the body of scan_zone.
type ScanZoneIn struct {
	DomainID string `path:"domain_id"`
	// The nameservers to ask, by name or IP address. By default those to which the domain is
	// delegated, or those of before, if it is delegated to Mailstead already.
	Nameservers []string `json:"nameservers" max:"13" example:"[\"ns1.example.net\"]" log:"true"`
}

// ScanZone queues a job that reads the zone of a domain at the nameservers of others. A second
// request within 10 minutes returns the job of the first one.
func (s *Service) ScanZone(ctx context.Context, who core.Actor, in ScanZoneIn) (*core.JobResponse, error) {
	names, err := nameservers(in.Nameservers)
	if err != nil {
		return nil, err
	}
	var out core.JobResponse
	err = s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		d, err := core.DomainOf(tx, who, in.DomainID)
		switch {
		case err != nil:
			return err
		case d.DNSProvider == store.DomainProviderExternal:
			return core.Errorf("dns_provider_unsupported", "The DNS of %s is not managed by Mailstead, so its zone is not read.", d.Name)
		case d.Gone():
			return core.DomainBusy(d, "is being deleted")
		case s.Config.Scanner == nil:
			return core.Errorf("not_configured", "This installation cannot read zones of others: it has no DNS resolver.")
		}
		j, err := store.Jobs.Find(tx, d.ScanJobID)
		if err != nil {
			return err
		}
		if j != nil && (!j.Ended() || tx.Now().Sub(d.ScanAt) < scanAgain) {
			out = core.JobOut(j)
			return nil
		}
		j, err = s.queue(tx, d, who.UserID, names)
		if err != nil {
			return err
		}
		out = core.JobOut(j)
		d.UpdatedAt = tx.Now()
		return errors.Join(store.Domains.Put(tx, d), core.Audit(tx, who, core.DomainTarget(d)))
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// nameservers validates the names and addresses of nameservers.
func nameservers(given []string) ([]string, error) {
	var out []string
	for _, text := range given {
		name := strings.TrimSuffix(strings.TrimSpace(text), ".")
		if ip, err := netip.ParseAddr(name); err == nil && ip.Zone() == "" {
			name = ip.Unmap().String()
		} else if host, ok := idn.WholeHost(name); ok {
			name = host
		} else {
			return nil, core.Invalid("nameservers", "invalid", "has %.80q, which is neither the name of a host nor an IP address", text)
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out, nil
}

// scanArgs are the arguments of a zone_scan job.
type scanArgs struct {
	DomainID    string   `json:"domain_id"`
	Nameservers []string `json:"nameservers,omitempty"` // the servers to ask; empty: those of the domain
}

// Begin queues the scan of a domain that was just connected, if the installation scans them. The
// caller writes the domain.
func (s *Service) Begin(tx *store.Tx, d *store.Domain, userID string) error {
	if s.Config.Scanner == nil || !s.Config.ScanNew || d.DNSProvider != dnsprov.Builtin && !d.AtEdge() {
		return nil
	}
	_, err := s.queue(tx, d, userID, nil)
	return err
}

// queue queues a scan. The caller writes the domain.
func (s *Service) queue(tx *store.Tx, d *store.Domain, userID string, names []string) (*store.Job, error) {
	j, err := s.Queue.Add(tx, jobs.New{
		AccountID: d.AccountID, Kind: zones.KindScan, Lane: "zone scans " + d.AccountID, CreatedBy: userID, Args: scanArgs{d.ID, names},
		Resource: store.JobResource{Type: "domain", ID: d.ID, Name: d.Name},
	})
	if err != nil {
		return nil, err
	}
	d.ScanJobID, d.ScanAt = j.ID, tx.Now()
	return j, nil
}

// scanKind returns the kind of job that scans a zone. A slow nameserver holds up only other scans,
// and no account holds up another one.
func (s *Service) scanKind() jobs.Kind {
	return jobs.Kind{
		Name: zones.KindScan, Work: s.scanZone, Failed: s.scanFailed, Max: scanTries, Timeout: scanTimeout,
		PerLane: scansOfAccount, Most: scansAtOnce, MostEach: scansOfAccount, Visible: true,
	}
}

// scanZone works on a zone_scan job. After a crash it begins anew, since it has changed nothing.
func (s *Service) scanZone(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[scanArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	d, err := s.DomainByID(args.DomainID)
	if errors.Is(err, store.ErrNotFound) || err == nil && (d.Gone() || d.ScanJobID != j.ID) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if s.Config.Scanner == nil { // the installation had one when the job was queued
		return nil, jobs.Permanent(core.Errorf("not_configured", "The present zone could not be read. Scan it again."))
	}
	servers, err := s.serversOf(ctx, d, args.Nameservers)
	if err != nil {
		return nil, scanError(ctx, d, err)
	}
	parent := s.AskParent(ctx, d.Name)
	found, err := s.read(ctx, d, servers)
	if err != nil {
		return nil, scanError(ctx, d, err)
	}
	killpoint.At("scan.read")
	facts := zones.ScanFacts{Changing: s.changing(ctx, servers, found.Records)}
	s.findPolicy(ctx, d, found.Records, &facts)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var file *zones.ScanFile
	err = s.Store.View(func(tx *store.Tx) error {
		now, err := store.Domains.Find(tx, d.ID) // its keys may have been made meanwhile
		if now == nil || err != nil {
			return err
		}
		file = s.zones.ScanFileOf(tx, now, found, facts)
		return nil
	})
	if err != nil || file == nil {
		return nil, err
	}
	blob, err := s.zones.WriteScan(file)
	if err != nil {
		return nil, err
	}
	killpoint.At("scan.written")
	return func(tx *store.Tx, j *store.Job) error { return s.finish(tx, j, args, blob, file, servers, parent) }, nil
}

// serversOf returns the nameservers that a scan asks: those of the request, those to which the
// domain is delegated, or those of before if it is delegated to us.
func (s *Service) serversOf(ctx context.Context, d *store.Domain, names []string) (*scan.Servers, error) {
	defer s.zones.PauseQuestions(d.Name)()
	scanner := s.Config.Scanner
	found, err := scanner.Find(ctx, d.Name, names)
	if err != nil || len(names) > 0 || !slices.ContainsFunc(found.Names, s.Config.IsOwnNameserver) {
		return found, err
	}
	if d.PreviousNS == nil {
		return &scan.Servers{DS: found.DS, DSTTL: found.DSTTL}, nil // nobody else is known
	}
	before, err := scanner.Find(ctx, d.Name, d.PreviousNS.Names)
	if err == nil && len(before.Addrs) == 0 {
		before, err = scanner.Find(ctx, d.Name, d.PreviousNS.Addrs)
	}
	return before, err
}

// read reads the zone. If none of the servers answers, the method is none.
func (s *Service) read(ctx context.Context, d *store.Domain, servers *scan.Servers) (*scan.Result, error) {
	found, err := s.Config.Scanner.Zone(ctx, servers, d.Name, func(done, total int) {
		jobs.Progress(ctx, done, total, "")
	})
	if errors.Is(err, scan.ErrNoServer) {
		return &scan.Result{Nameservers: servers.Names, Method: scan.MethodNone, DS: servers.DS, NSTTL: servers.NSTTL, DSTTL: servers.DSTTL}, nil
	}
	return found, err
}

// scanError returns the error of a job, which people read.
func scanError(ctx context.Context, d *store.Domain, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, scan.ErrLookup) {
		return core.Errorf("upstream_error", "The nameservers of %s could not be looked up. Scan its zone again, or give its nameservers.", d.Name).Because(err)
	}
	return err
}

// changing asks for addresses a second time, and returns those that the nameservers did not give
// again. Proxies answer with other addresses each time. After askAgainTimeout it asks no more.
func (s *Service) changing(ctx context.Context, servers *scan.Servers, records []dnsprov.Record) map[netip.Addr]bool {
	ctx, cancel := context.WithTimeout(ctx, askAgainTimeout)
	defer cancel()
	out := map[netip.Addr]bool{}
	sets := map[dnsprov.Set][]netip.Addr{}
	var order []dnsprov.Set
	for _, r := range records {
		ip, err := netip.ParseAddr(r.Value)
		if err != nil || r.Type != "A" && r.Type != "AAAA" || strings.HasPrefix(r.Name, "*") {
			continue
		}
		set := dnsprov.Set{Name: r.Name, Type: r.Type}
		if sets[set] == nil {
			order = append(order, set)
		}
		sets[set] = append(sets[set], ip)
	}
	slices.SortStableFunc(order, func(a, b dnsprov.Set) int { return len(a.Name) - len(b.Name) }) // a website has a short name
	for _, set := range order[:min(len(order), addressesTwice)] {
		answer, err := s.Config.Scanner.Ask(ctx, servers, set.Name, set.Type)
		if err != nil || len(answer) == 0 {
			continue
		}
		stays := func(ip netip.Addr) bool {
			return slices.ContainsFunc(answer, func(r dnsprov.Record) bool { return r.Value == ip.String() })
		}
		if !slices.ContainsFunc(sets[set], stays) {
			for _, ip := range sets[set] {
				out[ip] = true
			}
		}
	}
	return out
}

// findPolicy fetches the MTA-STS policy of a domain, if it has a record of one.
func (s *Service) findPolicy(ctx context.Context, d *store.Domain, records []dnsprov.Record, facts *zones.ScanFacts) {
	name := stsLabel + d.Name
	if !slices.ContainsFunc(records, func(r dnsprov.Record) bool { return r.Name == name && (r.Type == "TXT" || r.Type == "CNAME") }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	defer s.zones.PauseQuestions(d.Name)()
	texts, err := s.Resolver.LookupTXT(lookup.Fresh(ctx), name+".")
	if err != nil {
		s.LogOf(ctx).Debug("could not look up the MTA-STS record of a scanned domain", "domain", d.Name, "error", err)
		return
	}
	if _, ok := mtasts.ParseRecord(texts); !ok {
		return
	}
	policy, err := mtasts.Fetch(ctx, s.policies, d.Name)
	if err != nil {
		s.LogOf(ctx).Debug("could not fetch the MTA-STS policy of a scanned domain", "domain", d.Name, "error", err)
		return
	}
	facts.STS = &zones.ScannedSTS{Mode: policy.Mode, MaxAge: int(policy.MaxAge / time.Second)}
	facts.STSAllowsUs = policy.Matches(s.Config.Hostname)
}

// finish stores a scan in the transaction that ends its job. parent is nil if it is not known.
func (s *Service) finish(tx *store.Tx, j *store.Job, args scanArgs, blob store.BlobRef, file *zones.ScanFile, servers *scan.Servers, parent *scan.Parent) error {
	d, err := store.Domains.Find(tx, args.DomainID)
	if err != nil || d == nil || d.Gone() || d.ScanJobID != j.ID {
		tx.After(func() { s.Store.Release(blob) })
		return err
	}
	if err := tx.PutZoneScan(&store.ZoneScan{DomainID: d.ID, JobID: j.ID, Blob: blob}); err != nil {
		return err
	}
	j.Detail = file.Summary(d.Name)
	delegated := len(args.Nameservers) == 0 && len(servers.Names) > 0
	if delegated && !slices.ContainsFunc(servers.Names, s.Config.IsOwnNameserver) {
		d.PreviousNS = previousNS(servers)
		if len(d.CurrentNS) == 0 {
			d.CurrentNS = servers.Names
		}
	}
	s.NoteDS(tx, d, &servers.DS, servers.DSTTL)
	if parent != nil {
		s.NoteParent(tx, d, parent)
	}
	d.UpdatedAt = tx.Now()
	if err := store.Domains.Put(tx, d); err != nil {
		return err
	}
	return s.emitFinished(tx, j, d, &file.Result)
}

// previousNS returns the nameservers of others in the form in which they are stored.
func previousNS(servers *scan.Servers) *store.PreviousNS {
	out := &store.PreviousNS{Names: servers.Names[:min(len(servers.Names), maxNameservers)]}
	for _, addr := range servers.Addrs[:min(len(servers.Addrs), maxNameservers)] {
		out.Addrs = append(out.Addrs, addr.Addr().String())
	}
	return out
}

// scanFailed tells of a scan that was given up.
func (s *Service) scanFailed(tx *store.Tx, j *store.Job, _ error) error {
	args, err := jobs.Args[scanArgs](j)
	if err != nil {
		return nil // the job names no domain
	}
	d, err := store.Domains.Find(tx, args.DomainID)
	if err != nil || d == nil || d.Gone() || d.ScanJobID != j.ID {
		return err
	}
	return s.emitFinished(tx, j, d, nil)
}

// ScanFinished is the data of zone.scan_finished.
type ScanFinished struct {
	DomainID    string    `json:"domain_id" words:"ours"`
	Domain      string    `json:"domain" words:"ours"`
	JobID       string    `json:"job_id" words:"ours"`
	Status      string    `json:"status" enum:"completed|error"`
	Method      *string   `json:"method" words:"ours" example:"axfr"` // As in the job's result; null after an error.
	Complete    bool      `json:"complete"`                           // Whether no record can be missing.
	Records     int       `json:"records"`                            // How many values were found.
	Nameservers []string  `json:"nameservers" words:"theirs" example:"[\"ns1.example.net\",\"ns2.example.net\"]"`
	FinishedAt  core.Time `json:"finished_at"`
}

// emitFinished emits zone.scan_finished. r is nil if the scan has failed.
func (s *Service) emitFinished(tx *store.Tx, j *store.Job, d *store.Domain, r *zones.ScanResult) error {
	data := ScanFinished{DomainID: d.ID, Domain: d.Name, JobID: j.ID, Status: store.JobError, Nameservers: []string{}, FinishedAt: core.Time{Time: tx.Now()}}
	if r != nil {
		data.Status, data.Method, data.Complete, data.Nameservers = store.JobCompleted, &r.Method, r.Complete, r.Nameservers
		for _, set := range r.Records {
			data.Records += len(set.Values)
		}
	}
	_, err := s.events.Emit(tx, d.AccountID, events.EventZoneScanFinished, events.About{Domain: d.ID}, data)
	return err
}

// Result returns the result of an ended zone_scan job as JSON; nil if a newer scan has taken its
// place.
func (s *Service) Result(tx *store.Tx, j *store.Job) (json.RawMessage, error) {
	row, err := store.ZoneScans.Find(tx, j.Resource.ID)
	if err != nil || row == nil || row.JobID != j.ID {
		return nil, err
	}
	f, err := s.zones.ReadScan(row)
	if err != nil {
		return nil, err
	}
	return json.Marshal(f.Result)
}

// Erase deletes the scan of a domain.
func (s *Service) Erase(domainID string) error {
	return s.Store.Update(func(tx *store.Tx) error { return tx.DropZoneScan(domainID) })
}
