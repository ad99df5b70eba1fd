package outbound

import (
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/recipients"
)

// unsubscribeFields returns fields that let the recipient unsubscribe (RFC 2369, RFC 8058), if the
// sending domain has that enabled. Mail within the domain, replies, automatic mail, and messages
// with unsubscribe fields of their own get none. The link requires that this host is reached over
// HTTPS (RFC 8058); the address is always offered.
func (s *Service) unsubscribeFields(m *delivery) []byte {
	d := m.domain
	if d == nil || !d.ListUnsub || !m.sub.Starts || m.sub.Sender == "" || core.DomainOfAddress(m.row.Recipient) == d.Name {
		return nil
	}
	way := ""
	if address := s.recipients.RowAddress(recipients.UnsubscribeAddress, m.row); address != "" {
		way = "<mailto:" + address + "?subject=unsubscribe>"
	}
	if !strings.HasPrefix(s.Config.BaseURL, "https://") {
		if way == "" {
			return nil
		}
		return fmt.Appendf(nil, "List-Unsubscribe: %s\r\n", way)
	}
	link := "<" + s.Config.BaseURL + recipients.UnsubscribePath + s.recipients.UnsubscribeToken(d, m.row.Recipient) + ">"
	if way != "" {
		link += ",\r\n " + way
	}
	return fmt.Appendf(nil, "List-Unsubscribe: %s\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n", link)
}
