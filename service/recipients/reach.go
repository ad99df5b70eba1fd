package recipients

import (
	"errors"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/store"
)

// SendsOnTo returns where mail to an address, a group or a mailbox here is sent on to: addresses,
// and ids of groups and mailboxes. rulesRead is the number of rules that were read.
func (s *Service) SendsOnTo(tx *store.Tx, to string) (targets []string, rulesRead int, err error) {
	var mb *store.Mailbox
	var g *store.Group
	switch {
	case strings.Contains(to, "@"):
		d, err := s.Find(tx, to)
		if refused := new(core.SMTPError); errors.Is(err, ErrNotHosted) || errors.As(err, &refused) {
			return nil, 0, nil
		}
		if err != nil {
			return nil, 0, err
		}
		mb, g = d.Mailbox, d.Group
		if d.Forward != "" {
			targets = append(targets, d.Forward)
		}
	case strings.HasPrefix(to, "grp_"):
		g, err = store.Groups.FindShared(tx, to)
		if err != nil {
			return nil, 0, err
		}
	default:
		mb, err = core.LiveMailbox(tx, to)
		if err != nil {
			return nil, 0, err
		}
	}
	if g != nil {
		for _, m := range store.MembersOfGroup.Asc(tx, g.ID, "") {
			targets = append(targets, m.MailboxID+m.MemberID+m.Email) // exactly one of the three is set
		}
	}
	if mb == nil {
		return targets, 0, nil
	}
	if mb.ForwardTo != "" {
		targets = append(targets, mb.ForwardTo)
	}
	for _, r := range store.DescSome(tx, store.RulesByMailbox, mb.ID, "", page.HasTexts("forward")) {
		if rulesRead++; r == nil {
			continue
		}
		for _, a := range r.Actions {
			if r.Enabled && a.Type == "forward" {
				targets = append(targets, a.Value)
			}
		}
	}
	return targets, rulesRead, nil
}
