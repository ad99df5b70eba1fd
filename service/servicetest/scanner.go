package servicetest

import (
	"context"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/scan"
)

// NoServers is a core.Scanner in a world in which nobody serves any domain.
type NoServers struct{}

// Find implements core.Scanner.
func (NoServers) Find(_ context.Context, _ string, names []string) (*scan.Servers, error) {
	return &scan.Servers{Names: names}, nil
}

// Parent implements core.Scanner.
func (NoServers) Parent(context.Context, string) (*scan.Parent, error) {
	return &scan.Parent{}, nil
}

// Ask implements core.Scanner.
func (NoServers) Ask(context.Context, *scan.Servers, string, string) ([]dnsprov.Record, error) {
	return nil, scan.ErrNoServer
}

// OwnTexts implements core.Scanner.
func (NoServers) OwnTexts(context.Context, *scan.Servers, string, ...string) (map[string][]string, error) {
	return nil, scan.ErrNoServer
}

// Zone implements core.Scanner.
func (NoServers) Zone(context.Context, *scan.Servers, string, func(done, total int)) (*scan.Result, error) {
	return nil, scan.ErrNoServer
}
