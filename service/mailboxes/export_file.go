package mailboxes

import (
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// exportBatch is how many mailboxes are read and written at a time, so that a file of any length
// takes little memory.
const exportBatch = 200

// A mailboxSource is a walk over an index of mailboxes.
type mailboxSource struct {
	index  *store.Index[store.Mailbox]
	prefix string
}

// exportSources are the walks of an export, but for those that name each mailbox.
func exportSources(e *store.Export) (out []mailboxSource) {
	if e.All {
		out = append(out, mailboxSource{store.MailboxesByAccount, e.AccountID})
	}
	for _, id := range e.Domains {
		out = append(out, mailboxSource{store.MailboxesByDomain, id})
	}
	return out
}

// An exportReader makes the file of an export while it is read, one batch of mailboxes in each
// snapshot.
type exportReader struct {
	s       *Service
	e       *store.Export
	format  *exportFormat
	Buf     bytes.Buffer
	sources []mailboxSource // to be walked still
	after   string          // where the first of them goes on
	named   []byte          // mailboxes to be read still, after the sources
	rows    int
	done    bool
}

// exportFile begins the file, so that what is wrong from the start is an error and not half a file.
func (s *Service) exportFile(e *store.Export) (*core.File, error) {
	r := &exportReader{s: s, e: e, format: formatOf(e.Format), sources: exportSources(e), named: e.Mailboxes}
	if r.format == nil {
		return nil, fmt.Errorf("export %s: there is no format %q", e.ID, e.Format)
	}
	if err := r.begin(); err != nil {
		return nil, err
	}
	if err := r.next(); err != nil {
		return nil, err
	}
	return &core.File{Name: exportName(e), ContentType: exportType(e), Size: -1, Body: r}, nil
}

// Read gives what is ready, and makes more when nothing is.
func (r *exportReader) Read(p []byte) (int, error) {
	for r.Buf.Len() == 0 {
		if r.done {
			return 0, io.EOF
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	return r.Buf.Read(p)
}

// Close has nothing to give back.
func (r *exportReader) Close() error { return nil }

func (r *exportReader) begin() error {
	if r.format.row == nil {
		r.Buf.WriteByte('[')
		return nil
	}
	return r.table([][]string{r.format.columns})
}

// next writes one more batch into the buffer, and what ends the file after the last.
func (r *exportReader) next() error {
	var batch []*store.Mailbox
	err := r.s.Store.View(func(tx *store.Tx) (err error) {
		batch, err = r.read(tx)
		return err
	})
	if err != nil {
		return err
	}
	if err := r.write(batch); err != nil {
		return fmt.Errorf("export %s: %w", r.e.ID, err)
	}
	if r.done = len(r.sources) == 0 && len(r.named) == 0; r.done && r.format.row == nil {
		r.Buf.WriteString("\n]\n")
	}
	return nil
}

// read gives the next mailboxes. Those that have gone since the export was made are left out.
func (r *exportReader) read(tx *store.Tx) (out []*store.Mailbox, err error) {
	for len(r.sources) > 0 {
		from := r.sources[0]
		for key, mb := range from.index.Asc(tx, from.prefix, r.after) {
			if len(out) == exportBatch {
				return out, nil
			}
			r.after = key
			if exported(mb, r.e.AccountID) {
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
		if exported(mb, r.e.AccountID) {
			out = append(out, mb)
		}
	}
	return out, nil
}

func (r *exportReader) write(batch []*store.Mailbox) error {
	var table [][]string
	for _, mb := range batch {
		c, err := r.s.credentials(mb)
		if err != nil {
			return err
		}
		if r.format.row != nil {
			table = append(table, r.format.row(c))
			continue
		}
		if err := r.object(c); err != nil {
			return err
		}
	}
	return r.table(table)
}

// table writes rows by RFC 4180, with CRLF.
func (r *exportReader) table(rows [][]string) error {
	w := csv.NewWriter(&r.Buf)
	w.UseCRLF = true
	return w.WriteAll(rows)
}

func (r *exportReader) object(c *Credentials) error {
	if r.rows++; r.rows > 1 {
		r.Buf.WriteByte(',')
	}
	r.Buf.WriteByte('\n')
	text, err := json.Marshal(c)
	r.Buf.Write(text)
	return err
}

// credentials opens the sealed passwords of a mailbox.
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
	if mb.External == nil {
		password, err := s.Keys.Open("mailbox "+mb.ID, mb.PasswordSealed)
		c.Password, c.SMTPPassword, c.IMAPPassword = string(password), string(password), string(password)
		c.SMTPUsername, c.IMAPUsername = mb.Email, mb.Email
		return c, err
	}
	return c, s.externalCredentials(mb, c)
}

// externalCredentials are those of a mailbox that lives elsewhere; without a server for sending,
// those of IMAP.
func (s *Service) externalCredentials(mb *store.Mailbox, c *Credentials) error {
	e := mb.External
	imap, err := s.Keys.Open(core.ServerPlace(mb.ID, "imap"), e.IMAP.PasswordSealed)
	if err != nil {
		return err
	}
	c.IMAPUsername, c.IMAPPassword = e.IMAP.Username, string(imap)
	c.SMTPUsername, c.SMTPPassword, c.Password = c.IMAPUsername, c.IMAPPassword, c.IMAPPassword
	if e.SMTP == nil {
		return nil
	}
	smtp, err := s.Keys.Open(core.ServerPlace(mb.ID, "smtp"), e.SMTP.PasswordSealed)
	c.SMTPUsername, c.SMTPPassword = e.SMTP.Username, string(smtp)
	return err
}
