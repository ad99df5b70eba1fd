// Package images fetches images that messages refer to, for their readers.
package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/service/core"
)

const (
	Timeout    = 10 * time.Second // for one image
	MaxBytes   = 5 << 20          // of an image
	PerAccount = 8                // images that are fetched at the same time for one account
	MaxWaiting = 200              // requests of one account that wait until they may fetch an image

	headBytes    = 512 // first bytes of an image, from which its type is detected
	maxFetches   = 64  // images that are fetched at the same time for all accounts
	maxRedirects = 3
	userAgent    = "Mozilla/5.0 (compatible; image proxy)"
)

// A Fetcher fetches remote images and limits how many are fetched at the same time.
type Fetcher struct {
	HTTP  *http.Client
	Slots *limit.Semaphore[string] // by account ID
	spool func() *core.Spool
}

// Unavailable returns the error image_unavailable with its cause for the log.
func Unavailable(cause error) *core.Error {
	return core.Errorf("image_unavailable", "The image could not be fetched.").Because(cause)
}

// New returns a Fetcher that uses no addresses which tenants must not use.
func New(s *core.Core) *Fetcher {
	t := s.Guard.Transport(s.Resolver, s.Config.RootCAs)
	t.DisableCompression = true
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 32, 4
	t.IdleConnTimeout, t.TLSHandshakeTimeout = 10*time.Second, Timeout
	client := &http.Client{
		Timeout:   Timeout,
		Transport: t,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			r.Header.Del("Referer")
			if len(via) > maxRedirects {
				return errors.New("fetch image: too many redirects")
			}
			return s.Guard.CheckURL(r.URL.String())
		},
	}
	spool := func() *core.Spool { return s.NewSpool(MaxBytes) }
	slots := limit.NewSemaphore[string](maxFetches, PerAccount)
	slots.MaxWaiting = MaxWaiting
	return &Fetcher{HTTP: client, spool: spool, Slots: slots}
}

// Acquire waits until the account may fetch an image. release must be called after the fetch.
func (m *Fetcher) Acquire(ctx context.Context, account string) (release func(), err error) {
	release, err = m.Slots.Acquire(ctx, account)
	if errors.Is(err, limit.ErrBusy) {
		return nil, core.Errorf("rate_limited", "This account is loading too many images at once. Wait a moment.")
	}
	if err != nil {
		return nil, Unavailable(err)
	}
	return release, nil
}

// Fetch fetches an image for an account. The request contains nothing about the reader.
func (m *Fetcher) Fetch(ctx context.Context, account, source string) (io.ReadCloser, error) {
	waiting, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	release, err := m.Acquire(waiting, account)
	if err != nil {
		return nil, err
	}
	whole := m.spool()
	if err := m.download(ctx, whole, source); err != nil {
		whole.Close()
		release()
		return nil, Unavailable(err)
	}
	return &body{whole.Reader(), sync.OnceFunc(func() {
		whole.Close()
		release()
	})}, nil
}

// download fetches the whole image before it is passed on, so that a slow reader does not keep the
// connection to the image's host open.
func (m *Fetcher) download(ctx context.Context, to io.Writer, source string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, source, nil)
	if err != nil {
		return fmt.Errorf("fetch image %s: %w", source, err)
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept", "image/avif,image/webp,image/png,image/jpeg,image/gif")
	resp, err := m.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ContentLength > MaxBytes {
		return fmt.Errorf("fetch image %s: the answer has status %d and %d bytes", source, resp.StatusCode, resp.ContentLength)
	}
	if _, err := io.Copy(to, resp.Body); err != nil {
		return fmt.Errorf("fetch image %s: %w", source, err)
	}
	return nil
}

// A body reads a fetched image. Close lets the account fetch another one.
type body struct {
	io.Reader
	done func()
}

func (b *body) Close() error {
	b.done()
	return nil
}

// Detect detects the content type of an image. whole reads all of it, and closes body. If it is no
// image of a supported type, Detect closes body and returns image_unavailable.
func Detect(body io.ReadCloser) (whole io.ReadCloser, kind string, err error) {
	head := make([]byte, headBytes)
	n, err := io.ReadFull(body, head)
	kind = typeOf(head[:n])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) || kind == "" {
		body.Close()
		return nil, "", Unavailable(errors.New("show image: the content is not an image of a supported type"))
	}
	return readCloser{io.MultiReader(bytes.NewReader(head[:n]), body), body}, kind, nil
}

// A readCloser reads from one stream, and closes another one.
type readCloser struct {
	io.Reader
	io.Closer
}

// typeOf detects the content type of a raster image from its first bytes (WHATWG MIME Sniffing
// 6.1, and AVIF). It returns "" for everything else, including SVG.
func typeOf(head []byte) string {
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
