package service

// An EventType is a kind of event: its name, when it happens, and a value of the type of its data.
type EventType struct {
	Name  string
	About string
	Data  any
}

// EventTypes lists the kinds of events that endpoints may subscribe to.
func EventTypes() []EventType {
	return []EventType{
		{EventMessageRelayed, "A message went out through a relay, which gave it a Message-ID of its own; one event for each recipient.", relayedData{}},
		{EventEmailReceived, "A message came into a mailbox. Warm-up mail makes no event.", receivedData{}},
		{EventEmailBounced, "A sent message bounced, at once or after another server had taken it.", bouncedData{}},
		{EventEmailComplained, "A recipient marked a message as spam, and their mail system reported it.", complainedData{}},
		{EventDomainCreated, "A domain was added, and is being set up.", domainEvent{}},
		{EventDomainReady, "A domain is set up and can send.", domainEvent{}},
		{EventDomainDNSFailed, "A domain's DNS failed two checks in a row; once until it is well again.", dnsFailure{}},
		{EventEmailUserCreated, "A mailbox is ready.", mailboxEvent{}},
		{EventEmailUserDeleted, "A mailbox was deleted.", mailboxEvent{}},
		{EventTestPing, "Somebody called test_webhook.", pingData{}},
	}
}
