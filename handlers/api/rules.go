package api

import (
	"context"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/rules"
)

// mailRuleOperations returns the operations on rules and automatic replies of mailboxes.
func mailRuleOperations(s *service.Service) []Operation {
	i := intents{s}
	return []Operation{
		{
			Name: "list_rules", Route: GET("/v1/email-users/{user_id}/rules"), Status: 200,
			May:   May{Scope: Read, Roles: People, Bound: Clean},
			Call:  With(s.Rules.ListRules),
			Group: "Rules", Summary: "List the rules of a mailbox",
			Text: "By position, which is the order in which they are looked at.",
		},
		{
			Name: "create_rule", Route: POST("/v1/email-users/{user_id}/rules"), Status: 201,
			May:    May{Scope: Write, Roles: Holders},
			Call:   With(s.Rules.CreateRule),
			Strict: true,
			Group:  "Rules", Summary: "Create a rule",
			Text:   "It is about mail that arrives from now on. Every enabled rule whose conditions fit acts, until one has `stop`; the first `move`, `discard` or `reject` decides where the message lies.",
			Errors: errorCodes("rule_limit_reached too_many_items"),
			Show:   "name conditions actions",
			Tool:   Tool{Confirm: AskFirst(i.createRuleIntent), Asks: "A forward or a reply"},
		},
		{
			Name: "update_rule", Route: PATCH("/v1/email-users/{user_id}/rules/{rule_id}"), Status: 200,
			May:    May{Scope: Write, Roles: Holders},
			Call:   With(s.Rules.UpdateRule),
			Strict: true,
			Group:  "Rules", Summary: "Change a rule",
			Text:   "`conditions` and `actions` replace the lists.",
			Errors: errorCodes("too_many_items"),
			Show:   "enabled",
			Tool:   Tool{Confirm: AskFirst(i.updateRuleIntent), Asks: "A forward or a reply"},
		},
		{
			Name: "delete_rule", Route: DELETE("/v1/email-users/{user_id}/rules/{rule_id}"), Status: 200,
			May:   May{Scope: Write, Roles: Holders},
			Call:  With(s.Rules.DeleteRule),
			Group: "Rules", Summary: "Delete a rule",
		},
		{
			Name: "test_rules", Route: POST("/v1/email-users/{user_id}/rules/test"), Status: 200,
			May:    May{Scope: Read, Roles: People, Bound: Clean},
			Call:   With(s.Rules.TestRules),
			Strict: true,
			Group:  "Rules", Summary: "Say what the rules would do with a message",
			Text: "Of a message that is in the mailbox. Nothing is done. `folder` is null where it would be discarded or rejected.",
			Show: "message_id",
		},
		{
			Name: "get_vacation", Route: GET("/v1/email-users/{user_id}/vacation"), Status: 200,
			May:   May{Scope: Read, Roles: People, Bound: Clean},
			Call:  With(s.Rules.GetVacation),
			Group: "Rules", Summary: "Show the automatic reply of a mailbox",
		},
		{
			Name: "set_vacation", Route: PUT("/v1/email-users/{user_id}/vacation"), Status: 200,
			May:    May{Scope: Write, Roles: Holders},
			Call:   With(s.Rules.SetVacation),
			Strict: true,
			Group:  "Rules", Summary: "Set the automatic reply of a mailbox",
			Text: "It goes once in seven days to each sender, and not to lists, machines and mail that does not name the mailbox (RFC 3834). A new text begins anew.",
			Show: "enabled text",
		},
		{
			Name: "delete_vacation", Route: DELETE("/v1/email-users/{user_id}/vacation"), Status: 200,
			May:   May{Scope: Write, Roles: Holders},
			Call:  With(s.Rules.DeleteVacation),
			Group: "Rules", Summary: "Delete the automatic reply of a mailbox",
		},
	}
}

func (i intents) createRuleIntent(ctx context.Context, who core.Actor, in rules.CreateRuleIn) (*Intent, error) {
	return i.forwardIntent(ctx, who, in.UserID, in.Actions)
}

func (i intents) updateRuleIntent(ctx context.Context, who core.Actor, in rules.UpdateRuleIn) (*Intent, error) {
	if in.Actions == nil {
		return nil, nil
	}
	return i.forwardIntent(ctx, who, in.UserID, *in.Actions)
}

// forwardIntent asks for agreement if a rule would send mail to another address.
func (i intents) forwardIntent(ctx context.Context, who core.Actor, userID string, actions []rules.Action) (*Intent, error) {
	for _, a := range actions {
		if a.Value == nil || a.Type != "forward" && a.Type != "reply" {
			continue
		}
		mb, err := i.s.Mailboxes.GetEmailUser(ctx, who, core.EmailUserIn{UserID: userID})
		if err != nil {
			return nil, err
		}
		if a.Type == "reply" {
			return newIntent("answer mail that comes to %s automatically", mb.Email)
		}
		return newIntent("forward mail that comes to %s to %s", mb.Email, *a.Value)
	}
	return nil, nil
}
