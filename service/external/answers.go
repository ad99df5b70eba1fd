package external

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

const maxAnswerTries = 8 // attempts of a remote_answer job, within about two hours

// answerKind returns the kind of job that marks messages as answered on the server of an external
// mailbox.
func (s *Service) answerKind() jobs.Kind {
	return jobs.Kind{
		Name: inbox.KindRemoteAnswer, Work: s.answerRemote, Max: maxAnswerTries, Timeout: changeTimeout + 10*time.Second, PerLane: PullsPerHost,
		Most: MaxCopies, MostEach: MaxCopiesPerAccount, Backoff: FailureWait,
	}
}

// answerRemote works on a remote_answer job.
func (s *Service) answerRemote(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[inbox.AnswerArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var mb *store.Mailbox
	err = s.Store.View(func(tx *store.Tx) (err error) {
		mb, err = core.LiveMailbox(tx, args.UserID)
		if err != nil || mb == nil || mb.External == nil {
			return err
		}
		box, err := core.RemoteBox(tx, mb)
		if err == nil && box.UIDValidity != args.UIDValidity {
			mb = nil // the server has given the messages other UIDs
		}
		return err
	})
	if err != nil || mb == nil || mb.External == nil {
		return nil, err
	}
	_, _, err = s.Mark(ctx, mb, slices.Clone(args.UIDs), pull.FlagChange{Answered: new(true)})
	switch {
	case inbox.IsNotFound(err):
		return nil, nil
	case errors.Is(err, pull.ErrLogin), errors.Is(err, pull.ErrRefused):
		return nil, jobs.Permanent(err)
	}
	return nil, err
}
