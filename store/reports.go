package store

import (
	"encoding/json"
	"time"
)

// A ReportMail is a message that may hold a report about domains of the account, kept until it has
// been read.
type ReportMail struct {
	ID            string    `json:",omitzero"` // rpm_…
	AccountID     string    `json:",omitzero"`
	Blob          BlobRef   `json:",omitzero"`
	From          string    `json:",omitzero"` // domain of its author, "" where that is not known
	Authenticated bool      `json:",omitzero"` // it is from there
	ReceivedAt    time.Time `json:",omitzero"`
}

// ReportMails keeps them; Check counts their blobs among the references.
var (
	ReportMails          = newTable("report_mail", func(m *ReportMail) string { return m.ID })
	ReportMailsByAccount = ReportMails.index("account", func(m *ReportMail) string { return m.AccountID })
)

// Kinds of a Report.
const (
	ReportDMARC = "dmarc" // RFC 7489 section 7.2
	ReportTLS   = "tls"   // RFC 8460
)

// A Report is what another operator has told about a domain.
type Report struct {
	ID            string          `json:",omitzero"` // rep_…
	AccountID     string          `json:",omitzero"`
	DomainID      string          `json:",omitzero"`
	Kind          string          `json:",omitzero"` // one of the Report… constants
	ReportID      string          `json:",omitzero"` // as its sender counts them
	From          string          `json:",omitzero"` // domain of the message that brought it
	Authenticated bool            `json:",omitzero"` // that message was from there
	Org           string          `json:",omitzero"`
	Begin         time.Time       `json:",omitzero"`
	End           time.Time       `json:",omitzero"`
	Body          json.RawMessage `json:",omitempty"` // all of it, as the service writes it
	ReceivedAt    time.Time       `json:",omitzero"`
}

// Reports keeps them for 90 days. Ids rise with time, so that pruning takes the first ones.
// ReportsBySender finds one that came before; what is authenticated and what is not never meet
// there, so that a forged one stands in no one's way.
var (
	Reports         = newTable("report", func(r *Report) string { return r.ID })
	ReportsByDomain = Reports.index("domain", func(r *Report) string { return r.DomainID + r.Kind + "\x00" })
	ReportsBySender = Reports.index("sender", func(r *Report) string { return ReportSender(r) })
	// ReportsByClass parts the authenticated ones of a domain from the others, so that each have
	// their own room.
	ReportsByClass = Reports.index("class", func(r *Report) string { return ReportClass(r) })
)

// ReportSender is the key of ReportsBySender.
func ReportSender(r *Report) string {
	return ReportClass(r) + r.From + "\x00" + r.ReportID + "\x00"
}

// ReportClass is the key of ReportsByClass.
func ReportClass(r *Report) string {
	if r.Authenticated {
		return r.DomainID + r.Kind + "\x00a"
	}
	return r.DomainID + r.Kind + "\x00u"
}

// A DMARCCount counts messages of one day that DMARC judged alike, until they have been reported to
// who asks for reports.
type DMARCCount struct {
	ID     string          `json:",omitzero"`  // of the day, the domain and what is alike
	Day    string          `json:",omitzero"`  // YYYY-MM-DD, UTC
	Domain string          `json:",omitzero"`  // that publishes the policy
	Policy json.RawMessage `json:",omitempty"` // that was published, as the service writes it
	Record json.RawMessage `json:",omitempty"` // what is alike
	Count  int64           `json:",omitzero"`
}

// DMARCCounts keeps them in the order of days and domains.
var (
	DMARCCounts      = newTable("dmarc_count", func(c *DMARCCount) string { return c.ID })
	DMARCCountsByDay = DMARCCounts.index("day", func(c *DMARCCount) string { return c.Day + c.Domain + "\x00" })
)

// A DMARCDay says how many rows of DMARCCounts a day has.
type DMARCDay struct {
	Day  string
	Rows int
}

// DMARCDays keeps one for each day that has rows.
var DMARCDays = newTable("dmarc_day", func(d *DMARCDay) string { return d.Day })
