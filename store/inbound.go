package store

import (
	"encoding/json"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// A ReportMail is a message that may hold a report about the account's domains. It is kept until it
// has been parsed.
type ReportMail struct {
	ID            string    `json:",omitzero"` // rpm_…
	AccountID     string    `json:",omitzero"`
	Blob          BlobRef   `json:",omitzero"`
	From          string    `json:",omitzero"` // domain of its author; "" if that is not known
	Authenticated bool      `json:",omitzero"` // the message was proven to be from that domain
	ReceivedAt    time.Time `json:",omitzero"`
}

// ReportMails keeps the messages that wait to be parsed; Check counts their blobs among the
// references.
var (
	ReportMails          = engine.NewTable("report_mail", func(m *ReportMail) string { return m.ID })
	ReportMailsByAccount = ReportMails.Index("account", func(m *ReportMail) string { return m.AccountID })
)

// Kinds of a Report.
const (
	ReportDMARC = "dmarc" // RFC 9990
	ReportTLS   = "tls"   // RFC 8460
)

// A Report is a report of another operator about a domain.
type Report struct {
	ID            string          `json:",omitzero"` // rep_…
	AccountID     string          `json:",omitzero"`
	DomainID      string          `json:",omitzero"`
	Kind          string          `json:",omitzero"` // one of the Report… constants
	ReportID      string          `json:",omitzero"` // the id that its sender gave it
	From          string          `json:",omitzero"` // domain that sent the message with the report
	Authenticated bool            `json:",omitzero"` // the message was proven to be from that domain
	Org           string          `json:",omitzero"`
	Begin         time.Time       `json:",omitzero"`
	End           time.Time       `json:",omitzero"`
	Body          json.RawMessage `json:",omitempty"` // the whole report, as the service encodes it
	ReceivedAt    time.Time       `json:",omitzero"`
}

// Reports keeps reports for 90 days. Ids rise with time, so that pruning deletes the first rows.
// ReportsBySender finds an earlier copy of a report. Authenticated and other reports have different
// keys there, so that a forged report cannot displace a real one.
var (
	Reports         = engine.NewTable("report", func(r *Report) string { return r.ID })
	ReportsByDomain = Reports.Index("domain", func(r *Report) string { return r.DomainID + r.Kind + "\x00" })
	ReportsBySender = Reports.Index("sender", func(r *Report) string { return ReportSender(r) })
	// ReportsByClass separates the authenticated reports of a domain from the others, so that each
	// class has a limit of its own.
	ReportsByClass = Reports.Index("class", func(r *Report) string { return ReportClass(r) })
)

// ReportSender returns a key of ReportsBySender.
func ReportSender(r *Report) string {
	return ReportClass(r) + r.From + "\x00" + r.ReportID + "\x00"
}

// ReportClass returns a key of ReportsByClass.
func ReportClass(r *Report) string {
	if r.Authenticated {
		return r.DomainID + r.Kind + "\x00a"
	}
	return r.DomainID + r.Kind + "\x00u"
}

// A DMARCCount counts messages of one day with the same DMARC result, until the count has been
// reported to the address in the domain's policy.
type DMARCCount struct {
	ID     string          `json:",omitzero"`  // digest of the day, the domain and what the messages have in common
	Day    string          `json:",omitzero"`  // YYYY-MM-DD, UTC
	Domain string          `json:",omitzero"`  // the domain that publishes the policy
	Policy json.RawMessage `json:",omitempty"` // the published policy, as the service encodes it
	Record json.RawMessage `json:",omitempty"` // what the messages have in common
	Count  int64           `json:",omitzero"`
}

// DMARCCounts keeps the counts in the order of days and domains.
var (
	DMARCCounts      = engine.NewTable("dmarc_count", func(c *DMARCCount) string { return c.ID })
	DMARCCountsByDay = DMARCCounts.Index("day", func(c *DMARCCount) string { return c.Day + c.Domain + "\x00" })
)

// A DMARCDay says how many rows of DMARCCounts a day has.
type DMARCDay struct {
	Day  string
	Rows int
}

// DMARCDays keeps one record for each day that has rows.
var DMARCDays = engine.NewTable("dmarc_day", func(d *DMARCDay) string { return d.Day })

// Facts are what was found out about a message on arrival, and what follows from that. They are
// copied with the message from its acceptance to its rows.
type Facts struct {
	SPF       string `json:",omitzero"`
	DKIM      string `json:",omitzero"`
	DMARC     string `json:",omitzero"`
	Judged    string `json:",omitzero"`      // see Meta.Judged
	Genuine   bool   `json:",omitzero"`      // the sender may be notified of failures: SPF, DKIM or this server proves the address
	Junk      bool   `json:",omitzero"`      // it goes to Junk, whatever the rules say
	Authentic bool   `json:",omitzero"`      // the domain of its author is proven
	Proven    string `json:",omitzero"`      // domain that the author certainly belongs to, because a check covers everything that is shown; "": not known
	Signed    bool   `json:",omitzero"`      // only a signature proves that, so it counts only for recipients named in To and Cc
	Lacks     string `json:",omitzero"`      // why nothing is proven although DMARC passes
	Origin    string `json:"Words,omitzero"` // who wrote it, see Meta.Origin
}

// An Arrival is a message from outside with more recipients than one transaction can serve. It is
// kept until the last recipient has it. The record says what is left to do, and changes in the
// transaction that does it, so that each copy is filed once.
type Arrival struct {
	Facts
	ID         string          `json:",omitzero"`  // arr_…
	Blob       BlobRef         `json:",omitzero"`  // the message as it is filed
	Sender     string          `json:",omitzero"`  // return path; "" for a report
	From       string          `json:",omitzero"`  // domain of its author; "" if that is not known
	To         []string        `json:",omitempty"` // addresses that do not have it yet
	Later      []string        `json:",omitempty"` // addresses that could not take it for now
	Refused    []RefusedRcpt   `json:",omitempty"` // addresses that cannot take it any more, which the sender is to be notified of
	Placed     map[string]bool `json:",omitempty"` // where it has been filed, so that two addresses of one mailbox get one copy
	Tries      int             `json:",omitzero"`  // attempts that left recipients in Later
	ReceivedAt time.Time       `json:",omitzero"`
	RequireTLS bool            `json:",omitzero"`  // it came with REQUIRETLS, and is forwarded with it
	Decisions  []byte          `json:",omitempty"` // what the rules and forwards of its mailboxes do with it, JSON
	SentBy     string          `json:",omitzero"`  // id of the mailbox here that sent it
}

// A RefusedRcpt is a recipient that was accepted but could not be served later, with the SMTP reply
// for it.
type RefusedRcpt struct {
	Address  string `json:",omitzero"`
	Enhanced string `json:",omitzero"`
	Text     string `json:",omitzero"`
}

// Arrivals keeps the messages that are not filed for all recipients; Check counts their blobs among
// the references.
var Arrivals = engine.NewTable("arrival", func(a *Arrival) string { return a.ID })

// A GreyTuple is a sender that was asked to try again later (RFC 6647), and whether it has.
type GreyTuple struct {
	ID      string    `json:",omitzero"` // a digest of network, sender and recipient
	FirstAt time.Time `json:",omitzero"`
	Expires time.Time `json:",omitzero"`
	Passed  bool      `json:",omitzero"`
}

// GreyTuples keeps the greylisting tuples; GreyTuplesByTime finds those that expire first.
var (
	GreyTuples       = engine.NewTable("grey_tuple", func(g *GreyTuple) string { return g.ID })
	GreyTuplesByTime = GreyTuples.Index("time", func(g *GreyTuple) string { return TimeKey(g.Expires) })
)

// A KnownSender is a domain that has sent proven mail to an account.
type KnownSender struct {
	AccountID string    `json:",omitzero"`
	Domain    string    `json:",omitzero"`
	Expires   time.Time `json:",omitzero"`
}

// KnownSenders keeps the known senders; KnownSendersByTime finds those that expire first.
var (
	KnownSenders       = engine.NewTable("known_sender", func(k *KnownSender) string { return k.AccountID + k.Domain })
	KnownSendersByTime = KnownSenders.Index("time", func(k *KnownSender) string { return TimeKey(k.Expires) })
)
