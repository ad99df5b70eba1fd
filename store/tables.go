package store

import (
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailrow"
)

// tables lists every table. A table that is not listed is neither created nor checked.
var tables = untypedTables(
	Accounts, Users, Tokens, DayStats, Idempotencies,
	Domains, CustomRecords, ZoneChanges, ZoneScans, EdgeRecords, DNSCredentials, Purchases, PretendDomains, ZoneBases, Certificates, CertificateAccounts,
	Mailboxes, WarmupFolders, OldSubscriptions, ImportedMessages, CopyIntents, RemoteBoxes, RemoteCopies, Templates, Exports,
	Jobs,
	Webhooks, Events, Deliveries,
	Submissions, PendingRecipients, Arrivals, Outgoings, Mappings, Suppressions, TLSPolicies, TLSCounts,
	ReportMails, Reports, DMARCCounts, DMARCDays,
	GreyTuples, KnownSenders, Alerts, BackupDrills, MasterKeys, SandboxClocks,
	Audits, SendDays, Contacts, MessageTemplates, Batches, BatchItems, SendCounts, SendAlerts, Holds,
	Addresses, Groups, GroupMembers, Credentials, Rules, Vacations, AutoReplies, SpamModels, SpamLessons,
	Approvals, OAuthClients, OAuthRequests,
	Settings,
)

// Tables returns every table.
func Tables() []*engine.AnyTable { return tables }

func untypedTables(list ...interface{ Any() *engine.AnyTable }) (out []*engine.AnyTable) {
	for _, t := range list {
		out = append(out, t.Any())
	}
	return out
}

// sequentialTables names the tables and indexes of logs: new keys sort after the others, and rows
// do not change. See sequentialFill in package engine.
var sequentialTables = map[string]bool{
	Events.Name(): true, EventsByAccount.Name(): true, Deliveries.Name(): true, DeliveriesByWebhook.Name(): true, DeliveriesByEvent.Name(): true,
	OutgoingsByAccount.Name(): true, Audits.Name(): true, AuditsByAccount.Name(): true,
}

func bucketNames() []string {
	names := []string{engine.EntryBucket, bucketAccepted.Name(), bucketMeta}
	for _, b := range mailrow.Buckets {
		names = append(names, b.Name())
	}
	for _, t := range tables {
		names = append(names, t.Name())
		for _, x := range t.Indexes() {
			names = append(names, x.Name())
		}
	}
	return names
}
