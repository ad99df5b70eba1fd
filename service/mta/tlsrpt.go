package mta

import (
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// reporter is the domain whose postmaster reports to others, and whose account sends them: the
// domain of the host's own name, if that is hosted here, else the oldest one of the first account,
// since reports have to be signed by the domain that they come from (RFC 7489 section 7.2.1, RFC
// 8460 section 3). Where there is none it is the bare name of the host.
func (s *Service) Reporter() (from *store.Domain, account string, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		for name := s.Config.Hostname; name != ""; _, name, _ = strings.Cut(name, ".") {
			d, err := store.DomainByName.Get(tx, name)
			if err == nil && core.TakesMail(d) && len(d.DKIM) > 0 {
				from, account = d, d.AccountID
				return nil
			}
			if err != nil && !core.IsGone(err) {
				return err
			}
		}
		from = &store.Domain{Name: s.Config.Hostname}
		a, err := core.FindAccount(tx, "")
		if err != nil {
			return err
		}
		account = a.ID
		for _, d := range store.DomainsByAccount.Asc(tx, a.ID, "") {
			if core.TakesMail(d) && len(d.DKIM) > 0 {
				from = d
				break
			}
		}
		return nil
	})
	return from, account, err
}
