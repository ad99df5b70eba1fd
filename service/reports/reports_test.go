package reports_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/dmarcreport"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/reports"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// reportWorld is an installation that sends reports, with a domain that asks for reports.
func reportWorld(t *testing.T) (*servicetest.Installation, *store.Mailbox) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Spam: core.Spam{Reports: true}, Outbound: "capture"}})
	i.DNS.Txt["_dmarc.far.test"] = "v=DMARC1; p=reject; sp=quarantine; pct=100; rua=mailto:dmarc@far.test!1m,mailto:x@third.test"
	i.DNS.Txt["far.test"] = "v=spf1 ip4:192.0.2.1 -all"
	i.DNS.Txt["_dmarc.quiet.test"] = "v=DMARC1; p=none"
	return i, i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
}

// TestReportsGoOut: DMARC results are counted and reported once, to the addresses that want
// reports.
func TestReportsGoOut(t *testing.T) {
	i, _ := reportWorld(t)
	i.Run()
	other := netip.MustParseAddr("198.51.100.7")
	for n, tc := range []struct {
		ip     netip.Addr
		path   string
		author string
		code   int
	}{
		{servicetest.Stranger, "a@far.test", "a@far.test", 250}, {servicetest.Stranger, "b@far.test", "b@far.test", 250},
		{other, "a@far.test", "a@far.test", 550},
		{other, "a@evil.test", "a@m.far.test", 250},
		{servicetest.Stranger, "a@quiet.test", "a@quiet.test", 250},
		{servicetest.Stranger, "a@none.test", "a@none.test", 250},
	} {
		if got := servicetest.CodeOf(i.ComeIn(tc.ip, tc.path, "ann@example.test", servicetest.LetterFrom(tc.author))); got != tc.code {
			t.Errorf("%d: %d", n, got)
		}
	}
	if rows := i.Counted(); len(rows) != 3 {
		t.Fatalf("%d rows", len(rows))
	}
	plan := func() {
		t.Helper()
		if _, err := i.Svc.Reports.PlanReports(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	plan() // of a day that is not over nothing is reported
	i.Yesterday()
	plan()
	o := i.Becomes("dmarc@far.test", store.OutgoingCaptured)
	if o.Sender != "" || o.Domain != "example.test" || !strings.HasPrefix(o.Subject, "Report Domain: far.test Submitter: mail.mailstead.test Report-ID: <") {
		t.Errorf("row %+v", o)
	}
	if got := i.Row("x@third.test"); got.ID != "" {
		t.Error("one who has not asked for it gets a report")
	}
	if rows := i.Counted(); len(rows) != 0 {
		t.Errorf("%d rows are left", len(rows))
	}
	plan()
	_ = i.St.View(func(tx *store.Tx) error {
		for d := range store.DMARCDays.All(tx) {
			if d.Day < i.St.Now().UTC().Format(time.DateOnly) {
				t.Errorf("the day %s is left", d.Day)
			}
		}
		return nil
	})
}

// TestReportSaysWhatWasDone checks the contents of a report.
func TestReportSaysWhatWasDone(t *testing.T) {
	i, _ := reportWorld(t)
	for _, tc := range []struct{ ip, path, author string }{
		{"192.0.2.1", "a@far.test", "a@far.test"}, {"192.0.2.1", "b@far.test", "b@far.test"}, {"192.0.2.9", "", "a@far.test"}, {"192.0.2.9", "a@evil.test", "a@m.far.test"},
	} {
		_ = i.ComeIn(netip.MustParseAddr(tc.ip), tc.path, "ann@example.test", servicetest.LetterFrom(tc.author)) // one is refused
	}
	i.Yesterday()
	args := reports.ReportArgs{Day: i.St.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly), Domain: "far.test"}
	d, to, err := i.Svc.Reports.MakeReport(args)
	if err != nil || !slices.Equal(to, []string{"mailto:dmarc@far.test!1m", "mailto:x@third.test"}) {
		t.Fatalf("%q, %v", to, err)
	}
	packed, err := d.Gzip()
	if err != nil {
		t.Fatal(err)
	}
	d, err = dmarcreport.Read(packed)
	if err != nil {
		t.Fatal(err)
	}
	if d.Policy != (dmarcreport.Policy{Domain: "far.test", P: "reject", SP: "quarantine", NP: "quarantine", ADKIM: "r", ASPF: "r", Discovery: "treewalk", Pct: 100}) || d.Totals != (dmarcreport.Totals{Messages: 4, Passed: 2, Failed: 2}) {
		t.Errorf("%+v %+v", d.Policy, d.Totals)
	}
	var got []string
	for _, r := range d.Records {
		got = append(got, fmt.Sprint(r.SourceIP, r.Count, r.Disposition, r.DKIM, r.SPF, r.HeaderFrom, r.SPFResults))
	}
	slices.Sort(got)
	want := []string{
		"192.0.2.12nonefailpassfar.test[{far.test  mfrom pass}]",
		"192.0.2.91quarantinefailfailm.far.test[{evil.test  mfrom none}]",
		"192.0.2.91rejectfailfailfar.test[{client.far.test  mfrom none}]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestCountsAreBounded: rows of a domain beyond the limit are not counted.
func TestCountsAreBounded(t *testing.T) {
	i, _ := reportWorld(t)
	day := i.St.Now().UTC().Format(time.DateOnly)
	i.Update(func(tx *store.Tx) error {
		for n := range reports.MaxCountsOfDomain {
			if err := store.DMARCCounts.Put(tx, &store.DMARCCount{ID: fmt.Sprint(day, n), Day: day, Domain: "far.test", Record: []byte("{}"), Policy: []byte("{}"), Count: 1}); err != nil {
				return err
			}
		}
		return nil
	})
	if err := i.ComeIn(servicetest.Stranger, "a@far.test", "ann@example.test", servicetest.LetterFrom("a@far.test")); err != nil {
		t.Fatal(err)
	}
	if n := len(i.Counted()); n != reports.MaxCountsOfDomain {
		t.Errorf("%d rows", n)
	}
	i.DNS.Txt["_dmarc.other.test"] = i.DNS.Txt["_dmarc.far.test"]
	i.Update(func(tx *store.Tx) error {
		return store.DMARCDays.Put(tx, &store.DMARCDay{Day: day, Rows: reports.MaxCountsOfDay})
	})
	if err := i.ComeIn(servicetest.Stranger, "a@evil.test", "ann@example.test", servicetest.LetterFrom("a@b.other.test")); err != nil {
		t.Fatal(err)
	}
	if n := len(i.Counted()); n != reports.MaxCountsOfDomain {
		t.Errorf("%d rows on a day that is full", n)
	}
}

// reportLetterOf returns a stranger's message with a file attached.
func reportLetterOf(t *testing.T, author, filename, kind string, content []byte) string {
	t.Helper()
	var out bytes.Buffer
	d := msg.Composer{
		From: msg.Address{Mailbox: "noreply", Host: author}, To: []msg.Address{{Mailbox: "ann", Host: "example.test"}}, Subject: "report",
		MessageID: msg.NewMessageID(author), Date: time.Now(), Text: "a report",
		Attachments: []msg.AttachedFile{{Filename: filename, ContentType: kind, Content: content}},
	}
	if _, err := d.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func aggregate(t *testing.T, domain, id string) []byte {
	t.Helper()
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	d := &dmarcreport.Report{
		Org: "Far", ID: id, Begin: day, End: day.Add(24*time.Hour - time.Second), Policy: dmarcreport.Policy{Domain: domain, P: "none", SP: "none", ADKIM: "r", ASPF: "r", Pct: 100},
		Records: []dmarcreport.Record{{SourceIP: "192.0.2.1", Count: 3, Disposition: "none", DKIM: "pass", SPF: "fail", HeaderFrom: domain}},
	}
	packed, err := d.Gzip()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// TestReportsComeIn: reports about domains of the receiving account are stored, at whichever
// address they arrive, with whether they are authenticated; forged reports displace no others.
func TestReportsComeIn(t *testing.T) {
	i, _ := reportWorld(t)
	mine := i.AddDomain(i.Account, "mine.test", nil) // its postmaster is elsewhere: the mail only passes through
	other := i.AddDomain(i.AddAccount("other@elsewhere.test"), "other.test", nil)
	i.Run()
	name := "far.test!mine.test!1795132800!1795219199.xml.gz"
	in := func(ip netip.Addr, path, to, author, filename, kind string, content []byte) {
		t.Helper()
		if err := i.ComeIn(ip, path, to, reportLetterOf(t, author, filename, kind, content)); err != nil {
			t.Fatal(err)
		}
	}
	in(netip.MustParseAddr("198.51.100.1"), "x@forger.test", "postmaster@mine.test", "forger.test", name, "application/gzip", aggregate(t, "mine.test", "1"))
	in(servicetest.Stranger, "noreply@far.test", "postmaster@mine.test", "far.test", name, "application/gzip", aggregate(t, "mine.test", "1"))
	in(servicetest.Stranger, "noreply@far.test", "postmaster@mine.test", "far.test", name, "application/gzip", aggregate(t, "mine.test", "1")) // again
	in(servicetest.Stranger, "noreply@far.test", "postmaster@mine.test", "far.test", name, "application/octet-stream", aggregate(t, "m.mine.test", "2"))
	in(servicetest.Stranger, "noreply@far.test", "ann@example.test", "far.test", name, "application/gzip", aggregate(t, "mine.test", "3"))
	in(servicetest.Stranger, "noreply@far.test", "postmaster@mine.test", "far.test", name, "application/gzip", aggregate(t, "other.test", "4")) // of another account
	in(servicetest.Stranger, "noreply@far.test", "postmaster@mine.test", "far.test", name, "application/gzip", aggregate(t, "test", "5"))
	in(servicetest.Stranger, "noreply@far.test", "postmaster@mine.test", "far.test", name, "application/gzip", []byte("poison"))
	in(servicetest.Stranger, "noreply@far.test", "postmaster@mine.test", "far.test", "holiday.zip", "application/zip", aggregate(t, "mine.test", "6"))
	i.ReportsRead()
	var got []string
	for _, r := range i.DMARCReports(mine) {
		got = append(got, fmt.Sprint(r.ReportID, " ", *r.ReceivedFrom, " ", r.Authenticated, " ", r.Totals.Messages))
	}
	slices.Sort(got)
	if want := []string{"1 far.test true 3", "1 forger.test false 3", "2 far.test true 3", "3 far.test true 3"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if n := len(i.DMARCReports(other)); n != 0 {
		t.Errorf("%d reports about another account's domain", n)
	}
	if rows := i.Counted(); len(rows) != 1 { // the holiday
		t.Errorf("%d rows count messages that bring reports", len(rows))
	}
	if err := i.Svc.Reports.EraseReports(t.Context(), mine.ID); err != nil || len(i.DMARCReports(mine)) != 0 {
		t.Errorf("reports outlive their domain: %v", err)
	}
}

// TestReportsOfOurOwn: our own reports reach a domain that is hosted here, as those of others do.
func TestReportsOfOurOwn(t *testing.T) {
	i, _ := reportWorld(t)
	d := i.AddDomain(i.Account, "asks.test", func(d *store.Domain) { d.CatchAll = "ann@example.test" })
	i.DNS.Txt["_dmarc.asks.test"] = "v=DMARC1; p=quarantine; rua=mailto:reports@asks.test"
	i.Run()
	if err := i.ComeIn(servicetest.Stranger, "", "ann@example.test", servicetest.LetterFrom("a@asks.test")); err != nil {
		t.Fatal(err)
	}
	i.Yesterday()
	if _, err := i.Svc.Reports.PlanReports(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	i.Becomes("reports@asks.test", store.OutgoingDelivered)
	i.ReportsRead()
	got := i.DMARCReports(d)
	if len(got) != 1 || !got[0].Authenticated || got[0].Records[0].Disposition != "quarantine" || *got[0].Email != "postmaster@example.test" {
		t.Errorf("%+v", got)
	}
}

// TestReportsAreBounded: a new report replaces the oldest of its class.
func TestReportsAreBounded(t *testing.T) {
	i, _ := reportWorld(t)
	d := i.AddDomain(i.Account, "mine.test", nil)
	m := &store.ReportMail{AccountID: d.AccountID, From: "far.test", ReceivedAt: i.St.Now()}
	file := func(n int, authenticated bool) {
		m.Authenticated = authenticated
		i.Update(func(tx *store.Tx) error {
			return reports.FileReport(tx, m, reports.FoundReport{Report: store.Report{Kind: store.ReportDMARC, ReportID: fmt.Sprint(n), Org: "o", Body: []byte("{}")}, Domain: "mine.test"})
		})
	}
	file(0, true)
	for n := range reports.ReportsOfDomain + 5 {
		file(n, false)
	}
	count := map[bool]int{}
	ids := map[string]bool{}
	_ = i.St.View(func(tx *store.Tx) error {
		for r := range store.Reports.All(tx) {
			count[r.Authenticated]++
			ids[fmt.Sprint(r.ReportID, r.Authenticated)] = true
		}
		return nil
	})
	if count[true] != 1 || count[false] != reports.ReportsOfDomain || ids["4false"] || !ids["5false"] {
		t.Errorf("%v are kept", count)
	}
}

// Reports on the default policy are collected automatically: read, and not filed as mail.
func TestReportsAreCollected(t *testing.T) {
	const address = "dmarc-reports@example.test"
	for _, sandbox := range []bool{false, true} {
		i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}, Sandbox: sandbox})
		d := i.AddDomain(i.Account, "example.test", nil)
		policy := "v=DMARC1; p=reject; rua=mailto:" + address
		if sandbox {
			policy = dmarc.Default
		}
		records, err := i.Svc.Zones.ManagedRecords(d)
		if err != nil || !slices.ContainsFunc(records, func(r dnsprov.Record) bool { return r.Name == "_dmarc.example.test" && r.Value == policy }) {
			t.Errorf("sandbox %v: %v, %v", sandbox, records, err)
		}
	}
	i, ann := reportWorld(t)
	i.Run()
	who := core.Actor{AccountID: ann.AccountID, Role: "owner", Permissions: []string{"admin"}}
	if _, err := i.Svc.Mailboxes.CreateEmailUser(t.Context(), who, mailboxes.CreateEmailUserIn{Email: address}); err == nil {
		t.Error("a mailbox has the reserved address")
	}
	for n, to := range []string{address, "dmarc-reports+x@example.test"} {
		text := strings.ReplaceAll(dmarcMail(fmt.Sprint("r", n)), "\n", "\r\n")
		if got := servicetest.CodeOf(i.ComeIn(servicetest.Stranger, "noreply@far.test", to, text)); got != 250 {
			t.Fatalf("%s: %d", to, got)
		}
	}
	in := reports.ListReportsIn{DomainID: ann.DomainID}
	for range 500 {
		if page, err := i.Svc.Reports.ListDMARCReports(t.Context(), who, in); err != nil {
			t.Fatal(err)
		} else if len(page.Data) == 2 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the reports were not read")
}

// TestReportsOfTwoAccounts: a message to the report addresses of two accounts is read for both.
func TestReportsOfTwoAccounts(t *testing.T) {
	i, _ := reportWorld(t)
	other := i.AddAccount("owner@other.test")
	i.AddDomain(other, "second.test", nil)
	err := i.Receive("noreply@far.test", strings.ReplaceAll(dmarcMail("r"), "\n", "\r\n"), "dmarc-reports@example.test", "dmarc-reports@second.test")
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]int{}
	if err := i.St.View(func(tx *store.Tx) error {
		for m := range store.ReportMails.All(tx) {
			kept[m.AccountID]++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{i.Account.AccountID, other.AccountID} {
		if kept[id] != 1 {
			t.Errorf("%d messages wait to be read for account %s", kept[id], id)
		}
	}
}

// dmarcMail returns a message with a report about example.test.
func dmarcMail(id string) string {
	return "From: noreply@far.test\nTo: dmarc-reports@example.test\nSubject: report\nMIME-Version: 1.0\n" +
		"Content-Type: text/xml; name=\"far.test!example.test!1795132800!1795219199.xml\"\n" +
		"Content-Disposition: attachment; filename=\"far.test!example.test!1795132800!1795219199.xml\"\n\n" +
		"<feedback><report_metadata><org_name>Far</org_name><email>noreply@far.test</email><report_id>" + id + "</report_id><date_range>" +
		"<begin>1795132800</begin><end>1795219199</end></date_range></report_metadata><policy_published><domain>example.test</domain>" +
		"<p>reject</p></policy_published><record><row><source_ip>192.0.2.9</source_ip><count>7</count><policy_evaluated>" +
		"<disposition>none</disposition><dkim>pass</dkim><spf>fail</spf></policy_evaluated></row><identifiers>" +
		"<header_from>example.test</header_from></identifiers><auth_results/></record></feedback>\n"
}
