package inbox

import (
	"context"
	"crypto/hmac"
	"encoding/base64"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/images"
	"github.com/mailstead/mailstead/store"
)

const (
	imagePath     = "/session/image/" // prefix of the paths of image links
	embeddedImage = "cid:"            // prefix of the source of an image that is an attachment; the attachment's index follows

	imageLinkTTL    = time.Hour
	imageExpiryStep = 5 * time.Minute // expiry times are rounded to it, so that links made within a step are identical and browsers can cache the images
)

// An imageRef is the content of the token in an image link: which image of which message, and when
// the link expires.
type imageRef struct {
	Account, Mailbox, Folder, UID string
	Expires                       int64  // Unix seconds
	Source                        string // an https: URL, or cid: and the index of the attachment
}

func (s *Service) imageExpiry() int64 {
	return s.Now().Truncate(imageExpiryStep).Add(imageLinkTTL).Unix()
}

func (r imageRef) tokenParts() []string {
	return []string{r.Account, r.Mailbox, r.Folder, r.UID, strconv.FormatInt(r.Expires, 10), r.Source}
}

// imageToken returns the token of an image link. Whoever has the token can fetch this one image
// without a session, because the sandboxed frame that shows the message sends no cookies.
func (s *Service) imageToken(r imageRef) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(strings.Join(r.tokenParts(), "\n")))
	return text + "." + base64.RawURLEncoding.EncodeToString(s.Keys.Mac("image", r.tokenParts()...)[:16])
}

// readImageToken verifies and parses a token that imageToken made. The error is not_found if the
// token is invalid, and expired if it has expired.
func (s *Service) readImageToken(token string) (r imageRef, err error) {
	wrong := core.Errorf("not_found", "There is no such image.")
	text, _, _ := strings.Cut(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	parts := strings.SplitN(string(raw), "\n", 6)
	if err != nil || len(parts) != 6 {
		return r, wrong
	}
	r = imageRef{Account: parts[0], Mailbox: parts[1], Folder: parts[2], UID: parts[3], Source: parts[5]}
	r.Expires, err = strconv.ParseInt(parts[4], 10, 64)
	if err != nil || !hmac.Equal([]byte(token), []byte(s.imageToken(r))) {
		return r, wrong
	}
	if s.Now().Unix() >= r.Expires {
		return r, core.Errorf("expired", "This image link has expired. Open the message again.")
	}
	return r, nil
}

// An Image is an open image that is to be shown. Its content type is detected from its bytes, and
// is never one that can contain scripts. MaxAge is how long its link remains valid.
type Image struct {
	core.File
	MaxAge time.Duration
}

// OpenImage opens the image of a link: an attachment of the message, or a remote image. A remote
// image is fetched within 10 seconds and may have up to 5 MiB. Its host does not learn who reads
// the message. The error is image_unavailable if it cannot be fetched or is not an image.
func (s *Service) OpenImage(ctx context.Context, token string) (*Image, error) {
	r, err := s.readImageToken(token)
	if err != nil {
		return nil, err
	}
	body, err := s.openImage(ctx, r)
	if err != nil {
		return nil, err
	}
	whole, kind, err := images.Detect(body)
	if err != nil {
		return nil, err
	}
	out := &Image{MaxAge: time.Unix(r.Expires, 0).Sub(s.Now())}
	out.File = core.File{ContentType: kind, Size: -1, Body: whole}
	return out, nil
}

func (s *Service) openImage(ctx context.Context, r imageRef) (io.ReadCloser, error) {
	message := messagePicker{byUserID(core.Actor{AccountID: r.Account}, r.Mailbox), r.Folder, r.UID}
	place, inner := strings.CutPrefix(r.Source, embeddedImage)
	if !inner {
		err := s.Store.View(func(tx *store.Tx) error {
			_, _, _, err := message.find(tx)
			return err
		})
		if err != nil {
			return nil, err
		}
		return s.images.Fetch(ctx, r.Account, r.Source)
	}
	o, err := s.openMessage(message)
	if err != nil {
		return nil, err
	}
	all := msg.Attachments(o.root)
	i, err := strconv.Atoi(place)
	if err != nil || i < 0 || i >= len(all) {
		o.blob.Close()
		return nil, core.NotFound("image")
	}
	return blobReader{msg.Open(o.blob, all[i].Part), o.blob}, nil
}
