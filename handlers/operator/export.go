package operator

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// exportPageSize is the size in bytes at which a page of exported messages ends.
const exportPageSize = 4 << 20

// An ExportHeader is one line of JSON before each message of a page. A header without a UID ends
// the page.
type ExportHeader struct {
	UID    uint32    `json:"uid,omitempty"`
	Flags  string    `json:"flags,omitempty"`
	Date   time.Time `json:"date,omitzero"`
	Sender string    `json:"sender,omitempty"`
	Size   int       `json:"size,omitempty"`
	Error  string    `json:"error,omitempty"`
	More   bool      `json:"more,omitempty"`
}

// exportMessages answers a request of `mailstead export`: for the folders of a mailbox, for a page
// of messages of a folder, or for the password hash.
func (o *Operator) exportMessages(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	err := func() error {
		u, err := o.Service.Transfer.FindMailbox(q.Get("mailbox"), q.Get("account"))
		if err != nil {
			return err
		}
		out := json.NewEncoder(w)
		if q.Get("hash") != "" {
			hash, err := o.passwordHash(u)
			if err != nil {
				return err
			}
			return out.Encode(hash)
		}
		if begins := q.Get("begins"); begins != "" {
			if err := o.recordAudit("export "+begins, u); err != nil {
				return err
			}
		}
		if q.Get("folder") == "" {
			folders, err := o.Service.Transfer.ExportFolders(r.Context(), u)
			if err != nil {
				return err
			}
			return out.Encode(folders)
		}
		folder, err := strconv.ParseUint(q.Get("folder"), 10, 32)
		if err != nil {
			return err
		}
		from, err := strconv.ParseUint(q.Get("from"), 10, 32)
		if err != nil {
			return err
		}
		list, more, err := o.Service.Transfer.ExportMessages(r.Context(), u, uint32(folder), uint32(from), exportPageSize)
		if err != nil {
			return err
		}
		for _, m := range list {
			h := ExportHeader{UID: m.UID, Flags: m.Flags, Date: m.Date, Sender: m.Sender, Size: len(m.Text)}
			if m.Err != nil {
				h.Size, h.Error, m.Text = 0, m.Err.Error(), nil
			}
			if err := out.Encode(h); err != nil {
				return err
			}
			if _, err := w.Write(m.Text); err != nil {
				return err
			}
		}
		return out.Encode(ExportHeader{More: more})
	}()
	if err != nil {
		http.Error(w, withoutCode(err).Error(), http.StatusInternalServerError)
	}
}

// passwordHash returns the password hash of a mailbox, "" if it has none. It records in the audit
// log that the hash was exported.
func (o *Operator) passwordHash(u core.MailboxUser) (hash string, err error) {
	err = o.Store.Update(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Get(tx, u.MailboxID)
		if err != nil {
			return err
		}
		hash = mb.PasswordHash
		return core.AuditCommand(tx, "export secrets", mb.AccountID, core.MailboxTarget(mb))
	})
	return hash, err
}
