package service

import (
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/jobs"
)

// kinds lists every kind of job that the service knows how to do.
func (s *Service) kinds() []jobs.Kind {
	return append(s.pullKinds(), []jobs.Kind{
		s.whileActive(s.copyKind()),
		s.arrivalKind(),
		s.recipientsKind(),
		s.whileActive(s.answerKind()),
		s.whileActive(s.tellKind()),
		s.announceKind(),
		s.wakeKind(),
		s.eraseKind("email_user_delete"),
		s.eraseKind("email_users_bulk_delete"),
		s.provisionKind(),
		s.setupKind(),
		s.routingKind("redirect_update", dnsprov.PurposeA),
		s.routingKind("forward_update", dnsprov.PurposeMX),
		s.domainDeleteKind(),
		s.claimKind(),
		s.claimsKind(),
		s.checkKind(),
		s.edgeSyncKind(),
		s.certificateKind(),
		s.certificateSweepKind(),
		s.forgotKind(),
		s.retentionKind(),
		s.threadPruneKind(),
		s.compactKind(),
		s.resignKind(),
		s.warmupKind(),
		s.policyKind(),
		s.tlsReportKind(),
		s.whileActive(s.readKind()),
		s.reportKind(),
		s.reportSweepKind(),
		s.whileActive(s.deliverKind(kindDeliver, localLanes, 0, 0)),
		s.whileActive(s.deliverKind(kindDirect, directLanes, directMost, directEach)),
		s.whileActive(s.deliverKind(kindRelay, relayLanes, relayMost, 0)),
	}...)
}

// register tells the queue every kind, and which of them come again by the clock.
func (s *Service) register() {
	for _, k := range s.kinds() {
		s.Queue.Handle(k)
	}
	s.Queue.Every("retention", time.Hour)
	s.Queue.Every("thread_prune", 24*time.Hour)
	s.Queue.Every("compact", time.Hour)
	s.Queue.Every("zones_resign", time.Hour)
	s.Queue.Every("tls_policies", time.Hour)
	s.Queue.Every("tls_reports", time.Hour)
	s.Queue.Every("dmarc_report_sweep", time.Hour) // where reports are off, for those that are counted already
	if s.Config.ACME != nil {
		s.Queue.Every("certificate_sweep", time.Hour)
	}
}
