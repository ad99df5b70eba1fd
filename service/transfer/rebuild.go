package transfer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

const (
	rowsPerRebuildWrite = 50  // rows that one transaction writes
	maxLostListed       = 100 // lost messages that MessagesRebuilt lists
)

// MessagesRebuilt says what became of messages whose rows were lost.
type MessagesRebuilt struct {
	Made    int      // messages that are in their folder again, with their UID and, if an index had them, their flags
	ToInbox int      // messages of which only the envelope was left: they are in INBOX, with new UIDs
	Parts   int      // messages whose row was left: their parsed data was rebuilt
	Lost    []string // messages that could not be rebuilt, and why
	Waiting int      // messages that were accepted but not filed yet; the next start of the server files them
}

// addLost adds a message that could not be rebuilt to Lost.
func (r *MessagesRebuilt) addLost(format string, args ...any) {
	if len(r.Lost) < maxLostListed {
		r.Lost = append(r.Lost, fmt.Sprintf(format, args...))
	}
}

// A storedEnvelope has those fields of a stored envelope that a message's row needs: see
// [inbox.Envelope] and, for accepted mail, package inbound.
type storedEnvelope struct {
	inbox.Envelope
	SPF   string `json:"spf"`
	DKIM  string `json:"dkim"`
	DMARC string `json:"dmarc"`

	Judged string `json:"judged"`
}

// Rebuild rebuilds the rows of messages that the store has lost: those that store.RebuildDatabase
// could not rebuild, and those of messages that are newer than the database, for example after a
// restore of only the database. If it is interrupted, it can be run again.
func Rebuild(st *store.Store, progress func(what string, done, all int64)) (*MessagesRebuilt, error) {
	out := &MessagesRebuilt{Waiting: st.UnfiledCount()}
	for {
		rows, err := st.RowsToMake(rowsPerRebuildWrite)
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			break
		}
		if err := rebuildRows(st, rows, out); err != nil {
			return nil, err
		}
		progress("messages", int64(out.Made+out.Parts), 0)
	}
	missing, err := st.MailboxesMissingMessages()
	if err != nil {
		return nil, err
	}
	unknown := false
	err = st.EachUnlisted(func(u store.UnlistedMessage) error {
		if len(missing) == 0 && !u.Newer {
			return nil
		}
		found, err := rebuildFromEnvelope(st, u, missing, out)
		unknown = unknown || !found
		progress("messages", int64(out.Made+out.Parts+out.ToInbox), 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, st.EndRebuild(unknown && len(missing) > 0)
}

// A rowRebuild is a row to be rebuilt, with the parsed message.
type rowRebuild struct {
	row    *store.RowToMake
	stored *inbox.StoredMessage
	env    storedEnvelope
	err    error
}

// parseStored parses a stored message and its envelope.
func parseStored(st *store.Store, ref store.BlobRef) (d *inbox.StoredMessage, env storedEnvelope, err error) {
	if err := st.AdoptBlob(ref); err != nil {
		return nil, env, err
	}
	text, err := st.Envelope(ref)
	if err != nil {
		return nil, env, err
	}
	if err := json.Unmarshal(text, &env); err != nil {
		env = storedEnvelope{} // the message is useful without an envelope, too
	}
	blob, err := st.OpenBlob(ref)
	if err != nil {
		return nil, env, err
	}
	defer blob.Close()
	d, err = inbox.ReadMessage(blob, blob.Size(), env.From)
	if err != nil {
		return nil, env, err
	}
	d.Blob = ref
	d.Meta.SPF, d.Meta.DKIM, d.Meta.DMARC, d.Meta.Judged = env.SPF, env.DKIM, env.DMARC, env.Judged
	return d, env, nil
}

// rebuildRows rebuilds rows of messages in their folders, and records those that cannot be rebuilt.
func rebuildRows(st *store.Store, rows []store.RowToMake, out *MessagesRebuilt) error {
	all := make([]rowRebuild, len(rows))
	for i := range rows {
		m := &all[i]
		m.row = &rows[i]
		m.stored, m.env, m.err = parseStored(st, rows[i].Blob)
		if m.err != nil && !errors.Is(m.err, store.ErrDamaged) && !errors.Is(m.err, store.ErrNotFound) {
			return m.err
		}
	}
	var made, parts int
	err := st.Update(func(tx *store.Tx) error {
		made, parts = 0, 0
		for i := range all {
			m := &all[i]
			err := m.err
			if err == nil {
				err = m.write(tx)
			}
			switch {
			case err == nil && m.row.MetaAlone:
				parts++
			case err == nil:
				made++
			case errors.Is(err, store.ErrDamaged), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrExists):
				m.err = err
			default:
				return err
			}
			if err := tx.RemoveRowToMake(m.row); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	out.Made += made
	out.Parts += parts
	for _, m := range all {
		if m.err != nil {
			out.addLost("message %d in folder %d of mailbox %d: %v", m.row.UID, m.row.Folder, m.row.Mailbox, m.err)
		}
	}
	return nil
}

// write writes the row.
func (m *rowRebuild) write(tx *store.Tx) error {
	meta := m.stored.Meta
	if m.row.MetaAlone {
		now, err := tx.Message(m.row.Mailbox, m.row.Folder, m.row.UID)
		if err != nil {
			return err
		}
		meta.ThreadID, err = inbox.ThreadFor(tx, now.Account, m.stored.Summary, "")
		if err != nil {
			return err
		}
		return tx.PutMeta(now, &meta)
	}
	if _, err := tx.Folder(m.row.Mailbox, m.row.Folder); err != nil {
		return err // the folder does not exist: return before anything is written
	}
	row := m.row.Message
	row.Flags &= store.FlagSeen | store.FlagAnswered | store.FlagFlagged | store.FlagDeleted | store.FlagDraft
	if !m.row.Marked {
		row.Bits, row.Received = m.stored.Bits, m.env.Received
	}
	if row.Account == 0 {
		mb, err := store.MailboxByNum.Read(tx, store.NumKey(row.Mailbox))
		if err != nil {
			return err
		}
		row.Account = mb.AccountNum
	}
	var err error
	meta.ThreadID, err = inbox.ThreadFor(tx, row.Account, m.stored.Summary, "")
	if err != nil {
		return err
	}
	if kept := m.row.Kept; kept != nil {
		structure := meta.Structure
		meta = *kept
		meta.Structure = structure
	}
	return tx.AddMessageAt(&row, &meta)
}

// rebuildFromEnvelope handles a message that no row refers to: it files the message in the INBOX of
// mailboxes that its envelope names. If the message is newer than the database, it files it for all
// of these mailboxes, otherwise only for those that miss messages. known is true if the envelope
// names a mailbox.
func rebuildFromEnvelope(st *store.Store, u store.UnlistedMessage, missing map[uint32]bool, out *MessagesRebuilt) (known bool, err error) {
	var env storedEnvelope
	if err := json.Unmarshal(u.Envelope, &env); err != nil {
		return false, nil
	}
	var boxes []*store.Mailbox
	err = st.View(func(tx *store.Tx) (err error) {
		boxes, known, err = env.mailboxes(tx)
		return err
	})
	if err != nil {
		return known, err
	}
	var to []*store.Mailbox
	for _, mb := range boxes {
		if u.Newer || missing[mb.Num] {
			to = append(to, mb)
		}
	}
	if len(to) == 0 {
		return known, nil
	}
	d, env, err := parseStored(st, u.Blob)
	if errors.Is(err, store.ErrDamaged) {
		out.addLost("a message to %s: %v", to[0].Email, err)
		return known, nil
	}
	if err != nil {
		return known, err
	}
	err = st.Update(func(tx *store.Tx) error {
		for _, mb := range to {
			meta := d.Meta
			var err error
			meta.ThreadID, err = inbox.ThreadFor(tx, mb.AccountNum, d.Summary, "")
			if err != nil {
				return err
			}
			m := &store.Message{Account: mb.AccountNum, Mailbox: mb.Num, Folder: store.InboxID, Blob: d.Blob, Received: env.Received, Bits: d.Bits}
			if err := tx.AddMessage(m, &meta); err != nil {
				return fmt.Errorf("file a message in mailbox %s: %w", mb.Email, err)
			}
		}
		return nil
	})
	out.ToInbox += len(to)
	return known, err
}

// mailboxes returns the mailboxes that the envelope names. known is false if it names none. Even
// then, the message may have been in a mailbox.
func (e *storedEnvelope) mailboxes(tx *store.Tx) (boxes []*store.Mailbox, known bool, err error) {
	if e.Mailbox != 0 {
		mb, err := store.MailboxByNum.Find(tx, store.NumKey(e.Mailbox))
		if err != nil || mb == nil || mb.Gone() {
			return nil, true, err
		}
		return []*store.Mailbox{mb}, true, nil
	}
	if e.Outgoing {
		return nil, true, nil
	}
	taken := map[uint32]bool{}
	for _, address := range e.To {
		local, domain, _ := strings.Cut(address, "@")
		base, _, _ := strings.Cut(local, "+")
		for _, one := range []string{local, base} {
			mb, err := store.MailboxByEmail.Find(tx, one+"@"+domain)
			if err != nil {
				return nil, false, err
			}
			if mb == nil || mb.Gone() {
				continue
			}
			if !taken[mb.Num] {
				taken[mb.Num] = true
				boxes = append(boxes, mb)
			}
			break
		}
	}
	return boxes, len(e.To) > 0, nil
}
