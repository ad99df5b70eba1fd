package inbox

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/view"
	"github.com/mailstead/mailstead/service/core"
)

// ViewIn names a message to be shown in a browser, and how.
type ViewIn struct {
	UserID string `path:"user_id"`
	UID    string `path:"uid"`
	Images string `query:"images" enum:"0|1"` // 1: images that lie elsewhere too
	Theme  string `query:"theme" enum:"light|dark"`
}

// ViewMessage makes a document of one message, whoever may read it. It does not mark it read.
func (s *Service) ViewMessage(_ context.Context, who core.Actor, in ViewIn) (*view.Document, error) {
	o, err := s.openMessage(byUserID(who, in.UserID), in.UID)
	if err != nil {
		return nil, err
	}
	defer o.blob.Close()
	body, err := msg.ReadRawBody(o.blob, o.root, bodyShown)
	if err != nil {
		return nil, fmt.Errorf("message %s of %s: %w", in.UID, o.shown.Mailbox, err)
	}
	shown := view.Options{Title: o.shown.Subject, Dark: in.Theme == "dark", More: body.Truncated, Image: s.imageLinks(who, o, in.Images == "1")}
	if body.HasHTML {
		return view.HTML(body.HTML, shown), nil
	}
	return view.Text(body.Text, shown), nil
}

// imageLinks gives the addresses of the images of a message: those within it, and, if remote says
// so, those elsewhere.
func (s *Service) imageLinks(who core.Actor, o *openedMessage, remote bool) func(src string) string {
	inner := map[string]int{}
	for _, a := range msg.Attachments(o.root) {
		if a.ContentID != "" && strings.HasPrefix(a.ContentType, "image/") && !strings.Contains(a.ContentType, "svg") {
			inner[a.ContentID] = a.Index
		}
	}
	expires := s.imageExpiry()
	return func(src string) string {
		scheme, rest, _ := strings.Cut(src, ":")
		ref := imageRef{Account: who.AccountID, Mailbox: o.shown.UserID, UID: o.shown.UID, Expires: expires}
		if strings.EqualFold(scheme, "cid") {
			id, err := url.PathUnescape(rest)
			index, ok := inner[id]
			if err != nil || !ok {
				return ""
			}
			ref.Source = innerImage + strconv.Itoa(index)
		} else if ref.Source = s.remoteImage(src); ref.Source == "" || !remote {
			return ""
		}
		return imagePath + s.imageToken(ref)
	}
}

// remoteImage is the address of an image elsewhere as it is fetched; "" if nobody may fetch it.
func (s *Service) remoteImage(src string) string {
	u, err := url.Parse(src)
	if err != nil {
		return ""
	}
	u.Fragment, u.RawFragment = "", ""
	if text := u.String(); s.Guard.CheckURL(text) == nil {
		return text
	}
	return ""
}
