package servicetest

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// Answered returns the subjects of the messages in INBOX that are shown as answered.
func (i *Installation) Answered(mb *store.Mailbox) (out []string) {
	i.T.Helper()
	page, err := i.Svc.Inbox.ListEmailUserInbox(context.Background(), ActorNum(i.Account, 1), inbox.ListEmailUserInboxIn{UserID: mb.ID})
	if err != nil {
		i.T.Fatal(err)
	}
	for _, m := range page.Data {
		if m.IsAnswered {
			out = append(out, m.Subject)
		}
	}
	slices.Sort(out)
	return out
}

func ActorNum(a *accounts.AccountCreated, num uint32) core.Actor {
	who := Actor(a)
	who.AccountNum = num
	return who
}
