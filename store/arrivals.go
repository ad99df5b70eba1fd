package store

import "time"

// An Arrival is a message from outside that was taken for more recipients than one transaction
// serves, kept until the last of them has it. What is left to do is in the record, and changes in
// the transaction that does it: each copy is filed once.
type Arrival struct {
	ID         string          `json:",omitzero"` // arr_…
	Blob       BlobRef         `json:",omitzero"` // the message as it is filed
	Sender     string          `json:",omitzero"` // return path; "" for a report
	Genuine    bool            `json:",omitzero"` // the sender may be told of failures
	Junk       bool            `json:",omitzero"`
	SPF        string          `json:",omitzero"`
	DKIM       string          `json:",omitzero"`
	DMARC      string          `json:",omitzero"`
	From       string          `json:",omitzero"`  // domain of its author, "" where that is not known
	Authentic  bool            `json:",omitzero"`  // it is from there
	To         []string        `json:",omitempty"` // addresses that have not had it
	Later      []string        `json:",omitempty"` // those that could not take it for now
	Refused    []RefusedRcpt   `json:",omitempty"` // those that cannot take it any more, of whom the sender is to be told
	Placed     map[string]bool `json:",omitempty"` // where it is, so that two addresses of one mailbox are one copy
	Tries      int             `json:",omitzero"`  // turns that left somebody for later
	ReceivedAt time.Time       `json:",omitzero"`
}

// A RefusedRcpt is a recipient that was accepted and could then not be served, with the answer that
// it would get.
type RefusedRcpt struct {
	Address  string `json:",omitzero"`
	Enhanced string `json:",omitzero"`
	Text     string `json:",omitzero"`
}

// Arrivals keeps them; Check counts their blobs among the references.
var Arrivals = newTable("arrival", func(a *Arrival) string { return a.ID })
