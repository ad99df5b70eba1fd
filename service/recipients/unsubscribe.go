package recipients

import (
	"crypto/hmac"
	"encoding/base64"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// UnsubscribePath is the path of unsubscribe links.
const UnsubscribePath = "/unsubscribe/"

// UnsubscribeToken returns a token that names a recipient and a domain that writes to it. The token
// is valid as long as the domain belongs to the account, since people may unsubscribe at any time.
func (s *Service) UnsubscribeToken(d *store.Domain, recipient string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(d.Name + "\n" + recipient))
	return text + "." + base64.RawURLEncoding.EncodeToString(s.Keys.Mac("unsubscribe", d.AccountID, d.Name, recipient)[:unsubscribeMAC])
}

const unsubscribeMAC = 16 // bytes of the HMAC in a link

// An Unsubscription is the content of a link: who wants no more mail from which domain.
type Unsubscription struct {
	Email  string
	Domain string
}

// ReadUnsubscribe reads a token that UnsubscribeToken made, under the current or an earlier master
// key. The error for any other text is not_found.
func (s *Service) ReadUnsubscribe(tx *store.Tx, token string) (*store.Domain, *Unsubscription, error) {
	wrong := core.Errorf("not_found", "This link is not valid, or its sender no longer exists. There is nothing to do.")
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
	same := func(mac []byte) bool { return hmac.Equal(got, mac[:unsubscribeMAC]) }
	if err != nil || !s.Keys.MatchesMac(same, "unsubscribe", d.AccountID, d.Name, recipient) {
		return nil, nil, wrong
	}
	if _, err := msg.NormalizeEmail(recipient); err != nil {
		return nil, nil, wrong
	}
	return d, &Unsubscription{recipient, domain}, nil
}
