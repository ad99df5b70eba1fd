package mta

import (
	"context"
	"crypto/hmac"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// unsubscribePath is where the links lead.
const unsubscribePath = "/unsubscribe/"

// unsubscribeFields offer a recipient a way out (RFC 2369, RFC 8058), where the sending domain asks
// for that: in what it sends to others, but for answers in a conversation, what machines wrote, and
// messages that have a way out of their own. The link is offered only where this host is reached
// over HTTPS, as RFC 8058 demands; the address always.
func (s *Service) unsubscribeFields(m *mailing) []byte {
	d := m.domain
	if d == nil || !d.ListUnsub || !m.sub.Starts || m.sub.Sender == "" || core.DomainOfAddress(m.row.Recipient) == d.Name {
		return nil
	}
	way := ""
	if address := s.rowAddress(unsubscribeAddress, m.row); address != "" {
		way = "<mailto:" + address + "?subject=unsubscribe>"
	}
	if !strings.HasPrefix(s.Config.BaseURL, "https://") {
		if way == "" {
			return nil
		}
		return fmt.Appendf(nil, "List-Unsubscribe: %s\r\n", way)
	}
	link := "<" + s.Config.BaseURL + unsubscribePath + s.unsubscribeToken(d, m.row.Recipient) + ">"
	if way != "" {
		link += ",\r\n " + way
	}
	return fmt.Appendf(nil, "List-Unsubscribe: %s\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n", link)
}

// unsubscribeToken names a recipient and a domain that writes to it. It holds for as long as the
// domain is the account's, since people leave when they will.
func (s *Service) unsubscribeToken(d *store.Domain, recipient string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(d.Name + "\n" + recipient))
	return text + "." + base64.RawURLEncoding.EncodeToString(s.unsubscribeMAC(d, recipient))
}

func (s *Service) unsubscribeMAC(d *store.Domain, recipient string) []byte {
	return s.Keys.Mac("unsubscribe", d.AccountID, d.Name, recipient)[:16]
}

// An Unsubscription is what a link says: who wants no more mail from whom.
type Unsubscription struct {
	Email  string
	Domain string
}

// CheckUnsubscribe reads the token of a link. A wrong one is a 404.
func (s *Service) CheckUnsubscribe(_ context.Context, token string) (*Unsubscription, error) {
	var out *Unsubscription
	err := s.Store.View(func(tx *store.Tx) error {
		_, u, err := s.readUnsubscribe(tx, token)
		out = u
		return err
	})
	return out, err
}

func (s *Service) readUnsubscribe(tx *store.Tx, token string) (*store.Domain, *Unsubscription, error) {
	wrong := core.Errorf("not_found", "This link is not one of ours, or its sender is gone. Nothing is left to do.")
	text, mac, _ := strings.Cut(token, ".")
	names, err := base64.RawURLEncoding.DecodeString(text)
	domain, recipient, ok := strings.Cut(string(names), "\n")
	if err != nil || !ok || len(token) > 1024 {
		return nil, nil, wrong
	}
	d, err := store.DomainByName.Get(tx, domain)
	if core.IsGone(err) {
		return nil, nil, wrong
	}
	if err != nil {
		return nil, nil, err
	}
	got, err := base64.RawURLEncoding.DecodeString(mac)
	if err != nil || !hmac.Equal(got, s.unsubscribeMAC(d, recipient)) {
		return nil, nil, wrong
	}
	if _, err := msg.NormalizeEmail(recipient); err != nil {
		return nil, nil, wrong
	}
	return d, &Unsubscription{recipient, domain}, nil
}

// Unsubscribe keeps the account of a link's domain from writing to its recipient again. Again it
// changes nothing.
func (s *Service) Unsubscribe(_ context.Context, token string) (*Unsubscription, error) {
	var out *Unsubscription
	err := s.Store.Update(func(tx *store.Tx) error {
		d, u, err := s.readUnsubscribe(tx, token)
		if err != nil {
			return err
		}
		out = u
		return suppress(tx, d.AccountID, u.Email, "manual", "")
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
