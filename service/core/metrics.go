package core

import (
	"time"

	"github.com/mailstead/mailstead/internal/metrics"
)

// Metrics are the counters of the whole installation. No label holds an address, a tenant or an id.
// Values that are measured on request, such as the depth of the queue, are in package health.
type Metrics struct {
	Registry metrics.Registry

	Received     *metrics.Counter // by result
	Deliveries   *metrics.Counter // by route and result
	Logins       *metrics.Counter // by protocol and result
	Requests     *metrics.Counter // by operation and code
	RequestTime  *metrics.Histogram
	DNSQueries   *metrics.Counter // by rcode
	DNSChecks    *metrics.Counter // by result
	CommitTime   *metrics.Histogram
	Webhooks     *metrics.Counter // by result
	JobsFinished *metrics.Counter // by kind and result
	SendAlerts   *metrics.Counter // by kind
	SendPauses   *metrics.Counter // by reason
}

// Values of the label result of received messages and of logins.
const (
	ReceivedAccepted = "accepted"
	ReceivedRejected = "rejected"
	ReceivedDeferred = "deferred"
	LoginOK          = "ok"
	LoginFailed      = "failed"
)

// NewMetrics registers all metrics.
func NewMetrics() *Metrics {
	const ms = time.Millisecond
	m := &Metrics{}
	r := &m.Registry
	m.Received = r.Counter("mailstead_received_messages_total", "Messages from other servers, by what was answered.", []string{"result"},
		ReceivedAccepted, ReceivedRejected, ReceivedDeferred)
	m.Deliveries = r.Counter("mailstead_deliveries_total", "Attempts to deliver a message to a recipient.", []string{"route", "result"})
	m.Logins = r.Counter("mailstead_logins_total", "Log-ins with a password or passkey.", []string{"protocol", "result"})
	m.Requests = r.Counter("mailstead_http_requests_total", "HTTP requests that were answered.", []string{"operation", "code"})
	m.RequestTime = r.Histogram("mailstead_http_request_duration_seconds", "How long operations of the API took.",
		ms, 2*ms, 5*ms, 10*ms, 25*ms, 50*ms, 100*ms, 250*ms, 500*ms, time.Second, 5*time.Second, 30*time.Second)
	m.DNSQueries = r.Counter("mailstead_dns_queries_total", "Queries that the DNS server answered.", []string{"rcode"})
	m.DNSChecks = r.Counter("mailstead_dns_checks_total", "Live checks of the records of domains.", []string{"result"}, "healthy", "failing", "unknown")
	m.CommitTime = r.Histogram("mailstead_commit_duration_seconds", "How long transactions of the store took, with their sync.",
		ms/2, ms, 2*ms, 5*ms, 10*ms, 25*ms, 50*ms, 100*ms, 250*ms, time.Second, 5*time.Second)
	m.SendAlerts = r.Counter("mailstead_sending_alerts_total", "Episodes that owners were told of.", []string{"kind"}, "limit", "bounces", "complaints", "blocked")
	m.SendPauses = r.Counter("mailstead_sending_pauses_total", "Mailboxes and domains that were paused.", []string{"reason"}, "bounces", "complaints")
	m.Webhooks = r.Counter("mailstead_webhook_deliveries_total", "Attempts to deliver an event to a webhook endpoint.", []string{"result"}, "success", "failed")
	m.JobsFinished = r.Counter("mailstead_jobs_finished_total", "Jobs that have ended.", []string{"kind", "result"})
	return m
}

// CountLogin counts a login; it has failed if err is not nil.
func (m *Metrics) CountLogin(protocol string, err error) {
	result := LoginOK
	if err != nil {
		result = LoginFailed
	}
	m.Logins.Add(protocol, result)
}
