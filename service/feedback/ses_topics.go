package feedback

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/store"
)

const (
	kindTopic     = "ses_topic"
	topicInterval = time.Hour // interval of the checks whether all domains report to a topic
)

// topicArgs are the arguments of a job that creates the topic of a relay's notices.
type topicArgs struct {
	Relay string `json:"relay"`
}

func (s *Service) topicKind() jobs.Kind {
	return jobs.Kind{Name: kindTopic, Work: s.makeTopic, Timeout: 10 * time.Minute}
}

// planTopics queues the topic jobs when the server starts. The topic of a relay is known once its
// job has run.
func (s *Service) planTopics() error {
	return s.Store.Update(func(tx *store.Tx) error {
		for _, r := range s.outbound.Relays() {
			key := kindTopic + " " + r.Name
			if err := s.Queue.CancelKey(tx, kindTopic, key); err != nil {
				return err
			}
			if r.KeyID == "" {
				continue
			}
			if _, err := s.Queue.Add(tx, jobs.New{Kind: kindTopic, Key: key, Lane: key, Args: topicArgs{r.Name}}); err != nil {
				return err
			}
		}
		return nil
	})
}

// makeTopic creates the topic of a relay's notices, and makes the domains hosted here report to it.
// The job runs again every topicInterval, for new domains.
func (s *Service) makeTopic(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[topicArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	i := slices.IndexFunc(s.outbound.Relays(), func(r *outbound.Relay) bool { return r.Name == args.Relay && r.KeyID != "" })
	if i < 0 {
		return nil, nil // the relay is no longer configured
	}
	r := s.outbound.Relays()[i]
	if !strings.HasPrefix(s.Config.BaseURL, "https://") {
		return nil, jobs.Permanent(fmt.Errorf("relay %s: SNS posts only to https, but this host is reached at %s", r.Name, s.Config.BaseURL))
	}
	var domains []string
	if err := s.Store.View(func(tx *store.Tx) error {
		domains = nil
		for d := range store.Domains.All(tx) {
			if d.Hosted() {
				domains = append(domains, d.Name)
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	transport := s.snsTransport(r)
	topic := &feedback.SESTopic{
		Region: r.Region, KeyID: r.KeyID, Secret: r.KeySecret, Name: topicName(s.Hostname(), r.Name), Endpoint: s.Config.BaseURL + "/hooks/ses/" + r.Name,
		SNS: r.SNSURL, SES: r.SESURL, HTTP: &http.Client{
			Transport: transport, Timeout: time.Minute,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}, Now: s.Now,
	}
	arn, err := topic.Make(ctx)
	if err != nil {
		return nil, err
	}
	if _, known := s.readers.Load(r.Name); !known { // Subscribe makes SNS request a confirmation at once
		reader, err := feedback.NewSES(arn, r.SNSURL, transport, s.Now)
		if err != nil {
			return nil, jobs.Permanent(err)
		}
		s.readers.Store(r.Name, feedback.Reader(reader))
	}
	if err := topic.Subscribe(ctx, arn, domains); err != nil {
		return nil, err
	}
	return nil, jobs.Snooze(s.Now().Add(topicInterval))
}

// topicName returns the name of the topic of a relay of this host.
func topicName(hostname, relay string) string {
	name := strings.Map(func(c rune) rune {
		if c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			return c
		}
		return '-'
	}, "mailstead-"+hostname+"-"+relay)
	return name[:min(len(name), 256)]
}
