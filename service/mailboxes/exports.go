package mailboxes

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	exportEvery = 5 * time.Second // one for each account
	LinkFor     = 900 * time.Second
)

// CreateExportIn is the body of create_export: a format, and exactly one of domains, emails,
// user_ids and all.
type CreateExportIn struct {
	Format  string    `json:"format" enum:"default|smartlead|instantly|emailbison|json|"`
	Domains *[]string `json:"domains" min:"1" max:"1000"`
	Emails  *[]string `json:"emails" min:"1" max:"10000"`
	UserIDs *[]string `json:"user_ids" min:"1" max:"10000"`
	All     bool      `json:"all"`
	Inline  bool      `json:"inline"`
	Accept  string    `header:"Accept"`
}

// An ExportCreated says where a file of credentials can be fetched, once.
type ExportCreated struct {
	ExportID    string    `json:"export_id" words:"ours"`
	Format      string    `json:"format" enum:"default|smartlead|instantly|emailbison|json"`
	Count       int       `json:"count"`
	Filename    string    `json:"filename" words:"ours"`
	ContentType string    `json:"content_type" words:"ours"`
	DownloadURL string    `json:"download_url" words:"ours"`
	ExpiresIn   int       `json:"expires_in"`
	ExpiresAt   core.Time `json:"expires_at"`
}

// An ExportOut is a link, or the file itself where that was asked for.
type ExportOut struct {
	Link *ExportCreated
	File *core.File
}

// MarshalJSON writes the link.
func (o ExportOut) MarshalJSON() ([]byte, error) { return json.Marshal(o.Link) }

// Forms says which forms it has on the wire.
func (ExportOut) Forms() []any { return []any{ExportCreated{}, []Credentials{}, (*core.File)(nil)} }

// Inline is the file, if it is one.
func (o ExportOut) Inline() *core.File { return o.File }

// CreateExport exports mailboxes with their passwords: as a link that works once, or at once. An
// account may do so once in five seconds; a request that is refused does not count.
func (s *Service) CreateExport(_ context.Context, who core.Actor, in CreateExportIn) (*ExportOut, error) {
	given := 0
	for _, there := range []bool{in.Domains != nil, in.Emails != nil, in.UserIDs != nil, in.All} {
		if there {
			given++
		}
	}
	if given != 1 {
		return nil, core.Errorf("exactly_one_parameter", "Give exactly one of domains, emails, user_ids and all: true.")
	}
	e := &store.Export{AccountID: who.AccountID, CreatedBy: who.UserID, Format: cmp.Or(in.Format, "default"), All: in.All}
	inline, token := in.Inline || acceptsCSV(in.Accept), core.RandomText(43, core.Base62)
	if !inline {
		e.Link = core.TokenHash(token)
	}
	count := 0
	err := s.Store.View(func(tx *store.Tx) (err error) {
		count, err = selectMailboxes(tx, who, in, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		if err := clearExports(tx, who.AccountID); err != nil {
			return err
		}
		e.ID, e.CreatedAt, e.ExpiresAt = tx.NewID("exp"), tx.Now(), tx.Now().Add(LinkFor)
		return store.Exports.Put(tx, e)
	})
	if err != nil {
		return nil, err
	}
	if inline {
		f, err := s.exportFile(e)
		return &ExportOut{File: f}, err
	}
	return &ExportOut{Link: &ExportCreated{
		ExportID: e.ID, Format: e.Format, Count: count, Filename: exportName(e), ContentType: exportType(e),
		DownloadURL: s.Config.BaseURL + "/export/" + token, ExpiresIn: int(LinkFor / time.Second), ExpiresAt: core.Time{Time: e.ExpiresAt},
	}}, nil
}

// acceptsCSV tells whether a client that names what it accepts means the file itself.
func acceptsCSV(accept string) bool {
	csv := false
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil && q == 0 {
			continue
		}
		if media == "application/json" {
			return false
		}
		csv = csv || media == "text/csv"
	}
	return csv
}

// clearExports refuses an export that comes too soon, and forgets those whose link has expired.
func clearExports(tx *store.Tx, accountID string) error {
	var old []string
	now := tx.Now()
	for _, e := range store.ExportsByAccount.Desc(tx, accountID, "") {
		if wait := e.CreatedAt.Add(exportEvery).Sub(now); wait > 0 && wait <= exportEvery {
			refused := core.Errorf("export_rate_limited", "An account may export once in %d seconds. Wait a moment, then try again.", exportEvery/time.Second)
			refused.RetryAfter = wait
			return refused
		}
		if !now.Before(e.ExpiresAt) {
			old = append(old, e.ID)
		}
	}
	return core.DeleteAll(tx, store.Exports, old)
}

// exported tells whether exports show a mailbox.
func exported(mb *store.Mailbox, accountID string) bool {
	return mb.AccountID == accountID && mb.Status != "deleting"
}

// selectMailboxes notes in e what was asked for, in short, and counts the mailboxes. What is not
// there is named.
func selectMailboxes(tx *store.Tx, who core.Actor, in CreateExportIn, e *store.Export) (int, error) {
	switch {
	case in.Domains != nil:
		if err := selectDomains(tx, who, *in.Domains, e); err != nil {
			return 0, err
		}
	case in.Emails != nil:
		return selectOne(tx, "emails", *in.Emails, ownAddresses(who), e)
	case in.UserIDs != nil:
		return selectOne(tx, "user_ids", *in.UserIDs, store.Mailboxes.Get, e)
	}
	count := 0
	for _, from := range exportSources(e) {
		for _, mb := range from.index.Asc(tx, from.prefix, "") {
			if exported(mb, e.AccountID) {
				count++
			}
		}
	}
	return count, nil
}

// unknowns gathers what a list names that the account does not have; of many the first.
type unknowns struct{ err *core.Error }

const unknownsNamed = 20

func (u *unknowns) add(field string, i int, name, what string) {
	if u.err == nil {
		u.err = core.Errorf("validation_error", "%s: this account has no %s %.260q. Details names what else is missing.", field, what, name)
	}
	if len(u.err.Details) < unknownsNamed {
		u.err = u.err.With(fmt.Sprintf("%s.%d", field, i), "not_found", fmt.Sprintf("%.260q is no %s of this account", name, what))
	}
}

func selectDomains(tx *store.Tx, who core.Actor, names []string, e *store.Export) error {
	var missing unknowns
	for i, name := range names {
		d, err := core.FindDomain(tx, who, name)
		switch {
		case errors.Is(err, store.ErrNotFound):
			missing.add("domains", i, name, "domain")
		case err != nil:
			return err
		case !slices.Contains(e.Domains, d.ID):
			e.Domains = append(e.Domains, d.ID)
		}
	}
	if missing.err != nil {
		return missing.err
	}
	return nil
}

func selectOne(tx *store.Tx, field string, names []string, get func(*store.Tx, string) (*store.Mailbox, error), e *store.Export) (int, error) {
	var missing unknowns
	seen := map[uint32]bool{}
	for i, name := range names {
		mb, err := get(tx, name)
		switch {
		case errors.Is(err, store.ErrNotFound) || err == nil && !exported(mb, e.AccountID):
			missing.add(field, i, name, "email user")
		case err != nil:
			return 0, err
		case !seen[mb.Num]:
			seen[mb.Num] = true
			e.Mailboxes = binary.BigEndian.AppendUint32(e.Mailboxes, mb.Num)
		}
	}
	if missing.err != nil {
		return 0, missing.err
	}
	return len(seen), nil
}

func exportName(e *store.Export) string {
	ext := ".csv"
	if e.Format == "json" {
		ext = ".json"
	}
	return "mailstead-" + e.Format + "-" + e.CreatedAt.Format("20060102-150405") + ext
}

func exportType(e *store.Export) string {
	if e.Format == "json" {
		return "application/json; charset=utf-8"
	}
	return "text/csv; charset=utf-8"
}

// OpenExport gives the file of a download link, once; a link that was used, has expired or never
// was is 404. So is that of somebody who may not export any more.
func (s *Service) OpenExport(_ context.Context, token string) (*core.File, error) {
	var e *store.Export
	err := s.Store.Update(func(tx *store.Tx) (err error) {
		e, err = store.ExportByLink.Get(tx, core.TokenHash(token))
		if errors.Is(err, store.ErrNotFound) || err == nil && !tx.Now().Before(e.ExpiresAt) {
			return errNoExport()
		}
		if err != nil {
			return err
		}
		u, err := store.Users.Find(tx, e.CreatedBy)
		if err != nil {
			return err
		}
		if u == nil || u.Role == "member" {
			return errNoExport()
		}
		if err := core.NotSuspended(tx, u); err != nil {
			return err
		}
		e.Link = ""
		return store.Exports.Put(tx, e)
	})
	if err != nil {
		return nil, err
	}
	return s.exportFile(e)
}

func errNoExport() *core.Error {
	return core.Errorf("not_found", "This link was used already, or has expired. Make a new export.")
}
