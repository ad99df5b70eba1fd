package registrar_test

import (
	"errors"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/dnsprov/registrar/registrartest"
)

func TestSandbox(t *testing.T) {
	registrartest.Run(t, registrar.NewSandbox(time.Now, nil, nil), registrartest.Names{
		Free: []string{"alpha.com", "beta.io", "gamma.dev", "delta.net"}, Taken: "example.org", Premium: "premium-name.com", NotSold: "alpha.shop",
	})
}

func TestSandboxRemembers(t *testing.T) {
	var kept []registrar.Registration
	first := registrar.NewSandbox(time.Now, nil, func(r registrar.Registration) error { kept = append(kept, r); return nil })
	if _, err := first.Register(t.Context(), registrar.Order{Key: "k", Domain: "alpha.com", Years: 1, MaxPrice: 2000}); err != nil {
		t.Fatal(err)
	}
	second := registrar.NewSandbox(time.Now, kept, nil)
	if r, err := second.Find(t.Context(), "alpha.com"); err != nil || r.Key != "k" {
		t.Errorf("after a restart: %+v, %v", r, err)
	}
}

func TestSandboxSellsNothingThatItCannotKeep(t *testing.T) {
	full := errors.New("the disk is full")
	shop := registrar.NewSandbox(time.Now, nil, func(registrar.Registration) error { return full })
	if _, err := shop.Register(t.Context(), registrar.Order{Key: "k", Domain: "alpha.com", Years: 1, MaxPrice: 2000}); !errors.Is(err, full) {
		t.Errorf("sold: %v", err)
	}
	if _, err := shop.Find(t.Context(), "alpha.com"); !errors.Is(err, registrar.ErrNotFound) {
		t.Errorf("found: %v", err)
	}
}
