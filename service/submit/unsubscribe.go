package submit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// unsubscribeTimeout is the timeout of the request to the list's server.
const unsubscribeTimeout = 20 * time.Second

// oneClick is the value of List-Unsubscribe-Post, and the body of the request (RFC 8058 section 3).
const oneClick = "List-Unsubscribe=One-Click"

// Unsubscribed is the list server's answer.
type Unsubscribed struct {
	Message    string `json:"message" words:"ours" example:"The list's server has taken the request."` // For people; the text may change.
	HTTPStatus int    `json:"http_status"`
}

// UnsubscribeMessage unsubscribes a mailbox from the list that sent a message, by the one-click
// request of RFC 8058. The error is cannot_unsubscribe if the message does not offer that, if no
// valid DKIM signature covers the offer, or if the server does not answer.
func (s *Service) UnsubscribeMessage(ctx context.Context, who core.Actor, in inbox.MessageIn) (*Unsubscribed, error) {
	err := s.Store.View(func(tx *store.Tx) error {
		mb, err := core.ReadMailbox(tx, who, in.UserID)
		if err != nil {
			return err
		}
		return checkUnrestricted(tx, mb, who)
	})
	if err != nil {
		return nil, err
	}
	to, err := s.unsubscribeURL(ctx, who, in)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, unsubscribeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(oneClick))
	if err != nil {
		return nil, errCannotUnsubscribe("its address cannot be used: %s", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("User-Agent", "Mailstead")
	transport := s.Guard.Transport(s.Resolver, s.Config.RootCAs)
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		s.LogOf(ctx).Info("an unsubscribe request failed", "mailbox", in.UserID, "error", err)
		return nil, errCannotUnsubscribe("the list's server does not answer. Try again later")
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // some servers report an error if the answer is not read
	out := &Unsubscribed{"The list's server has taken the request.", resp.StatusCode}
	if resp.StatusCode/100 != 2 {
		out.Message = fmt.Sprintf("The list's server answered %d, so the mailbox may still be on the list.", resp.StatusCode)
	}
	return out, nil
}

func errCannotUnsubscribe(format string, args ...any) error {
	return core.Errorf("cannot_unsubscribe", "This message cannot be unsubscribed from: "+format+".", args...)
}

// unsubscribeURL returns the https address of a message's one-click offer.
func (s *Service) unsubscribeURL(ctx context.Context, who core.Actor, in inbox.MessageIn) (string, error) {
	root, blob, _, err := s.rooms.Inbox.ReadStored(who, in)
	if err != nil {
		return "", err
	}
	defer blob.Close()
	headers, err := msg.Headers(blob, root)
	if err != nil {
		return "", fmt.Errorf("read message %s of %s: %w", in.MessageID, in.UserID, err)
	}
	var offers, posts []string
	for _, h := range headers {
		switch strings.ToLower(h.Name) {
		case "list-unsubscribe":
			offers = append(offers, h.Value)
		case "list-unsubscribe-post":
			posts = append(posts, h.Value)
		}
	}
	if len(offers) != 1 || len(posts) != 1 || !strings.EqualFold(strings.TrimSpace(posts[0]), oneClick) {
		return "", errCannotUnsubscribe("it does not offer that by one click")
	}
	to := httpsAddress(offers[0])
	if to == "" {
		return "", errCannotUnsubscribe("it does not offer that by one click, over https")
	}
	if err := s.Guard.CheckURL(to); err != nil {
		return "", errCannotUnsubscribe("its address is not one of the public internet")
	}
	verifier := s.Verifier()
	covered, err := verifier.Covers(ctx, blob, blob.Size(), "List-Unsubscribe", "List-Unsubscribe-Post")
	if err != nil && !errors.Is(err, context.Canceled) {
		return "", fmt.Errorf("verify message %s of %s: %w", in.MessageID, in.UserID, err)
	}
	if !covered {
		return "", errCannotUnsubscribe("no valid DKIM signature covers its offer, so anybody may have written it")
	}
	return to, nil
}

// httpsAddress returns the first https address of a List-Unsubscribe field (RFC 2369 section 3.2);
// "" if it has none.
func httpsAddress(field string) string {
	for rest := field; ; {
		_, after, ok := strings.Cut(rest, "<")
		if !ok {
			return ""
		}
		inside, next, ok := strings.Cut(after, ">")
		if !ok {
			return ""
		}
		text := strings.Join(strings.Fields(inside), "")
		if u, err := url.Parse(text); err == nil && strings.EqualFold(u.Scheme, "https") && u.Host != "" && u.User == nil {
			return text
		}
		rest = next
	}
}
