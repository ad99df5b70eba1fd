package main

import (
	"fmt"
	"log/slog"

	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/store"
)

// registrars are those of the settings, the real ones first.
func registrars(s registrarSettings, st *store.Store, log *slog.Logger) ([]registrar.Registrar, error) {
	if s.Sandbox == nil {
		return nil, nil
	}
	log.Warn("the registrar sandbox is on: it sells pretend names, which nobody else knows")
	var sold []registrar.Registration
	err := st.View(func(tx *store.Tx) error {
		for d := range store.PretendDomains.All(tx) {
			sold = append(sold, registrar.Registration{
				Domain: d.Name, Key: d.Key, Price: d.Price, AutoRenew: d.AutoRenew, Nameservers: d.Nameservers,
				RegisteredAt: d.RegisteredAt, ExpiresAt: d.ExpiresAt,
			})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the books of the sandbox registrar: %w", err)
	}
	keep := func(r registrar.Registration) error {
		return st.Update(func(tx *store.Tx) error {
			return store.PretendDomains.Put(tx, &store.PretendDomain{
				Name: r.Domain, Key: r.Key, Price: r.Price, AutoRenew: r.AutoRenew, Nameservers: r.Nameservers,
				RegisteredAt: r.RegisteredAt, ExpiresAt: r.ExpiresAt,
			})
		})
	}
	return []registrar.Registrar{registrar.NewSandbox(st.Now, sold, keep)}, nil
}
