package core

import "github.com/mailstead/mailstead/store"

// A SendingPause says why and since when a mailbox or domain may not send.
type SendingPause struct {
	Reason string `json:"reason" enum:"bounces|complaints"`
	At     Time   `json:"at"`
}

// PauseOut returns a pause in the form of the API; nil for none.
func PauseOut(p *store.SendingPaused) *SendingPause {
	if p == nil {
		return nil
	}
	return &SendingPause{p.Reason, Time{Time: p.At}}
}
