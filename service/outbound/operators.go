package outbound

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/reputation"
)

// destinationLimits limit the mail to the hosts of one operator.
type destinationLimits struct {
	Connections int           // open at the same time; 0: no limit
	PerMinute   int           // messages; 0: no limit
	Pause       time.Duration // minimum pause after an answer that asks for less mail
	Relay       string        // name of the relay that takes all mail for the operator; "": none
}

// gap returns the minimum time between two messages; 0 if there is no limit per minute.
func (l destinationLimits) gap() time.Duration {
	if l.PerMinute == 0 {
		return 0
	}
	return time.Minute / time.Duration(l.PerMinute)
}

// otherOperators are the limits of operators that are not listed in largeOperators.
var otherOperators = destinationLimits{Connections: 20}

// largeOperators are limits that large operators are known to accept from a host with little
// reputation, by the registrable domain of their MX hosts. Some publish a number of connections;
// most answer 421 or 4.7 when they want less, and then the pace slows down by itself.
var largeOperators = map[string]destinationLimits{
	"google.com":            {Connections: 10, PerMinute: 1200, Pause: 5 * time.Minute},
	"googlemail.com":        {Connections: 10, PerMinute: 1200, Pause: 5 * time.Minute},
	"outlook.com":           {Connections: 10, PerMinute: 600, Pause: 10 * time.Minute},
	"mx.microsoft":          {Connections: 10, PerMinute: 600, Pause: 10 * time.Minute},
	"yahoodns.net":          {Connections: 5, PerMinute: 300, Pause: 10 * time.Minute},
	"icloud.com":            {Connections: 5, PerMinute: 300, Pause: 10 * time.Minute},
	"comcast.net":           {Connections: 5, PerMinute: 300, Pause: 15 * time.Minute},
	"gmx.net":               {Connections: 5, PerMinute: 200, Pause: 10 * time.Minute},
	"web.de":                {Connections: 5, PerMinute: 200, Pause: 10 * time.Minute},
	"kundenserver.de":       {Connections: 5, PerMinute: 200, Pause: 10 * time.Minute},
	"t-online.de":           {Connections: 3, PerMinute: 60, Pause: 15 * time.Minute},
	"orange.fr":             {Connections: 2, PerMinute: 60, Pause: 15 * time.Minute},
	"free.fr":               {Connections: 2, PerMinute: 60, Pause: 15 * time.Minute},
	"laposte.net":           {Connections: 2, PerMinute: 60, Pause: 15 * time.Minute},
	"mail.ru":               {Connections: 5, PerMinute: 300, Pause: 10 * time.Minute},
	"yandex.ru":             {Connections: 5, PerMinute: 300, Pause: 10 * time.Minute},
	"qq.com":                {Connections: 3, PerMinute: 60, Pause: 15 * time.Minute},
	"pphosted.com":          {Connections: 5, PerMinute: 300, Pause: 10 * time.Minute},
	"mimecast.com":          {Connections: 5, PerMinute: 300, Pause: 10 * time.Minute},
	"messagelabs.com":       {Connections: 5, PerMinute: 300, Pause: 10 * time.Minute},
	"barracudanetworks.com": {Connections: 5, PerMinute: 300, Pause: 10 * time.Minute},
	"zoho.com":              {Connections: 5, PerMinute: 300, Pause: 10 * time.Minute},
	"protonmail.ch":         {Connections: 5, PerMinute: 300, Pause: 5 * time.Minute},
}

const (
	operatorTTL     = time.Hour        // how long the operator of a domain is cached
	operatorTimeout = 10 * time.Second // timeout of a lookup
	maxOperators    = 4096             // cached domains
)

// An operatorCache caches which operator runs the hosts of a domain.
type operatorCache struct {
	mu    sync.Mutex
	known map[string]knownOperator // by domain
}

func newOperators() *operatorCache { return &operatorCache{known: map[string]knownOperator{}} }

type knownOperator struct {
	operator string
	expires  time.Time // when the operator must be looked up again
}

// destinations are the limits of mail operators.
type destinations struct {
	limits  map[string]destinationLimits // by operator
	relayed bool                         // a relay is configured for some operator
}

func newDestinations(list []core.Destination) destinations {
	o := destinations{limits: maps.Clone(largeOperators)}
	for _, d := range list {
		l := o.limitsOf(d.Operator)
		if d.Connections != nil {
			l.Connections = *d.Connections
		}
		if d.PerMinute != nil {
			l.PerMinute = *d.PerMinute
		}
		if d.Pause != nil {
			l.Pause = *d.Pause
		}
		l.Relay = d.Relay
		o.relayed = o.relayed || d.Relay != ""
		o.limits[d.Operator] = l
	}
	return o
}

// limitsOf returns the limits of an operator.
func (o destinations) limitsOf(operator string) destinationLimits {
	if l, known := o.limits[operator]; known {
		return l
	}
	return otherOperators
}

// applyDestination finds the operator of the recipient's hosts. It applies the operator's limits,
// or the relay that the configuration assigns to the operator.
func (s *Service) applyDestination(ctx context.Context, d *delivery) {
	direct, plan := d.route.Transport == core.ViaDirect, s.plan.Load()
	if !direct && (d.route.Transport != core.ViaRelay || d.route.own || !plan.destinations.relayed) {
		return
	}
	operator := s.operatorOf(ctx, core.DomainOfAddress(d.row.Recipient), d.row.Recipient)
	limits := plan.destinations.limitsOf(operator)
	for _, r := range plan.relays {
		if r.Name == limits.Relay {
			d.route = Route{Transport: core.ViaRelay, relay: r, wants: r.Name}
			return
		}
	}
	if direct {
		d.operator, d.limits = operator, limits
	}
}

// operatorOf returns the operator of the first MX host of a domain; if that cannot be looked up,
// the domain itself.
func (s *Service) operatorOf(ctx context.Context, domain, recipient string) string {
	o, now := s.operators, s.Now()
	o.mu.Lock()
	k, known := o.known[domain]
	o.mu.Unlock()
	if known && now.Before(k.expires) {
		return k.operator
	}
	host, sure := "", strings.HasPrefix(domain, "[")
	if !sure {
		ctx, cancel := context.WithTimeout(ctx, operatorTimeout)
		defer cancel()
		list, err := s.Resolver.LookupMX(ctx, domain+".")
		var failed *net.DNSError
		sure = err == nil || len(list) > 0 || errors.As(err, &failed) && failed.IsNotFound
		if len(list) > 0 {
			host = slices.MinFunc(list, func(a, b *net.MX) int { return cmp.Compare(a.Pref, b.Pref) }).Host
		}
	}
	operator := reputation.OperatorOf(host, recipient)
	if sure {
		o.mu.Lock()
		if len(o.known) >= maxOperators {
			clear(o.known)
		}
		o.known[domain] = knownOperator{operator, now.Add(operatorTTL)}
		o.mu.Unlock()
	}
	return operator
}
