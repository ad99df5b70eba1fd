package servicetest

import (
	"context"
	"errors"
	"strings"

	"github.com/mailstead/mailstead/dnsprov/rdap"
)

// A Registry answers RDAP for the world: its keys are the domains that there are, its values the
// numbers of their registrars at IANA, "" where the registry does not tell. It gives no answer
// about names that end in .bad.
type Registry map[string]string

// Domain is one of service.RDAP.
func (r Registry) Domain(_ context.Context, name string) (*rdap.Domain, error) {
	id, registered := r[name]
	switch {
	case strings.HasSuffix(name, ".bad"):
		return nil, errors.New("the registry is out of order")
	case !registered:
		return nil, rdap.ErrNotFound
	case id == "":
		return &rdap.Domain{Name: name}, nil
	}
	return &rdap.Domain{Name: name, Registrar: "Registrar " + id, IANAID: id, Nameservers: []string{"ns1.else.test", "ns2.else.test"}}, nil
}
