package servicetest

import (
	"context"
	"errors"
	"strings"

	"github.com/mailstead/mailstead/dnsprov/rdap"
)

// A Registry is a fake RDAP service. Its keys are the registered domains. A value is the IANA ID of
// the domain's registrar; "" if the registry does not show it. Names that end in .bad return an
// error.
type Registry map[string]string

// Domain implements core.RDAP.
func (r Registry) Domain(_ context.Context, name string) (*rdap.Domain, error) {
	id, registered := r[name]
	switch {
	case strings.HasSuffix(name, ".bad"):
		return nil, errors.New("look up domain: the registry is out of order")
	case !registered:
		return nil, rdap.ErrNotFound
	case id == "":
		return &rdap.Domain{Name: name}, nil
	}
	return &rdap.Domain{Name: name, Registrar: "Registrar " + id, IANAID: id, Nameservers: []string{"ns1.else.test", "ns2.else.test"}}, nil
}
