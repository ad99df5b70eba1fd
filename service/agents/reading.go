package agents

import (
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// The origin of a message says who wrote it. It is kept with the message (store.Meta.Words) as one
// of these.
const (
	OriginOwn       = "own"       // a person or an untainted program of the account wrote it here
	OriginAuthor    = "author"    // its author wrote it; who that is verified_domain says, if anything does
	OriginElsewhere = "elsewhere" // the same, and it came the way on which the author's domain sends elsewhere
)

// Origins of messages of which nobody can say who wrote them, but something else is known.
const (
	OriginProgram = "program" // of a draft: a program of the account wrote it that does not speak for the account
	OriginTainted = "tainted" // a tainted token or credential wrote it
)

// A Source is the message that a reader is given something of: where it is, and who wrote it.
type Source struct {
	MailboxID string
	ThreadID  string
	Folder    string // IMAP name
	UID       uint32
	Origin    string   // Meta.Words; "": nobody can say who wrote it
	Author    string   // the address of its author
	Verified  string   // verified_domain; "": nobody knows
	People    []string // the addresses in its From, Reply-To, To and Cc in their one form; none: nobody knows
	Harmless  bool     // the reader is given nothing that somebody can have put words into
}

// Verified is the one place that says whether the words of a message are those of somebody whom its
// reader need not fear. own tells of a domain whether it is the account's.
func Verified(p *store.Policy, w *Source, own func(domain string) (bool, error)) (bool, error) {
	switch {
	case w.Origin == OriginOwn:
		return true, nil
	case w.Origin != OriginAuthor && w.Origin != OriginElsewhere || w.Verified == "":
		return false, nil
	case core.DomainOfAddress(w.Author) == w.Verified && store.Names(p.TrustedSenders, w.Author, w.Verified):
		return true, nil
	case w.Origin == OriginElsewhere:
		return own(w.Verified)
	}
	return false, nil
}

// OwnDomain reports whether a domain is one of an account's.
func OwnDomain(tx *store.Tx, accountID string) func(domain string) (bool, error) {
	return func(domain string) (bool, error) {
		d, err := store.DomainByName.Find(tx, domain)
		return err == nil && d != nil && d.AccountID == accountID, err
	}
}

// Withholds reports whether lists leave the words of a message out for a reader.
func (s *Service) Withholds(tx *store.Tx, accountID string, p *store.Policy, w *Source) (bool, error) {
	if !p.Taint {
		return false, nil
	}
	verified, err := Verified(p, w, OwnDomain(tx, accountID))
	return !verified, err
}

// Read is the one place that says what reading does: it keeps whose messages a holder has read, and
// taints it where the words are not verified, before they are given to it. All others that taint
// and may act for the mailbox of a message have read it too. Whoever has p.Taint false is not
// concerned. Words without a mailbox are of anybody.
func (s *Service) Read(accountID string, h Holder, p *store.Policy, words ...Source) error {
	if !p.Taint || len(words) == 0 {
		return nil
	}
	var concerned []*reading
	if err := s.Store.View(func(tx *store.Tx) (err error) {
		concerned, err = s.concerns(tx, accountID, h, words)
		return err
	}); err != nil {
		return err
	}
	for some := range slices.Chunk(concerned, readersAtOnce) {
		if err := s.Store.Update(func(tx *store.Tx) error { return write(tx, some) }); err != nil {
			return err
		}
	}
	return nil
}

// readersAtOnce is how many of those whose reading changes one transaction writes: an account may
// have any number, each with many people.
const readersAtOnce = 50

// concerns finds out whose reading changes by reading the words, and how.
func (s *Service) concerns(tx *store.Tx, accountID string, h Holder, words []Source) (changed []*reading, err error) {
	of, err := h.find(tx)
	if of == nil || err != nil {
		return nil, err
	}
	own, now := OwnDomain(tx, accountID), tx.Now()
	first := after(of, now)
	others := map[string][]*reading{} // by mailbox
	all := map[string]*reading{of.id(): first}
	for i := range words {
		w := &words[i]
		if w.MailboxID == "" && of.token != nil && len(of.token.Mailboxes) == 1 {
			w.MailboxID = of.token.Mailboxes[0]
		}
		people, err := withMembers(tx, accountID, w.People)
		if err != nil {
			return nil, err
		}
		verified := w.Harmless
		if !verified {
			verified, err = Verified(&of.policy, w, own)
			if err != nil {
				return nil, err
			}
		}
		first.add(given{w, people, !verified}, now)
		if _, found := others[w.MailboxID]; !found && w.MailboxID != "" {
			others[w.MailboxID], err = readersOf(tx, accountID, w.MailboxID, all)
			if err != nil {
				return nil, err
			}
		}
		for _, r := range others[w.MailboxID] {
			if r == first {
				continue
			}
			r.add(given{w, people, !verified && (r.of.token == nil || r.of.token.CredentialID != "" || len(r.of.token.Mailboxes) > 0)}, now)
		}
	}
	for _, r := range all {
		if r.differs() {
			changed = append(changed, r)
		}
	}
	return changed, nil
}

// write adds to the readings, as they are now, what they have been given.
func write(tx *store.Tx, list []*reading) error {
	for _, r := range list {
		of, err := r.of.holder().find(tx)
		if err != nil {
			return err
		}
		if of == nil { // it was revoked
			continue
		}
		now := after(of, tx.Now())
		for _, g := range r.given {
			now.add(g, tx.Now())
		}
		if !now.differs() {
			continue
		}
		if err := of.put(tx, now.Reading); err != nil {
			return err
		}
	}
	return nil
}

// readersOf gives the readings of all who taint and may act for a mailbox: what one of them has
// read it could have another do. all has those that are known, by id, and gets the new ones.
func readersOf(tx *store.Tx, accountID, mailboxID string, all map[string]*reading) (list []*reading, err error) {
	mb, err := store.Mailboxes.Find(tx, mailboxID)
	if mb == nil || err != nil {
		return nil, err
	}
	add := func(of *held) {
		if !of.policy.Taint {
			return
		}
		r := all[of.id()]
		if r == nil {
			r = after(of, tx.Now())
			all[of.id()] = r
		}
		list = append(list, r)
	}
	for _, t := range store.TokensOfMailbox(tx, accountID, mailboxID) {
		add(&held{token: t, policy: t.Policy, reading: t.Reading})
	}
	for _, t := range store.TokensTainting.Asc(tx, accountID, "") {
		u, err := store.Users.FindShared(tx, t.UserID)
		if err != nil {
			return nil, err
		}
		if u != nil && (core.Actor{MailboxID: u.MailboxID, Limited: u.Limited, Mailboxes: u.Mailboxes}).Sees(mailboxID) {
			add(&held{token: t, policy: t.Policy, reading: t.Reading})
		}
	}
	for owner, index := range map[string]*store.Index[store.Credential]{mb.ID: store.CredentialsByMailbox, mb.DomainID: store.CredentialsByDomain} {
		for _, c := range index.Asc(tx, owner, "") {
			add(&held{credential: c, policy: c.Policy, reading: c.Reading})
		}
	}
	return list, nil
}

// withMembers adds to the people of a message the members of groups here that these name.
func withMembers(tx *store.Tx, accountID string, people []string) ([]string, error) {
	var open []string // ids of groups
	for _, email := range people {
		a, err := store.FindAddress(tx, email)
		if err != nil {
			return nil, err
		}
		if a != nil && a.GroupID != "" && a.AccountID == accountID {
			open = append(open, a.GroupID)
		}
	}
	seen := map[string]bool{}
	for len(open) > 0 && len(people) < maxPeople {
		id := open[0]
		open = open[1:]
		if seen[id] {
			continue
		}
		seen[id] = true
		email, next, err := placesBehind(tx, id)
		if err != nil {
			return nil, err
		}
		if email != "" {
			people = append(slices.Clip(people), email)
		}
		for _, to := range next {
			if strings.Contains(to, "@") {
				people = append(slices.Clip(people), to)
			} else {
				open = append(open, to)
			}
		}
	}
	return people, nil
}

// placesBehind gives the address of a group or a mailbox, and of a group its members: addresses
// elsewhere, and ids of mailboxes and groups.
func placesBehind(tx *store.Tx, id string) (email string, members []string, err error) {
	if !strings.HasPrefix(id, "grp_") {
		mb, err := core.LiveMailbox(tx, id)
		if mb == nil || err != nil {
			return "", nil, err
		}
		return mb.Email, nil, nil
	}
	g, err := store.Groups.FindShared(tx, id)
	if g == nil || err != nil {
		return "", nil, err
	}
	for _, m := range store.MembersOfGroup.Asc(tx, g.ID, "") {
		members = append(members, m.MailboxID+m.MemberID+m.Email) // one of these
	}
	return g.Email, members, nil
}

// Bounds of what is kept of a reading: past them it holds fewer people, so that fewer may be
// written to.
const (
	maxPeople      = 250
	maxPeopleBytes = 16 << 10
)

// A reading is one that grows.
type reading struct {
	store.Reading
	of     *held
	before *store.Reading
	fresh  bool    // nothing has been read
	given  []given // since it began to grow
}

// given is a message of which a reader is given words.
type given struct {
	words  *Source
	people []string
	taints bool
}

// add adds a message.
func (r *reading) add(g given, now time.Time) {
	r.given = append(r.given, g)
	if r.note(g.people, now); g.taints {
		r.taint(g.words, now)
	}
}

// after begins with what a holder has read so far.
func after(of *held, now time.Time) *reading {
	r := &reading{of: of, before: of.reading}
	lasting := of.reading.Lasting(&of.policy, now)
	if lasting == nil {
		r.fresh = true
		return r
	}
	r.Reading = *lasting
	if r.Taint != nil {
		t := *r.Taint
		r.Taint = &t
	}
	return r
}

// note adds a message with its people: only those stay who are among those of every message.
func (r *reading) note(people []string, now time.Time) {
	if r.of.policy.TaintLasts() > 0 {
		r.Last = now
	}
	if !r.fresh {
		kept := r.People[:0:0]
		for _, email := range r.People {
			if slices.Contains(people, email) {
				kept = append(kept, email)
			}
		}
		if len(kept) < len(r.People) {
			r.People = kept
		}
		return
	}
	r.fresh = false
	size := 0
	for _, email := range people {
		size += len(email)
		if len(r.People) == maxPeople || size > maxPeopleBytes {
			return
		}
		if !slices.Contains(r.People, email) {
			r.People = append(r.People, email)
		}
	}
}

// taint adds the words of a stranger.
func (r *reading) taint(w *Source, now time.Time) {
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

// differs reports whether a reading has to be written.
func (r *reading) differs() bool {
	switch {
	case r.fresh:
		return false
	case r.before == nil, (r.before.Taint == nil) != (r.Taint == nil), !slices.Equal(r.before.People, r.People):
		return true
	case r.of.policy.TaintLasts() > 0 && r.Last.Sub(r.before.Last) >= lastKept:
		return true
	case r.Taint == nil:
		return false
	}
	return r.before.Taint.ThreadID != r.Taint.ThreadID || !r.before.Taint.Since.Equal(r.Taint.Since) ||
		r.of.policy.TaintLasts() > 0 && r.Taint.Last.Sub(r.before.Taint.Last) >= lastKept
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

// Clear has a holder begin again, as if nothing had been read with it.
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
	return s.Read(who.AccountID, HolderOf(who), &who.Policy, Source{})
}

// CheckDraft refuses a draft of a tainted holder in any mailbox but that whose message tainted it.
func CheckDraft(tx *store.Tx, h Holder, mailboxID string) error {
	t, err := h.Taint(tx)
	if err != nil || t == nil || t.MailboxID == mailboxID {
		return err
	}
	return core.OverSMTP(550, "5.7.1", TaintedError(t))
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
