package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/mailstead/mailstead/service"
)

const (
	defaultBody   = 1 << 20
	largeInMemory = largestSend // bytes of bodies over defaultBody that are in memory at a time
	largeWait     = time.Minute // that one waits for its turn

	// Of a body that is too large, this much is thrown away before the answer, while it comes.
	drainMost  = 64 << 20
	drainFor   = 30 * time.Second
	drainPause = time.Second
)

// bodies reads what requests carry. A large body takes several times its size while it is decoded
// and a message is made of it; so it comes to a spool first, however slowly, and waits there for
// its turn.
type bodies struct {
	svc   *service.Service
	large *semaphore.Weighted // by bytes
}

func newBodies(svc *service.Service) *bodies {
	return &bodies{svc: svc, large: semaphore.NewWeighted(largeInMemory)}
}

// read reads the request's body within the operation's bound. done must be called when it is not
// used any more.
func (b *bodies) read(c *call) (body []byte, done func(), err error) {
	done = func() {}
	if c.r.Method == http.MethodGet || c.r.Body == nil {
		return nil, done, nil
	}
	most := max(c.op.body, defaultBody)
	if c.r.ContentLength > most {
		drain(c)
		return nil, done, tooLarge(c.op, most)
	}
	if most == defaultBody {
		body, err = io.ReadAll(&bounded{c.r.Body, most})
	} else {
		body, done, err = b.readLarge(c, most)
	}
	if errors.Is(err, errOver) {
		drain(c)
	}
	if err = unreadable(c.op, most, err); err != nil {
		done()
		return nil, func() {}, err
	}
	if len(body) == 0 {
		return nil, done, nil
	}
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		done()
		return nil, func() {}, service.Errorf(415, "unsupported_media_type", "Send the body as JSON, with Content-Type: application/json.")
	}
	return body, done, nil
}

func tooLarge(o *op, most int64) error {
	return service.Errorf(413, "payload_too_large", "The body is larger than the %d bytes that %s takes. Send less at a time.", most, o.name)
}

var (
	errCutBody = errors.New("the body was cut")      // it did not come whole
	errOver    = errors.New("the body is too large") // it has more than was allowed
)

// A bounded reader reads at most left bytes, and fails where there are more.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if int64(n) > b.left {
		return int(b.left), errOver
	}
	b.left -= int64(n)
	return n, err
}

// drain reads on, since many clients see no answer before they have written all of their request.
// Those that wait for 100 Continue are told at once.
func drain(c *call) {
	if c.r.Header.Get("Expect") != "" {
		return
	}
	body, conn := io.LimitReader(c.r.Body, drainMost), http.NewResponseController(c.w)
	for began := time.Now(); time.Since(began) < drainFor; {
		if err := conn.SetReadDeadline(time.Now().Add(drainPause)); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, body, 64<<10); err != nil {
			return
		}
	}
}

// unreadable is what the client is told of a body that could not be read.
func unreadable(o *op, most int64, err error) error {
	if errors.Is(err, errOver) {
		return tooLarge(o, most)
	}
	if errors.Is(err, errCutBody) || err != nil && most == defaultBody {
		return service.Errorf(400, "invalid_json", "The body ended before it was whole. Send it again.").Because(err)
	}
	return err
}

func (b *bodies) readLarge(c *call, most int64) (body []byte, done func(), err error) {
	done = func() {}
	spool := b.svc.NewSpool(most + 1)
	defer spool.Close()
	if _, err := io.Copy(spool, cutReader{&bounded{c.r.Body, most}}); err != nil {
		return nil, done, fmt.Errorf("keep the body: %w", err)
	}
	if spool.Size() > defaultBody {
		if done, err = b.enter(c.r.Context(), spool.Size()); err != nil {
			return nil, func() {}, err
		}
	}
	body = make([]byte, spool.Size())
	_, err = spool.ReadAt(body, 0)
	if err == io.EOF {
		err = nil
	}
	return body, done, err
}

// enter waits for a large body's turn.
func (b *bodies) enter(ctx context.Context, size int64) (leave func(), err error) {
	limited, cancel := context.WithTimeout(ctx, largeWait)
	defer cancel()
	size = min(size, largeInMemory)
	err = b.large.Acquire(limited, size)
	switch {
	case err == nil:
		return func() { b.large.Release(size) }, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	e := service.Errorf(http.StatusTooManyRequests, "rate_limited", "Too many large messages are being taken. Try again in a moment.")
	e.RetryAfter = 10 * time.Second
	return nil, e
}

// A cutReader tells errors of the client's connection from those of the disk.
type cutReader struct{ io.Reader }

func (r cutReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF && !errors.Is(err, errOver) {
		err = errors.Join(errCutBody, err)
	}
	return n, err
}
