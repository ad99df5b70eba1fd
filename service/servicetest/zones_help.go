package servicetest

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// ZoneService returns a service without a running queue. now is its clock.
func ZoneService(t testing.TB, dir string, c core.Config, now func() time.Time) *service.Service {
	t.Helper()
	st, err := store.Open(dir, store.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := core.OpenKeys(st)
	if err != nil {
		t.Fatal(err)
	}
	c.Nameservers, c.Hostname = []string{"ns1.mailstead.test", "ns2.mailstead.test"}, "mail.mailstead.test"
	s := service.New(st, jobs.NewQueue(st), keys, c)
	CheapSecrets(s.Core)
	t.Cleanup(func() {
		s.Close()
		if err := errors.Join(st.Check(), st.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func PutTestDomain(t testing.TB, s *service.Service, d *store.Domain) {
	t.Helper()
	err := s.Core.Store.Update(func(tx *store.Tx) error {
		next := *d
		tx.After(func() { *d = next })
		return s.Zones.PutZone(tx, &next)
	})
	if err != nil {
		t.Fatal(err)
	}
}

var TestIPs = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
