package agents

import (
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// The origin of a message says who wrote it. It is stored with the message (store.Meta.Origin) as
// one of these values.
const (
	OriginOwn       = "own"       // a person or an untainted program of the account wrote it on this server
	OriginAuthor    = "author"    // the author named in it wrote it, as far as verified_domain proves who that is
	OriginElsewhere = "elsewhere" // as OriginAuthor, and it came by the route over which the author's domain sends from other servers
)

// Origins of messages whose author is unknown, but about which something else is known.
const (
	OriginProgram = "program" // only of a draft: written by a program of the account that does not speak for the account
	OriginTainted = "tainted" // written by a tainted token or credential
)

// A Source is the message whose text a reader gets: its place and its author.
type Source struct {
	MailboxID string
	ThreadID  string
	Folder    string // IMAP name
	UID       uint32
	Origin    string   // Meta.Origin; "": the author is unknown
	Author    string   // the address of its author
	Verified  string   // verified_domain; "": not verified
	People    []string // the normalized addresses in its From, Reply-To, To and Cc; empty: unknown
	Harmless  bool     // nothing that the reader gets can contain text that somebody else chose
}

// Verified is the only function that decides whether the text of a message is from somebody whom
// its reader can trust. own reports whether a domain belongs to the account.
func Verified(p *store.Policy, w *Source, own func(domain string) (bool, error)) (bool, error) {
	switch {
	case w.Origin == OriginOwn:
		return true, nil
	case w.Origin != OriginAuthor && w.Origin != OriginElsewhere || w.Verified == "":
		return false, nil
	case core.DomainOfAddress(w.Author) == w.Verified && store.ContainsAddress(p.TrustedSenders, w.Author, w.Verified):
		return true, nil
	case w.Origin == OriginElsewhere:
		return own(w.Verified)
	}
	return false, nil
}

// OwnDomain returns a function that reports whether a domain belongs to an account.
func OwnDomain(tx *store.Tx, accountID string) func(domain string) (bool, error) {
	return func(domain string) (bool, error) {
		d, err := store.DomainByName.Find(tx, domain)
		return err == nil && d != nil && d.AccountID == accountID, err
	}
}

// Withholds reports whether lists omit the text of a message for a reader.
func (s *Service) Withholds(tx *store.Tx, accountID string, p *store.Policy, w *Source) (bool, error) {
	if !p.Taint {
		return false, nil
	}
	verified, err := Verified(p, w, OwnDomain(tx, accountID))
	return !verified, err
}

// Read records, before a holder gets messages, that it has read them, and taints it if a message is
// not verified. It is the only function that does so. All other tainting holders that may act for
// the mailbox of such a message count as readers too. If p.Taint is false, nothing is recorded. A
// source without a mailbox may be the text of anybody.
func (s *Service) Read(accountID string, h Holder, p *store.Policy, words ...Source) error {
	if !p.Taint || len(words) == 0 {
		return nil
	}
	var concerned []*reading
	if err := s.Store.View(func(tx *store.Tx) (err error) {
		concerned, err = s.changedReadings(tx, accountID, h, words)
		return err
	}); err != nil {
		return err
	}
	for some := range slices.Chunk(concerned, readersAtOnce) {
		if err := s.Store.Update(func(tx *store.Tx) error { return writeReadings(tx, some) }); err != nil {
			return err
		}
	}
	return nil
}

// readersAtOnce is how many readings one transaction writes: an account may have any number of
// holders, each with many people.
const readersAtOnce = 50

// changedReadings returns the readings that change when a holder reads the messages.
func (s *Service) changedReadings(tx *store.Tx, accountID string, h Holder, words []Source) (changed []*reading, err error) {
	of, err := h.find(tx)
	if of == nil || err != nil {
		return nil, err
	}
	own, now := OwnDomain(tx, accountID), tx.Now()
	first := newReading(of, now)
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
			others[w.MailboxID], err = readingsOf(tx, accountID, w.MailboxID, all)
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

// writeReadings adds the messages to the current readings of their holders.
func writeReadings(tx *store.Tx, list []*reading) error {
	for _, r := range list {
		of, err := r.of.holder().find(tx)
		if err != nil {
			return err
		}
		if of == nil { // it was deleted
			continue
		}
		now := newReading(of, tx.Now())
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

// readingsOf returns the readings of all tainting holders that may act for a mailbox: a holder that
// has read something could make another one act. all holds the readings known so far, by id; new
// ones are added to it.
func readingsOf(tx *store.Tx, accountID, mailboxID string, all map[string]*reading) (list []*reading, err error) {
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
			r = newReading(of, tx.Now())
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

// withMembers adds, for each local group among the people of a message, the members of the group.
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
		email, next, err := addressAndMembers(tx, id)
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

// addressAndMembers returns the address of a mailbox or group, and the members of a group: external
// addresses, and ids of mailboxes and groups.
func addressAndMembers(tx *store.Tx, id string) (email string, members []string, err error) {
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
		members = append(members, m.MailboxID+m.MemberID+m.Email) // exactly one of these is set
	}
	return g.Email, members, nil
}

// Limits of a stored reading. Beyond them it keeps fewer people, so that the holder may write to
// fewer.
const (
	maxPeople      = 250
	maxPeopleBytes = 16 << 10
)

// A reading is a holder's reading while messages are added to it.
type reading struct {
	store.Reading
	of     *held
	before *store.Reading
	fresh  bool    // nothing has been read before
	given  []given // the messages that were added
}

// given is a message that a reader gets.
type given struct {
	words  *Source
	people []string
	taints bool
}

// add adds a message to the reading.
func (r *reading) add(g given, now time.Time) {
	r.given = append(r.given, g)
	if r.note(g.people, now); g.taints {
		r.taint(g.words, now)
	}
}

// newReading returns a reading that begins with what a holder has read so far.
func newReading(of *held, now time.Time) *reading {
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

// note reduces the people of the reading to those who also appear in this message.
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

// taint records that a stranger's text was read.
func (r *reading) taint(w *Source, now time.Time) {
	if r.Taint == nil {
		r.Taint = &store.Taint{Since: now, MailboxID: w.MailboxID, ThreadID: w.ThreadID, Folder: w.Folder, UID: w.UID}
	}
	r.Taint.Last = now
	if r.Taint.MailboxID != w.MailboxID || r.Taint.ThreadID != w.ThreadID {
		r.Taint.ThreadID = ""
	}
}

// lastReadPrecision is the precision of the stored time of the last reading.
const lastReadPrecision = time.Second

// differs reports whether the reading must be written.
func (r *reading) differs() bool {
	switch {
	case r.fresh:
		return false
	case r.before == nil, (r.before.Taint == nil) != (r.Taint == nil), !slices.Equal(r.before.People, r.People):
		return true
	case r.of.policy.TaintLasts() > 0 && r.Last.Sub(r.before.Last) >= lastReadPrecision:
		return true
	case r.Taint == nil:
		return false
	}
	return r.before.Taint.ThreadID != r.Taint.ThreadID || !r.before.Taint.Since.Equal(r.Taint.Since) ||
		r.of.policy.TaintLasts() > 0 && r.Taint.Last.Sub(r.before.Taint.Last) >= lastReadPrecision
}

// put stores in the token or the credential what its program has read.
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

// Clear resets a holder, as if nothing had been read with it.
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

// MayBeTainted returns an error if the actor's token is tainted.
func (s *Service) MayBeTainted(who core.Actor) error {
	return s.Store.View(func(tx *store.Tx) error { return CheckUntainted(tx, HolderOf(who)) })
}

// ReadAny is Read for an answer that may contain the text of any message.
func (s *Service) ReadAny(who core.Actor) error {
	return s.Read(who.AccountID, HolderOf(who), &who.Policy, Source{})
}

// CheckDraft refuses a draft of a tainted holder in any mailbox except that of the message that
// tainted it.
func CheckDraft(tx *store.Tx, h Holder, mailboxID string) error {
	t, err := h.Taint(tx)
	if err != nil || t == nil || t.MailboxID == mailboxID {
		return err
	}
	return core.OverSMTP(550, "5.7.1", TaintedError(t))
}

// CheckUntainted returns an error if a holder is tainted.
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
