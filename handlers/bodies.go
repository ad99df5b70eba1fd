package handlers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/internal/jsonw"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
)

const (
	defaultMaxBody = 1 << 20 // maximum bytes of a body, unless the operation allows more

	// Limits of drainBody: bytes, the whole time, and the time without any bytes.
	maxDrainBytes    = 64 << 20
	drainTimeout     = 30 * time.Second
	drainIdleTimeout = time.Second
)

// bodyReader reads the bodies of requests. It writes a large body to a spool first, so that a slow
// client holds no memory. When the body is complete, it waits until there is memory for it.
type bodyReader struct{ svc *service.Service }

// read reads the body of a request, up to the limit of its operation. The caller must call done
// when it no longer uses the body or anything decoded from it. For a large body, read replaces c.r
// by a request whose context knows the memory that the body holds.
func (b *bodyReader) read(c *call) (body []byte, done func(), err error) {
	done = func() {}
	if c.r.Method == http.MethodGet || c.r.Body == nil {
		return nil, done, nil
	}
	maxBytes := max(c.op.Body, defaultMaxBody)
	if c.r.ContentLength > maxBytes {
		drainBody(c)
		return nil, done, tooLargeError(c.op, maxBytes)
	}
	if maxBytes == defaultMaxBody {
		body, err = io.ReadAll(&limitedReader{c.r.Body, maxBytes})
	} else {
		body, done, err = b.readLarge(c, maxBytes)
	}
	if errors.Is(err, errTooLarge) {
		drainBody(c)
	}
	if err = bodyError(c.op, maxBytes, err); err != nil {
		done()
		return nil, func() {}, err
	}
	if len(body) == 0 {
		return nil, done, nil
	}
	kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if text := c.op.File; err == nil && text != nil && kind == text.Media && utf8.Valid(body) {
		out := bytes.NewBuffer(make([]byte, 0, len(body)+len(body)/8+32))
		err = jsonw.Write(out, map[string]string{text.Field: string(body)})
		return out.Bytes(), done, err
	}
	if err != nil || kind != "application/json" {
		done()
		return nil, func() {}, core.Errorf("unsupported_media_type", "Send the body as JSON, with Content-Type: application/json.")
	}
	return body, done, nil
}

// tooLargeError returns the error for a body of more than maxBytes bytes.
func tooLargeError(o *api.Operation, maxBytes int64) error {
	return core.Errorf("payload_too_large", "The body is larger than the %d bytes that %s accepts. Send less at a time.", maxBytes, o.Name)
}

var (
	errCutBody  = errors.New("the connection failed before the whole request body arrived")
	errTooLarge = errors.New("the request body is larger than its limit")
)

// A limitedReader reads at most bytesLeft bytes. It returns errTooLarge if there are more.
type limitedReader struct {
	r         io.Reader
	bytesLeft int64
}

func (b *limitedReader) Read(p []byte) (int, error) {
	if int64(len(p)) > b.bytesLeft+1 {
		p = p[:b.bytesLeft+1]
	}
	n, err := b.r.Read(p)
	if int64(n) > b.bytesLeft {
		return int(b.bytesLeft), errTooLarge
	}
	b.bytesLeft -= int64(n)
	return n, err
}

// drainBody reads and discards the rest of a body, because many clients do not read the response
// before they have sent the whole request. It does nothing for clients that wait for 100 Continue,
// since they have not begun to send.
func drainBody(c *call) {
	if c.r.Header.Get("Expect") != "" {
		return
	}
	body, conn := io.LimitReader(c.r.Body, maxDrainBytes), http.NewResponseController(c.w)
	for began := time.Now(); time.Since(began) < drainTimeout; {
		if err := conn.SetReadDeadline(time.Now().Add(drainIdleTimeout)); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, body, 64<<10); err != nil {
			return
		}
	}
}

// bodyError turns an error of reading the body into the error for the client; nil stays nil.
func bodyError(o *api.Operation, maxBytes int64, err error) error {
	if errors.Is(err, errTooLarge) {
		return tooLargeError(o, maxBytes)
	}
	if errors.Is(err, errCutBody) || err != nil && maxBytes == defaultMaxBody {
		return core.Errorf("invalid_json", "The body is incomplete. Send it again.").Because(err)
	}
	return err
}

// readLarge reads a body of at most maxBytes bytes by way of a spool, as described at bodyReader.
func (b *bodyReader) readLarge(c *call, maxBytes int64) (body []byte, done func(), err error) {
	done = func() {}
	spool := b.svc.Core.NewSpool(maxBytes + 1)
	defer spool.Close()
	if _, err := io.Copy(spool, clientReader{&limitedReader{c.r.Body, maxBytes}}); err != nil {
		return nil, done, fmt.Errorf("write the request body to a spool: %w", err)
	}
	ctx, done, err := b.svc.Core.HoldLarge(c.r.Context(), spool.Size())
	if err != nil {
		return nil, done, err
	}
	c.r = c.r.WithContext(ctx)
	body = make([]byte, spool.Size())
	_, err = spool.ReadAt(body, 0)
	if err == io.EOF {
		err = nil
	}
	return body, done, err
}

// A clientReader adds errCutBody to errors of the connection, to distinguish them from errors of
// the disk.
type clientReader struct{ io.Reader }

func (r clientReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF && !errors.Is(err, errTooLarge) {
		err = errors.Join(errCutBody, err)
	}
	return n, err
}
