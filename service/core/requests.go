package core

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

// RateKey names the budget that the actor's requests count against.
func (a Actor) RateKey() string {
	if a.TokenKind == SessionKind {
		return a.AccountID + " session"
	}
	return a.AccountID
}

// An Actor is who asks: a token, or the installation itself.
type Actor struct {
	AccountID   string
	AccountNum  uint32
	UserID      string
	Email       string
	Role        string   // owner admin member mailbox
	MailboxID   string   // whose person the actor is, who sees that mailbox alone; "": a team user
	Limited     bool     // a member, or a token, who sees some mailboxes alone: Mailboxes
	Mailboxes   []string // ids; shared, not to be changed
	TokenOf     bool     // the token is limited to mailboxes: it may do what the person of a mailbox may
	Bound       bool     // the token may change nobody's access, and nothing that happens by itself
	OwnWords    bool     // what the token sends counts as the account's own words
	Policy      store.Policy
	TokenID     string
	TokenName   string
	TokenKind   string // api mcp session
	Given       bool   // the session was begun with a password that its user has not chosen
	Permissions []string
	Plan        string
	IP          string
	Rate        RateUsage // of the request that asks
	Request     *Request  // for the audit log; nil: the server asks itself
}

// IsPerson tells whether the actor is somebody who is signed in to the dashboard, with a password
// that nobody else has set, and not a program or the operator.
func (a Actor) IsPerson() bool {
	return a.TokenKind == SessionKind && a.TokenID != LocalToken && !a.Given
}

// Manages tells whether the actor is an owner or admin of the account, or a program of one.
func (a Actor) Manages() bool { return ManagesAs(a.Role) }

// ManagesAs tells whether a role is one of those who manage an account.
func ManagesAs(role string) bool {
	return role == store.UserRoleOwner || role == store.UserRoleAdmin
}

// SpeaksForAccount tells whether what the actor writes counts as the account's own words.
func (a Actor) SpeaksForAccount() bool { return a.IsPerson() || a.OwnWords }

// SeesAll tells whether the actor may know of every mailbox of its account.
func (a Actor) SeesAll() bool { return a.MailboxID == "" && !a.Limited }

// Sees tells whether the actor may know of a mailbox of its account.
func (a Actor) Sees(mailboxID string) bool {
	if a.MailboxID != "" {
		return a.MailboxID == mailboxID
	}
	return !a.Limited || slices.Contains(a.Mailboxes, mailboxID)
}

// Scopes in rising order; each holds the ones before it.
var Scopes = []string{"read", "write", "purchase", "admin"}

// Can tells whether the actor's token holds the scope.
func (a Actor) Can(scope string) bool {
	need := slices.Index(Scopes, scope)
	for _, p := range a.Permissions {
		if slices.Index(Scopes, p) >= need {
			return true
		}
	}
	return false
}

// What mail clients log in for.
const (
	ProtocolIMAP = store.ProtocolIMAP
	ProtocolSMTP = store.ProtocolSMTP
)

// A MailLogin is what a mail client logs in with.
type MailLogin struct {
	Protocol string // ProtocolIMAP or ProtocolSMTP
	Username string // an address, or the id of a domain's credential
	Password string
	Bearer   bool // it is a credential's password, in the place of a token (RFC 7628)
	IP       string
}

// A MailboxUser is who has logged in to a mailbox by IMAP or submission, or to submission for a
// domain, without a mailbox.
type MailboxUser struct {
	AccountID    string
	AccountNum   uint32
	MailboxID    string // "": for a domain
	Mailbox      uint32
	DomainID     string // "": for a mailbox
	Email        string // or the credential's id
	IP           string
	CredentialID string    // "": without one
	Own          bool      // with the mailbox's own password
	PasswordAt   time.Time // when that was set
	Expires      time.Time // of the credential; zero: never
	OwnWords     bool      // of a domain's credential: what it sends counts as the account's own words
	Policy       store.Policy
}

// An Opt is a body field that may be absent, null or given.
type Opt[T any] struct {
	Set   bool // it was in the body
	Null  bool // it was null
	Value T
}

// UnmarshalJSON takes null and values of T.
func (o *Opt[T]) UnmarshalJSON(data []byte) error {
	o.Set = true
	if string(data) == "null" {
		o.Null = true
		return nil
	}
	return json.Unmarshal(data, &o.Value)
}

// OptOf says T, for tools that describe the body.
func (Opt[T]) OptOf() any { return *new(T) }

// OrNil is the value, nil for null.
func (o Opt[T]) OrNil() *T {
	if o.Null {
		return nil
	}
	return &o.Value
}

// A Time is RFC 3339 in UTC with milliseconds on the wire; null when zero.
type Time struct{ time.Time }

// MarshalJSON writes it.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return t.UTC().AppendFormat(make([]byte, 0, 32), `"2006-01-02T15:04:05.000Z"`), nil // some more while it writes the fraction
}

// UnmarshalJSON reads any RFC 3339 time, and null.
func (t *Time) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		t.Time = time.Time{}
		return nil
	}
	return t.Time.UnmarshalJSON(data)
}

// UnmarshalText reads what a query gives: an RFC 3339 time or a date.
func (t *Time) UnmarshalText(text []byte) error {
	if day, err := time.Parse(time.DateOnly, string(text)); err == nil {
		t.Time = day
		return nil
	}
	return t.Time.UnmarshalText(text)
}

// OrNull is for texts that are null on the wire when there is none.
func OrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// NormalizeEmail gives the one form under which an address is kept, or an Invalid that names the
// field.
func NormalizeEmail(field, text string) (string, error) {
	email, err := msg.NormalizeEmail(text)
	if err != nil {
		return "", Invalid(field, "invalid", "%s", err)
	}
	return email, nil
}

// UIDText is an IMAP UID as the API shows it.
func UIDText(uid uint32) string { return strconv.FormatUint(uint64(uid), 10) }

// UnicodeName is a domain in its own letters.
func UnicodeName(ascii string) string {
	_, name, err := idn.Registrable(ascii)
	if err != nil {
		return ascii
	}
	return name
}

// Bracketed gives a Message-ID with its angle brackets, whether it came with or without.
func Bracketed(id string) string {
	return "<" + strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(id), "<"), ">") + ">"
}

// ValidMessageID tells whether text is a Message-ID (RFC 5322 section 3.6.4) that no header or log
// can misread.
func ValidMessageID(text string) bool {
	id := strings.TrimSuffix(strings.TrimPrefix(text, "<"), ">")
	left, right, ok := strings.Cut(id, "@")
	if !ok || left == "" || right == "" || len(id) > 250 {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`<>(),;:"\`, r) })
}

func CheckLine(field, name string) error {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return Invalid(field, "invalid", "must not contain control characters")
	}
	return nil
}

// PageIn is what every long list takes.
type PageIn struct {
	Limit  *int   `query:"limit" example:"25"` // Maximum rows: 25 by default, at most 100.
	Cursor string `query:"cursor"`             // Opaque: where the next page begins.
}

// A Page is one page of a long list.
type Page[T any] struct {
	Data       []T        `json:"data"`
	Pagination Pagination `json:"pagination"`
}

// Pagination says where the next page is; Cursor is null on the last one.
type Pagination struct {
	Cursor  *string `json:"cursor" words:"ours"` // Opaque: where the next page begins.
	HasMore bool    `json:"has_more"`
	Count   int     `json:"count"`              // How many rows are in `data`.
	Limit   int     `json:"limit" example:"25"` // The maximum number of rows on a page.
}

// limit applies the default and the maximum.
func (p PageIn) PageLimit(byDefault, most int) (int, error) {
	if p.Limit == nil {
		return byDefault, nil
	}
	if *p.Limit < 1 {
		return 0, Invalid("limit", "out_of_range", "must be a whole number from 1 to %d", most)
	}
	return min(*p.Limit, most), nil
}

const cursorMAC = 12 // bytes of the HMAC that a cursor carries

// seal turns a position into a cursor that only the same account, operation and filters accept.
func (s *Core) SealCursor(who Actor, operation, position string, filters ...string) string {
	mac := s.Keys.Mac("cursor", cursorScope(who, operation, filters), position)
	return base64.RawURLEncoding.EncodeToString(append(mac[:cursorMAC], position...))
}

// OpenCursor undoes sealCursor; "" stays "".
func (s *Core) OpenCursor(who Actor, operation, cursor string, filters ...string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	bad := Errorf("invalid_cursor", "The cursor does not belong to this list with these filters. Leave it out to start again.")
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) < cursorMAC {
		return "", bad
	}
	position := string(raw[cursorMAC:])
	same := func(mac []byte) bool { return hmac.Equal(mac[:cursorMAC], raw[:cursorMAC]) }
	if !s.Keys.MadeMac(same, "cursor", cursorScope(who, operation, filters), position) {
		return "", bad
	}
	return position, nil
}

func cursorScope(who Actor, operation string, filters []string) string {
	return who.AccountID + "\x00" + operation + "\x00" + strings.Join(filters, "\x00")
}

// pageBytes is about how much a page of a list has: past it a page ends, whatever its limit, and
// its cursor goes on.
const pageBytes = 4 << 20

// A PageBuilder gathers one page: it takes rows until the page is full and one more has shown that
// there is a next page. A page has pageBytes, or one row.
type PageBuilder[T any] struct {
	Data  []T
	Limit int
	Last  string
	More  bool
	bytes int
}

// Add takes a row of about so many bytes, and the position after it; false ends the walk.
func (c *PageBuilder[T]) Add(position string, row T, size int) bool {
	if len(c.Data) == c.Limit || len(c.Data) > 0 && c.bytes+size > pageBytes {
		c.More = true
		return false
	}
	c.bytes += size
	if len(c.Data) == cap(c.Data) { // rows are large, and pages mostly full or nearly empty
		c.Data = slices.Grow(c.Data, min(max(1, len(c.Data)*16), c.Limit-len(c.Data)))
	}
	c.Data = append(c.Data, row)
	c.Last = position
	return true
}

func (c *PageBuilder[T]) Page(seal func(position string) string) *Page[T] {
	p := &Page[T]{Data: c.Data, Pagination: Pagination{HasMore: c.More, Count: len(c.Data), Limit: c.Limit}}
	if p.Data == nil {
		p.Data = []T{}
	}
	if c.More {
		cursor := seal(c.Last)
		p.Pagination.Cursor = &cursor
	}
	return p
}

// A list is a long list over one index, newest first: what every list operation but the inbox is.
type Listing[R, Out any] struct {
	Operation string
	Index     *store.Index[R]
	Prefix    string
	Filters   []string                         // what the cursor is bound to, besides account and operation
	Before    string                           // where the first page starts, see Index.Desc; "" is the end
	Prefilter func(row []byte) bool            // false only for rows whose records Keep leaves out, see HasTexts; nil asks Keep alone
	Keep      func(*R) bool                    // nil keeps every record
	Until     func(*R) bool                    // ends the walk; nil walks to the end
	Out       func(*store.Tx, *R) (Out, error) // the record on the wire
	Size      func(*Out) int                   // bytes of what is there beside the record; nil: nothing is
	First     func(*store.Tx) error            // checked before the walk, in the same snapshot; nil checks nothing
}

// Page answers one page of it.
func (l Listing[R, Out]) Page(s *Core, who Actor, in PageIn) (*Page[Out], error) {
	limit, err := in.PageLimit(25, 100)
	if err != nil {
		return nil, err
	}
	before, err := s.OpenCursor(who, l.Operation, in.Cursor, l.Filters...)
	if err != nil {
		return nil, err
	}
	if before == "" {
		before = l.Before
	}
	c := PageBuilder[Out]{Limit: limit}
	err = s.Store.View(func(tx *store.Tx) error {
		if l.First != nil {
			if err := l.First(tx); err != nil {
				return err
			}
		}
		return l.walk(tx, before, &c)
	})
	if err != nil {
		return nil, err
	}
	return c.Page(func(position string) string { return s.SealCursor(who, l.Operation, position, l.Filters...) }), nil
}

// listScan bounds the work of one request: a record that Prefilter leaves out counts 1, one that is
// decoded counts listDecode, which is about what it takes longer. A page that this cuts short says
// where to go on. Of those that Prefilter leaves out, each listLook-th is decoded all the same,
// since Until may end the walk there.
const (
	listScan   = 4000
	listDecode = 8
	listLook   = 100
)

func (l Listing[R, Out]) walk(tx *store.Tx, before string, c *PageBuilder[Out]) error {
	scanned, left, size := 0, 0, 0
	wanted := func(row []byte) bool {
		size = len(row)
		if l.Prefilter == nil || l.Prefilter(row) {
			return true
		}
		left++
		return l.Until != nil && left%listLook == 0
	}
	for key, rec := range store.DescSome(tx, l.Index, l.Prefix, before, wanted) {
		if rec != nil && l.Until != nil && l.Until(rec) {
			return nil
		}
		if scanned >= listScan {
			c.More = true
			return nil
		}
		if rec != nil {
			scanned += listDecode
		} else {
			scanned++
		}
		if rec == nil || l.Keep != nil && !l.Keep(rec) {
			if len(c.Data) < c.Limit {
				c.Last = key
			}
			continue
		}
		row, err := l.Out(tx, rec)
		if err != nil {
			return err
		}
		if l.Size != nil {
			size += l.Size(&row)
		}
		if !c.Add(key, row, size) {
			return nil
		}
	}
	return nil
}

// HasTexts makes a Prefilter: it is true for rows that have all of the texts. "" is in every row. A
// text with characters that JSON escapes is not looked for.
func HasTexts(texts ...string) func(row []byte) bool {
	var all [][]byte
	for _, text := range texts {
		if isPlain(text) {
			all = append(all, []byte(text))
		}
	}
	return func(row []byte) bool {
		for _, text := range all {
			if !bytes.Contains(row, text) {
				return false
			}
		}
		return true
	}
}

// HasFolded makes a Prefilter: it is true for rows that have the text in any case. What
// strings.EqualFold and strings.ToLower do not tell apart is the same.
func HasFolded(text string) func(row []byte) bool {
	want := []byte(strings.ToLower(text))
	if text == "" || !isPlain(string(want)) {
		return HasTexts()
	}
	// The letter that is the rarest in English leads to few places that have to be compared.
	rare := 0
	for n, b := range want {
		if rarity(b) > rarity(want[rare]) {
			rare = n
		}
	}
	small, capital := want[rare], foldASCII(want[rare], 'a', 'z')
	has := func(row []byte, b byte) bool {
		for from := rare; ; from++ {
			n := bytes.IndexByte(row[min(from, len(row)):], b)
			if n < 0 {
				return false
			}
			from += n
			if start := from - rare; start+len(want) <= len(row) && equalASCII(row[start:start+len(want)], want) {
				return true
			}
		}
	}
	return func(row []byte) bool {
		return has(row, small) || capital != small && has(row, capital) || hasFolding(row)
	}
}

// rarity orders characters by how seldom they are in names and addresses: the last is the rarest.
func rarity(b byte) int { return strings.IndexByte("e.ta@oin1shrdl2cum0-wf3gypbv45k9867jxqz", b) }

// equalASCII compares texts of the same length. want has no capitals.
func equalASCII(text, want []byte) bool {
	for n, b := range text {
		if foldASCII(b, 'A', 'Z') != want[n] {
			return false
		}
	}
	return true
}

// foldASCII changes the case of a letter of ASCII from first to last.
func foldASCII(b, first, last byte) byte {
	if first <= b && b <= last {
		return b ^ ('a' - 'A')
	}
	return b
}

// folding are the characters beyond ASCII that are a letter of ASCII in another case: the Kelvin
// sign, the long s and the I with a dot.
var folding = [][]byte{[]byte("\u212a"), []byte("\u017f"), []byte("\u0130")}

func hasFolding(row []byte) bool {
	return slices.ContainsFunc(folding, func(char []byte) bool { return bytes.Contains(row, char) })
}

// isPlain tells whether a row has the text as it is, whatever form the row is in.
func isPlain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`"\\<>&`, r) })
}

// List is a short list.
type List[T any] struct {
	Data  []T `json:"data"`
	Count int `json:"count"` // How many rows are in `data`.
}

func ListOf[T any](data []T) *List[T] {
	if data == nil {
		data = []T{}
	}
	return &List[T]{data, len(data)}
}

// ConfirmFor is how long a call can be confirmed.
const ConfirmFor = 10 * time.Minute

const (
	confirmNonce = 16 // random bytes of a confirmation
	confirmHead  = confirmNonce + 8
)

// confirmations keeps which ones were used, until they would have ended. Nothing else of them is
// kept: they are authenticated, with a key of this process alone, so that none outlives what is
// kept here.
type confirmations struct {
	key   [32]byte
	mu    sync.Mutex
	used  map[[confirmNonce]byte]time.Time // when it ends
	swept time.Time
}

func newConfirmations() *confirmations {
	c := &confirmations{used: map[[confirmNonce]byte]time.Time{}}
	rand.Read(c.key[:])
	return c
}

// use tells whether it is the first use. Those that have ended are forgotten once a minute.
func (c *confirmations) use(nonce [confirmNonce]byte, ends, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.swept) >= time.Minute {
		for n, end := range c.used {
			if !now.Before(end) {
				delete(c.used, n)
			}
		}
		c.swept = now
	}
	if _, again := c.used[nonce]; again {
		return false
	}
	c.used[nonce] = ends
	return true
}

// Confirmation makes the text that confirms one operation with these arguments, for this token
// alone, once, and until the time that it gives.
func (s *Core) Confirmation(who Actor, operation string, args []byte) (string, Time) {
	until := s.Now().Add(ConfirmFor).Truncate(time.Second)
	text := make([]byte, confirmNonce, confirmHead)
	rand.Read(text)
	text = binary.BigEndian.AppendUint64(text, uint64(until.Unix()))
	text = append(text, s.confirmationMAC(who, operation, args, text)...)
	return base64.RawURLEncoding.EncodeToString(text), Time{until}
}

// Confirmed tells whether the text confirms the operation, and uses it up: a 400 says what is wrong
// with it.
func (s *Core) Confirmed(who Actor, operation string, args []byte, text string) error {
	const again = ". Call without it to get a new one"
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) < confirmHead || !hmac.Equal(raw[confirmHead:], s.confirmationMAC(who, operation, args, raw[:confirmHead])) {
		return Invalid("confirmation_token", "invalid", "does not match these arguments and this API token"+again)
	}
	ends := time.Unix(int64(binary.BigEndian.Uint64(raw[confirmNonce:confirmHead])), 0)
	if !s.Now().Before(ends) {
		return Invalid("confirmation_token", "expired", "is older than ten minutes"+again)
	}
	if !s.confirmations.use([confirmNonce]byte(raw), ends, s.Now()) {
		return Invalid("confirmation_token", "used", "was used already"+again)
	}
	return nil
}

func (s *Core) confirmationMAC(who Actor, operation string, args, head []byte) []byte {
	return s.Keys.Mac("confirm", string(s.confirmations.key[:]), who.AccountID, who.TokenID, operation, string(args), string(head))
}

// ReplayFor is how long the answer to a request with an Idempotency-Key is kept.
const ReplayFor = 24 * time.Hour

// MaxReplayed is the most bytes of an answer that is kept. Of a larger one is kept that there was
// one, so that the request is not carried out again.
const MaxReplayed = 256 << 10

// Replayed is a kept answer.
type Replayed struct {
	Status                int
	ContentType, Location string
	Body                  []byte
	Omitted               bool // the body is too large to be kept
}

// WriteTo sets the answer's headers.
func (r *Replayed) WriteTo(h http.Header) {
	h.Set("Content-Type", r.ContentType)
	if r.Location != "" {
		h.Set("Location", r.Location)
	}
}

// ReplayID names a request by token, method, path and key.
func ReplayID(who Actor, method, path, key string) string {
	return TextHash(strings.Join([]string{who.TokenID, method, path, key}, "\x00"))
}

// A Once is a request with an Idempotency-Key, which is to be done once however often it comes,
// over a crash too.
type Once struct {
	ID string // see ReplayID
	// Answer gives the answer that the client gets when the operation answers out.
	Answer func(out any) (Replayed, error)

	bodyHash string
	kept     atomic.Bool
}

// NewOnce makes a Once for a request with this body.
func NewOnce(id string, body []byte, answer func(out any) (Replayed, error)) *Once {
	sum := sha256.Sum256(body)
	return &Once{ID: id, Answer: answer, bodyHash: hex.EncodeToString(sum[:])}
}

type onceKey struct{}

// Context gives a context with which an operation knows of the Once.
func (o *Once) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, onceKey{}, o)
}

// Replay gives the kept answer to a request, nil if there is none. Another body under the same key
// is an error, and so is an answer that was too large to be kept.
func (s *Core) Replay(o *Once) (*Replayed, error) {
	var rec *store.Idempotency
	err := s.Store.View(func(tx *store.Tx) (err error) {
		rec, err = store.Idempotencies.Find(tx, o.ID)
		return err
	})
	if rec == nil || err != nil || s.Now().Sub(rec.CreatedAt) >= ReplayFor {
		return nil, err
	}
	if rec.BodyHash != o.bodyHash {
		return nil, Errorf("idempotency_key_reused", "This Idempotency-Key was used with another body. Use a new key for a new request.")
	}
	if rec.Omitted {
		return nil, Errorf("answer_not_kept", "The first request with this Idempotency-Key was carried out (status %d), and is not carried out again. Its answer had more than %d KiB, and was not kept: list or get what it was about, or use a new key to ask again.", rec.Status, MaxReplayed>>10)
	}
	plain, err := s.Keys.Open(store.ReplayPlace(o.ID), rec.Sealed)
	if err != nil {
		return nil, err
	}
	return &Replayed{Status: rec.Status, ContentType: rec.ContentType, Location: rec.Location, Body: plain}, nil
}

// KeepReplay keeps the answer, unless the operation has done that itself.
func (s *Core) KeepReplay(o *Once, r Replayed) error {
	if o.kept.Load() {
		return nil
	}
	return s.Store.Update(func(tx *store.Tx) error { return s.putReplay(tx, o, r) })
}

// KeepAnswer keeps an operation's answer for the Idempotency-Key of its request, if that has one,
// in the transaction that does what was asked for. Kept afterwards, it would be lost with a crash
// in between, and the operation be done again.
func (s *Core) KeepAnswer(ctx context.Context, tx *store.Tx, out any) error {
	o, _ := ctx.Value(onceKey{}).(*Once)
	if o == nil {
		return nil
	}
	r, err := o.Answer(out)
	if err != nil {
		return err
	}
	tx.After(func() { o.kept.Store(true) })
	return s.putReplay(tx, o, r)
}

// putReplay writes an answer, sealed, since it may hold a secret.
func (s *Core) putReplay(tx *store.Tx, o *Once, r Replayed) error {
	kept := &store.Idempotency{ID: o.ID, BodyHash: o.bodyHash, Status: r.Status, ContentType: r.ContentType, Location: r.Location, CreatedAt: tx.Now()}
	kept.Omitted = r.Omitted || len(r.Body) > MaxReplayed
	if !kept.Omitted {
		kept.Sealed = s.Keys.Seal(store.ReplayPlace(o.ID), r.Body)
	}
	return store.Idempotencies.Put(tx, kept)
}

// MediaRanges are those that a header Accept names, in lower case, without those that it rules out
// by q=0 (RFC 9110 section 12.5.1).
func MediaRanges(header ...string) (ranges []string) {
	for part := range strings.SplitSeq(strings.Join(header, ","), ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
			continue
		}
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil && q == 0 {
			continue
		}
		ranges = append(ranges, media)
	}
	return ranges
}

// MaxSchedule is how far ahead a message can be scheduled.
const MaxSchedule = 30 * 24 * time.Hour

// SendAt checks the time that a message is to be sent at; nil is at once.
func SendAt(now time.Time, at *Time) (time.Time, error) {
	switch {
	case at == nil || at.IsZero():
		return time.Time{}, nil
	case !at.After(now):
		return time.Time{}, Invalid("send_at", "invalid", "must be later than now, which is %s", now.UTC().Format(time.RFC3339))
	case at.After(now.Add(MaxSchedule)):
		return time.Time{}, Invalid("send_at", "invalid", "must be within 30 days")
	}
	return at.UTC().Truncate(time.Millisecond), nil
}
