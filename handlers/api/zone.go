package api

import (
	"context"
	"strings"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zones"
)

// zoneOperations returns the operations on a domain's whole zone.
func zoneOperations(s *service.Service) []Operation {
	i := intents{s}
	const types = "The types are A, AAAA, CNAME, TXT, MX, NS, SRV, CAA, TLSA, SSHFP, HTTPS, SVCB and DS."
	return []Operation{
		{
			Name: "get_zone", Route: GET("/v1/domains/{domain_id}/zone"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Zones.GetZone),
			Group: "DNS", Summary: "Get all records of a domain's zone",
			Text:   "For a `manual` domain these are the records to enter. With `Accept: text/dns` the answer is a zone file (RFC 1035).",
			Errors: errorCodes(dnsErrorCodes + " upstream_error"),
			Media:  zones.ZoneFileType,
		},
		{
			Name: "set_zone_records", Route: PUT("/v1/domains/{domain_id}/zone/{name}/{type}"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Zones.SetZoneRecords),
			Group: "DNS", Summary: "Set your records of one name and type",
			Text:   types + " Values that are not given are removed. Records that Mailstead needs cannot be changed; those that it only offers, such as autoconfig, give way to yours.",
			Errors: errorCodes(recordErrorCodes),
		},
		{
			Name: "delete_zone_records", Route: DELETE("/v1/domains/{domain_id}/zone/{name}/{type}"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Zones.DeleteZoneRecords),
			Group: "DNS", Summary: "Delete your records of one name and type",
			Errors: errorCodes(dnsErrorCodes + " domain_busy invalid_record managed_record_collision"),
			Tool:   Tool{Confirm: AskFirst(i.deleteZoneRecordsIntent), Asks: "It"},
		},
		{
			Name: "get_zone_questions", Route: GET("/v1/domains/{domain_id}/zone/questions"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Zones.GetZoneQuestions),
			Group: "DNS", Summary: "Get how often a domain's zone is asked here",
			Text: "How many DNS questions Mailstead's nameserver has answered for the zone of a `builtin` domain since it was started, with the last 24 hours one by one. They tell whether the change of the " +
				"nameservers has reached the world. Questions of Mailstead itself, and those that nameservers elsewhere answer which copy the zone, are not counted.",
			Errors: errorCodes(dnsErrorCodes),
		},
		{
			Name: "list_zone_changes", Route: GET("/v1/domains/{domain_id}/zone/history"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Zones.ListZoneChanges),
			Group: "DNS", Summary: "List the changes of your records",
			Text:   "Newest first. The last 100 are kept, or fewer if they removed very many values.",
			Errors: errorCodes(dnsErrorCodes),
		},
		{
			Name: "undo_zone_change", Route: POST("/v1/domains/{domain_id}/zone/history/{id}/undo"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Zones.UndoZoneChange),
			Group: "DNS", Summary: "Undo a change of your records",
			Text:   "Each record set that it changed becomes as it was before, if it was not changed since. The answer is the new change, which can be undone too.",
			Errors: errorCodes(recordErrorCodes + " zone_changed apex_elsewhere"),
		},
		{
			Name: "scan_zone", Route: POST("/v1/domains/{domain_id}/zone/scan"), Status: 202,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Scans.ScanZone),
			Group: "DNS", Summary: "Read the zone that a domain has elsewhere",
			Text: "The job asks the domain's present nameservers, or those that are given: for the whole zone, or else for usual names and types. Its result is in `get_job`, and `import_zone` " +
				"takes it. Connecting a domain begins a scan, which is the domain's `scan_job_id`. A second request within 10 minutes returns the job of the first one. Of each domain the newest result is kept.",
			Errors: errorCodes(dnsErrorCodes + " domain_busy not_configured"),
			Tool:   Tool{Outward: true},
		},
		{
			Name: "import_zone", Route: POST("/v1/domains/{domain_id}/zone/import"), Status: 200,
			May:  May{Scope: Write, Roles: Managers},
			Call: With(s.Zones.ImportZone),
			Body: LargestZone, File: &TextBody{zones.ZoneFileType, "zone_file"},
			Group: "DNS", Summary: "Import a zone file or a scan",
			Show: "zone_file dry_run",
			Text: "Give `zone_file`, or the file itself as the body with `Content-Type: text/dns`, or in `scan` the ID of the domain's newest `scan_zone` job. All records are imported or none; those that Mailstead keeps itself are " +
				"skipped, and each has a reason. The SPF record is merged with Mailstead's, and the DMARC policy is taken over if the domain has none of its own. `dry_run` only says what would happen.",
			Errors: errorCodes(recordErrorCodes + " zone_unreadable exactly_one_parameter"),
			Tool:   Tool{Destructive: true, Confirm: AskFirst(i.importZoneIntent), Asks: "Without `dry_run`, it"},
		},
	}
}

func (i intents) deleteZoneRecordsIntent(ctx context.Context, who core.Actor, in zones.DeleteZoneRecordsIn) (*Intent, error) {
	set, err := i.s.Zones.ZoneRecordsToDelete(ctx, who, in)
	if err != nil {
		return nil, err
	}
	return newIntent("delete the %s records of %s: %s", set.Type, set.Name, strings.Join(set.Values, ", "))
}

func (i intents) importZoneIntent(ctx context.Context, who core.Actor, in zones.ImportZoneIn) (*Intent, error) {
	if in.DryRun {
		return nil, nil
	}
	in.DryRun = true
	out, err := i.s.Zones.ImportZone(ctx, who, in)
	if err != nil {
		return nil, err
	}
	text := "import " + plural(out.Imported, "value", "values") + " and skip " + plural(len(out.Skipped), "record", "records")
	if in.Replace {
		text += ", replacing records that were added before"
	}
	for _, m := range out.Merged {
		text += "; the " + m.Type + " record of " + m.Name + " would become " + m.Value
	}
	return newIntent("%s", text)
}
