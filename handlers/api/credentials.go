package api

import (
	"context"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/mailboxes"
)

// credentialOperations returns the operations on additional passwords of mailboxes, and on
// credentials of domains.
func credentialOperations(s *service.Service) []Operation {
	i := intents{s}
	return []Operation{
		{
			Name: "list_credentials", Route: GET("/v1/email-users/{user_id}/credentials"), Status: 200,
			May:   May{Scope: Read, Roles: Holders, Bound: Clean, Own: true, Access: true},
			Call:  With(s.Mailboxes.ListCredentials),
			Group: "Credentials", Summary: "List the passwords of a mailbox",
			Text: "Those beside its own: one for each device or program. Never with their values.",
		},
		{
			Name: "create_credential", Route: POST("/v1/email-users/{user_id}/credentials"), Status: 201,
			May:         May{Scope: Write, Roles: Holders, Own: true, Access: true},
			Call:        With(s.Mailboxes.CreateCredential),
			ShowsSecret: true,
			Group:       "Credentials", Summary: "Create a password for a device or program",
			Text:   "It works for IMAP and submission, by PLAIN, LOGIN, SCRAM-SHA-256 and, in the place of a token, by OAUTHBEARER and XOAUTH2. The answer has `password` this once. A mailbox can have 25.",
			Errors: errorCodes("credential_limit_reached too_many_items"),
			Show:   "name",
			Tool:   Tool{Confirm: AskFirst(i.createCredentialIntent), Asks: "It"},
		},
		{
			Name: "delete_credential", Route: DELETE("/v1/email-users/{user_id}/credentials/{credential_id}"), Status: 200,
			May:   May{Scope: Write, Roles: Holders, Own: true, Access: true},
			Call:  With(s.Mailboxes.DeleteCredential),
			Group: "Credentials", Summary: "Revoke a password",
			Text: "What is connected with it is cut off within a second.",
		},
		{
			Name: "clear_credential_taint", Route: POST("/v1/email-users/{user_id}/credentials/{credential_id}/clear-taint"), Status: 200,
			May:   May{Scope: Admin, Roles: Managers, Person: true, Access: true},
			Call:  With(s.Mailboxes.ClearCredentialTaint),
			Group: "Credentials", Summary: "End the taint of a password",
			Text:   "As if nothing had been read with it. Only for a person who is signed in to the dashboard.",
			Errors: errorCodes("person_required"),
			Tool:   Tool{NoTool: true},
		},
		{
			Name: "list_smtp_credentials", Route: GET("/v1/domains/{domain_id}/smtp-credentials"), Status: 200,
			May:   May{Scope: Read, Roles: Managers, Bound: Clean, Access: true},
			Call:  With(s.Mailboxes.ListSMTPCredentials),
			Group: "Credentials", Summary: "List the passwords of a domain",
		},
		{
			Name: "create_smtp_credential", Route: POST("/v1/domains/{domain_id}/smtp-credentials"), Status: 201,
			May:         May{Scope: Write, Roles: Managers, Access: true},
			Call:        With(s.Mailboxes.CreateSMTPCredential),
			ShowsSecret: true,
			Group:       "Credentials", Summary: "Create a password that sends for a domain",
			Text:   "A program that logs in to submission with it may send as any address of the domain, within the domain's limits. The user name is the credential's id. The answer has `password` this once.",
			Errors: errorCodes("credential_limit_reached person_required domain_busy too_many_items"),
			Show:   "name",
			Tool:   Tool{Confirm: AskFirst(i.createSMTPCredentialIntent), Asks: "It"},
		},
		{
			Name: "delete_smtp_credential", Route: DELETE("/v1/domains/{domain_id}/smtp-credentials/{credential_id}"), Status: 200,
			May:   May{Scope: Write, Roles: Managers, Access: true},
			Call:  With(s.Mailboxes.DeleteSMTPCredential),
			Group: "Credentials", Summary: "Revoke a password of a domain",
			Text: "What is connected with it is cut off within a second.",
		},
		{
			Name: "clear_smtp_credential_taint", Route: POST("/v1/domains/{domain_id}/smtp-credentials/{credential_id}/clear-taint"), Status: 200,
			May:   May{Scope: Admin, Roles: Managers, Person: true, Access: true},
			Call:  With(s.Mailboxes.ClearSMTPCredentialTaint),
			Group: "Credentials", Summary: "End the taint of a password of a domain",
			Text:   "As if nothing had been read with it. Only for a person who is signed in to the dashboard.",
			Errors: errorCodes("person_required"),
			Tool:   Tool{NoTool: true},
		},
	}
}

func (i intents) createCredentialIntent(ctx context.Context, who core.Actor, in mailboxes.CreateCredentialIn) (*Intent, error) {
	mb, err := i.s.Mailboxes.GetEmailUser(ctx, who, core.EmailUserIn{UserID: in.UserID})
	if err != nil {
		return nil, err
	}
	return newIntent("make a password with which a program reads and sends all mail of %s", mb.Email)
}

func (i intents) createSMTPCredentialIntent(ctx context.Context, who core.Actor, in mailboxes.CreateSMTPCredentialIn) (*Intent, error) {
	d, err := i.s.Domains.GetDomain(ctx, who, domains.DomainIn{DomainID: in.DomainID})
	if err != nil {
		return nil, err
	}
	return newIntent("make a password with which a program sends as any address of %s", d.Domain)
}
