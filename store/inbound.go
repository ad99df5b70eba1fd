package store

import (
	"encoding/json"
	"time"

	"github.com/mailstead/mailstead/store/engine"
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
	ReportMails          = engine.NewTable("report_mail", func(m *ReportMail) string { return m.ID })
	ReportMailsByAccount = ReportMails.Index("account", func(m *ReportMail) string { return m.AccountID })
)

// Kinds of a Report.
const (
	ReportDMARC = "dmarc" // RFC 9990
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
	Reports         = engine.NewTable("report", func(r *Report) string { return r.ID })
	ReportsByDomain = Reports.Index("domain", func(r *Report) string { return r.DomainID + r.Kind + "\x00" })
	ReportsBySender = Reports.Index("sender", func(r *Report) string { return ReportSender(r) })
	// ReportsByClass parts the authenticated ones of a domain from the others, so that each have
	// their own room.
	ReportsByClass = Reports.Index("class", func(r *Report) string { return ReportClass(r) })
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
	DMARCCounts      = engine.NewTable("dmarc_count", func(c *DMARCCount) string { return c.ID })
	DMARCCountsByDay = DMARCCounts.Index("day", func(c *DMARCCount) string { return c.Day + c.Domain + "\x00" })
)

// A DMARCDay says how many rows of DMARCCounts a day has.
type DMARCDay struct {
	Day  string
	Rows int
}

// DMARCDays keeps one for each day that has rows.
var DMARCDays = engine.NewTable("dmarc_day", func(d *DMARCDay) string { return d.Day })

// Facts are what was found out about a message when it came, and what follows from that. They go
// with it from the moment at which it is accepted to its rows.
type Facts struct {
	SPF       string `json:",omitzero"`
	DKIM      string `json:",omitzero"`
	DMARC     string `json:",omitzero"`
	Judged    string `json:",omitzero"`      // see Meta.Judged
	Genuine   bool   `json:",omitzero"`      // the sender may be told of failures: SPF, DKIM or this server vouches for it
	Junk      bool   `json:",omitzero"`      // it goes to Junk, whatever rules say
	Authentic bool   `json:",omitzero"`      // the domain of its author vouches for it
	Proven    string `json:",omitzero"`      // domain that its author is from for sure, by a proof of all that is shown; "": nobody knows
	Signed    bool   `json:",omitzero"`      // a signature alone proves that, so that it does so only for whom To and Cc name
	Lacks     string `json:",omitzero"`      // why nothing is proven although DMARC passes
	Origin    string `json:"Words,omitzero"` // who wrote it, see Meta.Origin
}

// An Arrival is a message from outside that was taken for more recipients than one transaction
// serves, kept until the last of them has it. What is left to do is in the record, and changes in
// the transaction that does it: each copy is filed once.
type Arrival struct {
	Facts
	ID         string          `json:",omitzero"`  // arr_…
	Blob       BlobRef         `json:",omitzero"`  // the message as it is filed
	Sender     string          `json:",omitzero"`  // return path; "" for a report
	From       string          `json:",omitzero"`  // domain of its author, "" where that is not known
	To         []string        `json:",omitempty"` // addresses that have not had it
	Later      []string        `json:",omitempty"` // those that could not take it for now
	Refused    []RefusedRcpt   `json:",omitempty"` // those that cannot take it any more, of whom the sender is to be told
	Placed     map[string]bool `json:",omitempty"` // where it is, so that two addresses of one mailbox are one copy
	Tries      int             `json:",omitzero"`  // turns that left somebody for later
	ReceivedAt time.Time       `json:",omitzero"`
	RequireTLS bool            `json:",omitzero"`  // it came with REQUIRETLS, and goes on with it
	Decisions  []byte          `json:",omitempty"` // what its mailboxes do with it by themselves, JSON
	SentBy     string          `json:",omitzero"`  // id of the mailbox here that sent it
}

// A RefusedRcpt is a recipient that was accepted and could then not be served, with the answer that
// it would get.
type RefusedRcpt struct {
	Address  string `json:",omitzero"`
	Enhanced string `json:",omitzero"`
	Text     string `json:",omitzero"`
}

// Arrivals keeps them; Check counts their blobs among the references.
var Arrivals = engine.NewTable("arrival", func(a *Arrival) string { return a.ID })

// A GreyTuple is a sender that was told to come again (RFC 6647), and whether it has.
type GreyTuple struct {
	ID      string    `json:",omitzero"` // a digest of network, sender and recipient
	FirstAt time.Time `json:",omitzero"`
	Expires time.Time `json:",omitzero"`
	Passed  bool      `json:",omitzero"`
}

// GreyTuples keeps them; GreyTuplesByTime finds those that are forgotten first.
var (
	GreyTuples       = engine.NewTable("grey_tuple", func(g *GreyTuple) string { return g.ID })
	GreyTuplesByTime = GreyTuples.Index("time", func(g *GreyTuple) string { return TimeKey(g.Expires) })
)

// A KnownSender is a domain from which an account got mail that was proven to be from there.
type KnownSender struct {
	AccountID string    `json:",omitzero"`
	Domain    string    `json:",omitzero"`
	Expires   time.Time `json:",omitzero"`
}

// KnownSenders keeps them; KnownSendersByTime finds those that are forgotten first.
var (
	KnownSenders       = engine.NewTable("known_sender", func(k *KnownSender) string { return k.AccountID + k.Domain })
	KnownSendersByTime = KnownSenders.Index("time", func(k *KnownSender) string { return TimeKey(k.Expires) })
)
