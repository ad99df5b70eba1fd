package mta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

const (
	kindArrival   = "arrival"
	placesAtATime = 50 // places of one message that one transaction serves: others wait for it
	placesInAJob  = 25 // of each of the others: nobody waits for these, and two of them may share a commit
)

// arrivalArgs is the job of filing one message where it is not yet.
type arrivalArgs struct {
	ArrivalID string `json:"arrival_id"`
}

// arrivalKind files messages that were taken for more places than one transaction serves.
func (s *Service) arrivalKind() jobs.Kind {
	return jobs.Kind{
		Name: kindArrival, Work: s.fileArrival, Max: maxAttempts, Timeout: time.Hour, Most: inbox.ArrivalsMost, Backoff: retryWait,
		Failed: func(tx *store.Tx, j *store.Job, cause error) error {
			args, err := jobs.Args[arrivalArgs](j)
			if err != nil {
				return nil // there is no message that it could be about
			}
			s.Log.Error("a message is not filed for all its recipients", "arrival", args.ArrivalID, "error", cause)
			return dropArrival(tx, args.ArrivalID)
		},
	}
}

// addArrival has a job go on with the addresses that are left.
func (s *Service) addArrival(tx *store.Tx, a *store.Arrival) error {
	a.ID = tx.NewID("arr")
	if err := tx.RefArrival(a.Blob, a.ID); err != nil {
		return err
	}
	if err := store.Arrivals.Put(tx, a); err != nil {
		return err
	}
	_, err := s.Queue.Add(tx, jobs.New{Kind: kindArrival, Lane: "arrival " + a.ID, Args: arrivalArgs{a.ID}})
	return err
}

func dropArrival(tx *store.Tx, id string) error {
	a, err := store.Arrivals.Get(tx, id)
	if core.IsGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := tx.UnrefArrival(a.Blob, a.ID); err != nil {
		return err
	}
	return store.Arrivals.Delete(tx, id)
}

// place names where a destination is, so that a message is there once.
func (d *destination) place() string {
	row := ""
	if d.row != nil {
		row = d.row.ID
	}
	if d.Mailbox != nil {
		return fmt.Sprintf("mailbox %d %s", d.Mailbox.Num, row)
	}
	if d.reports { // each account reads what comes to it
		return "reports " + d.domain.AccountID
	}
	return "forward " + d.Forward + " " + row
}

// placeArrival places a message at the destination of an address, unless it is there, and once for
// each account does what follows: a report that it may hold is read, or its author is known from
// now on.
func (s *Service) placeArrival(tx *store.Tx, a *store.Arrival, address string, to *destination, d *inbox.Draft) (err error) {
	if a.Placed[to.place()] {
		return nil
	}
	a.Placed[to.place()] = true
	how := arrival{sender: a.Sender, to: address, folder: store.InboxID, received: tx.Now(), genuine: a.Genuine}
	if to.Mailbox != nil {
		if how.folder, err = folderFor(tx, to.Mailbox, a.Junk); err != nil {
			return err
		}
	}
	if err := s.place(tx, to, d, how); err != nil {
		return err
	}
	account := "account " + to.domain.AccountID
	if a.Placed[account] {
		return nil
	}
	a.Placed[account] = true
	if mayHoldReport(d.Summary) {
		if err := s.Hooks.KeepForReading(tx, to.domain.AccountID, d, a.From, a.Authentic); err != nil {
			return err
		}
	}
	return s.noteSender(tx, to.domain.AccountID, a)
}

// fileArrival files a message for those who have not had it, some in each transaction, so that
// other mail goes between. What is left to do changes with what is done: after a crash it goes on
// there.
func (s *Service) fileArrival(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[arrivalArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	a, err := s.readArrival(args.ArrivalID)
	if core.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	giveUp := a.ReceivedAt.Add(giveUpAfter)
	d, err := s.rereadArrival(a)
	for err == nil && len(a.To) > 0 {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		began := time.Now()
		a, err = s.fileSome(args.ArrivalID, d, !s.Now().Before(giveUp))
		core.Sleep(ctx, time.Since(began)) // others go first
	}
	switch {
	case core.IsGone(err):
		return nil, nil // another attempt was faster
	case err != nil && !s.Now().Before(giveUp):
		return nil, jobs.Permanent(err)
	case err != nil:
		return nil, err
	}
	if len(a.Refused) > 0 {
		if err := s.reportRefused(a); err != nil {
			return nil, err
		}
	}
	return s.endArrival(a.ID, float64(j.Jitter)/(1<<16))
}

// endArrival lets a message go that everybody has, or has the job come again for those who could
// not take it.
func (s *Service) endArrival(id string, jitter float64) (jobs.Writes, error) {
	a, err := s.readArrival(id)
	if core.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(a.Later) == 0 {
		return func(tx *store.Tx, _ *store.Job) error { return dropArrival(tx, id) }, nil
	}
	next := s.Now().Add(retryWait(a.Tries+1, jitter))
	if end := a.ReceivedAt.Add(giveUpAfter); next.After(end) {
		next = end
	}
	return func(tx *store.Tx, _ *store.Job) error {
		a, err := store.Arrivals.Get(tx, id)
		if err != nil {
			return err
		}
		a.To, a.Later = append(a.To, a.Later...), nil
		a.Tries++
		return store.Arrivals.Put(tx, a)
	}, jobs.RetryAt(next, errors.New("some recipients cannot take the message now"))
}

func (s *Service) readArrival(id string) (a *store.Arrival, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		a, err = store.Arrivals.Get(tx, id)
		return err
	})
	return a, err
}

// rereadArrival reads a message again that was read when it came.
func (s *Service) rereadArrival(a *store.Arrival) (*inbox.Draft, error) {
	blob, err := s.Store.OpenBlob(a.Blob)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	d, err := inbox.ReadDraft(blob, blob.Size(), a.Sender)
	if err != nil {
		return nil, err
	}
	if err := s.readProof(d.Tiding); err != nil {
		return nil, err
	}
	d.Blob = a.Blob
	d.Meta.SPF, d.Meta.DKIM, d.Meta.DMARC = a.SPF, a.DKIM, a.DMARC
	return d, nil
}

// fileSome serves the next addresses in one transaction, and gives the record as it is then. last
// says that nobody is left for later any more.
func (s *Service) fileSome(id string, read *inbox.Draft, last bool) (a *store.Arrival, err error) {
	err = s.Store.Update(func(tx *store.Tx) error {
		if a, err = store.Arrivals.Get(tx, id); err != nil {
			return err
		}
		if a.Placed == nil {
			a.Placed = map[string]bool{}
		}
		d := *read
		d.Blob = a.Blob // compaction may have moved it
		for n := 0; len(a.To) > 0 && n < placesInAJob && !tx.Large(); n++ {
			address := a.To[0]
			a.To = a.To[1:]
			to, err := s.destinationFor(tx, a.Sender, address, &d)
			if e := new(core.SMTPError); errors.As(err, &e) {
				if e.Temporary() && !last {
					a.Later = append(a.Later, address)
				} else {
					a.Refused = append(a.Refused, store.RefusedRcpt{Address: address, Enhanced: e.Enhanced, Text: e.Error()})
				}
				continue
			}
			if err != nil {
				return err
			}
			if err := s.placeArrival(tx, a, address, to, &d); err != nil {
				return err
			}
		}
		return store.Arrivals.Put(tx, a)
	})
	return a, err
}

// reportRefused tells the sender of those who could not be served, in one report (RFC 5321 section
// 6.1, RFC 3464), if the sender is known to be genuine.
func (s *Service) reportRefused(a *store.Arrival) error {
	about := slices.Clone(a.Refused)
	letter, err := s.composeRefused(a, about)
	if err != nil {
		return err
	}
	if letter != nil {
		defer s.inbox.Release(letter) // does nothing where it is referred to
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		now, err := store.Arrivals.Get(tx, a.ID)
		if err != nil {
			return err
		}
		if len(now.Refused) != len(about) { // another attempt was faster
			return nil
		}
		now.Refused = nil
		if err := store.Arrivals.Put(tx, now); err != nil || letter == nil {
			return err
		}
		d, err := store.DomainByName.Read(tx, core.DomainOfAddress(about[0].Address))
		if core.IsGone(err) {
			return nil // nobody is left who could tell
		}
		if err != nil {
			return err
		}
		return s.reportAway(tx, &store.Submission{AccountID: d.AccountID, DomainID: d.ID, ReportTo: a.Sender}, letter)
	})
	return err
}

// composeRefused writes the report; nil if it has no reader.
func (s *Service) composeRefused(a *store.Arrival, about []store.RefusedRcpt) (*inbox.Draft, error) {
	if !a.Genuine || a.Sender == "" {
		return nil, nil
	}
	blob, err := s.Store.OpenBlob(a.Blob)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	var list []msg.DSNRecipient
	for _, r := range about {
		status := r.Enhanced
		if status[0] == '4' {
			status = "4.4.7" // it lasted too long (RFC 3463)
		}
		list = append(list, msg.DSNRecipient{Final: r.Address, Action: msg.ActionFailed, Status: status, Diagnostic: r.Text})
	}
	m := &mailing{
		row: &store.Outgoing{ID: a.ID, QueuedAt: a.ReceivedAt}, sub: &store.Submission{Sender: a.Sender, Forward: true, ReportTo: a.Sender},
		blob: blob, now: s.Now(),
	}
	return s.compose(m, list...)
}
