package store

import "time"

// A GreyTuple is a sender that was told to come again (RFC 6647), and whether it has.
type GreyTuple struct {
	ID      string    `json:",omitzero"` // a digest of network, sender and recipient
	FirstAt time.Time `json:",omitzero"`
	Expires time.Time `json:",omitzero"`
	Passed  bool      `json:",omitzero"`
}

// GreyTuples keeps them; GreyTuplesByTime finds those that are forgotten first.
var (
	GreyTuples       = newTable("grey_tuple", func(g *GreyTuple) string { return g.ID })
	GreyTuplesByTime = GreyTuples.index("time", func(g *GreyTuple) string { return TimeKey(g.Expires) })
)

// A KnownSender is a domain from which an account got mail that was proven to be from there.
type KnownSender struct {
	AccountID string    `json:",omitzero"`
	Domain    string    `json:",omitzero"`
	Expires   time.Time `json:",omitzero"`
}

// KnownSenders keeps them; KnownSendersByTime finds those that are forgotten first.
var (
	KnownSenders       = newTable("known_sender", func(k *KnownSender) string { return k.AccountID + k.Domain })
	KnownSendersByTime = KnownSenders.index("time", func(k *KnownSender) string { return TimeKey(k.Expires) })
)
