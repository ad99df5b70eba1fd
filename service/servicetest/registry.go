package servicetest

import (
	"context"
	"errors"
	"strings"

	"github.com/mailstead/mailstead/dnsprov/rdap"
)

// A Registry is a fake RDAP service. Its keys are the registered domains, its values the IANA IDs
// of their registrars; "" if the registry does not show it. It fails for names that end in .bad.
type Registry map[string]string

// Domain implements core.RDAP.
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
