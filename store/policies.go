package store

import "github.com/mailstead/mailstead/store/policy"

// Types of policies and of what was read under them; see package policy.
type (
	// A Policy restricts what may be sent with a token or a credential, or from a mailbox.
	Policy = policy.Policy
	// A Reading records what the holder of a token or a credential has read.
	Reading = policy.Reading
	// A Taint records the first message with text of a stranger that the holder has read.
	Taint = policy.Taint
)

// Values of Policy.Send, and the shortest time for which a taint lasts.
const (
	SendAllow       = policy.SendAllow
	SendReplyOnly   = policy.SendReplyOnly
	SendApproval    = policy.SendApproval
	SendDeny        = policy.SendDeny
	MinTaintSeconds = policy.MinTaintSeconds
)
