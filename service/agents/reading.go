package agents

import (
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A Message's words are kept with it (store.Meta.Words) as one of these.
const (
	WordsOwn       = "own"       // a person or an untainted program of the account wrote it here
	WordsAuthor    = "author"    // its author wrote it; who that is verified_domain says, if anything does
	WordsElsewhere = "elsewhere" // the same, and it came the way on which the author's domain sends elsewhere
)

// Words are what a reader is given of a message.
type Words struct {
	MailboxID string
	ThreadID  string
	Folder    string // IMAP name
	UID       uint32
	Origin    string // Meta.Words; "": nobody can say who wrote it
	Author    string // the address of its author
	Verified  string // verified_domain; "": nobody knows
}

// Verified is the one place that says whether the words of a message are those of somebody whom its
// reader need not fear. own tells of a domain whether it is the account's.
func Verified(p *store.Policy, w *Words, own func(domain string) (bool, error)) (bool, error) {
	switch {
	case w.Origin == WordsOwn:
		return true, nil
	case w.Origin != WordsAuthor && w.Origin != WordsElsewhere || w.Verified == "":
		return false, nil
	case core.DomainOfAddress(w.Author) == w.Verified && store.Names(p.TrustedSenders, w.Author, w.Verified):
		return true, nil
	case w.Origin == WordsElsewhere:
		return own(w.Verified)
	}
	return false, nil
}

// OwnDomain tells whether a domain is one of an account's.
func OwnDomain(tx *store.Tx, accountID string) func(domain string) (bool, error) {
	return func(domain string) (bool, error) {
		d, err := store.DomainByName.Find(tx, domain)
		return err == nil && d != nil && d.AccountID == accountID, err
	}
}

// Withholds tells whether lists leave the words of a message out for a reader.
func (s *Service) Withholds(tx *store.Tx, accountID string, p *store.Policy, w *Words) (bool, error) {
	if !p.Taint {
		return false, nil
	}
	verified, err := Verified(p, w, OwnDomain(tx, accountID))
	return !verified, err
}

// Read is the one place that says what reading does: it notes which conversations a holder has
// read, and taints it where the words are not verified, before they are given to it. Whoever has
// p.Taint false is not concerned. Words without a mailbox are of anybody.
func (s *Service) Read(accountID string, h Holder, p *store.Policy, words ...Words) error {
	if !p.Taint || len(words) == 0 {
		return nil
	}
	changed := false
	if err := s.Store.View(func(tx *store.Tx) (err error) {
		changed, err = s.read(tx, accountID, h, words, false)
		return err
	}); err != nil || !changed {
		return err
	}
	return s.Store.Update(func(tx *store.Tx) error {
		_, err := s.read(tx, accountID, h, words, true)
		return err
	})
}

// read finds out what reading the words changes, and writes it if write is true.
func (s *Service) read(tx *store.Tx, accountID string, h Holder, words []Words, write bool) (changed bool, err error) {
	of, err := h.find(tx)
	if of == nil || err != nil {
		return false, err
	}
	own := OwnDomain(tx, accountID)
	next := after(of, tx)
	var worst *Words // the first whose words are not verified
	for i := range words {
		w := &words[i]
		next.note(w)
		verified, err := Verified(&of.policy, w, own)
		if err != nil {
			return false, err
		}
		if !verified && worst == nil {
			worst = w
		}
		if !verified {
			next.taint(w, tx.Now())
		}
	}
	changed = next.differs(of.reading, &of.policy)
	if changed && write {
		if err := of.put(tx, next.Reading); err != nil {
			return false, err
		}
	}
	if worst == nil || worst.MailboxID == "" {
		return changed, nil
	}
	others, err := s.taintOthers(tx, accountID, of, worst, write)
	return changed || others, err
}

// A reading is one that grows.
type reading struct{ store.Reading }

// after begins with what a holder has read so far. A taint that is over has taken with it what was
// read before.
func after(of *held, tx *store.Tx) *reading {
	if of.reading == nil || of.reading.Taint != nil && of.reading.Tainted(&of.policy, tx.Now()) == nil {
		return &reading{}
	}
	r := &reading{*of.reading}
	if r.Taint != nil {
		t := *r.Taint
		r.Taint = &t
	}
	return r
}

// note adds a conversation.
func (r *reading) note(w *Words) {
	switch {
	case r.Several:
	case w.MailboxID == "" || w.ThreadID == "":
		r.Several = true
	case r.MailboxID == "":
		r.MailboxID, r.ThreadID = w.MailboxID, w.ThreadID
	case r.MailboxID != w.MailboxID || r.ThreadID != w.ThreadID:
		r.Several = true
	}
}

// taint adds the words of a stranger.
func (r *reading) taint(w *Words, now time.Time) {
	if r.Taint == nil {
		r.Taint = &store.Taint{Since: now, MailboxID: w.MailboxID, ThreadID: w.ThreadID, Folder: w.Folder, UID: w.UID}
	}
	r.Taint.Last = now
	if r.Taint.MailboxID != w.MailboxID || r.Taint.ThreadID != w.ThreadID {
		r.Taint.ThreadID = ""
	}
}

// lastKept is how exactly the time of the last reading is kept.
const lastKept = time.Second

// differs tells whether a reading has to be written.
func (r *reading) differs(before *store.Reading, p *store.Policy) bool {
	if before == nil {
		return true
	}
	was, is := *before, r.Reading
	was.Taint, is.Taint = nil, nil
	switch {
	case was != is, (before.Taint == nil) != (r.Taint == nil):
		return true
	case r.Taint == nil:
		return false
	}
	return before.Taint.ThreadID != r.Taint.ThreadID || before.Taint.Since != r.Taint.Since ||
		p.TaintSeconds > 0 && r.Taint.Last.Sub(before.Taint.Last) >= lastKept
}

// put writes what a holder has read.
func (of *held) put(tx *store.Tx, r store.Reading) error {
	if of.token != nil {
		t, err := store.Tokens.Get(tx, of.token.ID)
		if err != nil {
			return err
		}
		t.Reading = &r
		return store.Tokens.Put(tx, t)
	}
	c, err := store.Credentials.Get(tx, of.credential.ID)
	if err != nil {
		return err
	}
	c.Reading = &r
	return store.Credentials.Put(tx, c)
}

// taintOthers taints who else may act for the mailbox of a message which taints one: what one has
// read it could have another do. It tells whether that changes any of them, and writes it if write
// is true.
func (s *Service) taintOthers(tx *store.Tx, accountID string, first *held, w *Words, write bool) (changed bool, err error) {
	var others []*held
	for _, t := range store.TokensOfMailbox(tx, accountID, w.MailboxID) {
		others = append(others, &held{token: t, policy: t.Policy, reading: t.Reading})
	}
	add := func(index *store.Index[store.Credential], owner string) {
		for _, c := range index.Asc(tx, owner, "") {
			others = append(others, &held{credential: c, policy: c.Policy, reading: c.Reading})
			if t, err := store.Tokens.FindShared(tx, c.TokenID); err == nil && t != nil {
				others = append(others, &held{token: t, policy: t.Policy, reading: t.Reading})
			}
		}
	}
	mb, err := store.Mailboxes.Read(tx, w.MailboxID)
	if err != nil {
		return false, err
	}
	add(store.CredentialsByMailbox, mb.ID)
	add(store.CredentialsByDomain, mb.DomainID)
	for _, of := range others {
		same := first.token != nil && of.token != nil && first.token.ID == of.token.ID ||
			first.credential != nil && of.credential != nil && first.credential.ID == of.credential.ID
		if same || !of.policy.Taint {
			continue
		}
		next := after(of, tx)
		next.note(w)
		next.taint(w, tx.Now())
		if !next.differs(of.reading, &of.policy) {
			continue
		}
		if changed = true; !write {
			return true, nil
		}
		if err := of.put(tx, next.Reading); err != nil {
			return false, err
		}
	}
	return changed, nil
}

// Clear has a holder begin anew, as if nothing had been read with it.
func (h Holder) Clear(tx *store.Tx) error {
	if h.TokenID != "" {
		t, err := store.Tokens.Get(tx, h.TokenID)
		if err != nil {
			return err
		}
		t.Reading = nil
		return store.Tokens.Put(tx, t)
	}
	c, err := store.Credentials.Get(tx, h.CredentialID)
	if err != nil {
		return err
	}
	c.Reading = nil
	if err := store.Credentials.Put(tx, c); err != nil || c.TokenID == "" {
		return err
	}
	return Holder{TokenID: c.TokenID}.Clear(tx)
}

// MayBeTainted refuses what a token may not do while it is tainted.
func (s *Service) MayBeTainted(who core.Actor) error {
	return s.Store.View(func(tx *store.Tx) error { return CheckUntainted(tx, HolderOf(who)) })
}

// ReadAny is Read of an answer that may repeat the words of any message.
func (s *Service) ReadAny(who core.Actor) error {
	return s.Read(who.AccountID, HolderOf(who), &who.Policy, Words{})
}

// CheckUntainted refuses what a tainted holder may not do.
func CheckUntainted(tx *store.Tx, h Holder) error {
	of, err := h.find(tx)
	if of == nil || err != nil {
		return err
	}
	if t := of.reading.Tainted(&of.policy, tx.Now()); t != nil {
		return core.OverSMTP(550, "5.7.1", TaintedError(t))
	}
	return nil
}
