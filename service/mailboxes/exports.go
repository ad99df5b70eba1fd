package mailboxes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	exportInterval = 5 * time.Second   // minimum time between two exports of an account
	LinkTTL        = 900 * time.Second // how long a link works
)

// CreateExportIn is the body of create_export. It has exactly one of domains, emails, user_ids and
// all.
type CreateExportIn struct {
	Format  string          `json:"format" enum:"default|smartlead|instantly|emailbison|json|columns|" log:"true"`
	Columns *[]ExportColumn `json:"columns" min:"1" max:"60"` // Required with the format `columns`, and for that alone.
	Domains *[]string       `json:"domains" min:"1" max:"1000" log:"true"`
	Emails  *[]string       `json:"emails" min:"1" max:"10000" log:"true"`
	UserIDs *[]string       `json:"user_ids" min:"1" max:"10000" log:"true"`
	All     bool            `json:"all" log:"true"`           // Every mailbox of the account.
	Inline  bool            `json:"inline" log:"true"`        // Return the file itself instead of a link.
	App     bool            `json:"app_passwords" log:"true"` // Each hosted mailbox gets a new credential for the file, named after the export; the file has its password instead of the mailbox's.
	Accept  string          `header:"Accept"`
}

// An ExportCreated has the link to a file of credentials. The link works once.
type ExportCreated struct {
	ExportID    string    `json:"export_id" words:"ours"`
	Format      string    `json:"format" enum:"default|smartlead|instantly|emailbison|json|columns"`
	Count       int       `json:"count" example:"12"` // How many mailboxes the file has.
	Filename    string    `json:"filename" words:"ours" example:"mailstead-default-20261105-093000.csv"`
	ContentType string    `json:"content_type" words:"ours" example:"text/csv; charset=utf-8"`
	DownloadURL string    `json:"download_url" words:"ours"` // Works once, without a token.
	ExpiresIn   int       `json:"expires_in"`                // Seconds.
	ExpiresAt   core.Time `json:"expires_at"`
}

// An ExportOut is a link, or the file itself if inline was given.
type ExportOut struct {
	Link *ExportCreated
	File *core.File
}

// MarshalJSON writes the link.
func (o ExportOut) MarshalJSON() ([]byte, error) { return json.Marshal(o.Link) }

// Forms lists the types that the answer may have.
func (ExportOut) Forms() []any { return []any{ExportCreated{}, []Credentials{}, (*core.File)(nil)} }

// Inline returns the file; nil for a link.
func (o ExportOut) Inline() *core.File { return o.File }

// CreateExport exports mailboxes with their passwords: as a link that works once, or as the file
// itself. An account may do so once in five seconds; a refused request does not count.
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
	columns, err := columnsOf(in)
	if err != nil {
		return nil, err
	}
	e := &store.Export{
		AccountID: who.AccountID, CreatedBy: who.UserID, Format: cmp.Or(in.Format, "default"), Columns: columns, All: in.All, AppPasswords: in.App,
	}
	inline, token := in.Inline || acceptsCSV(in.Accept), core.RandomText(43, core.Base62)
	if !inline {
		e.Link = core.TokenHash(token)
	}
	count := 0
	err = s.Store.View(func(tx *store.Tx) (err error) {
		count, err = selectMailboxes(tx, who, in, e)
		if err == nil && in.App {
			err = checkExportLimits(tx, e)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		if err := prepareExport(tx, who.AccountID); err != nil {
			return err
		}
		e.ID, e.CreatedAt, e.ExpiresAt = tx.NewID("exp"), tx.Now(), tx.Now().Add(LinkTTL)
		return errors.Join(store.Exports.Put(tx, e), core.AuditMany(tx, who, store.AuditTarget{Type: "export", ID: e.ID, Name: e.Format}, count))
	})
	if err != nil {
		return nil, err
	}
	if inline {
		f, err := s.exportFile(e)
		return &ExportOut{File: f}, err
	}
	return &ExportOut{Link: &ExportCreated{
		ExportID: e.ID, Format: e.Format, Count: count, Filename: exportFilename(e), ContentType: exportContentType(e),
		DownloadURL: s.Config.BaseURL + "/export/" + token, ExpiresIn: int(LinkTTL / time.Second), ExpiresAt: core.Time{Time: e.ExpiresAt},
	}}, nil
}

// acceptsCSV reports whether the Accept field of a request asks for the file itself.
func acceptsCSV(accept string) bool {
	ranges := core.MediaRanges(accept)
	return slices.Contains(ranges, "text/csv") && !slices.Contains(ranges, "application/json")
}

// prepareExport returns an error if the account's newest export is less than exportInterval ago. It
// also deletes exports of the account whose link has expired.
func prepareExport(tx *store.Tx, accountID string) error {
	var old []string
	now := tx.Now()
	for _, e := range store.ExportsByAccount.Desc(tx, accountID, "") {
		if wait := e.CreatedAt.Add(exportInterval).Sub(now); !isMailFormat(e.Format) && wait > 0 && wait <= exportInterval {
			refused := core.Errorf("export_rate_limited", "Only one export every %d seconds is allowed. Wait a moment, then try again.", exportInterval/time.Second)
			refused.RetryAfter = wait
			return refused
		}
		if !now.Before(e.ExpiresAt) {
			old = append(old, e.ID)
		}
	}
	return core.DeleteAll(tx, store.Exports, old)
}

// isExported reports whether a mailbox is included in exports of the account.
func isExported(mb *store.Mailbox, accountID string) bool {
	return mb.AccountID == accountID && !mb.Gone()
}

// selectMailboxes records in e which mailboxes the request selects, and counts them. The error
// names domains or mailboxes that do not exist.
func selectMailboxes(tx *store.Tx, who core.Actor, in CreateExportIn, e *store.Export) (count int, err error) {
	switch {
	case in.Domains != nil:
		if err := selectDomains(tx, who, *in.Domains, e); err != nil {
			return 0, err
		}
	case in.Emails != nil:
		return selectNamed(tx, "emails", *in.Emails, finderByEmail(who), e)
	case in.UserIDs != nil:
		return selectNamed(tx, "user_ids", *in.UserIDs, mailboxByID, e)
	}
	for _, from := range exportSources(e) {
		for _, mb := range from.index.Asc(tx, from.prefix, "") {
			if isExported(mb, e.AccountID) {
				count++
			}
		}
	}
	return count, nil
}

// checkExportLimits checks that each mailbox of an export may have one more credential.
func checkExportLimits(tx *store.Tx, e *store.Export) error {
	r := &exportReader{e: e, sources: exportSources(e), named: e.Mailboxes}
	for len(r.sources) > 0 || len(r.named) > 0 {
		batch, err := r.readBatch(tx)
		if err != nil {
			return err
		}
		for _, mb := range batch {
			if store.CredentialsByMailbox.Count(tx, mb.ID, maxCredentials) >= maxCredentials {
				return core.Errorf("credential_limit_reached", "%s has %d passwords already, which is the limit. Delete one that is not used any more.", mb.Email, maxCredentials)
			}
		}
	}
	return nil
}

// addAppPasswords adds a credential to each hosted mailbox of a batch and returns the passwords by
// mailbox id.
func (s *Service) addAppPasswords(e *store.Export, batch []*store.Mailbox) (passwords map[string]string, err error) {
	passwords = map[string]string{}
	var made []*store.Credential
	for _, mb := range batch {
		if mb.External != nil {
			continue
		}
		c := &store.Credential{Name: "export " + e.ID, Protocols: []string{store.ProtocolIMAP, store.ProtocolSMTP}, AccountID: mb.AccountID, MailboxID: mb.ID, CreatedBy: e.CreatedBy}
		passwords[mb.ID] = NewCredentialPassword()
		mb.Salt = s.saltOf(mb, mb.Email)
		s.hashCredential(c, passwords[mb.ID], mb.Salt)
		made = append(made, c)
	}
	return passwords, s.Store.Update(func(tx *store.Tx) error {
		for _, c := range made {
			mb, err := core.LiveMailbox(tx, c.MailboxID)
			if err != nil {
				return err
			}
			if mb == nil || store.CredentialsByMailbox.Count(tx, c.MailboxID, maxCredentials) >= maxCredentials {
				delete(passwords, c.MailboxID)
				continue
			}
			if mb.Salt == nil {
				mb.Salt = s.saltOf(mb, mb.Email)
				if err := store.Mailboxes.Put(tx, mb); err != nil {
					return err
				}
			}
			c.CreatedAt = tx.Now()
			if err := store.Credentials.Put(tx, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// missingNames collects names that the account does not have into one error, which lists at most
// maxMissingNamed of them.
type missingNames struct{ err *core.Error }

const maxMissingNamed = 20

func (u *missingNames) add(field string, i int, name, what string) {
	if u.err == nil {
		u.err = core.Errorf("validation_error", "%s: this account has no %s %.260q. See details for what else is missing.", field, what, name)
	}
	if len(u.err.Details) < maxMissingNamed {
		u.err = u.err.With(fmt.Sprintf("%s.%d", field, i), "not_found", fmt.Sprintf("%.260q is not a %s of this account", name, what))
	}
}

func selectDomains(tx *store.Tx, who core.Actor, names []string, e *store.Export) error {
	var missing missingNames
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

func selectNamed(tx *store.Tx, field string, names []string, get func(*store.Tx, string) (*store.Mailbox, error), e *store.Export) (count int, err error) {
	var missing missingNames
	seen := map[uint32]bool{}
	for i, name := range names {
		mb, err := get(tx, name)
		switch {
		case errors.Is(err, store.ErrNotFound) || err == nil && !isExported(mb, e.AccountID):
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

func exportFilename(e *store.Export) string {
	ext := ".csv"
	if e.Format == "json" {
		ext = ".json"
	}
	return "mailstead-" + e.Format + "-" + e.CreatedAt.Format("20060102-150405") + ext
}

func exportContentType(e *store.Export) string {
	if e.Format == "json" {
		return "application/json; charset=utf-8"
	}
	return "text/csv; charset=utf-8"
}

// OpenExport returns the file of a link, which then no longer works. The error is 404 if the link
// was used, has expired or does not exist, or if its creator may not export any more.
func (s *Service) OpenExport(ctx context.Context, token string) (*core.File, error) {
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
		if u == nil || u.Role == store.UserRoleMember {
			return errNoExport()
		}
		if err := core.CheckNotSuspended(tx, u); err != nil {
			return err
		}
		e.Link = ""
		return store.Exports.Put(tx, e)
	})
	if err != nil {
		return nil, err
	}
	if isMailFormat(e.Format) {
		return s.mailFile(ctx, e)
	}
	return s.exportFile(e)
}

func errNoExport() *core.Error {
	return core.Errorf("not_found", "This link was used already or has expired. Create a new export.")
}

// exportBatch is how many mailboxes one transaction reads, so that a long file needs little memory.
const exportBatch = 200

// exportChunk is how many bytes of the file are generated at a time, and one row more.
const exportChunk = 1 << 20

// A mailboxSource stands for the mailboxes whose keys in an index begin with a prefix.
type mailboxSource struct {
	index  *store.Index[store.Mailbox]
	prefix string
}

// exportSources returns the sources of an export's mailboxes. Mailboxes that are named one by one
// have no source.
func exportSources(e *store.Export) (out []mailboxSource) {
	if e.All {
		out = append(out, mailboxSource{store.MailboxesByAccount, e.AccountID})
	}
	for _, id := range e.Domains {
		out = append(out, mailboxSource{store.MailboxesByDomain, id})
	}
	return out
}

// An exportReader generates the file of an export while the file is read. Each batch of mailboxes
// is read in its own transaction.
type exportReader struct {
	s       *Service
	e       *store.Export
	format  *exportFormat
	Buf     bytes.Buffer
	sources []mailboxSource   // sources that are not read to the end; the first is being read
	after   string            // the key in the first source that was read last
	named   []byte            // numbers of mailboxes to read after the sources
	batch   []*store.Mailbox  // mailboxes that were read, and have no row yet
	app     map[string]string // passwords of the batch by mailbox id, see addAppPasswords
	rows    int               // rows that were written
	done    bool              // the end of the file was generated
}

// exportFile returns the file of an export. It generates the first batch at once, so that a problem
// is returned as an error if possible, and does not cut the file short.
func (s *Service) exportFile(e *store.Export) (*core.File, error) {
	format, err := exportFormatOf(e)
	if err != nil {
		return nil, fmt.Errorf("export %s: %w", e.ID, err)
	}
	r := &exportReader{s: s, e: e, format: format, sources: exportSources(e), named: e.Mailboxes}
	if err := r.writeHead(); err != nil {
		return nil, err
	}
	if err := r.generateNext(); err != nil {
		return nil, err
	}
	return &core.File{Name: exportFilename(e), ContentType: exportContentType(e), Size: -1, Body: r}, nil
}

// Read returns generated bytes, and generates the next batch if there are none.
func (r *exportReader) Read(p []byte) (int, error) {
	for r.Buf.Len() == 0 {
		if r.done {
			return 0, io.EOF
		}
		if err := r.generateNext(); err != nil {
			return 0, err
		}
	}
	return r.Buf.Read(p)
}

// Close does nothing.
func (r *exportReader) Close() error { return nil }

func (r *exportReader) writeHead() error {
	if r.format.row == nil {
		r.Buf.WriteByte('[')
		return nil
	}
	w := r.csvWriter()
	return w.WriteAll([][]string{r.format.columns})
}

// generateNext generates about exportChunk bytes, at most a batch, and after the last one the end
// of the file.
func (r *exportReader) generateNext() error {
	if len(r.batch) == 0 {
		err := r.s.Store.View(func(tx *store.Tx) (err error) {
			r.batch, err = r.readBatch(tx)
			return err
		})
		if err == nil && r.e.AppPasswords {
			r.app, err = r.s.addAppPasswords(r.e, r.batch)
		}
		if err != nil {
			return fmt.Errorf("export %s: %w", r.e.ID, err)
		}
	}
	if err := r.writeRows(); err != nil {
		return fmt.Errorf("export %s: %w", r.e.ID, err)
	}
	r.done = len(r.batch) == 0 && len(r.sources) == 0 && len(r.named) == 0
	if r.done && r.format.row == nil {
		r.Buf.WriteString("\n]\n")
	}
	return nil
}

// readBatch returns the next mailboxes. It skips mailboxes that were deleted since the export was
// created.
func (r *exportReader) readBatch(tx *store.Tx) (out []*store.Mailbox, err error) {
	for len(r.sources) > 0 {
		from := r.sources[0]
		for key, mb := range from.index.Asc(tx, from.prefix, r.after) {
			if len(out) == exportBatch {
				return out, nil
			}
			r.after = key
			if isExported(mb, r.e.AccountID) {
				out = append(out, mb)
			}
		}
		r.sources, r.after = r.sources[1:], ""
	}
	for len(r.named) >= 4 && len(out) < exportBatch {
		mb, err := store.MailboxByNum.Get(tx, store.NumKey(binary.BigEndian.Uint32(r.named)))
		r.named = r.named[4:]
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if isExported(mb, r.e.AccountID) {
			out = append(out, mb)
		}
	}
	return out, nil
}

// writeRows writes the rows of the batch, until the buffer has exportChunk bytes.
func (r *exportReader) writeRows() error {
	w := r.csvWriter()
	for len(r.batch) > 0 && r.Buf.Len() < exportChunk {
		mb := r.batch[0]
		c, err := r.s.credentials(mb)
		if err != nil {
			return err
		}
		if r.e.AppPasswords && mb.External == nil {
			c.Password, c.SMTPPassword, c.IMAPPassword = r.app[mb.ID], r.app[mb.ID], r.app[mb.ID]
		}
		if r.format.row != nil {
			err = w.Write(r.format.row(c))
		} else {
			err = r.writeJSON(c)
		}
		if err != nil {
			return err
		}
		r.batch = r.batch[1:]
	}
	w.Flush()
	return w.Error()
}

// csvWriter returns a writer of CSV with CRLF (RFC 4180).
func (r *exportReader) csvWriter() *csv.Writer {
	w := csv.NewWriter(&r.Buf)
	w.UseCRLF = true
	return w
}

func (r *exportReader) writeJSON(c *Credentials) error {
	if r.rows++; r.rows > 1 {
		r.Buf.WriteByte(',')
	}
	r.Buf.WriteByte('\n')
	text, err := json.Marshal(c)
	r.Buf.Write(text)
	return err
}

// credentials returns the login data of a mailbox, with its passwords unsealed.
func (s *Service) credentials(mb *store.Mailbox) (*Credentials, error) {
	var servers EmailUser
	s.addServers(&servers, mb.External)
	username, domain, _ := msg.SplitEmail(mb.Email)
	c := &Credentials{
		UserID: mb.ID, Email: mb.Email, Username: username, Domain: domain, DomainID: mb.DomainID, Name: mb.Name, Status: mb.Status, Type: mb.Type,
		SMTPHost: servers.SMTPHost, SMTPPort: servers.SMTPPort, SMTPSecurity: servers.SMTPSecurity,
		IMAPHost: servers.IMAPHost, IMAPPort: servers.IMAPPort, IMAPSecurity: servers.IMAPSecurity,
		DailyLimit: mb.DailySendLimit, Footer: core.OrNull(mb.Footer),
	}
	if mb.External == nil && len(mb.PasswordSealed) == 0 { // imported with a hash only: the password is not known
		c.SMTPUsername, c.IMAPUsername = mb.Email, mb.Email
		return c, nil
	}
	if mb.External == nil {
		password, err := s.Keys.Open(store.MailboxBinding(mb.ID), mb.PasswordSealed)
		c.Password, c.SMTPPassword, c.IMAPPassword = string(password), string(password), string(password)
		c.SMTPUsername, c.IMAPUsername = mb.Email, mb.Email
		return c, err
	}
	return c, s.externalCredentials(mb, c)
}

// externalCredentials sets the servers and logins of an external mailbox. If it has no SMTP server,
// the IMAP server and its login are given for sending too.
func (s *Service) externalCredentials(mb *store.Mailbox, c *Credentials) error {
	e := mb.External
	imap, err := s.Keys.Open(store.ServerBinding(mb.ID, "imap"), e.IMAP.PasswordSealed)
	if err != nil {
		return err
	}
	c.IMAPUsername, c.IMAPPassword = e.IMAP.Username, string(imap)
	c.SMTPUsername, c.SMTPPassword, c.Password = c.IMAPUsername, c.IMAPPassword, c.IMAPPassword
	if e.SMTP == nil {
		return nil
	}
	smtp, err := s.Keys.Open(store.ServerBinding(mb.ID, "smtp"), e.SMTP.PasswordSealed)
	c.SMTPUsername, c.SMTPPassword = e.SMTP.Username, string(smtp)
	return err
}

// An ExportFormat is a file format of create_export.
type ExportFormat struct {
	ID      string   `json:"id" words:"ours" example:"default"`
	Name    string   `json:"name" words:"ours" example:"Mailstead CSV"`
	Columns []string `json:"columns" words:"ours"` // Of the format `columns`: the fields that values may name.
}

// ListExportFormats lists the file formats of create_export.
func (s *Service) ListExportFormats(_ context.Context, _ core.Actor) (*core.List[ExportFormat], error) {
	var out []ExportFormat
	for _, f := range exportFormats {
		out = append(out, ExportFormat{f.id, f.name, f.columns})
	}
	return core.ListOf(out), nil
}

// Credentials are what a mail client needs for one mailbox. The username and password of SMTP and
// IMAP differ only for external mailboxes. password is the one that the mailbox was created with.
type Credentials struct {
	UserID       string  `json:"user_id" words:"ours"`
	Email        string  `json:"email" words:"ours"`
	Username     string  `json:"username" words:"ours"`
	Domain       string  `json:"domain" words:"ours"`
	DomainID     string  `json:"domain_id" words:"ours"`
	Name         string  `json:"name" words:"ours"`
	Status       string  `json:"status" enum:"pending|active|suspended|error"`
	Type         string  `json:"type" enum:"hosted|external"`
	Password     string  `json:"password" words:"ours"`
	SMTPHost     string  `json:"smtp_host" words:"ours"`
	SMTPPort     int     `json:"smtp_port"`
	SMTPSecurity string  `json:"smtp_security" enum:"tls|starttls|none"`
	SMTPUsername string  `json:"smtp_username" words:"ours"`
	SMTPPassword string  `json:"smtp_password" words:"ours"`
	IMAPHost     string  `json:"imap_host" words:"ours"`
	IMAPPort     int     `json:"imap_port"`
	IMAPSecurity string  `json:"imap_security" enum:"tls|starttls|none"`
	IMAPUsername string  `json:"imap_username" words:"ours"`
	IMAPPassword string  `json:"imap_password" words:"ours"`
	DailyLimit   *int    `json:"daily_send_limit"` // Recipients per UTC day; null is unlimited.
	Footer       *string `json:"footer" words:"ours"`
}

// An exportFormat is a file format. It writes the credentials as a table; if row is nil, as JSON.
// That of columnsFormat is made for each export, by formatOfColumns.
type exportFormat struct {
	id, name string
	columns  []string
	row      func(c *Credentials) []string
}

// exportFormatOf returns the file format of an export.
func exportFormatOf(e *store.Export) (*exportFormat, error) {
	if e.Format == columnsFormat {
		return formatOfColumns(e.Columns)
	}
	i := slices.IndexFunc(exportFormats, func(f exportFormat) bool { return f.id == cmp.Or(e.Format, "default") })
	if i < 0 {
		return nil, fmt.Errorf("there is no format %q", e.Format)
	}
	return &exportFormats[i], nil
}

// exportFormats are the file formats of create_export. Columns that tell other tools what to do
// with a mailbox, such as to warm it up, are empty or false.
var exportFormats = []exportFormat{
	{
		id: "default", name: "Mailstead CSV",
		columns: splitColumns("domain,from_email,from_name,user_name,password,smtp_host,smtp_port,imap_host,imap_port,imap_username,imap_password,footer"),
		row: func(c *Credentials) []string {
			return []string{
				c.Domain, c.Email, plainCell(c.Name), c.SMTPUsername, c.SMTPPassword, c.SMTPHost, portCell(c.SMTPPort),
				c.IMAPHost, portCell(c.IMAPPort), c.IMAPUsername, c.IMAPPassword, c.footerCell(),
			}
		},
	},
	{
		id: "smartlead", name: "Smartlead CSV",
		columns: splitColumns("from_name,from_email,user_name,password,smtp_host,smtp_port,imap_host,imap_port,max_email_per_day,custom_tracking_url,warmup_enabled,total_warmup_per_day,daily_rampup,reply_rate_percentage,bcc,signature,different_reply_to_address,imap_user_name,imap_password"),
		row: func(c *Credentials) []string {
			return []string{
				plainCell(c.Name), c.Email, c.SMTPUsername, c.SMTPPassword, c.SMTPHost, portCell(c.SMTPPort), c.IMAPHost, portCell(c.IMAPPort),
				c.limitCell(), "", "false", "", "", "", "", c.footerCell(), "", c.IMAPUsername, c.IMAPPassword,
			}
		},
	},
	{
		id: "instantly", name: "Instantly CSV",
		columns: splitColumns("Email,First Name,Last Name,IMAP Username,IMAP Password,IMAP Host,IMAP Port,SMTP Username,SMTP Password,SMTP Host,SMTP Port,Daily Limit,Warmup Enabled,Warmup Limit,Warmup Increment"),
		row: func(c *Credentials) []string {
			first, last := splitName(c.Name)
			return []string{
				c.Email, plainCell(first), plainCell(last), c.IMAPUsername, c.IMAPPassword, c.IMAPHost, portCell(c.IMAPPort),
				c.SMTPUsername, c.SMTPPassword, c.SMTPHost, portCell(c.SMTPPort), c.limitCell(), "false", "", "",
			}
		},
	},
	{
		id: "emailbison", name: "EmailBison CSV",
		columns: splitColumns("Name,Email,Password,IMAP Server,IMAP Port,SMTP Server,SMTP Port,Daily Limit,SMTP Secure,IMAP Secure"),
		row: func(c *Credentials) []string {
			return []string{
				plainCell(c.Name), c.Email, c.Password, c.IMAPHost, portCell(c.IMAPPort), c.SMTPHost, portCell(c.SMTPPort),
				c.limitCell(), strconv.FormatBool(c.SMTPSecurity == "tls"), strconv.FormatBool(c.IMAPSecurity == "tls"),
			}
		},
	},
	{
		id: "json", name: "JSON",
		columns: exportFieldNames(),
	},
	{
		id: columnsFormat, name: "Your own columns",
		columns: exportFieldNames(),
	},
}

// columnsFormat is the format whose columns the request gives. ListExportFormats lists the fields
// that they may name.
const columnsFormat = "columns"

func splitColumns(names string) []string { return strings.Split(names, ",") }

// plainCell prevents a spreadsheet from reading a text as a formula. It is not used for
// credentials, since it changes the text.
func plainCell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n", rune(text[0])) {
		return "'" + text
	}
	return text
}

func portCell(port int) string {
	if port == 0 {
		return ""
	}
	return strconv.Itoa(port)
}

func (c *Credentials) footerCell() string {
	if c.Footer == nil {
		return ""
	}
	return plainCell(*c.Footer)
}

func (c *Credentials) limitCell() string {
	if c.DailyLimit == nil {
		return ""
	}
	return strconv.Itoa(*c.DailyLimit)
}

// splitName splits a name before its last word.
func splitName(name string) (first, last string) {
	i := strings.LastIndexByte(name, ' ')
	if i < 0 {
		return name, ""
	}
	return strings.TrimSpace(name[:i]), name[i+1:]
}
