package dnsprov

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// ByHand is the Provider of domains whose records their owner enters somewhere: it looks up what the world sees, and
// can change nothing.
type ByHand struct {
	Resolver Resolver
	// Wanted are the records that a domain should have: names are looked up one by one, since nobody lists a zone.
	Wanted func(Place) []Record
}

// Records gives what is found in the place of wanted records, all of it a stranger's. What does the work of a wanted
// record, as Verify sees it, is given as that record. A look-up that fails is an error, since nothing is known then.
func (p *ByHand) Records(ctx context.Context, at Place) ([]Record, error) {
	var out []Record
	for _, c := range Verify(ctx, p.Resolver, p.Wanted(at)) {
		switch found := c.Record; {
		case c.Error == LookupFailed:
			return nil, fmt.Errorf("look up %s %s: no answer", found.Name, found.Type)
		case c.Verified:
			found.Purpose, found.Critical = "", false
			out = append(out, found)
		case c.Actual != "":
			out = append(out, foreign(c)...)
		}
	}
	return out, ctx.Err()
}

// foreign gives what is in the place of a wanted record: each MX, and of another type one record with all values.
func foreign(c Check) []Record {
	r := Record{Name: c.Record.Name, Type: c.Record.Type, Value: c.Actual}
	if r.Type != "MX" {
		return []Record{r}
	}
	var out []Record
	for text := range strings.SplitSeq(c.Actual, ", ") {
		priority, host, _ := strings.Cut(text, " ")
		n, err := strconv.ParseUint(priority, 10, 16)
		if err == nil {
			r.Priority, r.Value = uint16(n), host
			out = append(out, r)
		}
	}
	return out
}

// Apply is ErrByHand if there is anything to change. The changes are what to ask of the owner.
func (p *ByHand) Apply(_ context.Context, _ Place, changes []Change) ([]Record, error) {
	if len(changes) > 0 {
		return nil, ErrByHand
	}
	return nil, nil
}

// Elsewhere is the Provider of domains with which we have nothing to do: nothing is read and nothing written.
type Elsewhere struct{}

// Records gives none.
func (Elsewhere) Records(context.Context, Place) ([]Record, error) { return nil, nil }

// Apply is ErrByHand if there is anything to change.
func (Elsewhere) Apply(_ context.Context, _ Place, changes []Change) ([]Record, error) {
	if len(changes) > 0 {
		return nil, ErrByHand
	}
	return nil, nil
}
