package store

import "testing"

// TestDomainPredicates goes through every claim, state and provider.
func TestDomainPredicates(t *testing.T) {
	for _, claim := range []string{ClaimProven, ClaimOpen, ClaimLost, ClaimExpired} {
		for _, status := range []string{
			DomainPending, DomainPendingNS, DomainPendingDNS, DomainInProgress, DomainComplete, DomainError, DomainDeleting,
		} {
			for _, provider := range []string{
				DomainProviderBuiltin, DomainProviderCloudflare, DomainProviderManual, DomainProviderExternal,
			} {
				d := &Domain{Claim: claim, Status: status, DNSProvider: provider}
				proven, complete, external := claim == "", status == "complete", provider == "external"
				for name, is := range map[string][2]bool{
					"Hosted":     {d.Hosted(), proven && complete && !external},
					"MaySend":    {d.MaySend(), complete && (external || proven)},
					"ClaimEnded": {d.ClaimEnded(), claim == "lost" || claim == "expired"},
					"Gone":       {d.Gone(), status == "deleting"},
				} {
					if is[0] != is[1] {
						t.Errorf("claim %q, status %q, provider %q: %s is %v", claim, status, provider, name, is[0])
					}
				}
			}
		}
	}
}

// TestMailboxPredicates goes through every state and kind of mailbox.
func TestMailboxPredicates(t *testing.T) {
	elsewhere, sends := &External{}, &External{SMTP: &Server{}}
	for _, status := range []string{MailboxPending, MailboxActive, MailboxSuspended, MailboxError, MailboxDeleting} {
		for name, m := range map[string]*Mailbox{
			"hosted":                 {Type: MailboxTypeHosted},
			"external, without SMTP": {Type: MailboxTypeExternal, External: elsewhere},
			"external":               {Type: MailboxTypeExternal, External: sends},
			"external, of nothing":   {Type: MailboxTypeExternal},
		} {
			m.Status = status
			active := status == "active"
			for predicate, is := range map[string][2]bool{
				"MayLogIn":   {m.MayLogIn(), active},
				"MayReceive": {m.MayReceive(), active},
				"MaySend":    {m.MaySend(), active && (m.Type == "hosted" || m.External == sends)},
				"MayFetch":   {m.MayFetch(), m.External != nil && (active || status == "error")},
				"Gone":       {m.Gone(), status == "deleting"},
			} {
				if is[0] != is[1] {
					t.Errorf("%s, %s: %s is %v", name, status, predicate, is[0])
				}
			}
		}
	}
}

func TestOnlyASuspendedAccountMayNotAct(t *testing.T) {
	for status, may := range map[string]bool{AccountActive: true, AccountSuspended: false, "": true} {
		if a := (&Account{Status: status}); a.MayAct() != may {
			t.Errorf("an account that is %q may act: %v", status, a.MayAct())
		}
	}
}
