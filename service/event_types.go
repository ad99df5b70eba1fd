package service

import (
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/service/scans"
	"github.com/mailstead/mailstead/service/submit"
)

// EventTypes lists the types of events that webhook endpoints may subscribe to.
func EventTypes() []events.EventType {
	return []events.EventType{
		{Name: events.EventMessageRelayed, About: "A message went out through a relay, which gave it a Message-ID of its own; one event for each recipient.", Data: outbound.RelayedData{}},
		{Name: events.EventEmailReceived, About: "A message came into a mailbox. Warm-up mail makes no event.", Data: inbox.ReceivedData{}},
		{Name: events.EventRuleMatched, About: "A rule of a mailbox with the action webhook was about a message that came in.", Data: inbox.RuleMatchedData{}},
		{Name: events.EventEmailDelivered, About: "The recipient's own mail server accepted a message. Mail through a relay and mail to mailboxes here makes no such event.", Data: outbound.DeliveredData{}},
		{Name: events.EventEmailDelayed, About: "The recipient's own mail server did not take a message yet, and it is tried again: once at first, then once a day.", Data: outbound.DelayedData{}},
		{Name: events.EventEmailBounced, About: "A sent message bounced, at once or after another server had taken it.", Data: outbound.BouncedData{}},
		{Name: events.EventEmailComplained, About: "A recipient marked a message as spam, and their mail system reported it.", Data: outbound.ComplainedData{}},
		{Name: events.EventEmailHeld, About: "A message waits until a person approves it.", Data: submit.ApprovalEvent{}},
		{Name: events.EventEmailApproved, About: "A person has approved a held message, and it is being sent.", Data: submit.ApprovalEvent{}},
		{Name: events.EventEmailRejected, About: "A held message is not sent: a person has rejected it, its sender has cancelled it, or nobody approved it in time.", Data: submit.ApprovalEvent{}},
		{Name: reputation.EventAlert, About: "Sending comes near to a bound or a receiver blocks this host; once an episode.", Data: reputation.SendingAlert{}},
		{Name: reputation.EventPaused, About: "A mailbox, or a whole domain, cannot send any more, since too much of its mail bounced or was called spam. Somebody has to resume it.", Data: reputation.Paused{}},
		{Name: events.EventDomainCreated, About: "A domain was added, and is being set up.", Data: domains.DomainEvent{}},
		{Name: events.EventDomainReady, About: "A domain is set up and can send.", Data: domains.DomainEvent{}},
		{Name: events.EventDomainDNSFailed, About: "A domain's DNS failed two checks in a row; once until it is well again.", Data: domains.DNSFailure{}},
		{Name: events.EventDomainNSChanged, About: "A domain was delegated to other nameservers than before.", Data: domains.NameserversChanged{}},
		{Name: events.EventZoneScanFinished, About: "A job has read the zone that a domain has at the nameservers of others, or has failed.", Data: scans.ScanFinished{}},
		{Name: events.EventEmailUserCreated, About: "A mailbox is ready.", Data: mailboxes.MailboxEvent{}},
		{Name: events.EventEmailUserDeleted, About: "A mailbox was deleted.", Data: mailboxes.MailboxEvent{}},
		{Name: events.EventHostAlert, About: "A check of this host turned bad, or is ok again. Only the first account of an installation has it.", Data: health.Alert{}},
		{Name: events.EventTestPing, About: "Somebody called test_webhook.", Data: events.PingData{}},
	}
}
