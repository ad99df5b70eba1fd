package agents

import (
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/policy"
)

// Origins of a message, which say who wrote it. The origin is stored in store.Meta.Origin.
const (
	OriginOwn       = "own"       // it was written on this server by a person of the account, or by a program that was not tainted
	OriginAuthor    = "author"    // it was written by the author in From, if verified_domain proves that
	OriginElsewhere = "elsewhere" // like OriginAuthor, and it came from a server in the sends_elsewhere of the author's domain
)

// Origins of a message whose author is not known, but something else about the author is.
const (
	OriginProgram = "program" // only for drafts: it was written by a program of the account that may not write in its name
	OriginTainted = "tainted" // it was written with a tainted token or credential
)

// A Source describes a message whose text a reader gets: where it is and who wrote it.
type Source struct {
	MailboxID string
	ThreadID  string
	Folder    string // the IMAP name of its folder
	UID       uint32
	Origin    string   // its origin; "": the author is not known
	Author    string   // the email address of its author
	Verified  string   // the verified domain of its author; "": not verified
	People    []string // the normalized addresses in its From, Reply-To, To and Cc; empty: not known
	Harmless  bool     // the reader gets nothing that can contain a text of somebody else
}

// Verified reports whether the reader may trust the author of a message, under the policy p. It is
// the only function that decides this. own reports whether a domain belongs to the account.
func Verified(p *store.Policy, w *Source, own func(domain string) (bool, error)) (bool, error) {
	switch {
	case w.Origin == OriginOwn:
		return true, nil
	case w.Origin != OriginAuthor && w.Origin != OriginElsewhere || w.Verified == "":
		return false, nil
	case core.DomainOfAddress(w.Author) == w.Verified && policy.ContainsAddress(p.TrustedSenders, w.Author, w.Verified):
		return true, nil
	case w.Origin == OriginElsewhere:
		return own(w.Verified)
	}
	return false, nil
}

// OwnDomain returns a function that reports whether a domain belongs to the account.
func OwnDomain(tx *store.Tx, accountID string) func(domain string) (bool, error) {
	return func(domain string) (bool, error) {
		d, err := store.DomainByName.Find(tx, domain)
		return err == nil && d != nil && d.AccountID == accountID, err
	}
}

// Withholds reports whether lists must leave out the texts of a message, for a reader with the
// policy p.
func (s *Service) Withholds(tx *store.Tx, accountID string, p *store.Policy, w *Source) (bool, error) {
	if !p.Taint {
		return false, nil
	}
	verified, err := Verified(p, w, OwnDomain(tx, accountID))
	return !verified, err
}

// Read records that a holder is about to get messages, and taints the holder if one of them is not
// verified. It is the only function that does this. Other holders with a tainting policy count as
// readers, too, if they may act for the mailbox of the message. If p.Taint is false, Read does
// nothing. A Source without a mailbox stands for a text that anybody may have written.
func (s *Service) Read(accountID string, h Holder, p *store.Policy, sources ...Source) error {
	if !p.Taint || len(sources) == 0 {
		return nil
	}
	var concerned []*reading
	if err := s.Store.View(func(tx *store.Tx) (err error) {
		concerned, err = s.changedReadings(tx, accountID, h, sources)
		return err
	}); err != nil {
		return err
	}
	for some := range slices.Chunk(concerned, readingsPerWrite) {
		if err := s.Store.Update(func(tx *store.Tx) error { return writeReadings(tx, some) }); err != nil {
			return err
		}
	}
	return nil
}

// readingsPerWrite is how many readings one transaction writes. The number of an account's holders
// is not limited, and each reading can have many people.
const readingsPerWrite = 50

// changedReadings returns the readings, of this and other holders, that change if a holder reads
// messages.
func (s *Service) changedReadings(tx *store.Tx, accountID string, h Holder, sources []Source) (changed []*reading, err error) {
	of, err := h.find(tx)
	if of == nil || err != nil {
		return nil, err
	}
	own, now := OwnDomain(tx, accountID), tx.Now()
	first := newReading(of, now)
	others := map[string][]*reading{} // readings of other holders, by mailbox ID
	all := map[string]*reading{of.id(): first}
	for i := range sources {
		w := &sources[i]
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
		first.add(readMessage{w, people, !verified}, now)
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
			r.add(readMessage{w, people, !verified && (r.of.token == nil || r.of.token.CredentialID != "" || len(r.of.token.Mailboxes) > 0)}, now)
		}
	}
	for _, r := range all {
		if r.hasChanged() {
			changed = append(changed, r)
		}
	}
	return changed, nil
}

// writeReadings adds the messages in the list to the stored readings of their holders.
func writeReadings(tx *store.Tx, list []*reading) error {
	for _, r := range list {
		of, err := r.of.holder().find(tx)
		if err != nil {
			return err
		}
		if of == nil { // the token or credential was deleted
			continue
		}
		now := newReading(of, tx.Now())
		for _, g := range r.messages {
			now.add(g, tx.Now())
		}
		if !now.hasChanged() {
			continue
		}
		if err := of.putReading(tx, now.Reading); err != nil {
			return err
		}
	}
	return nil
}

// readingsOf returns the readings of all holders with a tainting policy that may act for a mailbox.
// They count as readers because one holder can make another one act. all has the readings that are
// known already, by ID of the holder. readingsOf adds the others to it.
func readingsOf(tx *store.Tx, accountID, mailboxID string, all map[string]*reading) (list []*reading, err error) {
	mb, err := store.Mailboxes.Find(tx, mailboxID)
	if mb == nil || err != nil {
		return nil, err
	}
	add := func(of *holderRecord) {
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
		add(&holderRecord{token: t, policy: t.Policy, reading: t.Reading})
	}
	for _, t := range store.TokensTainting.Asc(tx, accountID, "") {
		u, err := store.Users.FindShared(tx, t.UserID)
		if err != nil {
			return nil, err
		}
		if u != nil && (core.Actor{MailboxID: u.MailboxID, Limited: u.Limited, Mailboxes: u.Mailboxes}).Sees(mailboxID) {
			add(&holderRecord{token: t, policy: t.Policy, reading: t.Reading})
		}
	}
	for owner, index := range map[string]*store.Index[store.Credential]{mb.ID: store.CredentialsByMailbox, mb.DomainID: store.CredentialsByDomain} {
		for _, c := range index.Asc(tx, owner, "") {
			add(&holderRecord{credential: c, policy: c.Policy, reading: c.Reading})
		}
	}
	return list, nil
}

// withMembers returns the people of a message and, if some of these are groups on this server, the
// members of the groups.
func withMembers(tx *store.Tx, accountID string, people []string) ([]string, error) {
	var open []string // IDs of groups and mailboxes that are still to be looked up
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

// addressAndMembers returns the email address of a mailbox or group, and the members of a group:
// email addresses, and IDs of mailboxes and groups.
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
		members = append(members, m.MailboxID+m.MemberID+m.Email) // exactly one of the three is set
	}
	return g.Email, members, nil
}

// Limits of the people in a stored reading. People beyond them are left out, so that a tainted
// holder may not write to them.
const (
	maxPeople      = 250
	maxPeopleBytes = 16 << 10
)

// A reading is what a holder has read, while messages are added to it.
type reading struct {
	store.Reading
	of       *holderRecord
	before   *store.Reading // the stored reading
	fresh    bool           // the holder has not read anything yet
	messages []readMessage  // the messages that were added here
}

// A readMessage is a message that a reader gets.
type readMessage struct {
	source *Source
	people []string // its people, and the members of groups among them
	taints bool     // the message taints the reader
}

// add adds a message to the reading.
func (r *reading) add(g readMessage, now time.Time) {
	r.messages = append(r.messages, g)
	if r.intersectPeople(g.people, now); g.taints {
		r.taint(g.source, now)
	}
}

// newReading returns a reading with the messages that a holder has read so far.
func newReading(of *holderRecord, now time.Time) *reading {
	r := &reading{of: of, before: of.reading}
	lasting := of.reading.InForce(&of.policy, now)
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

// intersectPeople removes those people from the reading who are not among the people of a message.
// The people of the first message become the people of the reading.
func (r *reading) intersectPeople(people []string, now time.Time) {
	if r.of.policy.TaintDuration() > 0 {
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

// taint records that the holder has read a text of a stranger.
func (r *reading) taint(w *Source, now time.Time) {
	if r.Taint == nil {
		r.Taint = &store.Taint{Since: now, MailboxID: w.MailboxID, ThreadID: w.ThreadID, Folder: w.Folder, UID: w.UID}
	}
	r.Taint.Last = now
	if r.Taint.MailboxID != w.MailboxID || r.Taint.ThreadID != w.ThreadID {
		r.Taint.ThreadID = ""
	}
}

// lastReadPrecision is by how much the stored time of the last reading may be wrong.
const lastReadPrecision = time.Second

// hasChanged reports whether the reading differs from the stored one, so that it must be written.
func (r *reading) hasChanged() bool {
	switch {
	case r.fresh:
		return false
	case r.before == nil, (r.before.Taint == nil) != (r.Taint == nil), !slices.Equal(r.before.People, r.People):
		return true
	case r.of.policy.TaintDuration() > 0 && r.Last.Sub(r.before.Last) >= lastReadPrecision:
		return true
	case r.Taint == nil:
		return false
	}
	return r.before.Taint.ThreadID != r.Taint.ThreadID || !r.before.Taint.Since.Equal(r.Taint.Since) ||
		r.of.policy.TaintDuration() > 0 && r.Taint.Last.Sub(r.before.Taint.Last) >= lastReadPrecision
}

// putReading stores a reading in the token or credential.
func (of *holderRecord) putReading(tx *store.Tx, r store.Reading) error {
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

// ClearReading deletes the reading of a holder, so that the holder is not tainted any more.
func (h Holder) ClearReading(tx *store.Tx) error {
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
	return Holder{TokenID: c.TokenID}.ClearReading(tx)
}

// RequireUntainted returns an error if the actor's token is tainted.
func (s *Service) RequireUntainted(who core.Actor) error {
	return s.Store.View(func(tx *store.Tx) error { return CheckUntainted(tx, HolderOf(who)) })
}

// ReadAny is like Read, for an answer that may contain texts of any message.
func (s *Service) ReadAny(who core.Actor) error {
	return s.Read(who.AccountID, HolderOf(who), &who.Policy, Source{})
}

// CheckDraft returns an error if a tainted holder writes a draft in a mailbox other than that of
// the message that has tainted it.
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
	if t := of.reading.TaintInForce(&of.policy, tx.Now()); t != nil {
		return core.OverSMTP(550, "5.7.1", TaintedError(t))
	}
	return nil
}
