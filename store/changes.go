package store

// A Change names a row of an account that a committed transaction has written or deleted.
type Change struct {
	Table   string // the table's Name, or InboxName
	Account string // whose row it is
	User    string // which person's, of a row that is not for everybody in the account; else ""
	ID      string // of the row; of the mailbox, for InboxName
}

// InboxName is the Table of a Change of messages in the INBOX of a mailbox.
const InboxName = "inbox"

// Name is what the table is called in a Change.
func (t *Table[T]) Name() string { return t.name }

// watched has OnCommit tell of the table's rows. change answers whose a row is and which; one
// without an Account is not told of.
func (t *Table[T]) watched(change func(*Tx, *T) Change) *Table[T] {
	t.change = change
	return t
}

// OnCommit has fn told, from now on, what each transaction has changed once it is on disk; another
// fn takes the place of this one, and nil ends it. fn runs in the committer: it must be short, must
// not call the store and must not keep the slice. Of a transaction that ran before nothing is told,
// though it may not be on disk yet: an empty Update waits for it.
func (s *Store) OnCommit(fn func([]Change)) {
	if fn == nil {
		s.onCommit.Store(nil)
		return
	}
	s.onCommit.Store(&fn)
}

// recordChange remembers that a row was written or deleted, if somebody wants to know.
func (t *Table[T]) recordChange(tx *Tx, rec *T) {
	if t.change == nil || tx.s.onCommit.Load() == nil {
		return
	}
	c := t.change(tx, rec)
	c.Table = t.name
	tx.recordChange(c)
}

// recordInboxChange remembers that messages in the INBOX of a mailbox have changed. One that is
// being dropped has no record any more, and nobody who would look at it.
func (tx *Tx) recordInboxChange(mailbox uint32) {
	if mailbox == tx.inboxRecorded || tx.s.onCommit.Load() == nil {
		return
	}
	if mb, err := MailboxByNum.Read(tx, NumKey(mailbox)); err == nil {
		tx.inboxRecorded = mailbox
		tx.recordChange(Change{Table: InboxName, Account: mb.AccountID, ID: mb.ID})
	}
}

// recordChange keeps a change, but not twice in a row.
func (tx *Tx) recordChange(c Change) {
	n := len(tx.changes)
	if c.Account == "" || n > 0 && tx.changes[n-1] == c {
		return
	}
	tx.changes = append(tx.changes, c)
}

// reportChanges tells who asked by OnCommit what the batch, which is on disk, has changed.
func (s *Store) reportChanges(batch []*write) {
	fn := s.onCommit.Load()
	if fn == nil {
		return
	}
	for _, w := range batch {
		if w.err == nil && len(w.changes) > 0 {
			(*fn)(w.changes)
		}
	}
}

// accountOfDomain is the account that a domain belongs to; "" where it is gone.
func accountOfDomain(tx *Tx, id string) string {
	d, err := Domains.Read(tx, id)
	if err != nil {
		return ""
	}
	return d.AccountID
}
