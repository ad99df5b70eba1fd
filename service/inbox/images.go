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
	imagePath  = "/session/image/" // the path that image links begin with
	innerImage = "cid:"            // prefix of the source of an image within the message; the attachment's index follows

	imageLife      = time.Hour
	imageStep      = 5 * time.Minute // links made within the same step are identical, so that browsers cache the images
	imageTimeout   = 10 * time.Second
	imageLimit     = 5 << 20
	imageRedirects = 3
	imagesEach     = 8   // fetched at a time for one account
	imagesWaiting  = 200 // requests of one account that wait to fetch
	imagesAtOnce   = 64  // fetched at a time for all accounts
	imageHead      = 512 // bytes from which the image type is detected
	imageAgent     = "Mozilla/5.0 (compatible; image proxy)"
)

// An imageRef is the content of an image link: the image, its message, and when the link expires.
type imageRef struct {
	Account, Mailbox, Folder, UID string
	Expires                       int64  // Unix seconds
	Source                        string // an https: URL, or cid: and the index of the attachment
}

func (s *Service) imageExpiry() int64 { return s.Now().Truncate(imageStep).Add(imageLife).Unix() }

func (r imageRef) parts() []string {
	return []string{r.Account, r.Mailbox, r.Folder, r.UID, strconv.FormatInt(r.Expires, 10), r.Source}
}

// imageToken returns the token of a link. Anybody who has the token can fetch this one image, since
// the sandboxed frame has an opaque origin and sends no cookie.
func (s *Service) imageToken(r imageRef) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(strings.Join(r.parts(), "\n")))
	return text + "." + base64.RawURLEncoding.EncodeToString(s.Keys.Mac("image", r.parts()...)[:16])
}

// readImageToken parses and verifies a token of imageToken. The error is not_found for an invalid
// token, expired for one that has expired.
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

// An Image is an image to be shown. Its content type is detected from its bytes, and is never one
// that could run code. MaxAge is how long its link remains valid.
type Image struct {
	core.File
	MaxAge time.Duration
}

// OpenImage opens the image of a link: an attachment of the message, or a remote image, fetched
// within 10 seconds and up to 5 MiB, without revealing the reader to its host. The error is
// image_unavailable if it cannot be fetched or is not an image.
func (s *Service) OpenImage(ctx context.Context, token string) (*Image, error) {
	r, err := s.readImageToken(token)
	if err != nil {
		return nil, err
	}
	body, err := s.openImage(ctx, r)
	if err != nil {
		return nil, err
	}
	head := make([]byte, imageHead)
	n, err := io.ReadFull(body, head)
	kind := imageType(head[:n])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) || kind == "" {
		body.Close()
		return nil, noImage(errors.New("the content is not an image of a type that can be shown"))
	}
	out := &Image{MaxAge: time.Unix(r.Expires, 0).Sub(s.Now())}
	out.File = core.File{ContentType: kind, Size: -1, Body: readCloser{io.MultiReader(bytes.NewReader(head[:n]), body), body}}
	return out, nil
}

func noImage(cause error) *core.Error {
	return core.Errorf("image_unavailable", "The image could not be fetched.").Because(cause)
}

// readCloser reads from Reader and closes Closer.
type readCloser struct {
	io.Reader
	io.Closer
}

func (s *Service) openImage(ctx context.Context, r imageRef) (io.ReadCloser, error) {
	message := messagePicker{byUserID(core.Actor{AccountID: r.Account}, r.Mailbox), r.Folder, r.UID}
	place, inner := strings.CutPrefix(r.Source, innerImage)
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

// imageType returns the content type of a raster image by its first bytes (WHATWG MIME Sniffing
// 6.1, and AVIF); "" for anything else, SVG included.
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
				return errors.New("too many redirects")
			}
			return s.Guard.CheckURL(r.URL.String())
		},
	}
	spool := func() *core.Spool { return s.NewSpool(imageLimit) }
	slots := limit.NewSemaphore[string](imagesAtOnce, imagesEach)
	slots.MaxWaiting = imagesWaiting
	return &images{HTTP: client, spool: spool, slots: slots}
}

// Acquire waits for a slot for a fetch; release frees it.
func (m *images) Acquire(ctx context.Context, account string) (release func(), err error) {
	release, err = m.slots.Acquire(ctx, account)
	if errors.Is(err, limit.ErrBusy) {
		return nil, core.Errorf("rate_limited", "This account is loading too many images at once. Wait a moment.")
	}
	if err != nil {
		return nil, noImage(err)
	}
	return release, nil
}

// Fetch fetches an image with a request that does not reveal the reader.
func (m *images) Fetch(ctx context.Context, account, source string) (io.ReadCloser, error) {
	waiting, cancel := context.WithTimeout(ctx, imageTimeout)
	defer cancel()
	release, err := m.Acquire(waiting, account)
	if err != nil {
		return nil, err
	}
	whole := m.spool()
	if err := m.get(ctx, whole, source); err != nil {
		whole.Close()
		release()
		return nil, noImage(err)
	}
	return &imageBody{whole.Reader(), sync.OnceFunc(func() {
		whole.Close()
		release()
	})}, nil
}

// get downloads the whole image, so that a slow reader does not keep the connection to its host
// open.
func (m *images) get(ctx context.Context, to io.Writer, source string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, source, nil)
	if err != nil {
		return fmt.Errorf("fetch image %s: %w", source, err)
	}
	req.Header.Set("User-Agent", imageAgent)
	req.Header.Set("Accept", "image/avif,image/webp,image/png,image/jpeg,image/gif")
	resp, err := m.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ContentLength > imageLimit {
		return fmt.Errorf("fetch image %s: status %d, %d bytes", source, resp.StatusCode, resp.ContentLength)
	}
	if _, err := io.Copy(to, resp.Body); err != nil {
		return fmt.Errorf("fetch image %s: %w", source, err)
	}
	return nil
}

// An imageBody reads an image and releases its slot when it is closed.
type imageBody struct {
	io.Reader
	done func()
}

func (b *imageBody) Close() error {
	b.done()
	return nil
}
