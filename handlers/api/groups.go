package api

import (
	"context"
	"strings"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
)

// groupOperations returns the operations on groups, which forward to mailboxes and to external
// addresses.
func groupOperations(s *service.Service) []Operation {
	i := intents{s}
	return []Operation{
		{
			Name: "list_groups", Route: GET("/v1/groups"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Mailboxes.ListGroups),
			Group: "Groups", Summary: "List the groups",
		},
		{
			Name: "create_group", Route: POST("/v1/groups"), Status: 201,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Mailboxes.CreateGroup),
			Group: "Groups", Summary: "Create a group",
			Text:   "Mail to its address is filed once for each member here, and sent on to members elsewhere. A member is a mailbox by its `user_id`, or an `email`: of a mailbox, an alias, another group, or elsewhere.",
			Errors: errorCodes("group_loop email_user_exists domain_not_ready"),
			Show:   "email name members send_as",
			Tool:   Tool{Confirm: AskFirst(i.createGroupIntent), Asks: "A member elsewhere"},
		},
		{
			Name: "get_group", Route: GET("/v1/groups/{group_id}"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Mailboxes.GetGroup),
			Group: "Groups", Summary: "Show a group",
		},
		{
			Name: "update_group", Route: PATCH("/v1/groups/{group_id}"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Mailboxes.UpdateGroup),
			Group: "Groups", Summary: "Change a group",
			Text:   "`members` replaces the list. The address stays as it is.",
			Errors: errorCodes("group_loop"),
			Show:   "members",
			Tool:   Tool{Confirm: AskFirst(i.updateGroupIntent), Asks: "A member elsewhere"},
		},
		{
			Name: "delete_group", Route: DELETE("/v1/groups/{group_id}"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Mailboxes.DeleteGroup),
			Group: "Groups", Summary: "Delete a group",
			Text: "Its address is free at once.",
		},
	}
}

// createGroupIntent asks for agreement if mail would go to external addresses.
func (i intents) createGroupIntent(_ context.Context, _ core.Actor, in mailboxes.CreateGroupIn) (*Intent, error) {
	return i.externalMembersIntent(in.Email, in.Members)
}

// updateGroupIntent asks for agreement if mail would go to external addresses.
func (i intents) updateGroupIntent(ctx context.Context, who core.Actor, in mailboxes.UpdateGroupIn) (*Intent, error) {
	if in.Members == nil {
		return nil, nil
	}
	g, err := i.s.Mailboxes.GetGroup(ctx, who, mailboxes.GroupIn{GroupID: in.GroupID})
	if err != nil {
		return nil, err
	}
	return i.externalMembersIntent(g.Email, *in.Members)
}

func (i intents) externalMembersIntent(email string, members []mailboxes.NewMember) (*Intent, error) {
	var elsewhere []string
	for _, m := range members {
		if m.Email != "" && core.DomainOfAddress(m.Email) != core.DomainOfAddress(email) {
			elsewhere = append(elsewhere, m.Email)
		}
	}
	if elsewhere == nil {
		return nil, nil
	}
	return newIntent("send all mail to %s on to %s", email, strings.Join(elsewhere, ", "))
}
