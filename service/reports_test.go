package service

import (
	"bytes"
	"context"
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
	"github.com/mailstead/mailstead/store"
)

var stranger = netip.MustParseAddr("192.0.2.1")

// comeIn has a message come in, and gives what it answers.
func (i *installation) comeIn(ip netip.Addr, from, to, text string) error {
	i.t.Helper()
	r, err := i.svc.Accepts(context.Background(), RecipientQuery{From: from, To: to, RemoteIP: ip})
	if err != nil {
		return err
	}
	body, err := i.svc.Spool(strings.NewReader(text))
	if err != nil {
		i.t.Fatal(err)
	}
	defer body.Close()
	_, err = i.svc.Receive(context.Background(), Incoming{Client: Client{IP: ip, Helo: "client.far.test", Extended: true}, From: from, Recipients: []Recipient{r}, Body: body})
	return err
}

func letterFrom(author string) string {
	return "From: " + author + "\r\nTo: ann@example.test\r\nSubject: hello\r\n\r\nhello\r\n"
}

// codeOf is the SMTP code of an error; 250 for none.
func codeOf(err error) int {
	if err == nil {
		return 250
	}
	return AsSMTPError(err).Code
}

// reportWorld is an installation that reports, with a domain that asks for reports.
func reportWorld(t *testing.T) (*installation, *store.Mailbox) {
	i := install(t, Config{Spam: Spam{Reports: true}, Outbound: "capture"})
	i.dns.txt["_dmarc.far.test"] = "v=DMARC1; p=reject; sp=quarantine; pct=100; rua=mailto:dmarc@far.test!1m,mailto:x@third.test"
	i.dns.txt["far.test"] = "v=spf1 ip4:192.0.2.1 -all"
	i.dns.txt["_dmarc.quiet.test"] = "v=DMARC1; p=none"
	return i, i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
}

// yesterday makes what was counted today a day older, as time does.
func (i *installation) yesterday() {
	i.t.Helper()
	day := i.st.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	i.update(func(tx *store.Tx) error {
		var all []*store.DMARCCount
		for c := range store.DMARCCounts.All(tx) {
			all = append(all, c)
		}
		for _, c := range all {
			if err := store.DMARCCounts.Delete(tx, c.ID); err != nil {
				return err
			}
			c.ID, c.Day = day+c.ID[len(day):], day
			if err := store.DMARCCounts.Put(tx, c); err != nil {
				return err
			}
		}
		return store.DMARCDays.Put(tx, &store.DMARCDay{Day: day, Rows: len(all)})
	})
}

func (i *installation) counted() (rows []*store.DMARCCount) {
	i.t.Helper()
	err := i.st.View(func(tx *store.Tx) error {
		for c := range store.DMARCCounts.All(tx) {
			rows = append(rows, c)
		}
		return nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	return rows
}

// TestReportsGoOut counts what DMARC decided and reports it, once, to those who want it.
func TestReportsGoOut(t *testing.T) {
	i, _ := reportWorld(t)
	i.run()
	other := netip.MustParseAddr("198.51.100.7")
	for n, tc := range []struct {
		ip     netip.Addr
		path   string
		author string
		code   int
	}{
		{stranger, "a@far.test", "a@far.test", 250}, {stranger, "b@far.test", "b@far.test", 250},
		{other, "a@far.test", "a@far.test", 550},
		{other, "a@evil.test", "a@m.far.test", 250},
		{stranger, "a@quiet.test", "a@quiet.test", 250},
		{stranger, "a@none.test", "a@none.test", 250},
	} {
		if got := codeOf(i.comeIn(tc.ip, tc.path, "ann@example.test", letterFrom(tc.author))); got != tc.code {
			t.Errorf("%d: %d", n, got)
		}
	}
	if rows := i.counted(); len(rows) != 3 {
		t.Fatalf("%d rows", len(rows))
	}
	plan := func() {
		t.Helper()
		if _, err := i.svc.planReports(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	plan() // of a day that is not over nothing is reported
	i.yesterday()
	plan()
	o := i.becomes("dmarc@far.test", store.OutgoingCaptured)
	if o.Sender != "" || o.Domain != "example.test" || !strings.HasPrefix(o.Subject, "Report Domain: far.test Submitter: mail.mailstead.test Report-ID: <") {
		t.Errorf("row %+v", o)
	}
	if got := i.row("x@third.test"); got.ID != "" {
		t.Error("one who has not asked for it gets a report")
	}
	if rows := i.counted(); len(rows) != 0 {
		t.Errorf("%d rows are left", len(rows))
	}
	plan()
	_ = i.st.View(func(tx *store.Tx) error {
		for d := range store.DMARCDays.All(tx) {
			if d.Day < i.st.Now().UTC().Format(time.DateOnly) {
				t.Errorf("the day %s is left", d.Day)
			}
		}
		return nil
	})
}

// TestReportSaysWhatWasDone looks into a report.
func TestReportSaysWhatWasDone(t *testing.T) {
	i, _ := reportWorld(t)
	for _, tc := range []struct{ ip, path, author string }{
		{"192.0.2.1", "a@far.test", "a@far.test"}, {"192.0.2.1", "b@far.test", "b@far.test"}, {"192.0.2.9", "", "a@far.test"}, {"192.0.2.9", "a@evil.test", "a@m.far.test"},
	} {
		_ = i.comeIn(netip.MustParseAddr(tc.ip), tc.path, "ann@example.test", letterFrom(tc.author)) // one is refused
	}
	i.yesterday()
	args := reportArgs{i.st.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly), "far.test"}
	d, to, err := i.svc.makeReport(args)
	if err != nil || !slices.Equal(to, []string{"mailto:dmarc@far.test!1m", "mailto:x@third.test"}) {
		t.Fatalf("%q, %v", to, err)
	}
	packed, err := d.Gzip()
	if err != nil {
		t.Fatal(err)
	}
	if d, err = dmarcreport.Read(packed); err != nil {
		t.Fatal(err)
	}
	if d.Policy != (dmarcreport.Policy{Domain: "far.test", P: "reject", SP: "quarantine", ADKIM: "r", ASPF: "r", Pct: 100}) || d.Totals != (dmarcreport.Totals{Messages: 4, Passed: 2, Failed: 2}) {
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
		"192.0.2.91rejectfailfailfar.test[{client.far.test  helo none}]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestCountsAreBounded counts no more tuples of a domain than there is room for.
func TestCountsAreBounded(t *testing.T) {
	i, _ := reportWorld(t)
	day := i.st.Now().UTC().Format(time.DateOnly)
	i.update(func(tx *store.Tx) error {
		for n := range maxCountsOfDomain {
			if err := store.DMARCCounts.Put(tx, &store.DMARCCount{ID: fmt.Sprint(day, n), Day: day, Domain: "far.test", Record: []byte("{}"), Policy: []byte("{}"), Count: 1}); err != nil {
				return err
			}
		}
		return nil
	})
	if err := i.comeIn(stranger, "a@far.test", "ann@example.test", letterFrom("a@far.test")); err != nil {
		t.Fatal(err)
	}
	if n := len(i.counted()); n != maxCountsOfDomain {
		t.Errorf("%d rows", n)
	}
	i.dns.txt["_dmarc.other.test"] = i.dns.txt["_dmarc.far.test"]
	i.update(func(tx *store.Tx) error {
		return store.DMARCDays.Put(tx, &store.DMARCDay{Day: day, Rows: maxCountsOfDay})
	})
	if err := i.comeIn(stranger, "a@evil.test", "ann@example.test", letterFrom("a@b.other.test")); err != nil {
		t.Fatal(err)
	}
	if n := len(i.counted()); n != maxCountsOfDomain {
		t.Errorf("%d rows on a day that is full", n)
	}
}

// reportLetterOf is a message of somebody else's that brings a file.
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

func (i *installation) reportsRead() {
	i.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		waiting := 0
		_ = i.st.View(func(tx *store.Tx) error {
			for range store.ReportMails.All(tx) {
				waiting++
			}
			return nil
		})
		if waiting == 0 {
			return
		}
		if time.Now().After(end) {
			i.t.Fatalf("%d messages wait to be read", waiting)
		}
	}
}

func (i *installation) dmarcReports(d *store.Domain) []DMARCReport {
	i.t.Helper()
	out, err := i.svc.ListDMARCReports(context.Background(), Actor{AccountID: d.AccountID}, ListReportsIn{DomainID: d.ID})
	if err != nil {
		i.t.Fatal(err)
	}
	return out.Data
}

// TestReportsComeIn reads what is about domains of the account that got it, at whichever address,
// and tells what is authenticated; what is forged stands in nobody's way.
func TestReportsComeIn(t *testing.T) {
	i, _ := reportWorld(t)
	mine := i.addDomain(i.account, "mine.test", nil) // its postmaster is elsewhere: the mail only passes through
	other := i.addDomain(i.addAccount("other@elsewhere.test"), "other.test", nil)
	i.run()
	name := "far.test!mine.test!1795132800!1795219199.xml.gz"
	in := func(ip netip.Addr, path, to, author, filename, kind string, content []byte) {
		t.Helper()
		if err := i.comeIn(ip, path, to, reportLetterOf(t, author, filename, kind, content)); err != nil {
			t.Fatal(err)
		}
	}
	in(netip.MustParseAddr("198.51.100.1"), "x@forger.test", "postmaster@mine.test", "forger.test", name, "application/gzip", aggregate(t, "mine.test", "1"))
	in(stranger, "noreply@far.test", "postmaster@mine.test", "far.test", name, "application/gzip", aggregate(t, "mine.test", "1"))
	in(stranger, "noreply@far.test", "postmaster@mine.test", "far.test", name, "application/gzip", aggregate(t, "mine.test", "1")) // again
	in(stranger, "noreply@far.test", "postmaster@mine.test", "far.test", name, "application/octet-stream", aggregate(t, "m.mine.test", "2"))
	in(stranger, "noreply@far.test", "ann@example.test", "far.test", name, "application/gzip", aggregate(t, "mine.test", "3"))
	in(stranger, "noreply@far.test", "postmaster@mine.test", "far.test", name, "application/gzip", aggregate(t, "other.test", "4")) // of another account
	in(stranger, "noreply@far.test", "postmaster@mine.test", "far.test", name, "application/gzip", aggregate(t, "test", "5"))
	in(stranger, "noreply@far.test", "postmaster@mine.test", "far.test", name, "application/gzip", []byte("poison"))
	in(stranger, "noreply@far.test", "postmaster@mine.test", "far.test", "holiday.zip", "application/zip", aggregate(t, "mine.test", "6"))
	i.reportsRead()
	var got []string
	for _, r := range i.dmarcReports(mine) {
		got = append(got, fmt.Sprint(r.ReportID, " ", *r.ReceivedFrom, " ", r.Authenticated, " ", r.Totals.Messages))
	}
	slices.Sort(got)
	if want := []string{"1 far.test true 3", "1 forger.test false 3", "2 far.test true 3", "3 far.test true 3"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if n := len(i.dmarcReports(other)); n != 0 {
		t.Errorf("%d reports about another account's domain", n)
	}
	if rows := i.counted(); len(rows) != 1 { // the holiday
		t.Errorf("%d rows count messages that bring reports", len(rows))
	}
	if err := i.svc.eraseReports(t.Context(), mine.ID); err != nil || len(i.dmarcReports(mine)) != 0 {
		t.Errorf("reports outlive their domain: %v", err)
	}
}

// TestReportsOfOurOwn reach a domain that is hosted here as those of others do.
func TestReportsOfOurOwn(t *testing.T) {
	i, _ := reportWorld(t)
	d := i.addDomain(i.account, "asks.test", func(d *store.Domain) { d.CatchAll = "ann@example.test" })
	i.dns.txt["_dmarc.asks.test"] = "v=DMARC1; p=quarantine; rua=mailto:reports@asks.test"
	i.run()
	if err := i.comeIn(stranger, "", "ann@example.test", letterFrom("a@asks.test")); err != nil {
		t.Fatal(err)
	}
	i.yesterday()
	if _, err := i.svc.planReports(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	i.becomes("reports@asks.test", store.OutgoingDelivered)
	i.reportsRead()
	got := i.dmarcReports(d)
	if len(got) != 1 || !got[0].Authenticated || got[0].Records[0].Disposition != "quarantine" || *got[0].Email != "postmaster@example.test" {
		t.Errorf("%+v", got)
	}
}

// TestReportsAreBounded lets the oldest report of a class go for a new one.
func TestReportsAreBounded(t *testing.T) {
	i, _ := reportWorld(t)
	d := i.addDomain(i.account, "mine.test", nil)
	m := &store.ReportMail{AccountID: d.AccountID, From: "far.test", ReceivedAt: i.st.Now()}
	file := func(n int, authenticated bool) {
		m.Authenticated = authenticated
		i.update(func(tx *store.Tx) error {
			return fileReport(tx, m, foundReport{store.Report{Kind: store.ReportDMARC, ReportID: fmt.Sprint(n), Org: "o", Body: []byte("{}")}, "mine.test"})
		})
	}
	file(0, true)
	for n := range reportsOfDomain + 5 {
		file(n, false)
	}
	count := map[bool]int{}
	ids := map[string]bool{}
	_ = i.st.View(func(tx *store.Tx) error {
		for r := range store.Reports.All(tx) {
			count[r.Authenticated]++
			ids[fmt.Sprint(r.ReportID, r.Authenticated)] = true
		}
		return nil
	})
	if count[true] != 1 || count[false] != reportsOfDomain || ids["4false"] || !ids["5false"] {
		t.Errorf("%v are kept", count)
	}
}

// Reports on the default policy are collected without anybody doing anything: read, and not filed.
func TestReportsAreCollected(t *testing.T) {
	const address = "dmarc-reports@example.test"
	for _, sandbox := range []bool{false, true} {
		i := install(t, Config{Outbound: "capture", Sandbox: sandbox})
		d := i.addDomain(i.account, "example.test", nil)
		policy := "v=DMARC1; p=reject; rua=mailto:" + address
		if sandbox {
			policy = dmarc.Default
		}
		records, err := i.svc.managedRecords(d)
		if err != nil || !slices.ContainsFunc(records, func(r dnsprov.Record) bool { return r.Name == "_dmarc.example.test" && r.Value == policy }) {
			t.Errorf("sandbox %v: %v, %v", sandbox, records, err)
		}
	}
	i, ann := reportWorld(t)
	i.run()
	who := Actor{AccountID: ann.AccountID, Role: "owner", Permissions: []string{"admin"}}
	if _, err := i.svc.CreateEmailUser(t.Context(), who, CreateEmailUserIn{Email: address}); err == nil {
		t.Error("a mailbox has the reserved address")
	}
	for n, to := range []string{address, "dmarc-reports+x@example.test"} {
		text := strings.ReplaceAll(dmarcMail(fmt.Sprint("r", n)), "\n", "\r\n")
		if got := codeOf(i.comeIn(stranger, "noreply@far.test", to, text)); got != 250 {
			t.Fatalf("%s: %d", to, got)
		}
	}
	in := ListReportsIn{DomainID: ann.DomainID}
	for range 500 {
		if page, err := i.svc.ListDMARCReports(t.Context(), who, in); err != nil {
			t.Fatal(err)
		} else if len(page.Data) == 2 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the reports were not read")
}

// TestReportsOfTwoAccounts: one message to the addresses for reports of two accounts is read for
// each.
func TestReportsOfTwoAccounts(t *testing.T) {
	i, _ := reportWorld(t)
	other := i.addAccount("owner@other.test")
	i.addDomain(other, "second.test", nil)
	err := i.receive("noreply@far.test", strings.ReplaceAll(dmarcMail("r"), "\n", "\r\n"), "dmarc-reports@example.test", "dmarc-reports@second.test")
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]int{}
	if err := i.st.View(func(tx *store.Tx) error {
		for m := range store.ReportMails.All(tx) {
			kept[m.AccountID]++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{i.account.AccountID, other.AccountID} {
		if kept[id] != 1 {
			t.Errorf("%d messages wait to be read for account %s", kept[id], id)
		}
	}
}

// dmarcMail brings a report about example.test.
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
