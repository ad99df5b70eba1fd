package core

import (
	"time"

	"github.com/mailstead/mailstead/mail/deliver"
)

// TrialTimeout is how long a trial of another mail server may take.
const TrialTimeout = 20 * time.Second

// TrialClient returns a client that connects to other mail servers to see whether they answer.
// guarded says that the address guard decides which addresses they may have.
func (c *Core) TrialClient(guarded bool) *deliver.Client {
	client := &deliver.Client{
		Hostname: c.Hostname(), Resolver: c.Resolver, RootCAs: c.Config.RootCAs, IdlePerHop: -1,
		Timeouts: deliver.Timeouts{Connect: TrialTimeout / 4, Greeting: TrialTimeout, Command: TrialTimeout / 2, Overall: TrialTimeout},
	}
	if guarded {
		client.Dialer = c.Guard.Dialer(c.Resolver)
	}
	return client
}
