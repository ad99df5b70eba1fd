package inbox

import (
	"context"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/store"
)

// maxSuggestScan is how many of the newest messages in the Sent folder are searched for addresses.
const maxSuggestScan = 1000

// SuggestAddressesIn is the query of suggest_addresses.
type SuggestAddressesIn struct {
	UserID string `path:"user_id"`
	Q      string `query:"q" max:"200"`        // The beginning of the address, or of a word of the name.
	Limit  *int   `query:"limit" example:"10"` // Maximum rows: 10 by default, at most 50.
}

// A Correspondent is a person to whom the mailbox has written.
type Correspondent struct {
	Email      string    `json:"email" words:"theirs"`
	Name       *string   `json:"name" words:"theirs"`
	LastUsedAt core.Time `json:"last_used_at"`
}

// SuggestAddresses returns people to whom the mailbox has written, the most recent first.
func (s *Service) SuggestAddresses(_ context.Context, who core.Actor, in SuggestAddressesIn) (*core.List[Correspondent], error) {
	limit, err := page.Query{Limit: in.Limit}.PageSize(10, 50)
	if err != nil {
		return nil, err
	}
	var out []Correspondent
	err = s.Store.View(func(tx *store.Tx) error {
		out = nil
		mb, err := core.ReadMailbox(tx, who, in.UserID)
		if err != nil {
			return err
		}
		sent, err := findFolder(tx, mb, roleSent)
		if core.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		w := s.newMessageView(tx)
		defer s.freeMessageView(w)
		seen, looked := map[string]bool{}, 0
		for at := range tx.Inbox(store.InboxQuery{Account: mb.AccountNum, Folders: []uint32{sent.Num}}) {
			if looked++; looked > maxSuggestScan || len(out) == limit {
				return nil
			}
			m, ok, err := w.message(at)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			for _, text := range slices.Concat(m.To, m.CC, m.BCC) {
				a, err := msg.ParseAddress(text)
				key := strings.ToLower(a.Email())
				if err != nil || seen[key] || len(out) == limit {
					continue
				}
				seen[key] = true
				if hasWordPrefix(key, a.Name, strings.ToLower(strings.TrimSpace(in.Q))) {
					out = append(out, Correspondent{a.Email(), core.OrNull(msg.ShownName(a.Name)), m.ReceivedAt})
				}
			}
		}
		return nil
	})
	return core.ListOf(out), err
}

// hasWordPrefix reports whether the address, or a word of the name, begins with text. text must be
// in lower case.
func hasWordPrefix(email, name, text string) bool {
	if strings.HasPrefix(email, text) {
		return true
	}
	name = strings.ToLower(name)
	for i := range name {
		before, _ := utf8.DecodeLastRuneInString(name[:i])
		if (i == 0 || unicode.IsSpace(before) || unicode.IsPunct(before)) && strings.HasPrefix(name[i:], text) {
			return true
		}
	}
	return false
}
