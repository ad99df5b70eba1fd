package inbox_test

import (
	"io"
	"net"
	"testing"

	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestLogInThatIsHungUpOnIsOnesOwn: a server that ends the connection instead of refusing a
// password answers others.
func TestLogInThatIsHungUpOnIsOnesOwn(t *testing.T) {
	o := servicetest.NewOutpost(t, &servicetest.Host{})
	o.IMAP.Change(func() {
		o.IMAP.Manners = func(_, verb string, c net.Conn, _ io.Writer) bool {
			if verb == "AUTHENTICATE" {
				c.Close()
			}
			return verb == "AUTHENTICATE"
		}
	})
	var mb *store.Mailbox
	o.Update(func(tx *store.Tx) (err error) { mb, err = store.Mailboxes.Get(tx, o.Mailbox.ID); return err })
	if _, err := o.Svc.Connect(t.Context(), mb); err == nil {
		t.Fatal("it is logged in")
	}
	if until := o.Svc.DownUntil(mb.ID); !until.IsZero() {
		t.Errorf("the server is left alone until %s", until)
	}
}
