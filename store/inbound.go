package store

import (
	"encoding/json"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// A ReportMail is a message that may contain a DMARC or TLS report about domains of the account. It
// is kept until it has been parsed.
type ReportMail struct {
	ID            string    `json:",omitzero"` // rpm_…
	AccountID     string    `json:",omitzero"`
	Blob          BlobRef   `json:",omitzero"`
	From          string    `json:",omitzero"` // domain of its author; "" if that is not known
	Authenticated bool      `json:",omitzero"` // the message was proven to be from that domain
	ReceivedAt    time.Time `json:",omitzero"`
}

// ReportMails keeps the messages that wait to be parsed. Check verifies that the Blob of each has a
// reference.
var (
	ReportMails          = engine.NewTable("report_mail", func(m *ReportMail) string { return m.ID })
	ReportMailsByAccount = ReportMails.Index("account", func(m *ReportMail) string { return m.AccountID })
)

// Values of Report.Kind.
const (
	ReportDMARC = "dmarc" // RFC 9990
	ReportTLS   = "tls"   // RFC 8460
)

// A Report is a DMARC or TLS report that another mail operator has sent about a domain.
type Report struct {
	ID            string          `json:",omitzero"` // rep_…
	AccountID     string          `json:",omitzero"`
	DomainID      string          `json:",omitzero"`
	Kind          string          `json:",omitzero"` // one of the Report… constants
	ReportID      string          `json:",omitzero"` // the id that its sender gave it
	From          string          `json:",omitzero"` // domain of the author of the message with the report
	Authenticated bool            `json:",omitzero"` // the message was proven to be from that domain
	Org           string          `json:",omitzero"`
	Begin         time.Time       `json:",omitzero"`
	End           time.Time       `json:",omitzero"`
	Body          json.RawMessage `json:",omitempty"` // the whole report, encoded by the service
	ReceivedAt    time.Time       `json:",omitzero"`
}

// Reports keeps reports for 90 days. Ids increase with time, so that pruning deletes the first
// rows. ReportsBySender finds an earlier copy of a report. Its keys differ between authenticated
// and other reports, so that a forged report cannot replace a real one.
var (
	Reports         = engine.NewTable("report", func(r *Report) string { return r.ID })
	ReportsByDomain = Reports.Index("domain", func(r *Report) string { return r.DomainID + r.Kind + "\x00" })
	ReportsBySender = Reports.Index("sender", func(r *Report) string { return ReportSenderKey(r) })
	// ReportsByClass separates the authenticated reports of a domain from the others, so that each
	// class has a limit of its own.
	ReportsByClass = Reports.Index("class", func(r *Report) string { return ReportClassKey(r) })
)

// ReportSenderKey returns the key of a report in ReportsBySender.
func ReportSenderKey(r *Report) string {
	return ReportClassKey(r) + r.From + "\x00" + r.ReportID + "\x00"
}

// ReportClassKey returns the key of a report in ReportsByClass.
func ReportClassKey(r *Report) string {
	if r.Authenticated {
		return r.DomainID + r.Kind + "\x00a"
	}
	return r.DomainID + r.Kind + "\x00u"
}

// A DMARCCount counts messages of one day with the same DMARC result. It is kept until it has been
// reported to the address in the domain's policy.
type DMARCCount struct {
	ID     string          `json:",omitzero"`  // digest of Day, Domain and Record
	Day    string          `json:",omitzero"`  // YYYY-MM-DD, UTC
	Domain string          `json:",omitzero"`  // the domain that publishes the policy
	Policy json.RawMessage `json:",omitempty"` // the published policy, encoded by the service
	Record json.RawMessage `json:",omitempty"` // what the messages have in common, encoded by the service
	Count  int64           `json:",omitzero"`
}

// DMARCCounts keeps the counts in the order of days and domains.
var (
	DMARCCounts      = engine.NewTable("dmarc_count", func(c *DMARCCount) string { return c.ID })
	DMARCCountsByDay = DMARCCounts.Index("day", func(c *DMARCCount) string { return c.Day + c.Domain + "\x00" })
)

// A DMARCDay counts the rows of DMARCCounts for one day.
type DMARCDay struct {
	Day  string
	Rows int
}

// DMARCDays keeps one record for each day with rows in DMARCCounts.
var DMARCDays = engine.NewTable("dmarc_day", func(d *DMARCDay) string { return d.Day })

// Facts are what was found out about a message on arrival, and what follows from it. When the
// message is stored, they are copied to its rows.
type Facts struct {
	SPF       string `json:",omitzero"`
	DKIM      string `json:",omitzero"`
	DMARC     string `json:",omitzero"`
	Judged    string `json:",omitzero"`      // see Meta.Judged
	Genuine   bool   `json:",omitzero"`      // the sender may be notified of failures, since SPF, DKIM or this server proves the address
	Junk      bool   `json:",omitzero"`      // it goes to the Junk folder, whatever the rules say
	Authentic bool   `json:",omitzero"`      // the domain of its author is proven
	Proven    string `json:",omitzero"`      // the author's verified domain: a check proves everything that a reader is shown; "": none
	Signed    bool   `json:",omitzero"`      // only a DKIM signature proves Proven, so Proven counts only for recipients named in To and Cc
	Lacks     string `json:",omitzero"`      // why Proven is "" although DMARC passes
	Origin    string `json:"Words,omitzero"` // who wrote it, see Meta.Origin
}

// An Arrival is a message from outside with so many recipients that one transaction cannot file it
// for all of them. The record says what is left to do, and is kept until the message is filed for
// the last recipient. It changes in the same transaction that files copies, so that each copy is
// filed once.
type Arrival struct {
	Facts
	ID         string          `json:",omitzero"`  // arr_…
	Blob       BlobRef         `json:",omitzero"`  // the message as it is filed
	Sender     string          `json:",omitzero"`  // return path; "" for a report
	From       string          `json:",omitzero"`  // domain of its author; "" if that is not known
	To         []string        `json:",omitempty"` // recipients that it is not filed for yet
	Later      []string        `json:",omitempty"` // recipients that could not take it for now
	Refused    []RefusedRcpt   `json:",omitempty"` // recipients that cannot take it any more; the sender is to be notified
	Placed     map[string]bool `json:",omitempty"` // keys of the destinations that it was filed for, so that two addresses of one mailbox get one copy
	Tries      int             `json:",omitzero"`  // number of attempts after which recipients were left in Later
	ReceivedAt time.Time       `json:",omitzero"`
	RequireTLS bool            `json:",omitzero"`  // it came with REQUIRETLS, and is forwarded with it
	Decisions  []byte          `json:",omitempty"` // what the rules and forwards of the mailboxes do with it, as JSON
	SentBy     string          `json:",omitzero"`  // id of the mailbox here that sent it
}

// A RefusedRcpt is a recipient that was accepted over SMTP but refused later, with the SMTP reply
// for it.
type RefusedRcpt struct {
	Address  string `json:",omitzero"`
	Enhanced string `json:",omitzero"`
	Text     string `json:",omitzero"`
}

// Arrivals keeps the messages that are not filed for all recipients. Check verifies that the Blob
// of each has a reference.
var Arrivals = engine.NewTable("arrival", func(a *Arrival) string { return a.ID })

// A GreyTuple is the greylisting state (RFC 6647) of one network, sender and recipient: when the
// sending server was first asked to try again later, and whether it did.
type GreyTuple struct {
	ID      string    `json:",omitzero"` // digest of network, sender and recipient
	FirstAt time.Time `json:",omitzero"`
	Expires time.Time `json:",omitzero"`
	Passed  bool      `json:",omitzero"`
}

// GreyTuples keeps the greylisting state. Pruning reads GreyTuplesByTime.
var (
	GreyTuples       = engine.NewTable("grey_tuple", func(g *GreyTuple) string { return g.ID })
	GreyTuplesByTime = GreyTuples.Index("time", func(g *GreyTuple) string { return TimeKey(g.Expires) })
)

// A KnownSender is a domain that has sent authenticated mail to an account.
type KnownSender struct {
	AccountID string    `json:",omitzero"`
	Domain    string    `json:",omitzero"`
	Expires   time.Time `json:",omitzero"`
}

// KnownSenders keeps the known senders. Pruning reads KnownSendersByTime.
var (
	KnownSenders       = engine.NewTable("known_sender", func(k *KnownSender) string { return k.AccountID + k.Domain })
	KnownSendersByTime = KnownSenders.Index("time", func(k *KnownSender) string { return TimeKey(k.Expires) })
)
