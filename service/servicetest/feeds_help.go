package servicetest

import (
	"context"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
)

// Listen opens a feed that is closed when the test ends.
func (i *Installation) Listen(who core.Actor) *service.Feed {
	i.T.Helper()
	f, err := i.Svc.Listen(context.Background(), who)
	if err != nil {
		i.T.Fatal(err)
	}
	i.T.Cleanup(f.Close)
	return f
}
