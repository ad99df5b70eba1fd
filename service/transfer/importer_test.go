package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/mail/pull/pulltest"
	"github.com/mailstead/mailstead/service/transfer"
)

// TestImportsKeepTheirPlaceByProgress: an import from a server below the minimum rate ends, even if
// the server keeps answering; one that delivers messages may take any time. An import whose turn is
// over ends between two batches, and continues where it was.
func TestImportsKeepTheirPlaceByProgress(t *testing.T) {
	server := pulltest.Serve(t, nil)
	server.Change(func() {
		for n := range 500 {
			server.Add(fmt.Sprintf("Subject: %d\r\n\r\nhello\r\n", n))
		}
	})
	server.Change(func() {
		server.Manners = func(tag, verb string, _ net.Conn, w io.Writer) bool {
			if verb == "LIST" {
				fmt.Fprintf(w, "* LIST () \"/\" INBOX\r\n%s OK\r\n", tag)
			}
			return verb == "LIST"
		}
	})
	known := map[string]bool{}
	read := func(step time.Duration, turnOver func() bool) (*transfer.Importer, error) {
		now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
		im := &transfer.Importer{
			Deliver: func(_ context.Context, _, _ string, batch []transfer.SourceMessage) ([]transfer.ImportResult, error) {
				out := make([]transfer.ImportResult, len(batch))
				for i, m := range batch {
					out[i].Status = transfer.ImportDone
					if known[m.Key] {
						out[i].Status = transfer.ImportSkipped
					}
					known[m.Key] = true
				}
				return out, nil
			},
			Known: func(_ context.Context, _, _ string, keys []string) ([]bool, error) {
				out := make([]bool, len(keys))
				for i, key := range keys {
					out[i] = known[key]
				}
				return out, nil
			},
			Report:   func(string, string, int64, int64, int64) {},
			TurnOver: turnOver,
			Now:      func() time.Time { now = now.Add(step); return now },
		}
		if err := im.Begin(t.Context(), "s", "ann@example.test"); err != nil {
			t.Fatal(err)
		}
		return im, im.ReadIMAP(t.Context(), &pull.Client{Dial: new(net.Dialer).DialContext}, pull.Server{Host: "127.0.0.1", Port: server.Port, Security: "none", Username: "u", Password: "p"})
	}
	if im, err := read(5*time.Minute, nil); !errors.Is(err, transfer.ErrImportSlow) || im.Out.Imported > 100 {
		t.Errorf("a slow server: %+v, %v", im.Out, err)
	}
	clear(known)
	turns, imported := 0, int64(0)
	for ; turns < 20; turns++ {
		asked := 0
		im, err := read(time.Minute, func() bool { asked++; return asked > 8 })
		imported += im.Out.Imported
		if err == nil {
			break
		} else if !errors.Is(err, transfer.ErrTurnOver) {
			t.Fatal(err)
		}
	}
	if imported != 500 || turns < 2 {
		t.Errorf("%d of 500 were imported in %d turns", imported, turns)
	}
}
