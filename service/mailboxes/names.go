package mailboxes

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// GenerateNamesIn is the body of generate_names; all of it may be absent.
type GenerateNamesIn struct {
	Count     *int      `json:"count" min:"1" max:"100"`
	Domain    string    `json:"domain" alias:"domain_id" max:"253"`
	FirstName string    `json:"first_name" max:"100"`
	LastName  string    `json:"last_name" max:"100"`
	Locale    string    `json:"locale" max:"35"`
	Styles    *[]string `json:"styles" min:"1" max:"6" enum:"first|first.last|firstlast|f.last|flast|first.l"`
	Exclude   []string  `json:"exclude" max:"10000"`
	Seed      *int64    `json:"seed"`
}

// A SuggestedName is a person who might be, and a username for them. Email is null without a
// domain; Available is null as well for a domain that is not the account's.
type SuggestedName struct {
	Name      string  `json:"name" words:"ours"`
	FirstName string  `json:"first_name" words:"ours"`
	LastName  string  `json:"last_name" words:"ours"`
	Username  string  `json:"username" words:"ours"`
	Email     *string `json:"email" words:"ours"`
	Available *bool   `json:"available"`
}

// A usernameStyle is a form that usernames are made in, of the first and last name in plain
// letters.
type usernameStyle struct {
	name string
	make func(first, last string) string
}

var usernameStyles = []usernameStyle{
	{"first", func(f, _ string) string { return f }},
	{"first.last", func(f, l string) string { return f + "." + l }},
	{"firstlast", func(f, l string) string { return f + l }},
	{"f.last", func(f, l string) string { return f[:1] + "." + l }},
	{"flast", func(f, l string) string { return f[:1] + l }},
	{"first.l", func(f, l string) string { return f + "." + l[:1] }},
}

// GenerateNames makes up people and usernames for them, no username twice. The same request with
// the same seed has the same answer, but for what is available. There are fewer than asked for only
// if exclude leaves no more.
func (s *Service) GenerateNames(_ context.Context, who core.Actor, in GenerateNamesIn) (*core.List[SuggestedName], error) {
	n, err := newNamer(in)
	if err != nil {
		return nil, err
	}
	domain := in.Domain
	if domain != "" {
		if domain, err = s.nameOfDomain(who, domain); err != nil {
			return nil, err
		}
	}
	count := 10
	if in.Count != nil {
		count = *in.Count
	}
	out := n.take(count)
	if domain == "" {
		return core.ListOf(out), nil
	}
	return core.ListOf(out), s.addEmails(who, out, domain)
}

// nameOfDomain takes a name or the id of one of the account's domains.
func (s *Service) nameOfDomain(who core.Actor, nameOrID string) (name string, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		d, err := core.FindDomain(tx, who, nameOrID)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err == nil {
			name = d.Name
		}
		return err
	})
	if err != nil || name != "" {
		return name, err
	}
	if name, err = msg.NormalizeDomain(nameOrID); err != nil {
		return "", core.Errorf("invalid_domain", "%.80q is not a domain name: %s", nameOrID, err).With("domain", "invalid_domain", "is not a domain name")
	}
	return name, nil
}

// addEmails fills in the addresses, and on a domain of the account whether they are free.
func (s *Service) addEmails(who core.Actor, names []SuggestedName, domain string) error {
	return s.Store.View(func(tx *store.Tx) error {
		d, err := core.FindDomain(tx, who, domain)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		ours := err == nil && d.Status != "deleting"
		for i := range names {
			email := names[i].Username + "@" + domain
			names[i].Email = &email
			if !ours {
				continue
			}
			_, err := store.MailboxByEmail.Of(tx, who.AccountID, email)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			free := err != nil
			names[i].Available = &free
		}
		return nil
	})
}

// A namer draws people and usernames. What it draws depends on its request and seed alone.
type namer struct {
	rand   *rand.Rand
	first  []namePart
	last   []namePart
	styles []usernameStyle
	fold   *strings.Replacer // what the locale writes differently in plain letters
	taken  map[string]bool
	own    string // the caller's own names, folded: what is in them is not ours to judge
}

// A namePart is a first or a last name, and how usernames have it.
type namePart struct{ name, plain string }

func newNamer(in GenerateNamesIn) (*namer, error) {
	seed := rand.Uint64()
	if in.Seed != nil {
		seed = uint64(*in.Seed)
	}
	n := &namer{rand: rand.New(rand.NewPCG(seed, 0)), taken: map[string]bool{}}
	for _, name := range in.Exclude {
		n.taken[strings.ToLower(name)] = true
	}
	for _, name := range reservedNames {
		n.taken[name] = true
	}
	if err := n.useLocale(in.Locale); err != nil {
		return nil, err
	}
	if err := n.useStyles(in.Styles); err != nil {
		return nil, err
	}
	if err := n.useName(&n.first, "first_name", in.FirstName); err != nil {
		return nil, err
	}
	return n, n.useName(&n.last, "last_name", in.LastName)
}

// useLocale takes a language, with or without a country behind it; "" is English.
func (n *namer) useLocale(locale string) error {
	language, _, _ := strings.Cut(strings.ReplaceAll(strings.ToLower(locale), "_", "-"), "-")
	if language == "" {
		language = "en"
	}
	l, ok := nameLists[language]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(nameLists)), ", ")
		return core.Invalid("locale", "not_allowed", "must be one of %s", known)
	}
	n.fold = strings.NewReplacer(l.fold...)
	n.first, n.last = n.parts(l.first), n.parts(l.last)
	return nil
}

// parts takes a list apart.
func (n *namer) parts(names string) (out []namePart) {
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		out = append(out, namePart{name, n.plain(name)})
	}
	return out
}

func (n *namer) useStyles(names *[]string) error {
	for _, s := range usernameStyles {
		if names == nil || slices.Contains(*names, s.name) {
			n.styles = append(n.styles, s)
		}
	}
	if names == nil {
		return nil
	}
	for _, name := range *names {
		if !slices.ContainsFunc(usernameStyles, func(s usernameStyle) bool { return s.name == name }) {
			return core.Invalid("styles", "not_allowed", "%.40q is no style", name)
		}
	}
	return nil
}

// useName puts the name that was asked for in the place of the list.
func (n *namer) useName(list *[]namePart, field, name string) error {
	name = strings.TrimSpace(name)
	if name == "" {
		return nil
	}
	if err := core.CheckLine(field, name); err != nil {
		return err
	}
	plain := n.plain(name)
	if plain == "" {
		return core.Invalid(field, "invalid", "has no letter that can be written as one of a to z")
	}
	*list = []namePart{{name, plain}}
	n.own += " " + plain
	return nil
}

// Tries for one name: in the last ones the usernames get a number, first a short one.
const (
	nameTries   = 200
	plainTries  = 40
	shortTries  = 120
	usernameMax = 64
)

// take draws up to count names.
func (n *namer) take(count int) []SuggestedName {
	var out []SuggestedName
	for len(out) < count {
		name, ok := n.draw()
		if !ok {
			break
		}
		n.taken[name.Username] = true
		out = append(out, name)
	}
	return out
}

func (n *namer) draw() (SuggestedName, bool) {
	for try := range nameTries {
		first, last := n.first[n.rand.IntN(len(n.first))], n.last[n.rand.IntN(len(n.last))]
		username := n.styles[n.rand.IntN(len(n.styles))].make(first.plain, last.plain)
		number := ""
		switch {
		case try >= shortTries:
			number = strconv.Itoa(100 + n.rand.IntN(1_000_000))
		case try >= plainTries:
			number = strconv.Itoa(2 + n.rand.IntN(98))
		}
		username = strings.TrimRight(username[:min(len(username), usernameMax-len(number))], ".") + number
		if !n.taken[username] && !n.rude(username) {
			return SuggestedName{Name: first.name + " " + last.name, FirstName: first.name, LastName: last.name, Username: username}, true
		}
	}
	return SuggestedName{}, false
}

// plain writes a name in the letters and digits that usernames may have.
func (n *namer) plain(name string) string {
	var out strings.Builder
	for _, r := range norm.NFD.String(n.fold.Replace(strings.ToLower(norm.NFC.String(name)))) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			out.WriteRune(r)
		} else if text, ok := plainLetters[r]; ok {
			out.WriteString(text)
		}
	}
	return out.String()
}

// rude tells whether a name and a style came together badly. A word that is in the caller's own
// name is not counted.
func (n *namer) rude(username string) bool {
	joined := strings.ReplaceAll(username, ".", "")
	return slices.ContainsFunc(rudeWords, func(w string) bool { return strings.Contains(joined, w) && !strings.Contains(n.own, w) })
}
