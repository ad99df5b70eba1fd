package api

import (
	"context"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
)

// meOperations returns the operations on the caller.
func meOperations(s *service.Service) []Operation {
	i := intents{s}
	return []Operation{
		{
			Name: "get_me", Route: GET("/v1/me"), Status: 200,
			May:   May{Scope: Read, Roles: People, Bound: Always, Own: true},
			Call:  Plain(s.Accounts.GetMe),
			Group: "Me", Summary: "Say who asks",
			Text: "A team user, or the person of a mailbox, who sees it alone.",
		},
		{
			Name: "update_me", Route: PATCH("/v1/me"), Status: 200,
			May:   May{Scope: Write, Roles: MailboxOnly, Own: true, Access: true},
			Call:  With(s.Accounts.UpdateMe),
			Group: "Me", Summary: "Change one's own mailbox",
			Text: "For the person of a mailbox.",
			Show: "name signature",
			Tool: Tool{Confirm: AskFirst(i.updateMeIntent), Asks: "A forward_to or a recovery_email"},
		},
		{
			Name: "change_my_password", Route: POST("/v1/me/password"), Status: 200,
			May:   May{Scope: Write, Roles: MailboxOnly, Own: true, Access: true},
			Call:  With(s.Signin.ChangeMyPassword),
			Group: "Me", Summary: "Change the password of one's own mailbox",
			Text:   "Nobody can read it again: exports show it as `\"\"`. Other sessions, and programs that use the old password, are signed out; app passwords stay.",
			Errors: errorCodes("wrong_password"),
			Show:   "current_password new_password",
		},
	}
}

func (i intents) updateMeIntent(_ context.Context, who core.Actor, in accounts.UpdateMeIn) (*Intent, error) {
	return accessIntent(who.Email, in.ForwardTo.Value, in.Recovery.Value, false), nil
}
