package inbox

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	imagePath     = "/session/image/" // prefix of the paths of image links
	embeddedImage = "cid:"            // prefix of the source of an image that is an attachment; the attachment's index follows

	imageLinkTTL     = time.Hour
	imageExpiryStep  = 5 * time.Minute // expiry times are rounded to it, so that links made within a step are identical and browsers can cache the images
	imageTimeout     = 10 * time.Second
	maxImageBytes    = 5 << 20
	imageRedirects   = 3
	imagesPerAccount = 8   // images that are fetched at the same time for one account
	maxImagesWaiting = 200 // requests of one account that wait until they may fetch an image
	maxImageFetches  = 64  // images that are fetched at the same time for all accounts
	imageHeadBytes   = 512 // first bytes of an image, from which its type is detected
	imageUserAgent   = "Mozilla/5.0 (compatible; image proxy)"
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
	head := make([]byte, imageHeadBytes)
	n, err := io.ReadFull(body, head)
	kind := imageType(head[:n])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) || kind == "" {
		body.Close()
		return nil, imageUnavailable(errors.New("show image: the content is not an image of a supported type"))
	}
	out := &Image{MaxAge: time.Unix(r.Expires, 0).Sub(s.Now())}
	out.File = core.File{ContentType: kind, Size: -1, Body: readCloser{io.MultiReader(bytes.NewReader(head[:n]), body), body}}
	return out, nil
}

// imageUnavailable returns the error image_unavailable with its cause for the log.
func imageUnavailable(cause error) *core.Error {
	return core.Errorf("image_unavailable", "The image could not be fetched.").Because(cause)
}

// A readCloser reads from one stream, and closes another one.
type readCloser struct {
	io.Reader
	io.Closer
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

// imageType detects the content type of a raster image from its first bytes (WHATWG MIME Sniffing
// 6.1, and AVIF). It returns "" for everything else, including SVG.
func imageType(head []byte) string {
	if len(head) >= 12 && string(head[4:8]) == "ftyp" {
		if brand := string(head[8:12]); brand == "avif" || brand == "avis" {
			return "image/avif"
		}
		return ""
	}
	switch kind := http.DetectContentType(head); kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return kind
	}
	return ""
}

func (s *Service) newImages() *images {
	t := s.Guard.Transport(s.Resolver, s.Config.RootCAs)
	t.DisableCompression = true
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 32, 4
	t.IdleConnTimeout, t.TLSHandshakeTimeout = 10*time.Second, imageTimeout
	client := &http.Client{
		Timeout:   imageTimeout,
		Transport: t,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			r.Header.Del("Referer")
			if len(via) > imageRedirects {
				return errors.New("fetch image: too many redirects")
			}
			return s.Guard.CheckURL(r.URL.String())
		},
	}
	spool := func() *core.Spool { return s.NewSpool(maxImageBytes) }
	slots := limit.NewSemaphore[string](maxImageFetches, imagesPerAccount)
	slots.MaxWaiting = maxImagesWaiting
	return &images{HTTP: client, spool: spool, slots: slots}
}

// Acquire waits until the account may fetch an image. release must be called after the fetch.
func (m *images) Acquire(ctx context.Context, account string) (release func(), err error) {
	release, err = m.slots.Acquire(ctx, account)
	if errors.Is(err, limit.ErrBusy) {
		return nil, core.Errorf("rate_limited", "This account is loading too many images at once. Wait a moment.")
	}
	if err != nil {
		return nil, imageUnavailable(err)
	}
	return release, nil
}

// Fetch fetches an image for an account. The request contains nothing about the reader.
func (m *images) Fetch(ctx context.Context, account, source string) (io.ReadCloser, error) {
	waiting, cancel := context.WithTimeout(ctx, imageTimeout)
	defer cancel()
	release, err := m.Acquire(waiting, account)
	if err != nil {
		return nil, err
	}
	whole := m.spool()
	if err := m.download(ctx, whole, source); err != nil {
		whole.Close()
		release()
		return nil, imageUnavailable(err)
	}
	return &imageBody{whole.Reader(), sync.OnceFunc(func() {
		whole.Close()
		release()
	})}, nil
}

// download fetches the whole image before it is passed on, so that a slow reader does not keep the
// connection to the image's host open.
func (m *images) download(ctx context.Context, to io.Writer, source string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, source, nil)
	if err != nil {
		return fmt.Errorf("fetch image %s: %w", source, err)
	}
	req.Header.Set("User-Agent", imageUserAgent)
	req.Header.Set("Accept", "image/avif,image/webp,image/png,image/jpeg,image/gif")
	resp, err := m.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ContentLength > maxImageBytes {
		return fmt.Errorf("fetch image %s: the answer has status %d and %d bytes", source, resp.StatusCode, resp.ContentLength)
	}
	if _, err := io.Copy(to, resp.Body); err != nil {
		return fmt.Errorf("fetch image %s: %w", source, err)
	}
	return nil
}

// An imageBody reads a fetched image. Close lets the account fetch another one.
type imageBody struct {
	io.Reader
	done func()
}

func (b *imageBody) Close() error {
	b.done()
	return nil
}
