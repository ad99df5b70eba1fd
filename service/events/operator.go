package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/webhooks"
)

// operatorArgs are the arguments of the job that posts an event to the operator's alert URL. The
// URL, which may contain a secret, stays in the settings.
type operatorArgs struct {
	EventID string `json:"event_id"`
}

// PlanOperatorPost plans a job that posts an event's envelope to [alerts] url, if that is set.
func (s *Service) PlanOperatorPost(tx *store.Tx, e *store.Event) error {
	if s.Settings().AlertURL == "" {
		return nil
	}
	_, err := s.Queue.Add(tx, jobs.New{Kind: "alert_post", Lane: "alert_post", Args: operatorArgs{e.ID}})
	return err
}

func (s *Service) operatorKind() jobs.Kind {
	return jobs.Kind{
		Name: "alert_post", Work: s.postToOperator, Max: webhookAttempts, Timeout: time.Minute,
		Backoff: func(attempt int, r float64) time.Duration {
			wait, _ := webhooks.RetryWait(attempt, r)
			return wait
		},
	}
}

func (s *Service) postToOperator(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[operatorArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var e *store.Event
	err = s.Store.View(func(tx *store.Tx) (err error) {
		e, err = store.Events.Get(tx, args.EventID)
		return err
	})
	settings := s.Settings()
	to := settings.AlertURL
	if errors.Is(err, store.ErrNotFound) || err == nil && to == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(envelopeOf(e, APIVersion))
	if err != nil {
		return nil, jobs.Permanent(fmt.Errorf("encode event %s: %w", e.ID, err))
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	status, err := s.PostAlert(ctx, settings, body)
	if err != nil {
		return nil, fmt.Errorf("post alert to [alerts] url: %w", err)
	}
	if status != "" {
		return nil, fmt.Errorf("post alert to [alerts] url: it answered %s", status)
	}
	return nil, nil
}

// PostAlert posts an envelope in JSON to the address of alerts in the settings. refused is the
// status of an answer that is not from 200 to 299, such as "404 Not Found".
func (s *Service) PostAlert(ctx context.Context, settings *core.Settings, body []byte) (refused string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, settings.AlertURL, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "Mailstead")
	transport := s.OperatorGuard(settings.AlertGuarded).Transport(s.Resolver, s.Config.RootCAs)
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection ends cleanly
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.Status, nil
	}
	return "", nil
}
